//! The output folder: who may write to it, and how new files replace those prepared before.

use super::{checkpoint::Checkpoint, error::Error};
use crate::source::own::{MANIFEST, TOKEN_FILES, is_prepared};
use crate::tokens::is_in_use;
use ember_host::file_error::{At, FileError};
use ember_host::files::{make_folder, remove_unfinished, sync_folder};
use std::fs::{File, TryLockError};
use std::{io, path::Path};

/// Files written by [`Tokenizer::save`](crate::tokenizer::Tokenizer::save).
const TOKENIZER_FILES: [&str; 2] = ["tokenizer.json", "tokenizer_config.json"];

/// Refuses a file, and any folder that is not empty, unless a text was prepared into it. Names with
/// a leading dot are ignored: leftovers of a killed run, and files that desktops put into every
/// folder.
pub fn ensure_ours(out: &Path) -> Result<(), Error> {
    if out.exists() && !out.is_dir() {
        return Err(Error::unusable(format!("{} is a file; name a folder", out.display())));
    }
    let Ok(entries) = std::fs::read_dir(out) else { return Ok(()) }; // missing or unreadable: creating it will tell
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    match names.filter(|name| !name.starts_with('.')).min() {
        Some(file) if !is_prepared(out) => Err(Error::unusable(format!(
            "{} holds other files, {file} among them, and they might be overwritten; name a folder that is new or empty",
            out.display()
        ))),
        _ => Ok(()),
    }
}

/// Creates the folder and removes leftovers of a killed run. While the returned file is held, no
/// other process can prepare into the folder.
pub fn make_and_claim(out: &Path) -> Result<Option<File>, Error> {
    let cannot_write = "cannot write into the folder";
    make_folder(out).at(cannot_write, out)?;
    ensure_ours(out)?; // again: a path such as `new/..` resolves only now
    let claim = claim(out)?;
    remove_unfinished(out).at(cannot_write, out)?;
    Ok(claim)
}

/// Locks the folder itself, which leaves no lock file behind. Where folders cannot be opened
/// (Windows) or locked (some network disks), the user must keep two processes apart.
fn claim(out: &Path) -> Result<Option<File>, Error> {
    let Ok(folder) = File::open(out) else { return Ok(None) };
    let tokens = TOKEN_FILES.map(|name| out.join(name));
    if let Some(used) = tokens.iter().find(|path| is_in_use(path)) {
        return Err(Error::unusable(format!(
            "{} is in use, perhaps by a run that trains on it; wait until that has ended, or name another folder",
            used.display()
        )));
    }
    match folder.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Error::unusable(format!(
            "another process is preparing a text into {}; wait until it has ended, or name another folder",
            out.display()
        ))),
        _ => Ok(Some(folder)),
    }
}

/// Moves the finished files from the checkpoint into place, except those already moved. The
/// manifest is removed first and moved last: without it the folder counts as unfinished.
pub fn replace_prepared(out: &Path, checkpoint: &Checkpoint) -> Result<(), FileError> {
    let replace = || -> io::Result<()> {
        match std::fs::remove_file(out.join(MANIFEST)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => sync_folder(out)?,
        }
        let put = |name| std::fs::rename(checkpoint.file(name), out.join(name));
        let files = [TOKEN_FILES, TOKENIZER_FILES].concat();
        files.into_iter().filter(|name| checkpoint.file(name).exists()).try_for_each(put)?;
        sync_folder(out)?;
        put(MANIFEST)?;
        sync_folder(out)
    };
    replace().at("cannot write into the folder", out)
}
