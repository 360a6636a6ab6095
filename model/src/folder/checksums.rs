//! `checksums.json`: the length and xxh3 hash of every file in a folder, so that damage is found
//! before anything trains on it.

use std::{collections::BTreeMap, fs, path::Component, path::Path};

use ember_host::{file_error::At, files};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

use super::{config::GENERATION, error::FolderError, error::Result, files::paths, files::write_json};

const FILE: &str = "checksums.json";

/// The model card: a folder's description for people, who may rewrite it.
pub const CARD: &str = "README.md";

/// The length and hash of a file as it was written.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Checksum {
    bytes: u64,
    /// The 64-bit hash in 16 hexadecimal digits (a JSON number could not hold it exactly
    /// everywhere).
    xxh3: String,
}

/// Whether users may edit the file of this path in a folder: the model card, and the default
/// settings of generation. Neither changes the model or its training.
fn is_editable(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|name| [CARD, GENERATION].contains(&name))
}

/// Writes `dir/checksums.json`, which covers every other file in `dir` and its subfolders except
/// those that users may edit: the model card and `generation_config.json`.
///
/// # Errors
/// When a file cannot be read or `checksums.json` cannot be written.
pub fn write_checksums(dir: &Path) -> Result<()> {
    let mut checksums = BTreeMap::new();
    collect(dir, "", &mut checksums)?;
    write_json(&dir.join(FILE), &checksums)
}

/// Compares every file that `dir/checksums.json` lists; a folder without one, such as a downloaded
/// one, passes. Earlier versions listed `generation_config.json`, which is skipped.
///
/// # Errors
/// When a listed file is missing or not as it was written, it is [`FolderError::Damaged`]; when one
/// cannot be read, [`FolderError::File`]. The error names it.
pub fn verify_checksums(dir: &Path) -> Result<()> {
    verify(dir, |_| true)
}

/// Like [`verify_checksums`], for the files that inference needs: `training/` and `ema/` (the
/// averaged weights, a folder of their own) are not checked and may be missing.
///
/// # Errors
/// When another listed file is missing, cannot be read, or is not as it was written.
pub fn verify_checksums_for_inference(dir: &Path) -> Result<()> {
    verify(dir, |name| !name.starts_with("training/") && !name.starts_with("ema/"))
}

/// A quick check that a folder is as it was written: every file that `dir/checksums.json` lists,
/// except those that users may edit, has its length, the weights are not newer than the list, and
/// the other files have their checksums. A folder without a list fails.
pub fn seems_intact(dir: &Path) -> bool {
    let list = dir.join(FILE);
    let read = |text: Vec<u8>| serde_json::from_slice::<BTreeMap<String, Checksum>>(&text).ok();
    let Some(checksums) = fs::read(&list).ok().and_then(read) else { return false };
    let written = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    checksums.iter().filter(|(name, _)| !is_editable(name)).all(|(name, expected)| {
        let path = dir.join(name);
        let has_length = path.metadata().is_ok_and(|file| file.is_file() && file.len() == expected.bytes);
        if is_weights(&path) {
            has_length && written(&path) <= written(&list)
        } else {
            has_length && checksum(&path).is_ok_and(|found| found == *expected)
        }
    })
}

fn is_weights(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "safetensors")
}

/// One checksum over all weight files in `dir`, which identifies them: 16 hexadecimal digits.
///
/// # Errors
/// When the folder or a file cannot be read.
pub fn weights_checksum(dir: &Path) -> Result<String> {
    let mut files = paths(dir)?;
    files.retain(|path| is_weights(path));
    files.sort();
    let mut hash = Xxh3Default::new();
    for file in files {
        hash.update(checksum(&file)?.xxh3.as_bytes());
    }
    Ok(format!("{:016x}", hash.digest()))
}

fn verify(dir: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let list = dir.join(FILE);
    if !files::is_there(&list).at("cannot read", &list)? {
        return Ok(());
    }
    let text = files::read_regular(&list).at("cannot read", &list)?;
    let Ok(checksums) = serde_json::from_slice::<BTreeMap<String, Checksum>>(&text) else {
        let what = "is damaged; use another checkpoint, or delete the file if you trust the folder";
        return Err(FolderError::damaged(&list, what));
    };
    for (name, expected) in checksums.iter().filter(|(name, _)| wanted(name) && !is_editable(name)) {
        let path = dir.join(name);
        // The list is untrusted: it may only name ordinary files inside its folder, since reading
        // any other might never end.
        if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
            let what = format!("lists {name:?}, which is not in its folder; do not trust that folder");
            return Err(FolderError::damaged(&list, what));
        }
        let what = if !files::is_there(&path).at("cannot read", &path)? {
            "is missing from its checkpoint; use another checkpoint or copy it again"
        } else if !path.is_file() {
            "is not a regular file; put a copy of the model's file there"
        } else if checksum(&path)? != *expected {
            "is damaged: its checksum differs; use another checkpoint or copy it again"
        } else {
            continue;
        };
        return Err(FolderError::damaged(&path, what));
    }
    Ok(())
}

/// Adds the files of `dir`, whose path from the top folder is `prefix` (empty or ending in a
/// slash).
fn collect(dir: &Path, prefix: &str, checksums: &mut BTreeMap<String, Checksum>) -> Result<()> {
    for path in paths(dir)? {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(FolderError::mismatch(&path, "the file name is not UTF-8; rename it"));
        };
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            collect(&path, &format!("{name}/"), checksums)?;
        } else if name != FILE && !is_editable(&name) {
            checksums.insert(name, checksum(&path)?);
        }
    }
    Ok(())
}

fn checksum(path: &Path) -> Result<Checksum> {
    let bytes = fs::metadata(path).at("cannot read", path)?.len();
    Ok(Checksum { bytes, xxh3: format!("{:016x}", files::checksum(path)?) })
}
