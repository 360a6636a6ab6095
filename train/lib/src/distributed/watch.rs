//! Watches for processes that die. MPI would wait for them forever, and `mpirun` ends the others
//! within two seconds without a message about the run. A separate thread watches the processes on
//! its machine and notifies the program.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, sync::Arc, thread};

use ember_decoding::run_folder::{LATEST, step_of};
use ember_host::{files::read_text, interrupt::Interrupt};

use crate::error::Error;

/// How often the others are checked: `mpirun` leaves a second.
const INTERVAL: Duration = Duration::from_millis(50);
/// Seconds between Open MPI's SIGTERM and SIGKILL: the variable that sets them, and the default.
const GRACE: (&str, f64) = ("OMPI_MCA_odls_base_sigkill_timeout", 1.0);

/// Another process of the group, on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its rank.
    pub rank: usize,
    /// Its process id.
    pub pid: u32,
}

impl Peer {
    /// Whether it is still running; always true on a system without `/proc`.
    pub fn is_alive(self) -> bool {
        if !Path::new("/proc/self/stat").exists() {
            return true;
        }
        // The line is "pid (name) state ..."; the name may hold anything. Z and X are the states of
        // ended processes.
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        !matches!(state, None | Some('Z' | 'X'))
    }
}

/// The message to the program when not all processes of a run go on.
#[derive(Clone, Debug)]
pub struct Gone {
    /// The run's folder.
    pub run: PathBuf,
    /// The step of the latest checkpoint.
    pub saved: Option<u64>,
    /// Number of processes.
    pub size: usize,
    /// What happened.
    pub what: Event,
}

/// What happened to the processes.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A stop was requested, and the step takes so long that the processes may be killed before it
    /// ends. This process must report it.
    LateStep,
    /// The process with this rank and process id has died, so this one must end. `reports_here`:
    /// whether this process must report it.
    #[allow(missing_docs)]
    Died { rank: usize, pid: u32, reports_here: bool },
}

/// Callbacks into the program for processes that were started together.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The exit code, not 0, of all processes when one fails with this error.
    pub code: fn(&Error) -> u8,
    /// Reports what happened; if a process has died, also ends this one.
    pub gone: fn(&Gone),
}

/// Watches the other processes on this machine; clones share `ended`.
#[derive(Clone, Debug)]
pub struct Watcher {
    /// This process's rank.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// The others on this machine.
    pub peers: Vec<Peer>,
    /// Whether a stop was requested.
    pub interrupt: Interrupt,
    /// The program's callbacks.
    pub program: Program,
    /// Whether the watch is over: a process that is gone from then on has finished.
    pub ended: Arc<AtomicBool>,
}

impl Watcher {
    /// Starts a thread that watches the peers of the run in this folder.
    pub fn begin(&self, run: &Path) {
        let (watcher, run) = (self.clone(), run.to_owned());
        thread::spawn(move || watcher.watch(&run));
    }

    fn watch(&self, run: &Path) {
        let grace = std::env::var(GRACE.0).ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(GRACE.1);
        // A grace period too long for a Duration counts as endless.
        let last_moment = Duration::try_from_secs_f64(0.8 * f64::max(grace, 0.0)).unwrap_or(Duration::MAX);
        let mut asked_to_end: Option<Instant> = None;
        let mut reported = false;
        let ended = || self.ended.load(Ordering::SeqCst);
        while !ended() {
            let dead = self.peers.iter().find(|peer| !peer.is_alive());
            // If the watch has ended since, the peer finished normally.
            if let (Some(dead), false) = (dead, ended()) {
                self.report(run, *dead);
            }
            if self.interrupt.requested() {
                let since = *asked_to_end.get_or_insert_with(Instant::now);
                // A process on another machine may have died, or the step may be long: either way
                // mpirun will not wait.
                if self.rank == 0 && !reported && since.elapsed() > last_moment {
                    reported = true;
                    (self.program.gone)(&self.event_message(run, Event::LateStep));
                }
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Makes the program end this process; the one with the lowest rank on this machine reports
    /// why.
    fn report(&self, run: &Path, dead: Peer) {
        let reports_here = !self.peers.iter().any(|peer| peer.rank < self.rank && peer.is_alive());
        if !reports_here {
            thread::sleep(Duration::from_secs(1));
        }
        (self.program.gone)(&self.event_message(run, Event::Died { rank: dead.rank, pid: dead.pid, reports_here }));
    }

    fn event_message(&self, run: &Path, what: Event) -> Gone {
        let latest = read_text(&run.join(LATEST)).ok();
        let saved = latest.as_deref().and_then(|name| step_of(Path::new(name.trim())));
        Gone { run: run.to_owned(), saved, size: self.size, what }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_is_alive_until_it_has_ended_also_before_its_parent_looks() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let peer = Peer { rank: 1, pid: child.id() };
        assert!(peer.is_alive());
        child.kill().unwrap();
        let began = Instant::now();
        while peer.is_alive() && began.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!peer.is_alive(), "a zombie counts as dead");
        child.wait().unwrap();
        assert!(!peer.is_alive());
    }

    #[test]
    fn what_is_saved_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let watcher = Watcher {
            rank: 0,
            size: 2,
            peers: Vec::new(),
            interrupt: Interrupt::new(),
            program: Program { code: |_| 1, gone: |_| {} },
            ended: Arc::default(),
        };
        assert_eq!(watcher.event_message(folder.path(), Event::LateStep).saved, None);
        fs::write(folder.path().join("latest"), "step-00000014\n").unwrap();
        assert_eq!(watcher.event_message(folder.path(), Event::LateStep).saved, Some(14));
    }
}
