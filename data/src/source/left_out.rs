//! What stands in a folder of text and is not read, and why; among it the folders that these
//! programs wrote, which are no text to learn from, whatever text is in them; and so how a prepared
//! folder is known (`MANIFEST`, `is_prepared`), for those who write and open one too.

use crate::tokens::is_token_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, fs::File, io::BufReader, path::Path};

/// A file or folder inside a folder of text that is not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Where it is.
    pub name: String,
    /// What it is.
    pub kind: LeftOutKind,
    /// Why it is not read, in a line that names it.
    pub reason: String,
}

/// Kinds of what is left out, told together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOutKind {
    /// A file without a byte.
    Empty,
    /// A file that is no text.
    Binary,
    /// A file of text that cannot be read: in another encoding, broken in its compression, or not
    /// readable to the user.
    Text,
    /// JSON Lines without the field, or broken.
    JsonLines,
    /// Parquet without the column, or broken.
    Parquet,
    /// A folder that the user may not look into.
    Folder,
    /// The folder of a run.
    Run,
    /// A folder that `prepare` wrote.
    Prepared,
}

impl LeftOut {
    /// Each kind of `all` with its number and the first of it.
    pub fn told(all: &[Self]) -> Vec<String> {
        let mut kinds: BTreeMap<LeftOutKind, Vec<&str>> = BTreeMap::new();
        for Self { kind, reason, .. } in all {
            kinds.entry(*kind).or_default().push(reason);
        }
        let told = kinds.into_iter().map(|(kind, reasons)| match (kind.words(), reasons.as_slice()) {
            ([one, _], [reason]) => format!("1 {one}: {reason}"),
            ([_, more], reasons) => format!("{} {more}, the first: {}", reasons.len(), reasons[0]),
        });
        told.collect()
    }
}

impl LeftOutKind {
    /// One of the kind, and several, in words.
    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Empty => ["empty file", "empty files"],
            Self::Binary => ["file that is no text", "files that are no text"],
            Self::Text => ["text file that cannot be read", "text files that cannot be read"],
            Self::JsonLines => ["JSON Lines file that cannot be used", "JSON Lines files that cannot be used"],
            Self::Parquet => ["Parquet file that cannot be used", "Parquet files that cannot be used"],
            Self::Folder => ["folder that cannot be read", "folders that cannot be read"],
            Self::Run => ["run", "runs"],
            Self::Prepared => ["prepared text", "prepared texts"],
        }
    }
}

/// The name of what a prepared folder says about itself.
pub const MANIFEST: &str = "manifest.json";

/// Whether a text was prepared into this folder, or began to be.
pub fn is_prepared(folder: &Path) -> bool {
    let manifest =
        || -> Option<Value> { serde_json::from_reader(BufReader::new(File::open(folder.join(MANIFEST)).ok()?)).ok() };
    // Two keys tell our manifest from any other file of that name.
    let is_ours = |keys: Value| keys["format_version"].is_u64() && keys["tokenizer_checksum"].is_string();
    // Without its manifest, or with a damaged one, the folder is known by the tokens, which are
    // written first.
    is_token_file(&folder.join("train.bin")) || manifest().is_some_and(is_ours)
}

/// Which of the folders that are no text this is; `None` for any other.
pub fn kind_of_folder(folder: &Path) -> Option<LeftOutKind> {
    let has = |name: &str| folder.join(name).exists();
    if is_prepared(folder) {
        Some(LeftOutKind::Prepared)
    } else if has("config.toml") && (has("metrics.jsonl") || has("checkpoints") || has(".lock")) {
        Some(LeftOutKind::Run)
    } else {
        None
    }
}
