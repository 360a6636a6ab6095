//! Standard output and standard error, suited to their reader: on a terminal, control characters
//! out of a model or a file are removed, since they would move its cursor, clear its screen or
//! worse; a pipe and a file get every byte unchanged.
//!
//! All output of both programs goes through [`stdout`], [`stderr`] and [`say`].

use std::fmt::Display;
use std::io::{self, IsTerminal, Stderr, StdoutLock, Write};
use std::path::Path;

/// Standard output, locked.
pub fn stdout() -> StandardStream<StdoutLock<'static>> {
    let out = io::stdout().lock();
    StandardStream { cleans: out.is_terminal(), out, name: OUTPUT, held: None }
}

/// Standard output for text with the program's own colours, all else cleaned by [`printable`].
pub fn coloured_stdout() -> StandardStream<StdoutLock<'static>> {
    StandardStream { out: io::stdout().lock(), cleans: false, name: OUTPUT, held: None }
}

/// Standard error, not locked: other threads write to it too.
pub fn stderr() -> StandardStream<Stderr> {
    let out = io::stderr();
    StandardStream { cleans: out.is_terminal(), out, name: "standard error", held: None }
}

/// Writes one line to standard error, in one piece; a closed standard error is no reason to stop.
pub fn say(line: impl Display) {
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}

/// Text that cannot move a terminal's cursor: control characters become U+FFFD; line ends (`\r\n`
/// as `\n`) and tabs stay.
pub fn printable(text: &str) -> String {
    let is_kept = |c: char| !c.is_control() || c == '\n' || c == '\t';
    text.replace("\r\n", "\n").chars().map(|c| if is_kept(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// A path as it is typed on a command line: quoted if a shell would split or interpret it, and
/// never starting like a flag, so that a command which the program prints can be copied.
pub fn typed(path: &Path) -> String {
    const PLAIN: &str = if cfg!(windows) { r"/\:._-" } else { "/:._-" };
    let mut path = path.display().to_string();
    if path.starts_with('-') {
        path.insert_str(0, "./");
    }
    if !path.is_empty() && path.chars().all(|c| c.is_alphanumeric() || PLAIN.contains(c)) {
        path
    } else if cfg!(windows) {
        format!("\"{path}\"")
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

/// A writer to standard output or standard error, for UTF-8, as all these programs write.
#[derive(Debug)]
pub struct StandardStream<W> {
    out: W,
    /// Whether control characters are replaced, since a terminal reads it.
    cleans: bool,
    /// Its name in errors.
    name: &'static str,
    /// A byte whose meaning depends on the next one: a carriage return, or the first byte of a
    /// two-byte character.
    held: Option<u8>,
}

/// The first byte of the characters from U+0080 to U+00BF, half of which are control characters.
const FIRST_OF_TWO: u8 = 0xc2;

const OUTPUT: &str = "standard output";

impl<W> StandardStream<W> {
    /// An error of the same kind that names the output.
    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("cannot write to {}: {error}", self.name))
    }
}

impl<W: Write> Write for StandardStream<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.cleans {
            return self.out.write(bytes).map_err(|error| self.named(&error));
        }
        let mut clean = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            match (self.held.take(), byte) {
                (Some(FIRST_OF_TWO), 0x80..=0x9f) => {
                    clean.extend("\u{fffd}".as_bytes());
                    continue;
                }
                (Some(FIRST_OF_TWO), _) => clean.push(FIRST_OF_TWO),
                (Some(b'\r'), b'\n') | (None, _) => {}
                (Some(_), _) => clean.extend("\u{fffd}".as_bytes()),
            }
            match byte {
                b'\r' | FIRST_OF_TWO => self.held = Some(byte),
                b'\n' | b'\t' => clean.push(byte),
                _ if byte.is_ascii_control() => clean.extend("\u{fffd}".as_bytes()),
                _ => clean.push(byte),
            }
        }
        self.out.write_all(&clean).map_err(|error| self.named(&error))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().map_err(|error| self.named(&error))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// The output for `pieces` written one after another.
    fn written(cleans: bool, pieces: &[&[u8]]) -> Vec<u8> {
        let mut stream = StandardStream { out: Vec::new(), cleans, name: OUTPUT, held: None };
        for piece in pieces {
            stream.write_all(piece).unwrap();
            stream.flush().unwrap();
        }
        stream.out
    }

    #[test]
    fn a_terminal_is_not_moved_and_a_pipe_gets_all() {
        let text = "Mia\u{1b}[2J ran.\r\nThe\tend\u{7f}\u{9b}31m, \u{a0}caf\u{e9}\r!\n";
        let clean = "Mia\u{fffd}[2J ran.\nThe\tend\u{fffd}\u{fffd}31m, \u{a0}caf\u{e9}\u{fffd}!\n";
        assert_eq!(written(true, &[text.as_bytes()]), clean.as_bytes());
        assert_eq!(written(false, &[text.as_bytes()]), text.as_bytes());
        assert_eq!(printable(text), clean);
    }

    #[cfg(unix)]
    #[test]
    fn a_shell_takes_a_typed_path_as_one_word() {
        for (path, expected) in [
            ("runs/mine-2", "runs/mine-2"),
            ("Übung/tagebuch_1.txt", "Übung/tagebuch_1.txt"),
            ("runs/My Writing", "'runs/My Writing'"),
            ("it's", r"'it'\''s'"),
            ("a$b", "'a$b'"),
            ("~", "'~'"),
            ("", "''"),
        ] {
            assert_eq!(typed(Path::new(path)), expected);
            let echoed = std::process::Command::new("sh").arg("-c").arg(format!("printf %s {expected}")).output();
            assert_eq!(echoed.unwrap().stdout, path.as_bytes());
        }
    }

    #[test]
    fn a_path_with_a_dash_before_it_is_no_flag() {
        assert_eq!(typed(Path::new("-x")), "./-x");
        assert_eq!(typed(Path::new("runs/-x")), "runs/-x");
    }

    proptest! {
        #[test]
        fn it_is_the_same_however_it_is_cut(text in "[a\u{e9}\u{80}-\u{a5}\u{0}-\u{20}\u{7f}\u{1f600}]{0,30}", cuts in prop::collection::vec(0..60_usize, 0..6)) {
            let bytes = [text.as_bytes(), b"\n"].concat(); // nothing is held back after the end of a line
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(String::from_utf8(written(true, &pieces)).unwrap(), printable(&format!("{text}\n")));
            prop_assert_eq!(written(false, &pieces), bytes);
        }
    }
}
