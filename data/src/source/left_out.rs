//! What stands in a folder of text and is not read, and why.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

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
    /// A file of text that cannot be read: in another encoding, broken in its compression, or not readable to the user.
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
    pub(super) fn new(path: &Path, kind: LeftOutKind, reason: String) -> Self {
        Self { name: path.display().to_string(), kind, reason }
    }

    /// Each kind of `all` with its number and the first of it.
    pub fn told(all: &[Self]) -> Vec<String> {
        let mut kinds: Vec<LeftOutKind> = all.iter().map(|one| one.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let told = kinds.into_iter().map(|kind| {
            let of_kind: Vec<&Self> = all.iter().filter(|one| one.kind == kind).collect();
            let first = if of_kind.len() == 1 { "" } else { ", the first" };
            format!("{}{first}: {}", Counted(of_kind.len(), kind), of_kind[0].reason)
        });
        told.collect()
    }
}

/// A number of one kind, in words.
struct Counted(usize, LeftOutKind);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, kind) = self;
        let [one, more] = match kind {
            LeftOutKind::Empty => ["empty file", "empty files"],
            LeftOutKind::Binary => ["file that is no text", "files that are no text"],
            LeftOutKind::Text => ["text file that cannot be read", "text files that cannot be read"],
            LeftOutKind::JsonLines => ["JSON Lines file that cannot be used", "JSON Lines files that cannot be used"],
            LeftOutKind::Parquet => ["Parquet file that cannot be used", "Parquet files that cannot be used"],
            LeftOutKind::Folder => ["folder that cannot be read", "folders that cannot be read"],
            LeftOutKind::Run => ["run", "runs"],
            LeftOutKind::Prepared => ["prepared text", "prepared texts"],
        };
        write!(f, "{number} {}", if *number == 1 { one } else { more })
    }
}
