//! What reading an input may take: memory here, time where the input is handed over.

#![allow(unsafe_code)] // an allocator that counts

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The most bytes that all threads together may hold while an input is read, beside what they held
/// before.
pub const MOST_BYTES: usize = 512 << 20;

/// How long an input may take.
pub const MOST_TIME: Duration = Duration::from_secs(10);

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The system's allocator, which ends the process where more is asked for than is allowed.
struct Limited;

#[global_allocator]
static ALLOCATOR: Limited = Limited;

// SAFETY: every call is the system allocator's own, or the process ends.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size);
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(at, layout) }
    }
}

fn take(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    if held > MOST.load(Ordering::Relaxed) {
        MOST.store(usize::MAX, Ordering::Relaxed); // telling of it needs memory too
        end(held);
    }
}

/// Ends the process: a panic might be held by the reader that is tried.
fn end(held: usize) -> ! {
    let trace = std::backtrace::Backtrace::force_capture();
    eprintln!("{held} bytes are asked for, and an input may take {MOST_BYTES}\n{trace}");
    std::process::abort()
}

/// Runs `work` with no more memory than an input may take; else the process ends.
pub fn within_memory<T>(work: impl FnOnce() -> T) -> T {
    MOST.store(HELD.load(Ordering::Relaxed) + MOST_BYTES, Ordering::Relaxed);
    let result = work();
    MOST.store(usize::MAX, Ordering::Relaxed);
    result
}
