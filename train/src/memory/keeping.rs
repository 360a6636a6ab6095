//! What one step frees the next one takes again, and the allocator keeps it in between.
//!
//! A step frees nearly all that it took. mimalloc gives such memory back to the system after a second; a step that then takes it
//! again waits for the system to clear every page: up to an eighth of the time of steps of about a second. Kept for a minute
//! it costs nothing to speak of, and what an evaluation or a save took beside the steps still goes back.

use std::ffi::{c_int, c_long};

/// `mi_option_purge_delay` of `mimalloc.h`, whose numbers stay what they are from version to version.
const PURGE_DELAY: c_int = 15;

/// How long freed memory is kept, in milliseconds.
const KEPT_MS: c_long = 60_000;

// The crate mimalloc declares these only with a feature that compiles nothing more; the library always has them.
unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
}

/// Has the allocator keep what is freed. The environment variable `MIMALLOC_PURGE_DELAY` goes before.
pub fn keep_freed_memory() {
    // SAFETY: sets one number, which the allocator reads when memory is freed.
    unsafe { mi_option_set_default(PURGE_DELAY, KEPT_MS) };
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
    }
}
