//! The terminal: taken over, drawn on, read from, and given back whatever happens.

use std::{io, time::Duration};

use anyhow::{Context, Result};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::DefaultTerminal;

use super::Twin;
use ember_host::interrupt::Interrupt;

/// How often a signal is looked for while no key is pressed.
const POLL: Duration = Duration::from_millis(200);

/// Shows the screen until the reader leaves it with q, or a signal ends it. The terminal must be one.
///
/// # Errors
/// When the terminal cannot be taken over or read from.
pub fn show(mut twin: Twin, interrupt: &Interrupt) -> Result<()> {
    interrupt.before_exit(ratatui::restore);
    let mut terminal = ratatui::try_init().context("cannot take the terminal over; drop --tui, which writes a page")?;
    let result = draw_and_read(&mut terminal, &mut twin, interrupt);
    ratatui::restore();
    result.context("the terminal cannot be drawn on or read from")
}

fn draw_and_read(terminal: &mut DefaultTerminal, twin: &mut Twin, interrupt: &Interrupt) -> io::Result<()> {
    while !twin.is_done() && !interrupt.requested() {
        terminal.draw(|frame| twin.draw(frame))?;
        if !event::poll(POLL)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            // In raw mode Ctrl-C is a key like any other.
            if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
                interrupt.request();
            } else {
                twin.press(key.code);
            }
        }
    }
    Ok(())
}
