//! How far preparing has come, and whether it is to stop.

use super::error::Error;

/// Hears how far preparing has come, and can stop it.
pub trait Progress: Sync {
    /// `done_bytes` of `total_bytes` (where known) of `stage`, a few words such as "reading", are
    /// done.
    fn update(&self, stage: &str, done_bytes: u64, total_bytes: Option<u64>);

    /// Whether the user wants to stop; preparing then ends soon with [`Error::Interrupted`].
    fn interrupted(&self) -> bool {
        false
    }
}

/// A [`Progress`] that nobody watches.
pub struct Silent;

impl Progress for Silent {
    fn update(&self, _stage: &str, _done_bytes: u64, _total_bytes: Option<u64>) {}
}

/// Tells how far a stage has come; an error when the user wants to stop.
pub fn tell(progress: &dyn Progress, stage: &str, done_bytes: u64, total_bytes: Option<u64>) -> Result<(), Error> {
    progress.update(stage, done_bytes, total_bytes);
    if progress.interrupted() { Err(Error::Interrupted) } else { Ok(()) }
}
