//! The program's allocator, mimalloc, by which a piece of work can have a bound to its memory.
//!
//! What runs a stranger's template counts steps and not bytes: a text that is doubled forty times is
//! a short program. And it asks for memory where none can be refused, since a text that cannot grow
//! ends the process. So a thread that asks for too much is left standing where it is, with what it
//! holds, and who waits for it goes on without it.

#![allow(unsafe_code)] // an allocator that counts

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use mimalloc::MiMalloc;

/// mimalloc, where no bound is set.
pub struct Bounded;

thread_local! {
    /// Bytes that this thread may still take.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    /// What is set where that is not enough; none where there is no bound.
    static OVERRUN: Cell<Option<&'static AtomicBool>> = const { Cell::new(None) };
}

// SAFETY: every call is mimalloc's own, or does not return.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's promises are handed on.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's promises are handed on.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size);
        give_back(layout.size());
        // SAFETY: the caller's promises are handed on.
        unsafe { MiMalloc.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: the caller's promises are handed on.
        unsafe { MiMalloc.dealloc(at, layout) }
    }
}

fn take(bytes: usize) {
    let Some(overrun) = OVERRUN.get() else { return };
    match LEFT.get().checked_sub(bytes) {
        Some(left) => LEFT.set(left),
        None => {
            overrun.store(true, Ordering::Relaxed);
            loop {
                thread::park();
            }
        }
    }
}

fn give_back(bytes: usize) {
    if OVERRUN.get().is_some() {
        LEFT.set(LEFT.get().saturating_add(bytes));
    }
}

/// How often is looked whether a thread was left standing.
const LOOK: Duration = Duration::from_millis(20);

/// What work may take.
pub struct Bound {
    most_bytes: usize,
    most_time: Duration,
    stack_bytes: usize,
    overrun: &'static AtomicBool,
}

impl Bound {
    /// For work that is done again and again; a byte of memory stays for each. The stack is only an
    /// address until something is put there.
    pub fn new(most_bytes: usize, most_time: Duration, stack_bytes: usize) -> Self {
        Self { most_bytes, most_time, stack_bytes, overrun: Box::leak(Box::new(AtomicBool::new(false))) }
    }

    /// What `act` gives, on a thread of its own; `None` where it takes more memory or time. Once it
    /// took more memory nothing is begun any more, since what it holds stays.
    pub fn give<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (sender, receiver) = channel();
        let (most_bytes, overrun) = (self.most_bytes, self.overrun);
        let bounded = move || {
            LEFT.set(most_bytes);
            OVERRUN.set(Some(overrun));
            let given = act();
            OVERRUN.set(None);
            let _ = sender.send(given); // who waited may have gone on
        };
        if self.overrun.load(Ordering::Relaxed) {
            return None;
        }
        thread::Builder::new().stack_size(self.stack_bytes).spawn(bounded).ok()?;
        let began = Instant::now();
        while began.elapsed() < self.most_time && !self.overrun.load(Ordering::Relaxed) {
            match receiver.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {}
                given => return given.ok(),
            }
        }
        None
    }
}
