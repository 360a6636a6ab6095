//! Takes over the terminal for the dashboard and restores it however the run ends: by `finish` or
//! `drop` of the dashboard, a panic (ratatui's hook), or an exit without unwinding, which calls
//! [`restore_terminal`] first.

use std::io;

use crossterm::{cursor, execute, terminal};
use ratatui::DefaultTerminal;

/// The smallest terminal on which the dashboard is readable: columns and rows.
const MIN_SIZE: (u16, u16) = (40, 16);

/// Takes over the terminal; None if it cannot show the dashboard, or if this program runs in the
/// background.
pub(super) fn take() -> Option<DefaultTerminal> {
    let (columns, rows) = terminal::size().ok()?;
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if columns < MIN_SIZE.0 || rows < MIN_SIZE.1 || is_dumb || !is_in_foreground() {
        return None;
    }
    let terminal = ratatui::try_init().ok();
    if terminal.is_some() {
        keep_interrupt_key();
    } else {
        restore_terminal();
    }
    terminal
}

/// Whether the terminal has input to read; an error if the terminal is gone, where crossterm would
/// busy-wait forever.
#[cfg(unix)]
pub(super) fn has_input() -> io::Result<bool> {
    let input = io::stdin();
    rustix::termios::tcgetattr(&input)?;
    Ok(rustix::io::ioctl_fionread(&input)? > 0)
}

#[cfg(not(unix))]
pub(super) fn has_input() -> io::Result<bool> {
    Ok(true)
}

/// Restores the terminal if the dashboard has it; also for a program about to exit without
/// unwinding.
pub fn restore_terminal() {
    if terminal::is_raw_mode_enabled().unwrap_or(false) {
        // If the terminal is gone, there is nothing to restore.
        let _ = ratatui::try_restore();
        let _ = execute!(io::stdout(), cursor::Show);
    }
}

/// Whether this program runs in the foreground: the system would stop a background job (`&` in a
/// shell) that uses the terminal.
#[cfg(unix)]
fn is_in_foreground() -> bool {
    // Without job control there is no background.
    rustix::termios::tcgetpgrp(io::stdin()).map_or(true, |foreground| foreground == rustix::process::getpgrp())
}

#[cfg(not(unix))]
fn is_in_foreground() -> bool {
    true
}

/// Makes Ctrl-C a signal again, as everywhere else in the program; raw mode delivers it as a key.
#[cfg(unix)]
fn keep_interrupt_key() {
    use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
    let input = io::stdin();
    if let Ok(mut mode) = tcgetattr(&input) {
        mode.local_modes |= LocalModes::ISIG;
        // Ctrl-Z and Ctrl-\ are disabled: they would leave the dashboard on the shell's screen.
        let disabled = if cfg!(target_os = "linux") { 0 } else { 0xff };
        mode.special_codes[SpecialCodeIndex::VSUSP] = disabled;
        mode.special_codes[SpecialCodeIndex::VQUIT] = disabled;
        let _ = tcsetattr(&input, OptionalActions::Now, &mode);
    }
}

#[cfg(not(unix))]
fn keep_interrupt_key() {}
