//! Folders that these programs wrote: no text to learn from, whatever text is in them.

use super::left_out::LeftOutKind;
use crate::tokens::is_token_file;
use serde_json::Value;
use std::{fs::File, io::BufReader, path::Path};

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
pub fn kind(folder: &Path) -> Option<LeftOutKind> {
    let has = |name: &str| folder.join(name).exists();
    if is_prepared(folder) {
        Some(LeftOutKind::Prepared)
    } else if has("config.toml") && (has("metrics.jsonl") || has("checkpoints") || has(".lock")) {
        Some(LeftOutKind::Run)
    } else {
        None
    }
}
