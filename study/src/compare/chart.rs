//! Curves on a terminal: braille dots in a colour for each run, or, where there is no colour, a
//! letter for each.

use super::{Axis, Record, Scale, heights};
use crate::drawing::{Points, below, rounded};

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// Two by four dots in each place, in colours; names are written as this makes them safe for a
    /// terminal.
    Dots(fn(&str) -> String),
    /// One letter in each place, and nothing but text.
    Letters,
}

/// Colours of the 256 that terminals have, told apart on light and dark ground. Runs beyond them are
/// letters.
const COLOURS: [u8; 6] = [33, 208, 35, 170, 44, 160];

/// Places left of the curves, for the numbers.
const MARGIN: usize = 8;

impl Style {
    /// Dots across and down in one place.
    fn dots(self) -> (usize, usize) {
        match self {
            Self::Dots(_) => (2, 4),
            Self::Letters => (1, 1),
        }
    }

    /// What is not this program's own, such as a name; colours are written to the terminal as they
    /// are, and these are not.
    pub fn words(self, text: &str) -> String {
        match self {
            Self::Dots(printable) => printable(text),
            Self::Letters => text.to_owned(),
        }
    }

    /// What stands for the run of this number: `sign` in its colour, or its letter; that in a colour too
    /// where another run has the colour already.
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

/// The letter of the run of this number.
pub(super) fn letter(run: usize) -> char {
    ('a'..='z').chain('A'..='Z').nth(run % 52).unwrap_or_default()
}

/// A place of the chart: which of its dots are set, and by which run the last.
#[derive(Clone, Copy, Default)]
struct Place {
    dots: u8,
    run: usize,
}

/// The runs' validation losses, or training losses where some run has never been evaluated, in
/// `columns` by `rows` characters and a line each above and below.
pub fn chart(runs: &[Record], axis: Axis, scale: Scale, style: Style, columns: usize, rows: usize) -> String {
    let validated = runs.iter().all(|run| !run.validation(axis).is_empty());
    let curve = |run: &Record| scale.place(&if validated { run.validation(axis) } else { run.training(axis) });
    let curves: Vec<Points> = runs.iter().map(curve).collect();
    let last = curves.iter().flatten().map(|point| point.0).fold(0.0, f64::max);
    let (low, high) = heights(curves.iter());
    if last <= 0.0 || low >= high {
        return String::new();
    }
    let (columns, rows) = (columns.saturating_sub(MARGIN + 1).max(10), rows.max(4));
    let (across, down) = style.dots();
    let mut places = vec![vec![Place::default(); columns]; rows];
    // Whatever a log says, a line ends inside the chart.
    let to_dot = |point: &(f64, f64)| {
        let x = (point.0 / last).clamp(0.0, 1.0) * (columns * across - 1) as f64;
        let y = ((high - point.1) / (high - low)).clamp(0.0, 1.0) * (rows * down - 1) as f64;
        (x, y)
    };
    for (run, curve) in curves.iter().enumerate() {
        for piece in below(curve, high) {
            let dots: Vec<(f64, f64)> = piece.iter().map(to_dot).collect();
            for (x, y) in along(&dots) {
                let place = &mut places[(y / down).min(rows - 1)][(x / across).min(columns - 1)];
                *place = Place { dots: place.dots | dot(x % across, y % down), run };
            }
        }
    }
    let what = if validated { "validation loss" } else { "training loss, smoothed" };
    // As many as tell the numbers apart.
    let decimals = if scale.loss(high) - scale.loss(low) < 0.01 { 4 } else { 3 };
    let mut text = format!("{:>MARGIN$} {what} (nats per token)\n", "");
    for (row, places) in places.iter().enumerate() {
        let height = high - (high - low) * (row as f64 + 0.5) / rows as f64;
        let is_labelled = row % 4 == 0 || row + 1 == rows;
        let label = if is_labelled { rounded(scale.loss(height), decimals) } else { String::new() };
        let line: String = places.iter().map(|place| shown(place, style)).collect();
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

/// The bit of a dot in a braille character (Unicode 15, chapter 21.1); in the place of a letter
/// there is but the first.
fn dot(x: usize, y: usize) -> u8 {
    const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
    BITS[x][y]
}

fn shown(Place { dots, run }: &Place, style: Style) -> String {
    let braille = char::from_u32(0x2800 + u32::from(*dots)).unwrap_or(' ');
    if *dots == 0 { " ".into() } else { style.mark(*run, braille) }
}
