//! The folders, pages and recipes that these programs wrote, and by what they are known: whatever text
//! is in them, they are no text to learn from.

use super::{left_out::LeftOutKind, start::Start};
use crate::tokens::is_token_file;
use serde_json::Value;
use std::{fs::File, io::BufReader, path::Path};

/// The name of what a prepared folder says about itself.
pub const MANIFEST: &str = "manifest.json";

/// Its files of tokens, training first.
pub const TOKEN_FILES: [&str; 2] = ["train.bin", "val.bin"];

/// Whether a text was prepared into this folder, or began to be.
pub fn is_prepared(folder: &Path) -> bool {
    let manifest =
        || -> Option<Value> { serde_json::from_reader(BufReader::new(File::open(folder.join(MANIFEST)).ok()?)).ok() };
    // Two keys tell our manifest from any other file of that name.
    let is_ours = |keys: Value| keys["format_version"].is_u64() && keys["tokenizer_checksum"].is_string();
    // Without its manifest, or with a damaged one, the folder is known by the tokens, which come
    // first.
    is_token_file(&folder.join(TOKEN_FILES[0])) || manifest().is_some_and(is_ours)
}

/// What stands in the head of every page that these programs write.
const PAGE_MARK: &str = "<meta name=\"generator\" content=\"ember-page\">";

/// What a recipe begins with that a plan wrote.
pub const RECIPE_HEAD: &str = "# Planned by ember-train for";

/// Whether a file that begins so is a page or a recipe that these programs wrote. Who writes about
/// such pages has their marks elsewhere than in the head of one.
pub fn is_own(start: &Start) -> bool {
    const PAGE: &str = "<!doctype html>";
    let text = start.text();
    let is_page = text.get(..PAGE.len()).is_some_and(|head| head.eq_ignore_ascii_case(PAGE));
    is_page && text.contains(PAGE_MARK) || text.starts_with(RECIPE_HEAD)
}

/// Which of the folders that these programs wrote this is; `None` for any other. A run's files are
/// named again here: what names them (`run_folder` of ember-decoding) lies above this crate.
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
