//! How a history is lived through: one session after another, each on what the one before left.

use std::path::Path;

use ember_host::files::UNFINISHED;
use ember_training::run::folder::METRICS;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::disk::{self, Disk};
use super::history::{End, History, LENGTHS, Session, Settings, Trains};
use super::reading::{length, named};
use super::spec;
use super::twin::Twin;
use super::witness::Operation;

/// Lives through a history in `place`, and compares all that is left behind on the way with the
/// specification.
///
/// # Errors
/// What is not as it should be, with the session in which it came about.
pub fn live(history: &History, trains: &dyn Trains, twin: &Twin, place: &Path) -> Result<(), String> {
    let settings = &history.settings;
    let (disk, saved, ends, was_full) = (Disk::new(), None, Vec::new(), false);
    let mut life = Life { settings, trains, twin, place, disk, saved, ends, was_full };
    for (number, session) in history.sessions.iter().enumerate() {
        life.session(session).map_err(|wrong| format!("session {number}, {session:?}: {wrong}"))?;
    }
    // Left alone, it comes to its end; and what is done stays done.
    let last = Session { max_steps: LENGTHS[0], full: None, end: End::Done };
    for what in ["at its end", "resumed when it is done"] {
        let lived = life.session(&last);
        let judged = lived.and_then(|()| spec::end(&life.disk.tree(), settings, &life.ends, life.was_full, twin));
        judged.map_err(|wrong| format!("{what}: {wrong}"))?;
    }
    Ok(())
}

/// Where a run has come to in its history.
struct Life<'a> {
    settings: &'a Settings,
    trains: &'a dyn Trains,
    twin: &'a Twin,
    place: &'a Path,
    disk: Disk,
    /// The step that is saved, as it was told, and so never to be lost.
    saved: Option<u64>,
    /// The lengths that it was to have after each session.
    ends: Vec<u64>,
    was_full: bool,
}

impl Life<'_> {
    /// Lives through a session: of what it did to the disk happens what comes before its end.
    fn session(&mut self, session: &Session) -> Result<(), String> {
        disk::lay_out(&self.disk.tree(), self.place).map_err(|error| error.to_string())?;
        self.was_full |= session.full.is_some();
        let max_steps = self.ends.last().map_or(session.max_steps, |end| session.max_steps.max(*end));
        let ran = self.trains.session(self.place, self.settings, &Session { max_steps, ..session.clone() });
        // Who is asked to stop before it listens may end between an operation and telling of it.
        if !matches!(session.end, End::Stop(_)) {
            self.nothing_was_missed(&ran.operations)?;
        }
        let cut = session.end.cut().unwrap_or(usize::MAX).min(ran.operations.len());
        let mut chance = ChaCha8Rng::seed_from_u64(cut as u64);
        for operation in &ran.operations[..cut] {
            self.disk.apply(operation);
            // Wherever the power might have gone: looked at now and then.
            if chance.random_ratio(1, 8) {
                let mut without = self.disk.clone();
                lose_power(&mut without, chance.random());
                spec::left_behind(&without.tree(), self.saved, self.twin)?;
            }
            if is_unfinished(operation) {
                continue;
            }
            let tree = self.disk.tree();
            // A row is written of what follows a save: the save was over then.
            if matches!(operation, Operation::Write(path, ..) if path.ends_with(METRICS)) {
                self.saved = named(&tree, "latest");
            }
            spec::left_behind(&tree, self.saved, self.twin)?;
        }
        match ran.ended {
            Some(Err(failure)) if !failure.is_full_disk || session.full.is_none() => return Err(failure.line),
            Some(Ok(())) if cut == ran.operations.len() => self.saved = named(&self.disk.tree(), "latest"),
            _ => {}
        }
        if let End::PowerCut(_, seed) = session.end {
            lose_power(&mut self.disk, seed);
        }
        self.ends.extend(length(&self.disk.tree()));
        spec::left_behind(&self.disk.tree(), self.saved, self.twin)
    }

    /// Whether what was seen, done again, comes to what is there.
    fn nothing_was_missed(&self, operations: &[Operation]) -> Result<(), String> {
        let mut disk = self.disk.clone();
        operations.iter().for_each(|operation| disk.apply(operation));
        let (seen, there) = (disk.tree(), disk::read(self.place).map_err(|error| error.to_string())?);
        let missed = seen.keys().chain(there.keys()).find(|path| seen.get(*path) != there.get(*path));
        missed.map_or(Ok(()), |path| Err(format!("{path} was changed by a call that nobody saw")))
    }
}

/// Takes the power away: all that was not synced is lost (0 and its like), or some of it, or nearly
/// nothing.
pub fn lose_power(disk: &mut Disk, seed: u64) {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let most = (seed % 3) as f64;
    disk.lose_power(|| f64::min(1.0, most * chance.random::<f64>()));
}

/// Whether something was done to what is not whole yet, and so is nobody's.
fn is_unfinished(operation: &Operation) -> bool {
    use Operation::{Cut, MakeFile, MakeFolder, Remove, Rename, Sync, Write};
    let (MakeFolder(path)
    | MakeFile(path)
    | Write(path, ..)
    | Cut(path, _)
    | Rename(_, path)
    | Remove(path)
    | Sync(path)) = operation;
    path.iter().any(|name| name.to_string_lossy().starts_with(UNFINISHED))
}
