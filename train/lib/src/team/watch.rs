//! What a user is told when a process dies: MPI would wait for it for ever, and `mpirun` ends the others within two seconds
//! without a word on the run. A thread beside the training looks after the processes on its machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ember_cli::program::exit;
use ember_cli::terminal::say;
use ember_host::interrupt::Interrupt;

/// How often the others are looked at: `mpirun` leaves a second.
const INTERVAL: Duration = Duration::from_millis(50);
/// Seconds that Open MPI leaves a process between SIGTERM and SIGKILL: the variable that says it, and what it is without.
const GRACE: (&str, f64) = ("OMPI_MCA_odls_base_sigkill_timeout", 1.0);

/// Another process of the team, on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub rank: usize,
    pub pid: u32,
}

impl Peer {
    /// Whether it is still at work; so it seems where the system has no `/proc`.
    pub fn is_alive(self) -> bool {
        if !Path::new("/proc/self/stat").exists() {
            return true;
        }
        // "pid (name) state ...", of which the name may hold anything: Z and X are processes that have ended.
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        !matches!(state, None | Some('Z' | 'X'))
    }
}

/// A watch that lasts until it is ended.
pub struct Watch {
    ended: Arc<AtomicBool>,
}

impl Watch {
    /// Begins to watch `peers` on behalf of the run in this folder.
    pub fn begin(rank: usize, size: usize, peers: &[Peer], run: &Path, interrupt: &Interrupt) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let watcher = Watcher {
            rank,
            size,
            peers: peers.to_vec(),
            run: run.to_owned(),
            interrupt: interrupt.clone(),
            ended: ended.clone(),
        };
        thread::spawn(move || watcher.watch());
        Self { ended }
    }

    /// Ends it: who is gone from now on has finished.
    pub fn end(self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

struct Watcher {
    rank: usize,
    size: usize,
    peers: Vec<Peer>,
    run: PathBuf,
    interrupt: Interrupt,
    ended: Arc<AtomicBool>,
}

impl Watcher {
    fn watch(&self) {
        let grace = std::env::var(GRACE.0).ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(GRACE.1);
        let last_moment = Duration::from_secs_f64(0.8 * f64::max(grace, 0.0));
        let mut asked_to_end: Option<Instant> = None;
        let mut said = false;
        while !self.ended.load(Ordering::SeqCst) {
            if let Some(dead) = self.peers.iter().find(|peer| !peer.is_alive()) {
                self.report(*dead);
            }
            if self.interrupt.requested() {
                let since = *asked_to_end.get_or_insert_with(Instant::now);
                // A process of another machine may have died, or the step may be a long one: either way mpirun will not wait.
                if self.rank == 0 && !said && since.elapsed() > last_moment {
                    said = true;
                    let run = self.run.display();
                    say(format_args!(
                        "{run}: the step is not over; should mpirun end it before it is, {}",
                        self.way_on()
                    ));
                }
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Ends this process; of those on this machine, the one of the lowest rank says why.
    fn report(&self, dead: Peer) {
        if self.ended.load(Ordering::SeqCst) {
            return; // It left between the two looks.
        }
        if self.peers.iter().any(|peer| peer.rank < self.rank && peer.is_alive()) {
            thread::sleep(Duration::from_secs(1));
        } else {
            let (run, Peer { rank, pid }, size) = (self.run.display(), dead, self.size);
            say(format_args!(
                "error: {run}: the process of rank {rank} (pid {pid}) is gone, so all {size} end; {}",
                self.way_on()
            ));
        }
        exit(1);
    }

    /// What is saved, and the command that goes on from there.
    fn way_on(&self) -> String {
        let run = self.run.display();
        let latest = fs::read_to_string(self.run.join("latest")).ok();
        let step = latest.as_deref().and_then(|name| name.trim().strip_prefix("step-")?.parse::<u64>().ok());
        let saved = step.map_or_else(|| "no step is saved yet".to_owned(), |step| format!("step {step} is saved"));
        format!("{saved}, go on with `mpirun -n {} ember-train resume {run}`", self.size)
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
    fn the_line_names_what_is_saved_and_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let watcher = Watcher {
            rank: 0,
            size: 2,
            peers: Vec::new(),
            run: folder.path().to_owned(),
            interrupt: Interrupt::new(),
            ended: Arc::default(),
        };
        assert!(watcher.way_on().starts_with("no step is saved yet, go on with `mpirun -n 2 ember-train resume /"));
        fs::write(folder.path().join("latest"), "step-00000014\n").unwrap();
        assert!(watcher.way_on().starts_with("step 14 is saved, "));
    }
}
