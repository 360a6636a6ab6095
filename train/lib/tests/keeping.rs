//! The allocator's delay. The option is the whole process's, so this test has a process of its own:
//! every run that begins beside it would change it.

#![allow(unsafe_code)] // the allocator's own option

use std::ffi::{c_int, c_long};

use ember_training::memory::keeping::{KEPT_MS, PURGE_DELAY, keep_freed_memory, keep_where_there_is_room};

unsafe extern "C" {
    fn mi_option_get(option: c_int) -> c_long;
}

/// Checks the option's number by its default value of one second in mimalloc.
#[test]
fn the_option_is_the_delay() {
    let delay = || {
        // SAFETY: only reads the option.
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
