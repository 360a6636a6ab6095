//! The figures and differences of several runs, as text in columns.

use super::{Record, Style, Summary, differences, tokens_differ};
use crate::drawing::shortened;
use ember_training::units::{duration, grouped, short};
use unicode_width::UnicodeWidthStr;

/// Maximal width of a value in columns; a list of prompts may be long.
const LONGEST: usize = 40;

/// The names of a run's figures.
pub(super) const HEADINGS: [&str; 9] =
    ["run", "parameters", "steps", "tokens", "best validation", "bits/byte", "last training", "time", "tokens/s"];

/// The figures of the runs, a line each, under headings.
pub fn table(runs: &[Record], style: Style) -> String {
    let mut lines = vec![HEADINGS.map(String::from).to_vec()];
    lines.extend(runs.iter().map(|run| figures(&run.summary()).to_vec()));
    let marks = (0..runs.len()).map(|run| style.mark(run, '●'));
    let lines = std::iter::once(" ".to_owned()).chain(marks).zip(aligned(&lines, 1));
    lines.map(|(mark, line)| format!("{mark} {}\n", style.words(&line))).collect()
}

/// The figures of one run, in the order of the headings; "-" if unknown.
pub(super) fn figures(of: &Summary) -> [String; 9] {
    let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "-".into());
    let steps = grouped(of.step);
    [
        one_line(&of.run),
        or_dash(of.parameters.map(|n| short(n as f64))),
        match of.max_steps {
            Some(most) if most != of.step => format!("{steps} of {}", grouped(most)),
            _ => steps,
        },
        or_dash(of.tokens.map(|n| short(n as f64))),
        or_dash(of.best_val_loss.zip(of.best_step).map(|(loss, step)| format!("{loss:.4} at {}", grouped(step)))),
        or_dash(of.bits_per_byte.map(|bits| format!("{bits:.3}"))),
        or_dash(of.train_loss.map(|loss| format!("{loss:.4}"))),
        or_dash(of.elapsed_s.map(duration)),
        or_dash(of.tokens_per_s.map(speed)),
    ]
}

/// Tokens per second, as a whole number; slow runs get one decimal.
fn speed(tokens_per_s: f64) -> String {
    if tokens_per_s < 9.95 { format!("{tokens_per_s:.1}") } else { grouped(tokens_per_s.round() as u64) }
}

/// A note on comparing the losses, if one is needed.
pub fn note(runs: &[Record]) -> Option<&'static str> {
    let knows_bits = |run: &Record| run.summary().bits_per_byte.is_some();
    tokens_differ(runs).then_some(match runs.iter().all(knows_bits) {
        true => "the runs have different tokens: losses per token are not comparable, bits/byte are",
        false => "the runs have different tokens: losses per token are not comparable",
    })
}

/// The keys that differ, a line each, with the value of every run; empty if there are none.
pub fn differing(runs: &[Record]) -> String {
    let differences = differences(runs);
    if differences.is_empty() {
        return String::new();
    }
    let mut lines = vec![vec!["differs in".to_owned()]];
    lines[0].extend(runs.iter().map(|run| one_line(&run.name)));
    for (key, values) in differences {
        let values = values.into_iter().map(|value| cut(&value.unwrap_or_else(|| "-".into())));
        lines.push([key].into_iter().chain(values).collect());
    }
    aligned(&lines, 1).iter().map(|line| format!("  {line}\n")).collect()
}

/// A run's name, in which a line end would break the table.
fn one_line(name: &str) -> String {
    name.replace(['\n', '\r'], "\u{fffd}")
}

/// The beginning of a long value.
pub(super) fn cut(value: &str) -> String {
    shortened(value, LONGEST)
}

/// Rows of cells as lines of text: the first `left` columns are aligned left, the others right. A
/// terminal shows some characters, such as Chinese ones, two columns wide.
pub fn aligned(lines: &[Vec<String>], left: usize) -> Vec<String> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().filter_map(|line| Some(line.get(column)?.width())).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |cells: &Vec<String>| {
        let cell = |(column, cell): (usize, &String)| {
            let room = " ".repeat(widths[column] - cell.width());
            if column < left { format!("{cell}{room}") } else { format!("{room}{cell}") }
        };
        cells.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect()
}
