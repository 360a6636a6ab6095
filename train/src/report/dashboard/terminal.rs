//! The terminal: taken over for a screen, and given back whatever ends the run: `finish` and `drop` of
//! the dashboard, a panic (ratatui's hook), or an exit without unwinding, which calls
//! [`restore_terminal`] first.

use std::io;

use crossterm::{cursor, execute, terminal};
use ratatui::DefaultTerminal;

/// What the screen needs to be read.
const LEAST: (u16, u16) = (40, 16);

/// The terminal; None where it cannot show a screen, or where it is somebody else's turn to use it.
pub(super) fn take() -> Option<DefaultTerminal> {
    let (columns, rows) = terminal::size().ok()?;
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if columns < LEAST.0 || rows < LEAST.1 || is_dumb || !is_in_front() {
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

/// Whether there is something to be read of the terminal; an error where it is gone, on which crossterm
/// would wait for ever, and keep a processor busy with that.
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

/// Gives the terminal back if a dashboard has it; also for a program about to exit without unwinding.
pub fn restore_terminal() {
    if terminal::is_raw_mode_enabled().unwrap_or(false) {
        // One that is gone needs nothing.
        let _ = ratatui::try_restore();
        let _ = execute!(io::stdout(), cursor::Show);
    }
}

/// Whether this program may use its terminal: in the background (`&` in a shell) the system would stop it for that.
#[cfg(unix)]
fn is_in_front() -> bool {
    // A terminal that controls no jobs is everybody's.
    rustix::termios::tcgetpgrp(io::stdin()).map_or(true, |front| front == rustix::process::getpgrp())
}

#[cfg(not(unix))]
fn is_in_front() -> bool {
    true
}

/// Lets Ctrl-C be a signal again, as it is everywhere else in the program; raw mode makes it a key.
#[cfg(unix)]
fn keep_interrupt_key() {
    use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
    let input = io::stdin();
    if let Ok(mut mode) = tcgetattr(&input) {
        mode.local_modes |= LocalModes::ISIG;
        // Stopping or dumping the program would leave the shell with the dashboard's screen.
        let disabled = if cfg!(target_os = "linux") { 0 } else { 0xff };
        mode.special_codes[SpecialCodeIndex::VSUSP] = disabled;
        mode.special_codes[SpecialCodeIndex::VQUIT] = disabled;
        let _ = tcsetattr(&input, OptionalActions::Now, &mode);
    }
}

#[cfg(not(unix))]
fn keep_interrupt_key() {}
