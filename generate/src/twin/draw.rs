//! Rendering of the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};

use super::{Outcome, Twin, View, tree};
use ember_decoding::trace::{Candidate, ChoiceTrace};

/// Columns of a token's name and of the number beside its bar.
const NAME: usize = 16;
const FIGURE: usize = 7;

/// Lines of the text so far.
const TEXT_LINES: u16 = 4;

impl Twin<'_> {
    /// Draws the whole screen.
    pub(super) fn draw(&mut self, frame: &mut Frame) {
        let [text, middle, below, keys] = Layout::vertical([
            Constraint::Length(TEXT_LINES + 2),
            Constraint::Min(3),
            Constraint::Length(if self.view == View::Candidates { 4 } else { 0 }),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        self.draw_text(frame, text);
        match self.view {
            View::Candidates => {
                let rows = usize::from(middle.height.saturating_sub(2));
                let outcome = self.outcome(rows);
                self.draw_candidates(frame, middle, &outcome, rows);
                self.draw_knobs(frame, below, &outcome);
            }
            View::Beams => self.draw_beams(frame, middle),
        }
        let help = match self.view {
            View::Candidates => {
                "\u{2190}\u{2192} step  \u{2191}\u{2193} knob  + - change  0 reset  d draw again  b beams  q quit"
            }
            View::Beams => "\u{2190}\u{2192} step  \u{2191}\u{2193} scroll  b candidates  q quit",
        };
        frame.render_widget(Line::from(help).dim(), keys);
    }

    /// The text before the step: the prompt and the generated text, or their end if long.
    fn draw_text(&self, frame: &mut Frame, area: Rect) {
        let title = match self.view {
            View::Candidates => format!(" Step {} of {} ", self.step, self.steps().saturating_sub(1)),
            View::Beams => " The prompt ".to_owned(),
        };
        let (prompt, generated) = self.text_so_far();
        let (prompt, generated) = (single_line(&prompt), single_line(&generated));
        // A quarter stays free: word wrap leaves gaps at line ends, and a wide character may leave
        // a line's last column empty.
        let room = usize::from(area.width.saturating_sub(3)) * usize::from(TEXT_LINES) * 3 / 4;
        let (prompt, generated) = last_columns(&prompt, &generated, room.saturating_sub(1));
        let line = Line::from(vec![
            Span::from(prompt).dim(),
            Span::from(generated).bold(),
            Span::from("\u{2588}").slow_blink(),
        ]);
        let text = Paragraph::new(line).wrap(Wrap { trim: false });
        frame.render_widget(text.block(Block::bordered().title(title)), area);
    }

    /// The prompt, and the text generated before the step.
    pub(super) fn text_so_far(&self) -> (String, String) {
        let written = if self.view == View::Candidates { self.step } else { 0 };
        let generated = &self.recorded.completion.ids[..written];
        let whole = self.words.text(&[self.prompt, generated].concat());
        if let (Some(prompt), Some(mut whole)) = (self.words.text(self.prompt), whole) {
            // A character split between both belongs to the generated text.
            let same = prompt.bytes().zip(whole.bytes()).take_while(|(a, b)| a == b).count();
            let generated = whole.split_off(same);
            return (whole, generated);
        }
        let numbers = |ids: &[u32]| ids.iter().map(|id| format!(" #{id}")).collect::<String>();
        (numbers(self.prompt), numbers(generated))
    }

    fn draw_candidates(&self, frame: &mut Frame, area: Rect, outcome: &Outcome, rows: usize) {
        let room = usize::from(area.width).saturating_sub(2 + 2 + NAME + 1 + FIGURE + 1);
        let (candidates, chosen) = (&outcome.choice.candidates, outcome.choice.id);
        let largest = candidates.iter().filter_map(Candidate::final_probability).fold(f32::MIN_POSITIVE, f32::max);
        // If not all fit, the chosen token replaces the last one.
        let mut bars: Vec<&Candidate> = candidates.iter().take(rows).collect();
        if !bars.iter().any(|bar| bar.id == chosen)
            && let (Some(last), Some(chosen)) = (bars.last_mut(), candidates.iter().find(|bar| bar.id == chosen))
        {
            *last = chosen;
        }
        let line = |bar: &&Candidate| {
            let mark = if bar.id == chosen { "\u{25b8} " } else { "  " };
            let name = padded(&self.name(&[bar.id]), NAME);
            match (bar.final_probability(), &bar.removed_by) {
                (Some(after), _) => {
                    let length = (after / largest * room as f32).round() as usize;
                    let text =
                        format!("{mark}{name} {:>FIGURE$} {}", percent(after), "\u{2588}".repeat(length.min(room)));
                    let style = if bar.id == chosen { Style::new().bold().cyan() } else { Style::new() };
                    Line::from(text).style(style)
                }
                (None, by) => {
                    let by = by.as_deref().unwrap_or("a knob");
                    Line::from(format!("{mark}{name} {:>FIGURE$} removed by {by}", percent(bar.before.probability)))
                        .dark_gray()
                }
            }
        };
        let survivors = outcome.survivors;
        let all = self.recorded.steps[self.step].unmodified.len();
        let title = format!(" {survivors} of {all} tokens are left ");
        let lines: Vec<Line> = bars.iter().map(line).collect();
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
    }

    /// The knobs' values, and the token that they choose.
    fn draw_knobs(&self, frame: &mut Frame, area: Rect, outcome: &Outcome) {
        let (mut knobs, mut turned) = (Vec::new(), 0);
        for (number, (name, value, selected)) in self.knobs.words().enumerate() {
            let style = if selected { Style::new().reversed() } else { Style::new() };
            turned = if selected { number } else { turned };
            knobs.push(Span::styled(format!(" {name} {value} "), style));
        }
        // If not all fit, scroll so that the selected knob is visible.
        let room = usize::from(area.width.saturating_sub(2));
        let fits = |first: &usize| knobs[*first..=turned].iter().map(Span::width).sum::<usize>() <= room;
        let first = (0..turned).find(fits).unwrap_or(turned);
        let knobs = knobs.split_off(first);
        let ChoiceTrace { id, draw, interval, .. } = outcome.choice;
        let token = self.name(&[id]);
        let chosen = match draw.zip(interval) {
            None => format!(" the best is taken: {token}"),
            Some((uniform, (begin, end))) => {
                format!(" draw {uniform:.4} falls into {begin:.4} to {end:.4}, which is {token}'s")
            }
        };
        let run = self.recorded.steps[self.step].choice.id;
        let beside = match (self.redraws, id == run) {
            (0, true) => "; as in the run".to_owned(),
            (0, false) => format!("; the run, with its own knobs, took {}", self.name(&[run])),
            (redraws, _) => format!("; your draw {redraws}"),
        };
        let lines = vec![Line::from(knobs), Line::from(chosen + &beside)];
        frame.render_widget(Paragraph::new(lines).block(Block::bordered()), area);
    }

    fn draw_beams(&mut self, frame: &mut Frame, area: Rect) {
        let room = usize::from(area.height.saturating_sub(2));
        let steps = &self.beam_steps[..(self.step + 1).min(self.beam_steps.len())];
        let (lines, since) = tree::lines(steps, room, &|ids| self.name(ids));
        let left_out = if since > 0 { format!("; what ends before step {since} is not shown") } else { String::new() };
        let title = format!(" Beams after step {}, sums of log-probabilities{left_out} ", self.step);
        self.scroll = self.scroll.min(lines.len().saturating_sub(room));
        // If lines remain below, the last row gives their number.
        let below = lines.len() - self.scroll;
        let rows = if below > room { room.saturating_sub(1) } else { below };
        let mut lines: Vec<Line> = lines.into_iter().skip(self.scroll).take(rows).map(styled).collect();
        if below > rows {
            lines.push(Line::from(format!("{} more below", below - rows)).dim());
        }
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
    }
}

/// A line of the tree, coloured by how its branch ends.
fn styled(line: String) -> Line<'static> {
    if line.ends_with("pruned") {
        Line::from(line).dark_gray()
    } else if line.ends_with("finished") {
        Line::from(line).green()
    } else {
        Line::from(line)
    }
}

