//! Ctrl-C, SIGTERM and SIGHUP, turned into a request to end, and how a process ends at once.

#![allow(unsafe_code)] // signals are ignored, and the process ends at once

use anyhow::{Context, Result};
use ember_host::interrupt::Interrupt;

/// An interrupt that this process's signals reach; a write beyond the limit on a file's size
/// (`ulimit -f`) is an error as any other from now on.
///
/// # Errors
/// When a handler is installed already, or the system refuses one.
pub fn install() -> Result<Interrupt> {
    ignore_size_limit();
    let interrupt = Interrupt::new();
    let seen = interrupt.clone();
    let hangup_is_ignored = hangup_is_ignored();
    ctrlc::set_handler(move || {
        if seen.signalled() {
            exit(INTERRUPTED);
        }
    })
    .context("cannot listen for Ctrl-C")?;
    if hangup_is_ignored {
        #[cfg(unix)]
        // SAFETY: no handler is given.
        unsafe {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
        }
    }
    Ok(interrupt)
}

/// Has a lost terminal end the process, also where who started it wants it to live on: what draws on the
/// terminal and reads its keys has nothing to live on for.
pub fn end_with_terminal() {
    #[cfg(unix)]
    // SAFETY: no handler is given.
    unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_DFL);
    }
}

/// Has a file that may not grow refuse the write, which is told in a line: its signal would end the
/// program without a word, a server with all that it writes.
fn ignore_size_limit() {
    #[cfg(unix)]
    // SAFETY: no handler is given.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Whether who started the program wants it to outlive the terminal, as `nohup` does.
fn hangup_is_ignored() -> bool {
    #[cfg(unix)]
    // SAFETY: all of what is asked for is written, by a call that changes nothing.
    unsafe {
        let mut now = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
    #[cfg(not(unix))]
    false
}

/// Exit code of a program that was interrupted, as shells use it for Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// Ends the process now. Graphics drivers leave threads behind that the exit handlers of their own
/// libraries then pull the memory from under: seen as "double free or corruption" once in some
/// hundred runs, after all was done. What is buffered for standard output is lost, since whoever is
/// writing may hold its lock.
pub fn exit(code: u8) -> ! {
    #[cfg(unix)]
    // SAFETY: ends the process; nothing of ours waits for an exit handler.
    unsafe {
        libc::_exit(i32::from(code))
    }
    #[cfg(not(unix))]
    std::process::exit(i32::from(code))
}
