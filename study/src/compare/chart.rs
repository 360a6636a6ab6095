//! Curves on a terminal: braille dots with one colour per run, or one letter per run.

use super::{Axis, Record, Scale, heights};
use crate::drawing::{Points, below, rounded};

/// What the terminal can display.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// Two by four dots in each character cell, in colours; the function makes names safe for a
    /// terminal.
    Dots(fn(&str) -> String),
    /// One letter in each cell, and nothing but text.
    Letters,
}

/// Colours among a terminal's 256 that are distinct on light and dark backgrounds. Runs beyond them
/// are letters.
const COLOURS: [u8; 6] = [33, 208, 35, 170, 44, 160];

/// Columns left of the curves, for the numbers.
const MARGIN: usize = 8;

impl Style {
    /// Dots across and down in one cell.
    fn dots(self) -> (usize, usize) {
        match self {
            Self::Dots(_) => (2, 4),
            Self::Letters => (1, 1),
        }
    }

    /// Text that is not the program's own, such as a name, made safe for the terminal; colour codes
    /// are written as they are.
    pub fn words(self, text: &str) -> String {
        match self {
            Self::Dots(printable) => printable(text),
            Self::Letters => text.to_owned(),
        }
    }

    /// The mark of this run: `sign` in its colour, or its letter; the letter is coloured too if
    /// another run already has the colour.
    pub(super) fn mark(self, run: usize, sign: char) -> String {
        match self {
            Self::Dots(_) => {
                let sign = if run < COLOURS.len() { sign } else { letter(run) };
                format!("\u{1b}[38;5;{}m{sign}\u{1b}[0m", COLOURS[run % COLOURS.len()])
            }
            Self::Letters => letter(run).to_string(),
        }
    }
}

/// The letter of this run.
pub(super) fn letter(run: usize) -> char {
    ('a'..='z').chain('A'..='Z').nth(run % 52).unwrap_or_default()
}

/// A cell of the chart: which of its dots are set, and which run set the last.
#[derive(Clone, Copy, Default)]
struct Cell {
    dots: u8,
    run: usize,
}

/// The runs' validation losses, or training losses if any run was never evaluated, in `columns` by
/// `rows` characters, with one line above and one below.
pub fn chart(runs: &[Record], axis: Axis, scale: Scale, style: Style, columns: usize, rows: usize) -> String {
    let validated = runs.iter().all(|run| !run.validation(axis).is_empty());
    let curve = |run: &Record| scale.place(&if validated { run.validation(axis) } else { run.training(axis) });
    let curves: Vec<Points> = runs.iter().map(curve).collect();
    let last = curves.iter().flatten().map(|point| point.0).fold(0.0, f64::max);
    let (low, high) = heights(curves.iter(), scale);
    if last <= 0.0 || low >= high {
        return String::new();
    }
    let (columns, rows) = (columns.saturating_sub(MARGIN + 1).max(10), rows.max(4));
    let (across, down) = style.dots();
    let mut cells = vec![vec![Cell::default(); columns]; rows];
    // Clamped, so that lines stay inside the chart whatever a log contains.
    let to_dot = |point: &(f64, f64)| {
        let x = (point.0 / last).clamp(0.0, 1.0) * (columns * across - 1) as f64;
        let y = ((high - point.1) / (high - low)).clamp(0.0, 1.0) * (rows * down - 1) as f64;
        (x, y)
    };
    for (run, curve) in curves.iter().enumerate() {
        for piece in below(curve, high) {
            let dots: Vec<(f64, f64)> = piece.iter().map(to_dot).collect();
            for (x, y) in along(&dots) {
                let cell = &mut cells[(y / down).min(rows - 1)][(x / across).min(columns - 1)];
                *cell = Cell { dots: cell.dots | dot(x % across, y % down), run };
            }
        }
    }
    let what = if validated { "validation loss" } else { "training loss, smoothed" };
    // Enough decimals to distinguish the numbers.
    let decimals = if scale.loss(high) - scale.loss(low) < 0.01 { 4 } else { 3 };
    let mut text = format!("{:>MARGIN$} {what} (nats per token)\n", "");
    for (row, cells) in cells.iter().enumerate() {
        let height = high - (high - low) * (row as f64 + 0.5) / rows as f64;
        let is_labelled = row % 4 == 0 || row + 1 == rows;
        let label = if is_labelled { rounded(scale.loss(height), decimals) } else { String::new() };
        let line: String = cells.iter().map(|cell| shown(cell, style)).collect();
        text += format!("{label:>width$} │{line}", width = MARGIN - 1).trim_end();
        text.push('\n');
    }
    let end = axis.label(last);
    let between = columns.saturating_sub(end.chars().count() + axis.title().len() + 1);
    let [margin, left, right] = [MARGIN, between / 2, between - between / 2].map(|width| " ".repeat(width));
    text + &format!("{margin}0{left}{}{right}{end}\n", axis.title())
}

/// Every dot that a line through `points` touches.
fn along(points: &[(f64, f64)]) -> Vec<(usize, usize)> {
    let mut dots = Vec::new();
    for (i, &to) in points.iter().enumerate() {
        let from = points[i.saturating_sub(1)];
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().max(1.0);
        for step in 0..=steps as usize {
            let share = step as f64 / steps;
            let (x, y) = (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share);
            dots.push((x.round().max(0.0) as usize, y.round().max(0.0) as usize));
        }
    }
    dots
}

/// The bit of a dot in a braille character (Unicode 15, chapter 21.1); a letter's cell uses only
/// the first.
fn dot(x: usize, y: usize) -> u8 {
    const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
    BITS[x][y]
}

fn shown(Cell { dots, run }: &Cell, style: Style) -> String {
    let braille = char::from_u32(0x2800 + u32::from(*dots)).unwrap_or(' ');
    if *dots == 0 { " ".into() } else { style.mark(*run, braille) }
}
