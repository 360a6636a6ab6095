//! Limits on reading an input: memory is enforced here, time by the callers.

#![allow(unsafe_code)] // a counting allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Maximum of bytes that all threads together may allocate while an input is read.
pub const MAX_BYTES: usize = 512 << 20;

/// Maximum time for an input.
pub const MAX_TIME: Duration = Duration::from_secs(10);

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The system's allocator; ends the process when an allocation exceeds the limit.
struct Limited;

#[global_allocator]
static ALLOCATOR: Limited = Limited;

// SAFETY: every call is the system allocator's own, or the process ends.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(at, layout) }
    }
}

fn count(bytes: usize) {
    let allocated = ALLOCATED.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    if allocated > LIMIT.load(Ordering::Relaxed) {
        LIMIT.store(usize::MAX, Ordering::Relaxed); // reporting it needs memory too
        abort(allocated);
    }
}

/// Ends the process: the reader under test might catch a panic.
fn abort(allocated: usize) -> ! {
    let trace = std::backtrace::Backtrace::force_capture();
    eprintln!("{allocated} bytes are asked for, and an input may take {MAX_BYTES}\n{trace}");
    std::process::abort()
}

/// Runs `work`; ends the process if it allocates more than the limit.
pub fn within_memory<T>(work: impl FnOnce() -> T) -> T {
    LIMIT.store(ALLOCATED.load(Ordering::Relaxed) + MAX_BYTES, Ordering::Relaxed);
    let result = work();
    LIMIT.store(usize::MAX, Ordering::Relaxed);
    result
}
