//! Keeps freed memory in the allocator from one step to the next.
//!
//! A step frees nearly all memory that it allocated. mimalloc returns such memory to the system
//! after a second; the next step then waits for the system to clear every page, for up to an eighth
//! of the time of steps of about a second. Keeping it for a minute only costs memory: blocks of one
//! size do not fit into the gaps of another, and the process holds up to half as much again as is
//! ever in use at once. So freed memory is kept if twice the predicted memory is available.
//! Otherwise it is returned at once, and the process holds at most a tenth more than is in use.

#![allow(unsafe_code)] // the allocator's own options

use std::ffi::{c_int, c_long};

/// `mi_option_purge_delay` of `mimalloc.h`, whose numbers do not change between versions.
pub const PURGE_DELAY: c_int = 15;

/// How long freed memory is kept, in milliseconds.
pub const KEPT_MS: c_long = 60_000;

// The crate mimalloc declares these only with a feature; the library always has them.
unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    fn mi_collect(force: bool);
}

/// Freed memory is kept if this many times the predicted memory is available.
const ROOMY: u64 = 2;

/// Makes the allocator keep freed memory. The environment variable `MIMALLOC_PURGE_DELAY` has
/// precedence.
pub fn keep_freed_memory() {
    set_delay(KEPT_MS);
}

/// Makes the allocator keep freed memory if twice the `predicted` bytes are `available`, or if the
/// available memory is unknown; otherwise makes it return freed memory at once. Returns whether
/// memory is kept.
pub fn keep_where_there_is_room(predicted: u64, available: Option<u64>) -> bool {
    // Before the delay changes: with a delay of 0 the allocator no longer purges what it kept
    // before.
    give_back_freed_memory();
    let roomy = available.is_none_or(|available| available >= ROOMY.saturating_mul(predicted));
    set_delay(if roomy { KEPT_MS } else { 0 });
    roomy
}

fn set_delay(ms: c_long) {
    // SAFETY: sets one number, which the allocator reads when memory is freed.
    unsafe { mi_option_set_default(PURGE_DELAY, ms) };
}

/// Returns all freed memory to the system. Called between two kinds of work: memory that one has
/// freed does not fit the other, so their peaks would add up.
pub fn give_back_freed_memory() {
    // SAFETY: frees no block that is in use.
    unsafe { mi_collect(true) };
}
