//! A request to stop: a flag that signals set and long work checks between its steps.

use std::sync::OnceLock;

use crate::sync::{Arc, atomic::AtomicBool, atomic::Ordering};

/// Whether the user asked the program to stop; clones share one state.
///
/// The first signal sets a flag and leaves stopping to the work in progress, which can still save
/// its results. A second signal ends the process at once, and so does a first one if nothing has
/// checked the flag yet: there is nothing to save, and whatever the process waits for may never
/// come.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    requested: AtomicBool,
    waiting: AtomicBool,
    /// Whether any work has checked the flag.
    looked: AtomicBool,
    before_exit: OnceLock<fn()>,
}

impl Interrupt {
    /// An interrupt that no signal reaches: for tests, and for callers that only use
    /// [`Interrupt::request`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Handles a signal, and returns whether it ends the process; if so, the `before_exit` function
    /// has run.
    pub fn signalled(&self) -> bool {
        let ends = self.ends_at_once();
        if let (true, Some(tidy_up)) = (ends, self.state.before_exit.get()) {
            tidy_up();
        }
        ends
    }

    fn ends_at_once(&self) -> bool {
        let State { requested, waiting, looked, .. } = &*self.state;
        let again = requested.swap(true, Ordering::SeqCst);
        again || waiting.load(Ordering::SeqCst) || !looked.load(Ordering::SeqCst)
    }

    /// Sets what runs before a signal ends the process at once, such as restoring the terminal.
    /// Only the first call counts.
    pub fn before_exit(&self, tidy_up: fn()) {
        self.state.before_exit.get_or_init(|| tidy_up);
    }

    /// Whether the work in progress should stop now and keep its results.
    pub fn requested(&self) -> bool {
        self.state.looked.store(true, Ordering::SeqCst);
        self.state.requested.load(Ordering::SeqCst)
    }

    /// Asks the work in progress to stop, as the first signal does.
    pub fn request(&self) {
        self.state.requested.store(true, Ordering::SeqCst);
    }

    /// Clears the request after the work has stopped: the next signal is a first one again.
    pub fn clear(&self) {
        self.state.requested.store(false, Ordering::SeqCst);
    }

    /// Runs something that blocks and has nothing to save, such as reading a line: meanwhile a
    /// first signal ends the process. `None`, without running it, if an unseen signal came before:
    /// otherwise only a second one would end the wait.
    ///
    /// This checks the flag, as [`Interrupt::requested`] does: a signal after the wait is for the
    /// work that follows, even before that work has checked the flag itself.
    pub fn while_waiting<T>(&self, block: impl FnOnce() -> T) -> Option<T> {
        // In this order, so that a signal either sees `waiting` or is seen here.
        self.state.waiting.store(true, Ordering::SeqCst);
        let result = (!self.requested()).then(block);
        self.state.waiting.store(false, Ordering::SeqCst);
        result
    }
}

#[cfg(all(test, feature = "interleavings"))]
mod interleaving_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_request() {
        let interrupt = Interrupt::new();
        let seen_by_the_loop = interrupt.clone();
        assert!(!seen_by_the_loop.requested());
        interrupt.request();
        assert!(seen_by_the_loop.requested());
    }

    #[test]
    fn a_first_signal_is_for_work_that_looks() {
        assert!(Interrupt::new().ends_at_once(), "nobody looks");
        let interrupt = Interrupt::new();
        assert!(!interrupt.requested());
        assert!(!interrupt.ends_at_once() && interrupt.requested());
        assert!(interrupt.ends_at_once(), "the second");
        interrupt.clear();
        assert!(!interrupt.ends_at_once());
        interrupt.clear();
        assert_eq!(interrupt.while_waiting(|| interrupt.ends_at_once()), Some(true));
    }

    #[test]
    fn nothing_waits_where_a_signal_was_not_seen() {
        let interrupt = Interrupt::new();
        interrupt.request();
        assert_eq!(interrupt.while_waiting(|| ()), None);
    }

    #[test]
    fn a_first_signal_after_a_wait_is_for_the_work_that_follows() {
        let interrupt = Interrupt::new();
        assert_eq!(interrupt.while_waiting(|| interrupt.ends_at_once()), Some(true), "while it waits");
        let interrupt = Interrupt::new();
        assert_eq!(interrupt.while_waiting(|| ()), Some(()));
        assert!(!interrupt.ends_at_once() && interrupt.requested());
    }

    #[test]
    fn waiting_ends_with_the_wait() {
        let interrupt = Interrupt::new();
        assert_eq!(interrupt.while_waiting(|| interrupt.state.waiting.load(Ordering::SeqCst)), Some(true));
        assert!(!interrupt.state.waiting.load(Ordering::SeqCst));
    }
}
