//! Runs a history: one session after another, each on what the one before left on the disk.

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

/// Runs a history in `place`, and checks everything left on the way against the specification.
///
/// # Errors
/// The first violation, with its session.
pub fn check(history: &History, trains: &dyn Trains, twin: &Twin, place: &Path) -> Result<(), String> {
    let settings = &history.settings;
    let (disk, saved, ends, was_full) = (Disk::new(), None, Vec::new(), false);
    let mut life = Life { settings, trains, twin, place, disk, saved, ends, was_full };
    for (number, session) in history.sessions.iter().enumerate() {
        life.session(session).map_err(|violation| format!("session {number}, {session:?}: {violation}"))?;
    }
    // Left alone, the run finishes; resuming a finished run changes nothing.
    let last = Session { max_steps: LENGTHS[0], full: None, end: End::Done };
    for what in ["at its end", "resumed when it is done"] {
        let ended = life.session(&last);
        let verdict =
            ended.and_then(|()| spec::final_state(&life.disk.tree(), settings, &life.ends, life.was_full, twin));
        verdict.map_err(|violation| format!("{what}: {violation}"))?;
    }
    Ok(())
}

/// State of a run during its history.
struct Life<'a> {
    settings: &'a Settings,
    trains: &'a dyn Trains,
    twin: &'a Twin,
    place: &'a Path,
    disk: Disk,
    /// The latest step known to be saved, which must never be lost.
    saved: Option<u64>,
    /// The run's configured length after each session.
    ends: Vec<u64>,
    was_full: bool,
}

impl Life<'_> {
    /// Runs a session and applies to the simulated disk those of its operations that precede its
    /// end.
    fn session(&mut self, session: &Session) -> Result<(), String> {
        disk::lay_out(&self.disk.tree(), self.place).map_err(|error| error.to_string())?;
        self.was_full |= session.full.is_some();
        let max_steps = self.ends.last().map_or(session.max_steps, |end| session.max_steps.max(*end));
        let ran = self.trains.session(self.place, self.settings, &Session { max_steps, ..session.clone() });
        // A program asked to stop before it handles signals may end between an operation and its
        // report.
        if !matches!(session.end, End::Stop(_)) {
            self.check_nothing_missed(&ran.operations)?;
        }
        let cut = session.end.cut_after().unwrap_or(usize::MAX).min(ran.operations.len());
        let mut chance = ChaCha8Rng::seed_from_u64(cut as u64);
        for operation in &ran.operations[..cut] {
            self.disk.apply(operation);
            // A power cut is possible after any operation; a random eighth of them are checked.
            if chance.random_ratio(1, 8) {
                let mut after_cut = self.disk.clone();
                lose_power(&mut after_cut, chance.random());
                spec::invariants(&after_cut.tree(), self.saved, self.twin)?;
            }
            if is_unfinished(operation) {
                continue;
            }
            let tree = self.disk.tree();
            // The row after a save is only written once the save is complete.
            if matches!(operation, Operation::Write(path, ..) if path.ends_with(METRICS)) {
                self.saved = named(&tree, "latest");
            }
            spec::invariants(&tree, self.saved, self.twin)?;
        }
        match ran.ended {
            Some(Err(failure)) if !failure.is_full_disk || session.full.is_none() => return Err(failure.line),
            Some(Ok(stopped_at)) if cut == ran.operations.len() => {
                self.saved = named(&self.disk.tree(), "latest");
                // Even if the disk was full: else it would have ended with an error.
                if stopped_at.is_some_and(|step| self.saved != Some(step)) {
                    return Err(format!("it says that step {stopped_at:?} is saved, and latest is {:?}", self.saved));
                }
            }
            _ => {}
        }
        if let End::PowerCut(_, seed) = session.end {
            lose_power(&mut self.disk, seed);
        }
        self.ends.extend(length(&self.disk.tree()));
        spec::invariants(&self.disk.tree(), self.saved, self.twin)
    }

    /// Whether the recorded operations, applied again, give the files on the real disk.
    fn check_nothing_missed(&self, operations: &[Operation]) -> Result<(), String> {
        let mut disk = self.disk.clone();
        operations.iter().for_each(|operation| disk.apply(operation));
        let (recorded, found) = (disk.tree(), disk::read(self.place).map_err(|error| error.to_string())?);
        let missed = recorded.keys().chain(found.keys()).find(|path| recorded.get(*path) != found.get(*path));
        missed.map_or(Ok(()), |path| Err(format!("{path} was changed by a call that nobody saw")))
    }
}

/// Simulates a power cut. By the seed, all unsynced changes are lost (seeds 0, 3, 6, ...), or some
/// of them, or almost none.
pub fn lose_power(disk: &mut Disk, seed: u64) {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let most = (seed % 3) as f64;
    disk.lose_power(|| f64::min(1.0, most * chance.random::<f64>()));
}

/// Whether the operation concerns an unfinished file, which nothing refers to yet.
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
