//! The ledger as text for a terminal, in 100 columns.

use super::{Entry, Subject, growth::Growth, meter::MeasuredBy};
use ember_training::{memory::prediction::Parts, units::bytes, units::grouped, units::short};

/// A mode's name for people.
pub fn title(mode: &str) -> String {
    mode.replace('_', " ")
}

/// Seconds as 1.23 ms, 45.6 ms or 7.89 s.
pub fn time(seconds: f64) -> String {
    match seconds {
        ..0.000_999_5 => format!("{:.0} us", seconds * 1e6),
        ..0.009_995 => format!("{:.2} ms", seconds * 1e3),
        ..0.099_95 => format!("{:.1} ms", seconds * 1e3),
        ..0.999_5 => format!("{:.0} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

/// A difference of logits: "0" if there is none.
pub fn difference(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}") }
}

/// How the memory was measured, in a sentence.
pub fn measured_by(by: MeasuredBy) -> &'static str {
    match by {
        MeasuredBy::Allocator => "Memory is counted at every allocation, so its peak is that of the worst moment.",
        MeasuredBy::Pool => {
            "Memory is what the device's pool has in use after each phase (forward, backward, step): memory\n\
             inside an operation is not seen."
        }
    }
}

/// The whole ledger as text.
pub fn render(subject: &Subject, entries: &[Entry], growth: &[Growth]) -> String {
    let figures = |[name, time, range, speed, flops, rate, ops, graph, off]: [String; 9]| {
        format!("{name:<19}{time:>9}{range:>19}{speed:>11}{flops:>9}{rate:>9}{ops:>7}{graph:>7}{off:>9}\n")
    };
    let headings = ["", "time", "fastest-slowest", "tokens/s", "FLOPs", "FLOP/s", "ops", "graph", "off by"];
    let mut text = subject.sentence() + "\n\n" + &figures(headings.map(String::from));
    text.extend(entries.iter().map(|entry| {
        figures([
            title(entry.mode),
            time(entry.time_s),
            format!("{}-{}", time(entry.time_min_s), time(entry.time_max_s)),
            short(entry.tokens_per_s),
            short(entry.flops),
            short(entry.flops / entry.time_s.max(1e-12)),
            short(entry.operations as f64),
            entry.graph_nodes.to_string(),
            difference(entry.logits_difference),
        ])
    }));
    text += &format!("\n{:<19}{:<10}", "memory", "");
    text += &cells(["weights", "gradients", "moments", "kept", "logits", "cache", "peak"].map(String::from));
    for entry in entries {
        text += &format!("{:<19}measured  {}", title(entry.mode), sizes(&entry.measured));
        text += &format!("{:<19}predicted {}", "", sizes(&entry.predicted));
    }
    text.push('\n');
    for Entry { mode, returns, random, places, .. } in entries {
        let places: Vec<String> = places.iter().map(|place| format!("{} {}", place.file, place.function)).collect();
        let (mode, places) = (title(mode), places.join("\n             "));
        text += &format!("{mode}\n    returns  {returns}\n    random   {random}\n    where    {places}\n");
    }
    if !growth.is_empty() {
        text += &growths(growth);
    }
    text += &format!("\n{}\n", measured_by(subject.measured_by));
    text + "kept: what the graph keeps for the backward pass. graph: operations recorded. off by: the largest\n\
            difference of the logits from those of the plain forward, at the same positions. FLOPs: matrix\n\
            products; a multiply-add counts as two.\n"
}

/// A line for each length, under headings.
fn growths(growth: &[Growth]) -> String {
    let line = |[length, training, its, forward, forward_its, cached, uncached]: [String; 7]| {
        format!("{length:<10}{training:>14}{its:>14}{forward:>14}{forward_its:>14}{cached:>16}{uncached:>16}\n")
    };
    let headings = ["length", "training", "its memory", "forward", "its memory", "token, cached", "token, uncached"];
    let rows = growth.iter().map(|row| {
        line([
            grouped(row.time as u64),
            time(row.training_s),
            bytes(row.training_bytes),
            time(row.forward_s),
            bytes(row.forward_bytes),
            time(row.cached_token_s),
            time(row.uncached_token_s),
        ])
    });
    format!("\n{}{}", line(headings.map(String::from)), rows.collect::<String>())
}

fn sizes(parts: &Parts) -> String {
    cells(parts.named().map(|(_, size)| if size == 0 { "-".to_owned() } else { bytes(size) }))
}

fn cells(cells: [String; 7]) -> String {
    cells.map(|cell| format!("{cell:>10}")).concat() + "\n"
}
