//! Recognises the folders, pages and recipes that these programs wrote, whose text must not become
//! training text.

use super::{left_out::LeftOutKind, start::Start};
use crate::tokens::is_token_file;
use ember_host::files::open_regular;
use serde_json::Value;
use std::{io::BufReader, path::Path};

/// The name of a prepared folder's manifest.
pub const MANIFEST: &str = "manifest.json";

/// The token files of a prepared folder, training first.
pub const TOKEN_FILES: [&str; 2] = ["train.bin", "val.bin"];

/// Whether this is a prepared folder, finished or not.
pub fn is_prepared(folder: &Path) -> bool {
    let manifest = || -> Option<Value> {
        serde_json::from_reader(BufReader::new(open_regular(&folder.join(MANIFEST)).ok()?)).ok()
    };
    // Two keys distinguish our manifest from other files of that name.
    let is_ours = |keys: Value| keys["format_version"].is_u64() && keys["tokenizer_checksum"].is_string();
    // The token files are written before the manifest, so they identify a folder whose manifest is
    // missing or damaged.
    is_token_file(&folder.join(TOKEN_FILES[0])) || manifest().is_some_and(is_ours)
}

/// In the head of every page that these programs write.
const PAGE_MARK: &str = "<meta name=\"generator\" content=\"ember-page\">";

/// The beginning of a recipe that `plan` wrote.
pub const RECIPE_HEAD: &str = "# Planned by ember-train for";

/// Whether these programs wrote the page or recipe that begins like this. An article about such
/// pages may quote their marks, but not in its own head.
pub fn is_own(start: &Start) -> bool {
    const PAGE: &str = "<!doctype html>";
    let text = start.text();
    let is_page = text.get(..PAGE.len()).is_some_and(|head| head.eq_ignore_ascii_case(PAGE));
    is_page && text.contains(PAGE_MARK) || text.starts_with(RECIPE_HEAD)
}

/// Which kind of folder this is, if these programs wrote it. The names of a run's files are
/// repeated here: they are defined in a crate above this one (`run_folder` of ember-decoding).
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
