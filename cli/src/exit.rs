//! How a process ends at once.

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
