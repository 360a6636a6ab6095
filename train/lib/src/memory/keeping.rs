//! What one step frees the next one takes again, and the allocator keeps it in between.
//!
//! A step frees nearly all that it took. mimalloc gives such memory back to the system after a
//! second; a step that then takes it again waits for the system to clear every page: up to an
//! eighth of the time of steps of about a second. Kept for a minute it costs nothing but memory:
//! blocks of one size do not fit into the gaps of another, and the process holds up to half as much
//! again as is ever in use at once. So it is kept where there is room for twice what is predicted;
//! elsewhere it goes back at once, and the process holds what is in use, to a tenth.

#![allow(unsafe_code)] // the allocator's own options

use std::ffi::{c_int, c_long};

/// `mi_option_purge_delay` of `mimalloc.h`, whose numbers stay what they are from version to
/// version.
const PURGE_DELAY: c_int = 15;

/// How long freed memory is kept, in milliseconds.
const KEPT_MS: c_long = 60_000;

// The crate mimalloc declares these only with a feature that compiles nothing more; the library
// always has them.
unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    fn mi_collect(force: bool);
}

/// How many times what is predicted must be available for freed memory to be kept.
const ROOMY: u64 = 2;

/// Has the allocator keep what is freed. The environment variable `MIMALLOC_PURGE_DELAY` goes
/// before.
pub fn keep_freed_memory() {
    set_delay(KEPT_MS);
}

/// Has the allocator keep what is freed where twice the `predicted` bytes are `available`, or
/// nobody knows how many are, and give it back at once where they are not. Returns whether it is
/// kept.
pub fn keep_where_there_is_room(predicted: u64, available: Option<u64>) -> bool {
    // Before the delay changes: without one the allocator looks no more for what it keeps.
    give_back_freed_memory();
    let roomy = available.is_none_or(|available| available >= ROOMY.saturating_mul(predicted));
    set_delay(if roomy { KEPT_MS } else { 0 });
    roomy
}

fn set_delay(ms: c_long) {
    // SAFETY: sets one number, which the allocator reads when memory is freed.
    unsafe { mi_option_set_default(PURGE_DELAY, ms) };
}

/// Gives back what is kept. Between two kinds of work, since what one has freed does not fit the
/// other: kept, the largest amounts of both would add up.
pub fn give_back_freed_memory() {
    // SAFETY: no block that is in use is touched.
    unsafe { mi_collect(true) };
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    /// Were it another option's number, the value before would not be mimalloc's second.
    #[test]
    fn the_option_is_the_delay() {
        let delay = || {
            // SAFETY: reads one number.
            unsafe { mi_option_get(PURGE_DELAY) }
        };
        assert_eq!(delay(), 1_000);
        keep_freed_memory();
        assert_eq!(delay(), KEPT_MS);
        for (available, kept) in [(Some(199), false), (Some(200), true), (None, true)] {
            assert_eq!(keep_where_there_is_room(100, available), kept);
            assert_eq!(delay(), if kept { KEPT_MS } else { 0 });
        }
    }
}
