//! The witness as a library that the loader puts before all others of a program: what the program
//! does to its disk goes into a journal, and at its time it is sent a signal.

#![allow(unsafe_code)] // the loader calls it, and it writes where it does not see itself

#[path = "witness.rs"]
mod witness;

use std::fs::File;
use std::os::fd::IntoRawFd;

use witness::{Operation, Orders};

/// What the loader calls before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = begin;

extern "C" fn begin() {
    // Of several processes the first alone writes into a run.
    let follows = std::env::var("OMPI_COMM_WORLD_RANK").is_ok_and(|rank| rank != "0");
    let Some(orders) = std::env::var_os(witness::ORDERS).filter(|_| !follows) else { return };
    let orders = std::fs::read(orders).expect("orders of the test");
    let Orders { folder, journal, full, signal } = serde_json::from_slice(&orders).expect("orders of the test");
    let journal = File::create(journal).expect("a journal").into_raw_fd();
    let mut count = 0;
    let mut obey = move || {
        if let Some((after, signal)) = signal
            && after == count
        {
            // SAFETY: a signal to this process.
            unsafe { libc::kill(libc::getpid(), signal) };
        }
        count += 1;
    };
    obey();
    witness::watch(&folder, full, move |operation: Operation| {
        let line = serde_json::to_string(&operation).expect("an operation") + "\n";
        // Not as a file: that would be seen.
        // SAFETY: bytes that are there, into a file that stays open.
        unsafe { libc::syscall(libc::SYS_write, journal, line.as_ptr(), line.len()) };
        obey();
    });
}
