//! Output to a user's path: regular files whole or not at all, anything else as a stream.
//!
//! A file is written under a temporary name and renamed, and a rename replaces whatever has that
//! name. So links are followed first, and a device, a pipe or a socket is opened and written into,
//! as a shell's `>` does; `-` is standard output. Our own files, in our own folders, go directly
//! through [`files`](crate::files).

use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::{fs::File, fs::OpenOptions, path::Path, path::PathBuf};

use crate::files::{fill_and_commit, temporary};
use crate::{file_error::At, file_error::FileError};

/// The name that means standard output.
const STANDARD_OUTPUT: &str = "-";

/// Links followed before they count as a circle; Linux has the same limit.
const MAX_LINKS: usize = 40;

/// Why the user's place cannot be written to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refuses.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is a folder, a file that a record would overwrite, or links that lead in a circle.
    #[error("{0}")]
    Refused(String),
}

/// Writes to a `path` that a user named: a regular file as
/// [`write_atomic`](crate::files::write_atomic) does, also at the end of a link, and with the
/// permissions of the file that it replaces; anything else as a stream.
///
/// # Errors
/// The error that `write` returns, or the disk's own, naming `path`; a folder is refused.
pub fn write_output(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    match regular_file(path)? {
        Some(file) => {
            let new = temporary(&file)?;
            keep_permissions(&file, new.as_file()).at("cannot write", &file)?;
            fill_and_commit(new, &file, write)?;
        }
        None => {
            let mut out = BufWriter::new(open_stream(path)?);
            write(&mut out).and_then(|()| out.flush()).at("cannot write", path)?;
        }
    }
    Ok(())
}

/// Gives `new`, before anything is written into it, the permissions of the file that it will
/// replace, if there is one: what its owner made private stays private.
fn keep_permissions(old: &Path, new: &File) -> io::Result<()> {
    let Ok(old) = old.metadata() else { return Ok(()) };
    let (old, usual) = (old.permissions(), new.metadata()?.permissions());
    if old == usual { Ok(()) } else { new.set_permissions(old) }
}

/// Refuses a place that [`write_output`] could not write to, such as a folder without write
/// permission: before the work whose result would be lost. An existing file stays as it is, and a
/// device or a pipe is not opened.
///
/// # Errors
/// As [`write_output`].
pub fn check_writable(path: &Path) -> Result<(), Error> {
    if let Some(file) = regular_file(path)? {
        temporary(&file)?;
    }
    Ok(())
}

/// Refuses to replace a file of another kind: a regular file that is not empty, and whose
/// beginning, at most [`BEGINNING`] bytes, `is_one` does not recognise. `kind` is the expected
/// kind, as in "a page".
///
/// # Errors
/// When there is such a file, or it cannot be read; the line names `path`.
pub fn check_replaces(path: &Path, kind: &str, is_one: impl FnOnce(&[u8]) -> bool) -> Result<(), Error> {
    let Some(file) = regular_file(path)? else { return Ok(()) };
    let mut bytes = Vec::new();
    match File::open(file) {
        Ok(there) => there.take(BEGINNING).read_to_end(&mut bytes).at("cannot read", path)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => Err(error).at("cannot read", path)?,
    };
    match bytes.is_empty() || is_one(&bytes) {
        true => Ok(()),
        false => {
            let line = format!("cannot write {}: the existing file is not {kind}; name another", path.display());
            Err(Error::Refused(line))
        }
    }
}

/// Bytes of a file that are checked before it is replaced.
pub const BEGINNING: u64 = 1 << 16;

/// Opens `path` for a record that grows over time. A regular file must not exist yet: a record
/// never overwrites one.
///
/// # Errors
/// When the file exists or cannot be created; the line names `path`.
pub fn create_record(path: &Path) -> Result<File, Error> {
    let Some(file) = regular_file(path)? else { return Ok(open_stream(path)?) };
    match File::create_new(file) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(Error::Refused(format!("{} already exists; remove it or name another", path.display())))
        }
        file => Ok(file.at("cannot create", path)?),
    }
}

/// Whether `path` leads to this process's standard output, as `-` and /dev/stdout do: then nothing
/// else may be printed, or the two are mixed.
pub fn is_standard_output(path: &Path) -> bool {
    #[cfg(unix)]
    let leads_there = || {
        use std::os::unix::fs::MetadataExt;
        let own = own_output().and_then(|own| own.metadata());
        own.is_ok_and(|own| path.metadata().is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())))
    };
    #[cfg(not(unix))]
    let leads_there = || false; // no path leads there
    path.as_os_str() == STANDARD_OUTPUT || leads_there()
}

fn open_stream(path: &Path) -> Result<File, FileError> {
    let stream = match path.as_os_str() == STANDARD_OUTPUT {
        true => own_output(),
        false => OpenOptions::new().append(true).open(path),
    };
    stream.at("cannot write into", path)
}

/// Standard output, as a separate file handle.
fn own_output() -> io::Result<File> {
    #[cfg(unix)]
    let own = std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned();
    #[cfg(windows)]
    let own = std::os::windows::io::AsHandle::as_handle(&io::stdout()).try_clone_to_owned();
    own.map(File::from)
}

