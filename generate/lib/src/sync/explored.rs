//! Time in a model, which shuttle does not have: a wait may end at any moment, and whatever is
//! measured took as long.

use std::ops::Add;
use std::time::Duration;

/// As std's.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub struct Instant(Duration);

impl Instant {
    /// Time stands still.
    pub fn now() -> Self {
        Self(Duration::ZERO)
    }

    /// The same for all.
    pub fn elapsed(&self) -> Duration {
        Duration::from_millis(1)
    }

    /// As std's.
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, more: Duration) -> Self {
        Self(self.0 + more)
    }
}

/// As std's.
pub mod mpsc {
    use std::time::Duration;

    use shuttle::{sync::mpsc, thread};

    pub use mpsc::{RecvError, RecvTimeoutError, Sender, SyncSender, TryRecvError, sync_channel};

    /// As std's.
    pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = mpsc::channel();
        (sender, Receiver(receiver))
    }

    /// One whose waits may end before anything comes.
    pub struct Receiver<T>(mpsc::Receiver<T>);

    impl<T> Receiver<T> {
        /// As std's.
        pub fn recv(&self) -> Result<T, RecvError> {
            self.0.recv()
        }

        /// As std's: however long it is, others get as far meanwhile as the order says that is
        /// explored.
        pub fn recv_timeout(&self, _: Duration) -> Result<T, RecvTimeoutError> {
            thread::yield_now();
            self.0.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            })
        }
    }
}
