//! An allocator that knows how much it has given out: how the ledger measures memory on the CPU.
//!
//! Off, as it is but for the ledger and the bench, it costs one read of a flag that never changes.
//! On, every block given out or taken back is added to one number, and the largest that number has
//! been is kept: what was needed at the worst moment, however short. What `ember_kernels::arena`
//! holds beside the allocator is counted with it.

#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use ember_kernels::arena::held;
use mimalloc::MiMalloc;

/// The program's allocator: mimalloc, counted.
pub struct Counting {
    /// Ends the program where the system refuses so many bytes, without allocating any: what Rust
    /// itself does is to abort.
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
    // Reading first keeps the threads from passing the line around at every block.
    if live > PEAK.load(Relaxed) {
        PEAK.fetch_max(live, Relaxed);
    }
}

impl Counting {
    /// A block that was given out, or the end.
    fn given(&self, block: *mut u8, size: usize) -> *mut u8 {
        if block.is_null() {
            (self.refused)(size);
        }
        block
    }
}

// SAFETY: every call goes to mimalloc as it came; the counting touches none of the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise.
        self.given(unsafe { MiMalloc.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise.
        self.given(unsafe { MiMalloc.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise.
        self.given(unsafe { MiMalloc.realloc(pointer, layout, new_size) }, new_size)
    }
}

/// Begins to count from zero. Whether the program allocates through [`Counting`] at all: a library
/// cannot know.
pub fn start() -> bool {
    LIVE.store(-(held() as i64), Relaxed);
    PEAK.store(0, Relaxed);
    ON.store(true, Relaxed);
    let is_counted = || {
        let before = LIVE.load(Relaxed);
        let probe = std::hint::black_box(vec![0u8; 1 << 16]);
        LIVE.load(Relaxed) - before >= probe.len() as i64
    };
    // More than once: another thread may give something back meanwhile.
    let counted = (0..8).any(|_| is_counted());
    if !counted {
        ON.store(false, Relaxed);
    }
    counted
}

/// Counts no longer, which is a little faster; what was counted stays as it is.
pub fn stop() {
    ON.store(false, Relaxed);
}

/// Bytes given out and not taken back since [`start`]; below zero where more was taken back.
pub fn live() -> i64 {
    LIVE.load(Relaxed) + held() as i64
}

/// Lets the peak begin again at what is live now.
pub fn reset_peak() {
    PEAK.store(live(), Relaxed);
}

/// The most that was live at once since [`start`] or [`reset_peak`], in bytes.
pub fn peak() -> i64 {
    PEAK.load(Relaxed)
}