/// The regular file, existing or not, that a user's path leads to; `None` for anything else:
/// standard output, a device, a pipe, a socket, or a file that a process holds open.
fn regular_file(path: &Path) -> Result<Option<PathBuf>, Error> {
    if path.as_os_str() == STANDARD_OUTPUT {
        return Ok(None);
    }
    let refuse = |why| Err(Error::Refused(format!("cannot write {}: {why}", path.display())));
    match path.metadata() {
        Ok(there) if there.is_dir() => return refuse("it is a folder; name a file"),
        Ok(there) if !there.is_file() => return Ok(None),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).at("cannot write", path)?,
        _ => {}
    }
    // Links are followed by hand, because their target may not exist yet.
    let mut file = path.to_owned();
    for _ in 0..MAX_LINKS {
        let is_link = file.symlink_metadata().is_ok_and(|there| there.is_symlink());
        if !is_link {
            return Ok(Some(file));
        }
        if is_held_open(&file) {
            return Ok(None);
        }
        let leads_to = file.read_link().at("cannot write", path)?;
        file = file.parent().unwrap_or(Path::new("")).join(leads_to);
    }
    refuse("its links form a cycle")
}

/// Whether a link stands for a file that a process holds open, as /dev/stdout does in the end:
/// replacing that file would take it away from its holder.
fn is_held_open(link: &Path) -> bool {
    link.parent().and_then(|folder| folder.canonicalize().ok()).is_some_and(|folder| folder.starts_with("/proc"))
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::file_error::with_causes;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::process::Command;
    use tempfile::tempdir;

    fn say(path: &Path, text: &str) -> Result<(), Error> {
        write_output(path, |out| out.write_all(text.as_bytes()))
    }

    #[test]
    fn links_stay_links_and_lead_to_the_file() {
        let folder = tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("far")).unwrap();
        symlink("far/file", at("near")).unwrap();
        symlink(at("near"), at("nearer")).unwrap();
        for text in ["new", "replaced"] {
            say(&at("nearer"), text).unwrap(); // at first the link has no target
            assert_eq!(std::fs::read_to_string(at("far/file")).unwrap(), text);
            assert!(["near", "nearer"].iter().all(|name| at(name).symlink_metadata().unwrap().is_symlink()));
        }
        assert_eq!(std::fs::read_dir(at("far")).unwrap().count(), 1, "a temporary file is left");
        symlink("b", at("a")).unwrap();
        symlink("a", at("b")).unwrap();
        assert!(say(&at("a"), "").is_err());
        assert!(format!("{:#}", say(&at("far"), "").unwrap_err()).contains("it is a folder; name a file"));
    }

    #[test]
    fn a_private_file_stays_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempdir().unwrap();
        let [private, new] = ["private", "new"].map(|name| folder.path().join(name));
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode();
        std::fs::write(&private, "old").unwrap();
        let usual = mode(&private);
        std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o600)).unwrap();
        for path in [&private, &new] {
            say(path, "text").unwrap();
            assert_eq!(std::fs::read_to_string(path).unwrap(), "text");
        }
        assert_eq!((mode(&private) & 0o777, mode(&new)), (0o600, usual));
    }

    #[test]
    fn what_is_no_regular_file_is_written_into() {
        say(Path::new("/dev/null"), "nothing").unwrap();
        assert!(Path::new("/dev/null").metadata().unwrap().file_type().is_char_device());
        let folder = tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read_to_string(pipe).unwrap()
        });
        say(&pipe, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(pipe.metadata().unwrap().file_type().is_fifo());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_is_held_open_is_not_replaced() {
        use std::os::fd::AsRawFd;
        let folder = tempdir().unwrap();
        let file = File::create(folder.path().join("file")).unwrap();
        let descriptor = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let alias = folder.path().join("alias");
        symlink(&descriptor, &alias).unwrap();
        assert_eq!(regular_file(&alias).unwrap(), None);
        say(&alias, "held").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4, "the holder's own file has the text");
    }

    #[test]
    fn a_place_is_tried_without_a_trace() {
        let folder = tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("there"), "text").unwrap();
        for name in ["there", "new"] {
            check_writable(&at(name)).unwrap();
        }
        check_writable(Path::new("/dev/null")).unwrap();
        let line = with_causes(&check_writable(&at("none/new")).unwrap_err());
        assert!(line.starts_with("cannot write ") && line.contains("none/new: "), "{line}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read_to_string(at("there")).unwrap(), "text");
    }

    #[test]
    fn what_is_of_another_kind_is_not_replaced() {
        let folder = tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let check = |name: &str| check_replaces(&at(name), "a page", |bytes| bytes.starts_with(b"<"));
        for (name, text) in [("page", "<html>"), ("empty", ""), ("config", "{}")] {
            std::fs::write(at(name), text).unwrap();
            symlink(name, at(&format!("to-{name}"))).unwrap();
        }
        for name in ["page", "to-page", "empty", "to-empty", "new"] {
            check(name).unwrap();
        }
        for name in ["config", "to-config"] {
            let line = check(name).unwrap_err().to_string();
            assert!(line.ends_with("the existing file is not a page; name another"), "{line}");
        }
        check_replaces(Path::new("/dev/null"), "a page", |_| false).unwrap();
    }

    #[test]
    fn a_record_is_never_written_over() {
        let folder = tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        create_record(&at("new")).unwrap();
        assert!(
            create_record(&at("new")).unwrap_err().to_string().ends_with("already exists; remove it or name another")
        );
        symlink("dangling", at("link")).unwrap();
        create_record(&at("link")).unwrap().write_all(b"x").unwrap();
        assert_eq!(std::fs::read(at("dangling")).unwrap(), b"x");
        assert!(create_record(&at("link")).is_err());
        create_record(Path::new("/dev/null")).unwrap();
    }
}
