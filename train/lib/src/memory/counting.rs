//! An allocator that counts allocated bytes: the ledger uses it to measure memory on the CPU.
//!
//! While off, as everywhere except in the ledger and the bench, it costs one read of a flag that
//! never changes. While on, it counts every allocation and deallocation, and keeps the peak of live
//! bytes, however short. Memory that `ember_kernels::arena` holds is counted too.

#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use ember_kernels::arena::held;
use mimalloc::MiMalloc;

/// The program's allocator: mimalloc with counting.
pub struct Counting {
    /// Ends the program when the system refuses this many bytes. It must not allocate. Without it,
    /// Rust would abort.
    pub refused: fn(usize) -> !,
}

static ON: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

#[inline]
fn count(bytes: i64) {
    if !ON.load(Relaxed) {
        return;
    }
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes + held() as i64;
    // Reading first avoids moving the cache line between threads at every allocation.
    if live > PEAK.load(Relaxed) {
        PEAK.fetch_max(live, Relaxed);
    }
}

impl Counting {
    /// Returns the block, or ends the program if the allocation failed.
    fn checked(&self, block: *mut u8, size: usize) -> *mut u8 {
        if block.is_null() {
            (self.refused)(size);
        }
        block
    }
}

// SAFETY: every call is forwarded to mimalloc unchanged; the counting touches none of the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise.
        self.checked(unsafe { MiMalloc.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise.
        self.checked(unsafe { MiMalloc.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise.
        self.checked(unsafe { MiMalloc.realloc(pointer, layout, new_size) }, new_size)
    }
}

/// Begins to count from zero. Returns whether the program's allocator is [`Counting`], which a
/// library cannot know otherwise.
pub fn start() -> bool {
    LIVE.store(-(held() as i64), Relaxed);
    PEAK.store(0, Relaxed);
    ON.store(true, Relaxed);
    let is_counted = || {
        let before = LIVE.load(Relaxed);
        let probe = std::hint::black_box(vec![0u8; 1 << 16]);
        LIVE.load(Relaxed) - before >= probe.len() as i64
    };
    // Several attempts, since another thread may free memory meanwhile.
    let counted = (0..8).any(|_| is_counted());
    if !counted {
        ON.store(false, Relaxed);
    }
    counted
}

/// Stops counting, which is a little faster; the counts stay as they are.
pub fn stop() {
    ON.store(false, Relaxed);
}

/// Bytes allocated and not freed since [`start`]; negative if more were freed than allocated.
pub fn live() -> i64 {
    LIVE.load(Relaxed) + held() as i64
}

/// Resets the peak to the bytes live now.
pub fn reset_peak() {
    PEAK.store(live(), Relaxed);
}

/// The most bytes live at once since [`start`] or [`reset_peak`].
pub fn peak() -> i64 {
    PEAK.load(Relaxed)
}
