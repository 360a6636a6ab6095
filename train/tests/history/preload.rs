//! The witness as a preloaded library (LD_PRELOAD): writes the program's disk operations into a
//! journal, and sends the program a signal at the requested moment.

#![allow(unsafe_code)] // called by the loader; writes the journal past its own functions

#[path = "witness.rs"]
mod witness;

use std::fs::File;
use std::os::fd::IntoRawFd;

use witness::{Operation, Orders};

/// Called by the loader before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = begin;

extern "C" fn begin() {
    // Of several processes only rank 0 writes into the run.
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
        // The system call itself: `write` is the witness's own function here.
        // SAFETY: `line` is initialized, and the journal stays open.
        unsafe { libc::syscall(libc::SYS_write, journal, line.as_ptr(), line.len()) };
        obey();
    });
}
