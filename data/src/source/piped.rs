//! Copies input that may never come, such as a terminal that nobody types into.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::{thread, time::Duration};

/// The bytes to read at once.
const BLOCK_BYTES: usize = 64 << 10;

/// The capacity of the queue of blocks to be written.
const QUEUED_BLOCKS: usize = 16;

/// How long to wait for a block before `interrupted` is called again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Copies `input` to its end; returns the number of bytes, or `None` if `interrupted` was true.
///
/// A blocking read cannot be cancelled. So a separate thread reads, and after an interruption it
/// stays in its read until input comes or the process ends.
///
/// # Errors
/// When `input` cannot be read, or `copy` cannot be written.
pub(super) fn copy(
    input: impl Read + Send + 'static,
    copy: &mut impl Write,
    interrupted: &dyn Fn() -> bool,
) -> io::Result<Option<u64>> {
    let (sender, blocks) = mpsc::sync_channel(QUEUED_BLOCKS);
    thread::Builder::new().name("standard input".into()).spawn(move || read(input, &sender))?;
    let mut bytes = 0;
    while !interrupted() {
        match blocks.recv_timeout(POLL_INTERVAL) {
            Ok(block) => {
                let block: Vec<u8> = block?;
                copy.write_all(&block)?;
                bytes += block.len() as u64;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return copy.flush().map(|()| Some(bytes)),
        }
    }
    Ok(None)
}

/// Sends all input to the channel, until the input ends or the receiver is gone.
fn read(mut input: impl Read, blocks: &SyncSender<io::Result<Vec<u8>>>) {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let read = match input.read(&mut block) {
            Ok(0) => return,
            Ok(length) => Ok(block[..length].to_vec()),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_last = read.is_err();
        if blocks.send(read).is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::Cell;

    /// Input that never delivers anything.
    struct Silence;

    impl Read for Silence {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            loop {
                thread::park();
            }
        }
    }

    #[test]
    fn all_is_copied_and_an_error_is_told() {
        let text = vec![7; 5 * BLOCK_BYTES + 3];
        let mut copied = Vec::new();
        assert_eq!(copy(io::Cursor::new(text.clone()), &mut copied, &|| false).unwrap(), Some(text.len() as u64));
        assert_eq!(copied, text);
        let broken = io::Cursor::new(text).chain(Broken);
        assert_eq!(copy(broken, &mut Vec::new(), &|| false).unwrap_err().to_string(), "broken");
    }

    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("broken"))
        }
    }

    #[test]
    fn who_wants_to_end_is_heard_while_nothing_comes() {
        let asked = Cell::new(0);
        let interrupted = || asked.replace(asked.get() + 1) == 3;
        assert_eq!(copy(Silence, &mut Vec::new(), &interrupted).unwrap(), None);
    }
}
