//! Runs work on untrusted input within bounds of memory and time.
//!
//! An interpreter of templates counts steps and not bytes: a short program can double a text forty
//! times. A grammar engine counts its states only after it has made them. And both allocate where
//! no allocation can fail, since a text that cannot grow ends the process. So a thread that
//! allocates too much is parked where it is, with its memory, and its caller goes on without it.

#![allow(unsafe_code)] // implements a counting allocator

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// An allocator that can bound the memory of work; only if it is the program's global allocator is
/// there such a bound.
pub struct Bounded<A>(pub A);

thread_local! {
    /// Bytes that this thread may still allocate.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Set when they do not suffice; null if there is no bound.
    static OVERRUN: Cell<*const AtomicBool> = const { Cell::new(ptr::null()) };
}

// SAFETY: every call is forwarded to the inner allocator, or does not return.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Bounded<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller upholds the contract of the inner allocator too.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller upholds the contract of the inner allocator too.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size);
        give_back(layout.size());
        // SAFETY: the caller upholds the contract of the inner allocator too.
        unsafe { self.0.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: the caller upholds the contract of the inner allocator too.
        unsafe { self.0.dealloc(at, layout) }
    }
}

fn take(bytes: usize) {
    let Some(overrun) = NonNull::new(OVERRUN.get().cast_mut()) else { return };
    match LEFT.get().checked_sub(bytes) {
        Some(left) => LEFT.set(left),
        // The thread is panicking, and prints its message under a lock that all threads share: it
        // must not be parked there.
        None if thread::panicking() => LEFT.set(0),
        None => {
            // SAFETY: the thread owns the flag until it resets the pointer.
            unsafe { overrun.as_ref() }.store(true, Ordering::Relaxed);
            loop {
                thread::park();
            }
        }
    }
}

fn give_back(bytes: usize) {
    if !OVERRUN.get().is_null() {
        LEFT.set(LEFT.get().saturating_add(bytes));
    }
}

/// Why bounded work has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundError {
    /// It needs more memory or time than its bounds.
    #[error("it takes too much memory or time")]
    Exceeded,
    /// Earlier work that exceeded its bounds still runs, or is parked with its memory.
    #[error("earlier work took too much memory or time, and still holds it: restart the program")]
    EarlierWork,
    /// The system refused a thread with such a stack, so the work did not run.
    #[error("the system refused a thread or its stack")]
    NoThread,
}

/// How often the caller checks whether the thread was parked.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// The bounds of work.
#[derive(Debug)]
pub struct Bound {
    most_bytes: usize,
    most_time: Duration,
    stack_bytes: usize,
    most_abandoned: usize,
    abandoned: Mutex<Vec<JoinHandle<()>>>,
}

impl Bound {
    /// Work may hold `most_bytes` at once, if the program's allocator is [`Bounded`]. After
    /// `most_time` the caller goes on, and so does the work, to its end or to the bound of memory.
    /// The stack is only address space until it is used. While `most_abandoned` threads without a
    /// caller still run or are parked, no other work starts, since their memory adds up.
    pub const fn new(most_bytes: usize, most_time: Duration, stack_bytes: usize, most_abandoned: usize) -> Self {
        Self { most_bytes, most_time, stack_bytes, most_abandoned, abandoned: Mutex::new(Vec::new()) }
    }

    /// Runs `act` on its own thread and returns its result. A panic in it continues in the caller.
    ///
    /// # Errors
    /// When it needs more memory or time, or cannot start.
    pub fn run<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> Result<T, BoundError> {
        let abandoned = || self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        abandoned().retain(|thread| !thread.is_finished());
        if abandoned().len() >= self.most_abandoned {
            return Err(BoundError::EarlierWork);
        }
        let (sender, receiver) = channel();
        let (most_bytes, overrun) = (self.most_bytes, Arc::new(AtomicBool::new(false)));
        let is_overrun = Arc::clone(&overrun);
        let bounded = move || {
            LEFT.set(most_bytes);
            OVERRUN.set(Arc::as_ptr(&overrun));
            let given = catch_unwind(AssertUnwindSafe(act));
            OVERRUN.set(ptr::null());
            let _ = sender.send(given); // the caller may have given up
        };
        let thread =
            thread::Builder::new().stack_size(self.stack_bytes).spawn(bounded).map_err(|_| BoundError::NoThread)?;
        let began = Instant::now();
        while began.elapsed() < self.most_time && !is_overrun.load(Ordering::Relaxed) {
            match receiver.recv_timeout(POLL_EVERY) {
                Ok(given) => return Ok(given.unwrap_or_else(|panic| resume_unwind(panic))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(BoundError::NoThread),
            }
        }
        abandoned().push(thread);
        Err(BoundError::Exceeded)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::alloc::System;
    use std::sync::mpsc::sync_channel;

    #[global_allocator]
    static ALLOCATOR: Bounded<System> = Bounded(System);

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn work_within_its_bounds_gives_what_it_makes() {
        let bound = Bound::new(1 << 20, SOON, 1 << 20, 1);
        for round in 0..1000 {
            let made = bound.run(move || vec![round; 100_000 / size_of::<usize>()]).unwrap();
            assert!(made.iter().all(|&one| one == round), "what was given back may be taken again");
        }
    }

    #[test]
    fn who_asks_for_too_much_is_left_standing_and_no_other_is_begun() {
        let bound = Bound::new(1 << 20, SOON, 1 << 20, 1);
        let much = bound.run(|| (0..64).map(|_| vec![1_u8; 1 << 16]).collect::<Vec<_>>());
        assert_eq!(much.unwrap_err(), BoundError::Exceeded);
        assert_eq!(bound.run(|| ()), Err(BoundError::EarlierWork), "what the first holds stays");
    }

    #[test]
    fn who_takes_too_long_keeps_others_waiting_until_it_has_ended() {
        let bound = Bound::new(1 << 20, Duration::from_millis(50), 1 << 20, 1);
        let (end, ends) = sync_channel::<()>(0);
        assert_eq!(bound.run(move || ends.recv().unwrap()), Err(BoundError::Exceeded));
        assert_eq!(bound.run(|| ()), Err(BoundError::EarlierWork));
        end.send(()).unwrap();
        let began = Instant::now();
        while bound.run(|| ()).is_err() {
            assert!(began.elapsed() < SOON);
            thread::yield_now();
        }
    }

    #[test]
    fn a_panic_is_that_of_who_waits() {
        let bound = Bound::new(1 << 20, SOON, 1 << 20, 1);
        let work = AssertUnwindSafe(|| bound.run(|| panic!("out of the work")));
        let panic = catch_unwind(work).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of the work"));
        bound.run(|| ()).unwrap();
    }
}
