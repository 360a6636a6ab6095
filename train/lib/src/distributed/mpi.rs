//! A group over MPI: processes that `mpirun` started, on one machine or several.

use std::time::{Duration, Instant};
use std::{cell::RefCell, path::Path, sync::Arc, sync::atomic::Ordering, thread};

use ember_host::interrupt::Interrupt;
use mpi::environment::{Universe, processor_name};
use mpi::traits::{Communicator, CommunicatorCollectives, Root};
use mpi::{Threading, topology::SimpleCommunicator};

use super::process_group::{ProcessGroup, add_in_order};
use super::watch::{Peer, Program, Watcher};
use super::{collectives::all_gather, launch::Launch};
use crate::error::{Error, GroupError, Result};

/// Values, or bytes, that go over the wire at once: bounds what the sum itself holds (two buffers
/// of 25 MiB).
const PART: usize = 25 << 18;
/// How long a process that is ahead of the others keeps asking before it sleeps between its
/// questions.
const EAGER: Duration = Duration::from_millis(5);
/// How long it then sleeps: little beside a step that takes longer than [`EAGER`].
const NAP: Duration = Duration::from_micros(200);

/// This process among those of `MPI_COMM_WORLD`.
pub struct MpiGroup {
    /// `None` once left. Dropped (which ends MPI, and waits for all) only by
    /// [`ProcessGroup::leave`]: an error does not wait.
    universe: RefCell<Option<Universe>>,
    world: SimpleCommunicator,
    /// What is sent and what is received, kept from sum to sum.
    buffers: RefCell<[Vec<f32>; 2]>,
    /// This process's place among them, and whom it looks after.
    watcher: Watcher,
}

impl MpiGroup {
    /// Begins MPI and meets the others.
    ///
    /// # Errors
    /// When the launcher's MPI is not the one that this program was built with, or MPI was begun
    /// already.
    pub fn join(launch: Launch, program: Program, interrupt: &Interrupt) -> Result<Self> {
        // All calls come from the thread that runs the command.
        let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
            return Err(GroupError::BegunTwice.into());
        };
        let world = universe.world();
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        if size != launch.size {
            return Err(GroupError::OtherMpi { launched: launch.size, seen: size }.into());
        }
        let (peers, interrupt, ended) = (Vec::new(), interrupt.clone(), Arc::default());
        let watcher = Watcher { rank, size, peers, interrupt, program, ended };
        let mut group = Self { universe: RefCell::new(Some(universe)), world, buffers: RefCell::default(), watcher };
        group.watcher.peers = group.peers_here()?;
        Ok(group)
    }

    /// The other processes on this machine.
    fn peers_here(&self) -> Result<Vec<Peer>> {
        let machine = processor_name().unwrap_or_default();
        let everyone = all_gather(self, format!("{} {machine}", std::process::id()).as_bytes())?;
        let peers = everyone.iter().enumerate().filter(|(rank, _)| *rank != self.rank()).filter_map(|(rank, card)| {
            let (pid, its_machine) = std::str::from_utf8(card).ok()?.split_once(' ')?;
            let peer = Peer { rank, pid: pid.parse().ok()? };
            // Containers may share a machine's name and not its processes: only those that can be
            // seen can be watched.
            (its_machine == machine && peer.is_alive()).then_some(peer)
        });
        Ok(peers.collect())
    }

    /// Waits until every process is here. MPI's own calls wait by asking without pause, which takes
    /// the processor from those that still work where the cores are shared.
    fn meet(&self) {
        let began = Instant::now();
        let mut arrival = self.world.immediate_barrier();
        loop {
            match arrival.test() {
                Ok(_) => return,
                Err(waiting) => arrival = waiting,
            }
            if began.elapsed() < EAGER { thread::yield_now() } else { thread::sleep(NAP) }
        }
    }

    /// The sum of at most [`PART`] values. Each process adds up its own share of them, always in
    /// the order of the ranks, and hands it to the others (reduce-scatter and all-gather, as a
    /// ring would: every value crosses the wire twice). MPI only moves bytes, so neither its choice
    /// of algorithm nor the network can change a bit.
    fn sum_part(&self, values: &mut [f32]) {
        let [out, received] = &mut *self.buffers.borrow_mut();
        let share = values.len().div_ceil(self.size());
        out.clear();
        out.extend_from_slice(values);
        out.resize(share * self.size(), 0.0);
        received.resize(share * self.size(), 0.0);
        self.world.all_to_all_into(&out[..], &mut received[..]);
        let own = &mut out[..share];
        add_in_order(own, received.chunks_exact(share));
        self.world.all_gather_into(&*own, &mut received[..]);
        values.copy_from_slice(&received[..values.len()]);
    }
}

impl ProcessGroup for MpiGroup {
    fn rank(&self) -> usize {
        self.watcher.rank
    }

    fn size(&self) -> usize {
        self.watcher.size
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<()> {
        self.meet();
        for part in values.chunks_mut(PART) {
            self.sum_part(part);
        }
        Ok(())
    }

    fn broadcast(&self, bytes: &mut [u8]) -> Result<()> {
        self.meet();
        for part in bytes.chunks_mut(PART) {
            self.world.process_at_rank(0).broadcast_into(part);
        }
        Ok(())
    }

    fn keep_watch(&self, run: &Path) {
        // A first signal that nobody has looked for yet ends a process at once. So all look before one of
        // them watches: it would take who ends so for dead.
        self.watcher.interrupt.requested();
        self.meet();
        self.watcher.begin(run);
    }

    fn code(&self, error: &Error) -> u8 {
        (self.watcher.program.code)(error)
    }

    fn leave(&self) {
        let Some(universe) = self.universe.take() else { return }; // left already
        // From the meeting on, a process that is gone has only finished.
        self.watcher.ended.store(true, Ordering::SeqCst);
        self.meet();
        drop(universe);
    }
}

impl Drop for MpiGroup {
    fn drop(&mut self) {
        // Not left: an error ends this process, and to end MPI would wait for processes that wait
        // for this one.
        std::mem::forget(self.universe.take());
    }
}
