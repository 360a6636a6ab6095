//! Simulated time, which shuttle lacks: a timed wait may end at any moment, and every measured
//! duration is the same.

use std::ops::Add;
use std::time::Duration;

/// As std's.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub struct Instant(Duration);

impl Instant {
    /// Always the same instant.
    pub fn now() -> Self {
        Self(Duration::ZERO)
    }

    /// Always the same duration.
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

    /// A receiver whose timed waits may end before a message arrives.
    pub struct Receiver<T>(mpsc::Receiver<T>);

    impl<T> Receiver<T> {
        /// As std's.
        pub fn recv(&self) -> Result<T, RecvError> {
            self.0.recv()
        }

        /// As std's, but ignores the duration: the explored schedule decides how far other threads
        /// get meanwhile.
        pub fn recv_timeout(&self, _: Duration) -> Result<T, RecvTimeoutError> {
            thread::yield_now();
            self.0.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            })
        }
    }
}
