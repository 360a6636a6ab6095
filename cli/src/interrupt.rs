//! Ctrl-C, SIGTERM and SIGHUP as a request to stop, and how a process ends at once.

#![allow(unsafe_code)] // installs signal handlers, and ends the process at once

use anyhow::{Context, Result};
use ember_host::interrupt::Interrupt;

/// An interrupt that this process's signals set. From now on, a write beyond the limit on a file's
/// size (`ulimit -f`) is an ordinary error, and a mapped file that is truncated while it is read
/// ends the program with a line.
///
/// # Errors
/// When a handler is installed already, or the system refuses one.
pub fn install() -> Result<Interrupt> {
    ignore_size_limit();
    report_truncated_files();
    let interrupt = Interrupt::new();
    let seen = interrupt.clone();
    // The handler is for SIGHUP, too. Where the parent process wants that ignored, it is again.
    let hangup_is_ignored = hangup_is_ignored();
    ctrlc::set_handler(move || {
        if seen.signalled() {
            exit(INTERRUPTED);
        }
    })
    .context("cannot listen for Ctrl-C")?;
    if hangup_is_ignored {
        #[cfg(unix)]
        // SAFETY: no handler function is installed.
        unsafe {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
        }
    }
    Ok(interrupt)
}

/// Makes the loss of the terminal end the process, even if its parent wants it to survive
/// (`nohup`): a program that draws on the terminal and reads its keys has no purpose without it.
pub fn end_with_terminal() {
    #[cfg(unix)]
    // SAFETY: no handler function is installed.
    unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_DFL);
    }
}

/// Makes a write to a file at its size limit fail with an error, which becomes a line: the signal
/// would end the program silently, and a server with all its requests.
fn ignore_size_limit() {
    #[cfg(unix)]
    // SAFETY: no handler function is installed.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Makes a read past the end of a mapped file, truncated meanwhile by another program, end the
/// program with a line; the system would end it without one.
fn report_truncated_files() {
    #[cfg(target_os = "linux")]
    // SAFETY: `end_for_truncated_file` only calls functions that a handler may call; no other
    // signal is blocked.
    unsafe {
        let mut handler = std::mem::zeroed::<libc::sigaction>();
        handler.sa_sigaction = end_for_truncated_file as *const () as libc::sighandler_t;
        handler.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const handler, std::ptr::null_mut());
    }
}

#[cfg(target_os = "linux")]
extern "C" fn end_for_truncated_file(_: libc::c_int, fault: *mut libc::siginfo_t, _: *mut libc::c_void) {
    const LINE: &[u8] = b"error: a file was truncated by another program while this one read it, or its disk failed; \
        check that it is complete, and run the command again\n";
    // SAFETY: the system passes a valid pointer; the functions called are allowed in a handler.
    unsafe {
        if (*fault).si_code == libc::BUS_ADRERR {
            libc::write(libc::STDERR_FILENO, LINE.as_ptr().cast(), LINE.len());
            libc::_exit(1);
        }
        libc::signal(libc::SIGBUS, libc::SIG_DFL); // the fault recurs, and ends the program
    }
}

/// Whether the parent process wants the program to outlive the terminal, as `nohup` does.
fn hangup_is_ignored() -> bool {
    #[cfg(unix)]
    // SAFETY: the call fills in the whole struct and changes nothing else.
    unsafe {
        let mut now = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
    #[cfg(not(unix))]
    false
}

/// Exit code of an interrupted program, the one shells use for Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// Ends the process now, without exit handlers: those of graphics drivers free memory that their
/// own remaining threads still use, seen as "double free or corruption" once in some hundred runs,
/// after all work was done. Buffered standard output is lost, since another thread may hold its
/// lock.
pub fn exit(code: u8) -> ! {
    #[cfg(unix)]
    // SAFETY: ends the process; nothing of ours waits for an exit handler.
    unsafe {
        libc::_exit(i32::from(code))
    }
    #[cfg(not(unix))]
    std::process::exit(i32::from(code))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::fd::AsRawFd;
    use std::process::Command;

    use super::*;

    /// Runs in its own process, which the fault ends.
    #[test]
    fn a_file_that_is_cut_short_while_it_is_read_from_memory_ends_the_program_with_a_line() {
        const ENDED: &str = "EMBER_TEST_CUT_FILE";
        if std::env::var_os(ENDED).is_some() {
            return read_what_is_cut();
        }
        let name =
            "interrupt::tests::a_file_that_is_cut_short_while_it_is_read_from_memory_ends_the_program_with_a_line";
        let this = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(ENDED, "")
            .output();
        let this = this.unwrap();
        let stderr = String::from_utf8(this.stderr).unwrap();
        assert_eq!(this.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.ends_with("check that it is complete, and run the command again\n")
                && stderr.contains("error: a file was truncated"),
            "{stderr}"
        );
    }

    fn read_what_is_cut() {
        let _interrupt = install().unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 16).unwrap();
        // SAFETY: only the last line reads the mapping.
        unsafe {
            let (length, kind) = (1 << 16, libc::MAP_SHARED);
            let mapped = libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, kind, file.as_raw_fd(), 0);
            assert_ne!(mapped, libc::MAP_FAILED);
            file.set_len(0).unwrap();
            std::ptr::read_volatile(mapped.cast::<u8>());
        }
    }
}
