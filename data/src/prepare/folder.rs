//! The folder that a text is prepared into: whose it is, and how what is new takes the place of what
//! was prepared before.

use super::{checkpoint::Checkpoint, error::Error};
use crate::source::own::{MANIFEST, TOKEN_FILES, is_prepared};
use crate::tokens::is_in_use;
use ember_host::file_error::{At, FileError};
use ember_host::files::{make_folder, remove_unfinished, sync_folder};
use std::fs::{File, TryLockError};
use std::{io, path::Path};

/// What [`Tokenizer::save`](crate::tokenizer::Tokenizer::save) writes.
const TOKENIZER_FILES: [&str; 2] = ["tokenizer.json", "tokenizer_config.json"];

/// Refuses a file, and a folder with anything in it, unless a text was prepared into it or began to
/// be. Names with a leading dot do not count: what a killed run left, and what a desktop puts into
/// every folder.
pub fn ensure_ours(out: &Path) -> Result<(), Error> {
    if out.exists() && !out.is_dir() {
        return Err(Error::unusable(format!("{} is a file; name a folder", out.display())));
    }
    let Ok(entries) = std::fs::read_dir(out) else { return Ok(()) }; // nothing there, or not to be read: making it will tell
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    match names.filter(|name| !name.starts_with('.')).min() {
        Some(file) if !is_prepared(out) => Err(Error::unusable(format!(
            "{} holds other files, {file} among them, and they might be overwritten; name a folder that is new or empty",
            out.display()
        ))),
        _ => Ok(()),
    }
}

/// Makes the folder, and removes what a killed run left behind in it. As long as the file that comes
/// back is held, no other process prepares into the folder.
pub fn make_and_claim(out: &Path) -> Result<Option<File>, Error> {
    let cannot_write = "cannot write into the folder";
    make_folder(out).at(cannot_write, out)?;
    ensure_ours(out)?; // again: what `new/..` names is there only now
    let claim = claim(out)?;
    remove_unfinished(out).at(cannot_write, out)?;
    Ok(claim)
}

/// Locks the folder itself, so that no file for it lies there afterwards. Where folders cannot be
/// opened (Windows) or locked (some network disks), two processes are the user's to keep apart.
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
            "another process prepares a text into {}; wait until it has ended, or name another folder",
            out.display()
        ))),
        _ => Ok(Some(folder)),
    }
}

/// Puts what lies whole in the checkpoint in the place of what was prepared before, as far as that
/// was not done yet. Without its manifest, which goes first and comes back last, the folder is
/// unfinished.
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
