//! What libFuzzer calls: one program for all harnesses, of which `EMBER_FUZZ` names one.
#![no_main]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::{env, process, slice};

use ember_fuzz::{Harness, harnesses, limits};
// The driver, whose `main` is the program's.
use libfuzzer_sys as _;

static CHOSEN: LazyLock<Option<&Harness>> = LazyLock::new(|| {
    let name = env::var("EMBER_FUZZ").unwrap_or_default();
    harnesses().find(|harness| harness.name == name)
});

/// Before the first input: where no harness is named, tells which there are, and their longest
/// inputs.
#[unsafe(no_mangle)]
pub extern "C" fn LLVMFuzzerInitialize(_: *const i32, _: *const *const *const u8) -> i32 {
    if CHOSEN.is_none() {
        harnesses().for_each(|Harness { name, longest, .. }| println!("{name} {longest}"));
        process::exit(0);
    }
    0
}

/// An input. A panic that leaves the reader ends the process, by which libFuzzer knows a fault; one
/// that the reader holds does not, which a panic hook could not tell apart.
///
/// # Safety
/// `bytes` are `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LLVMFuzzerTestOneInput(bytes: *const u8, length: usize) -> i32 {
    let input = match length {
        0 => &[],
        // SAFETY: libFuzzer hands over that many bytes.
        _ => unsafe { slice::from_raw_parts(bytes, length) },
    };
    let Some(chosen) = *CHOSEN else { process::abort() };
    let read = || limits::within_memory(|| (chosen.read)(input));
    if catch_unwind(AssertUnwindSafe(read)).is_err() {
        process::abort();
    }
    0
}