fn percent(probability: f32) -> String {
    format!("{:.2}%", 100.0 * probability)
}

/// Columns that a text takes: a character may take two, or none.
fn columns(text: &str) -> usize {
    Span::from(text).width()
}

/// A text truncated or padded to exactly `width` columns.
fn padded(text: &str, width: usize) -> String {
    // A limit for texts with many zero-width characters.
    let mut short: String = text.chars().take(4 * width).collect();
    while columns(&short) > width {
        short.pop();
    }
    let blanks = " ".repeat(width - columns(&short));
    short + &blanks
}

/// A text on one line, with control characters replaced.
fn single_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{21b5}' } else { character }).collect()
}

/// The end of two consecutive texts that fits in at most `most` columns.
fn last_columns<'a>(first: &'a str, second: &'a str, most: usize) -> (&'a str, &'a str) {
    let end = end_of(second, most);
    let left = if end.len() == second.len() { most.saturating_sub(columns(end)) } else { 0 };
    (end_of(first, left), end)
}

/// The longest end of a text that takes at most `most` columns.
fn end_of(text: &str, most: usize) -> &str {
    let (mut taken, mut begin) = (0, text.len());
    for (at, character) in text.char_indices().rev() {
        taken += columns(character.encode_utf8(&mut [0; 4]));
        if taken > most {
            break;
        }
        begin = at;
    }
    &text[begin..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_takes_its_columns_whatever_its_characters_are() {
        for (text, fitting) in [("ab", "ab    "), ("abcdefgh", "abcdef"), ("\u{4f60}\u{597d}", "\u{4f60}\u{597d}  ")] {
            assert_eq!(padded(text, 6), fitting);
        }
        // A wide character is never cut in half, and a combining accent takes no column.
        assert_eq!(padded("a\u{4f60}\u{597d}\u{4e16}", 6), "a\u{4f60}\u{597d} ");
        assert_eq!(padded("e\u{301}", 3), "e\u{301}  ");
    }

    #[test]
    fn of_a_long_text_the_end_is_shown_whose_columns_fit() {
        assert_eq!(last_columns("abc", "def", 4), ("c", "def"));
        assert_eq!(last_columns("abc", "defgh", 4), ("", "efgh"));
        assert_eq!(last_columns("abc", "", 9), ("abc", ""));
        let wide = "\u{4f60}\u{597d}\u{4e16}";
        assert_eq!(last_columns(wide, "a", 4), ("\u{4e16}", "a"));
        assert_eq!(last_columns("a", wide, 4), ("", "\u{597d}\u{4e16}"));
    }
}
