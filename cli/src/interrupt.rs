//! Ctrl-C, SIGTERM and SIGHUP, turned into a request to end.

use anyhow::{Context, Result};
use ember_host::interrupt::Interrupt;

use crate::exit::{INTERRUPTED, exit};

/// An interrupt that this process's signals reach.
///
/// # Errors
/// When a handler is installed already, or the system refuses one.
pub fn install() -> Result<Interrupt> {
    let interrupt = Interrupt::new();
    let seen = interrupt.clone();
    ctrlc::set_handler(move || {
        if seen.signalled() {
            exit(INTERRUPTED);
        }
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(interrupt)
}
