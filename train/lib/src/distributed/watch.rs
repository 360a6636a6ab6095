//! What a program is told when a process dies: MPI would wait for it for ever, and `mpirun` ends
//! the others within two seconds without a word on the run. A thread beside the training looks
//! after the processes on its machine.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, sync::Arc, thread};

use ember_decoding::run_folder::{LATEST, step_of};
use ember_host::interrupt::Interrupt;

use crate::error::Error;

/// How often the others are looked at: `mpirun` leaves a second.
const INTERVAL: Duration = Duration::from_millis(50);
/// Seconds that Open MPI leaves a process between SIGTERM and SIGKILL: the variable that says it,
/// and what it is without.
const GRACE: (&str, f64) = ("OMPI_MCA_odls_base_sigkill_timeout", 1.0);

/// Another process of the group, on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its rank.
    pub rank: usize,
    /// Its number in the system.
    pub pid: u32,
}

impl Peer {
    /// Whether it is still at work; so it seems where the system has no `/proc`.
    pub fn is_alive(self) -> bool {
        if !Path::new("/proc/self/stat").exists() {
            return true;
        }
        // "pid (name) state ...", of which the name may hold anything: Z and X are processes that
        // have ended.
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        !matches!(state, None | Some('Z' | 'X'))
    }
}

/// What a program is told of a run whose processes do not all live on.
#[derive(Clone, Debug)]
pub struct Gone {
    /// The run's folder.
    pub run: PathBuf,
    /// The step that is saved.
    pub saved: Option<u64>,
    /// How many processes there were.
    pub size: usize,
    /// What happened.
    pub what: Event,
}

/// What happened to the processes.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// They were asked to end, and the step is so long that they may be ended before it is over. To
    /// be said by this process.
    LateStep,
    /// The process of this rank, with this number in the system, has died, so this one must end;
    /// `said_here`: whether it is this one that says so.
    #[allow(missing_docs)]
    Died { rank: usize, pid: u32, said_here: bool },
}

/// What processes that were started together need of the program that they run.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The code, not 0, with which all of them end where one has failed so.
    pub code: fn(&Error) -> u8,
    /// Says what happened; where a process has died, it ends this one.
    pub gone: fn(&Gone),
}

/// A process that can look after the others on its machine; clones share the end of the watch.
#[derive(Clone, Debug)]
pub struct Watcher {
    /// This process's rank.
    pub rank: usize,
    /// How many processes there are.
    pub size: usize,
    /// The others on this machine.
    pub peers: Vec<Peer>,
    /// Whether they were asked to end.
    pub interrupt: Interrupt,
    /// What the program does about an error, and about a process that is gone.
    pub program: Program,
    /// Whether the watch is over: who is gone from then on has finished.
    pub ended: Arc<AtomicBool>,
}

impl Watcher {
    /// Begins to watch the peers on behalf of the run in this folder.
    pub fn begin(&self, run: &Path) {
        let (watcher, run) = (self.clone(), run.to_owned());
        thread::spawn(move || watcher.watch(&run));
    }

    fn watch(&self, run: &Path) {
        let grace = std::env::var(GRACE.0).ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(GRACE.1);
        // Who leaves them more time than there is, leaves it to them.
        let last_moment = Duration::try_from_secs_f64(0.8 * f64::max(grace, 0.0)).unwrap_or(Duration::MAX);
        let mut asked_to_end: Option<Instant> = None;
        let mut said = false;
        let ended = || self.ended.load(Ordering::SeqCst);
        while !ended() {
            let dead = self.peers.iter().find(|peer| !peer.is_alive());
            // Else it left between the two looks.
            if let (Some(dead), false) = (dead, ended()) {
                self.report(run, *dead);
            }
            if self.interrupt.requested() {
                let since = *asked_to_end.get_or_insert_with(Instant::now);
                // A process of another machine may have died, or the step may be a long one: either
                // way mpirun will not wait.
                if self.rank == 0 && !said && since.elapsed() > last_moment {
                    said = true;
                    (self.program.gone)(&self.told(run, Event::LateStep));
                }
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Has the program end this process; of those on this machine, the one of the lowest rank says
    /// why.
    fn report(&self, run: &Path, dead: Peer) {
        let said_here = !self.peers.iter().any(|peer| peer.rank < self.rank && peer.is_alive());
        if !said_here {
            thread::sleep(Duration::from_secs(1));
        }
        (self.program.gone)(&self.told(run, Event::Died { rank: dead.rank, pid: dead.pid, said_here }));
    }

    fn told(&self, run: &Path, what: Event) -> Gone {
        let latest = fs::read_to_string(run.join(LATEST)).ok();
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
        assert_eq!(watcher.told(folder.path(), Event::LateStep).saved, None);
        fs::write(folder.path().join("latest"), "step-00000014\n").unwrap();
        assert_eq!(watcher.told(folder.path(), Event::LateStep).saved, Some(14));
    }
}
