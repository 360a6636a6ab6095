//! The page's twin on the terminal: the candidates of each step as bars, knobs that keys change,
//! and the beams as a tree.
//!
//! Knobs are not simulated: every key runs the recorded logits through [`Chain`] again and samples
//! with [`ember_decoding::sampler::draw`].

mod draw;
mod knobs;
#[cfg(test)]
mod tests;
mod tree;

use std::{io, time::Duration};

use anyhow::{Context, Result};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::DefaultTerminal;

use ember_decoding::processors::{Chain, Step};
use ember_decoding::sampler::{draw, greedy};
use ember_decoding::trace::{BeamStep, ChoiceTrace, Recorder};
use ember_decoding::{config::GenerationConfig, logprobs::logprob, softmax::log_sum_exp};
use ember_explain::{Recorded, Subject, Words};
use ember_host::interrupt::Interrupt;
use knobs::Knobs;

/// How often signals are polled while no key is pressed.
const POLL: Duration = Duration::from_millis(200);

/// State of the screen.
struct Twin<'a> {
    words: Words<'a>,
    prompt: &'a [u32],
    config: &'a GenerationConfig,
    recorded: &'a Recorded,
    beam_steps: &'a [BeamStep],
    view: View,
    /// The step shown, below the number of tokens written.
    step: usize,
    knobs: Knobs,
    /// Number of redraws by the user at this step; 0 shows the run's own draw.
    redraws: u64,
    /// Lines of the tree scrolled off the top.
    scroll: usize,
    done: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum View {
    Candidates,
    Beams,
}

/// The result of a step under the current knobs.
struct Outcome {
    /// The chosen token, and how it was chosen.
    choice: ChoiceTrace,
    survivors: usize,
}

/// Shows a run of at least one token, starting at its first step, until the user quits or a signal
/// ends it. Standard output must be a terminal; it is restored in every case.
///
/// # Errors
/// When the terminal cannot be taken over or read from.
pub fn show(subject: &Subject, recorded: &Recorded, beam_steps: &[BeamStep], interrupt: &Interrupt) -> Result<()> {
    let Subject { words, prompt, config, .. } = *subject;
    let (view, knobs) = (View::Candidates, Knobs::of(config));
    let (step, redraws, scroll, done) = (0, 0, 0, false);
    let mut twin = Twin { words, prompt, config, recorded, beam_steps, view, step, knobs, redraws, scroll, done };
    interrupt.before_exit(restore_terminal);
    let mut terminal = ratatui::try_init().context("cannot take the terminal over; drop --tui to write a page")?;
    let result = draw_and_read(&mut terminal, &mut twin, interrupt);
    restore_terminal();
    result.context("the terminal cannot be drawn on or read from")
}

/// Restores the terminal.
fn restore_terminal() {
    // A terminal that is gone needs no restoring, and nobody would read an error.
    let _ = ratatui::try_restore();
}

fn draw_and_read(terminal: &mut DefaultTerminal, twin: &mut Twin, interrupt: &Interrupt) -> io::Result<()> {
    let mut is_stale = true;
    while !twin.done && !interrupt.requested() {
        if is_stale {
            terminal.draw(|frame| twin.draw(frame))?;
        }
        // A signal ends the process during this wait: there is nothing to save, and waiting for a
        // terminal that is gone would never end.
        let Some(is_event) = interrupt.while_waiting(|| event::poll(POLL)) else { break };
        is_stale = is_event?;
        if !is_stale {
            continue;
        }
        // Any event, such as a resize, redraws the screen.
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            // In raw mode Ctrl-C arrives as a key, not as a signal.
            if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
                interrupt.request();
            } else {
                twin.press(key.code);
            }
        }
    }
    Ok(())
}

impl Twin<'_> {
    /// Number of steps in the current view.
    fn steps(&self) -> usize {
        match self.view {
            View::Candidates => self.recorded.steps.len(),
            View::Beams => self.beam_steps.len(),
        }
    }

    /// Handles a key press.
    fn press(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => self.done = true,
            KeyCode::Right | KeyCode::Char('l' | ' ') => self.go_to(self.step + 1),
            KeyCode::Left | KeyCode::Char('h') => self.go_to(self.step.saturating_sub(1)),
            KeyCode::Home => self.go_to(0),
            KeyCode::End => self.go_to(usize::MAX),
            KeyCode::Down | KeyCode::Char('j') if self.view == View::Beams => self.scroll += 1,
            KeyCode::Up | KeyCode::Char('k') if self.view == View::Beams => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.knobs.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.knobs.select_previous(),
            KeyCode::Char('+' | '=') => self.knobs.turn_up(),
            KeyCode::Char('-') => self.knobs.turn_down(),
            KeyCode::Char('0') => self.knobs = Knobs::of(self.config),
            KeyCode::Char('d') => self.redraws += 1,
            KeyCode::Char('b') => {
                self.view = if self.view == View::Candidates { View::Beams } else { View::Candidates };
                self.go_to(self.step);
            }
            _ => {}
        }
    }

    fn go_to(&mut self, step: usize) {
        self.step = step.min(self.steps().saturating_sub(1));
        (self.redraws, self.scroll) = (0, 0);
    }

    /// The outcome of the shown step under the current knobs, with the `count` best candidates
    /// before the knobs and as many after.
    fn outcome(&self, count: usize) -> Outcome {
        let config = self.knobs.apply(self.config);
        let recorded = &self.recorded.steps[self.step];
        let step = Step { prompt: self.prompt, generated: &self.recorded.completion.ids[..self.step] };
        let mut logits = recorded.unmodified.clone();
        let mut recorder = Recorder::new(&logits);
        Chain::new(&config, None)
            .process_observed(&step, &mut logits, &mut |name, logits| recorder.after(name, logits));
        let seed = config.seed.wrapping_add(self.redraws);
        let drawn = config.strategy.samples().then(|| draw(seed, 0, self.step as u64, &logits));
        let id = drawn.map_or_else(|| greedy(&logits), |drawn| drawn.id);
        let logprob = logprob(recorded.unmodified[id as usize], log_sum_exp(&recorded.unmodified));
        let survivors = logits.iter().filter(|&&logit| logit > f32::NEG_INFINITY).count();
        Outcome { choice: recorder.finish(self.step, id, logprob, drawn, count), survivors }
    }

    /// Consecutive tokens on one line, with spaces and line ends made visible.
    fn name(&self, ids: &[u32]) -> String {
        let numbers = || ids.iter().map(|id| format!("#{id}")).collect::<String>();
        let text = self.words.text(ids).unwrap_or_else(numbers);
        text.chars().map(visible).collect()
    }
}

/// A visible stand-in for a character in a list.
fn visible(character: char) -> char {
    match character {
        ' ' => '\u{b7}',
        '\n' => '\u{21b5}',
        '\t' => '\u{2192}',
        control if control.is_control() => char::REPLACEMENT_CHARACTER,
        other => other,
    }
}
