//! The entry points that libFuzzer calls: one program for all harnesses; `EMBER_FUZZ` selects one.
#![no_main]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::{env, process, slice};

use ember_fuzz::{Harness, harnesses, limits};
// libFuzzer's driver, which provides `main`.
use libfuzzer_sys as _;

static CHOSEN: LazyLock<Option<&Harness>> = LazyLock::new(|| {
    let name = env::var("EMBER_FUZZ").unwrap_or_default();
    harnesses().find(|harness| harness.name == name)
});

/// Called before the first input. If no harness is selected, lists all with their maximum input
/// lengths, and exits.
#[unsafe(no_mangle)]
pub extern "C" fn LLVMFuzzerInitialize(_: *const i32, _: *const *const *const u8) -> i32 {
    if CHOSEN.is_none() {
        harnesses().for_each(|Harness { name, longest, .. }| println!("{name} {longest}"));
        process::exit(0);
    }
    0
}

/// Runs the harness on an input. A panic that escapes the reader aborts the process, which
/// libFuzzer records as a fault; one that the reader catches does not. A panic hook could not tell
/// them apart.
///
/// # Safety
/// `bytes` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LLVMFuzzerTestOneInput(bytes: *const u8, length: usize) -> i32 {
    let input = match length {
        0 => &[],
        // SAFETY: libFuzzer passes that many bytes.
        _ => unsafe { slice::from_raw_parts(bytes, length) },
    };
    let Some(chosen) = *CHOSEN else { process::abort() };
    let read = || limits::within_memory(|| (chosen.read)(input));
    if catch_unwind(AssertUnwindSafe(read)).is_err() {
        process::abort();
    }
    0
}
