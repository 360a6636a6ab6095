//! A process group over MPI: processes started by `mpirun`, on one machine or several.

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

/// Values, or bytes, in one transfer: bounds the memory of a sum (two buffers of 25 MiB).
const CHUNK: usize = 25 << 18;
/// How long a process that waits for the others polls without sleeping.
const SPIN_TIME: Duration = Duration::from_millis(5);
/// Its sleep between polls after that: short compared with a step that takes longer than
/// [`SPIN_TIME`].
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// This process in `MPI_COMM_WORLD`.
pub struct MpiGroup {
    /// `None` after leaving. Dropping it finalises MPI, which waits for all processes; only
    /// [`ProcessGroup::leave`] does so, since a process with an error must not wait.
    universe: RefCell<Option<Universe>>,
    world: SimpleCommunicator,
    /// The send and receive buffers, reused for each sum.
    buffers: RefCell<[Vec<f32>; 2]>,
    /// This process's rank, and the processes that it watches.
    watcher: Watcher,
}

impl MpiGroup {
    /// Initialises MPI and joins the other processes.
    ///
    /// # Errors
    /// When the launcher's MPI is not the one that this program was built with, or MPI was already
    /// initialised.
    pub fn join(launch: Launch, program: Program, interrupt: &Interrupt) -> Result<Self> {
        // Only the thread that runs the command calls MPI.
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
        group.watcher.peers = group.local_peers()?;
        Ok(group)
    }

    /// The other processes on this machine.
    fn local_peers(&self) -> Result<Vec<Peer>> {
        let machine = processor_name().unwrap_or_default();
        let everyone = all_gather(self, format!("{} {machine}", std::process::id()).as_bytes())?;
        let peers = everyone.iter().enumerate().filter(|(rank, _)| *rank != self.rank()).filter_map(|(rank, text)| {
            let (pid, its_machine) = std::str::from_utf8(text).ok()?.split_once(' ')?;
            let peer = Peer { rank, pid: pid.parse().ok()? };
            // Containers may share a machine's name but not its process table: only visible
            // processes can be watched.
            (its_machine == machine && peer.is_alive()).then_some(peer)
        });
        Ok(peers.collect())
    }

    /// Waits until every process has arrived. MPI's own calls busy-wait, which slows processes that
    /// still compute on the same cores.
    fn barrier(&self) {
        let began = Instant::now();
        let mut arrival = self.world.immediate_barrier();
        loop {
            match arrival.test() {
                Ok(_) => return,
                Err(waiting) => arrival = waiting,
            }
            if began.elapsed() < SPIN_TIME { thread::yield_now() } else { thread::sleep(POLL_INTERVAL) }
        }
    }

    /// The sum of at most [`CHUNK`] values: reduce-scatter, then all-gather, so that every value is
    /// sent twice, as in a ring. Each process sums its share of the values, always in the order of
    /// the ranks. MPI only moves bytes, so neither its choice of algorithm nor the network can
    /// change a bit.
    fn sum_chunk(&self, values: &mut [f32]) {
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
        self.barrier();
        for chunk in values.chunks_mut(CHUNK) {
            self.sum_chunk(chunk);
        }
        Ok(())
    }

    fn broadcast(&self, bytes: &mut [u8]) -> Result<()> {
        self.barrier();
        for chunk in bytes.chunks_mut(CHUNK) {
            self.world.process_at_rank(0).broadcast_into(chunk);
        }
        Ok(())
    }

    fn keep_watch(&self, run: &Path) {
        // Before a process first checks for signals, a signal ends it at once. So all check before
        // any of them watches, which would report such a process as dead.
        self.watcher.interrupt.requested();
        self.barrier();
        self.watcher.begin(run);
    }

    fn code(&self, error: &Error) -> u8 {
        (self.watcher.program.code)(error)
    }

    fn leave(&self) {
        let Some(universe) = self.universe.take() else { return }; // left already
        // From here on, a process that is gone has finished.
        self.watcher.ended.store(true, Ordering::SeqCst);
        self.barrier();
        drop(universe);
    }
}

impl Drop for MpiGroup {
    fn drop(&mut self) {
        // After an error, finalising MPI would wait for processes that wait for this one.
        std::mem::forget(self.universe.take());
    }
}
