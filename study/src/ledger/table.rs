//! The ledger on a terminal, in 100 columns.

use std::fmt::Write as _;

use super::growth::Growth;
use super::{Entry, Subject};
use crate::ledger::meter::MeasuredBy;
use ember_training::memory::prediction::Parts;
use ember_training::units::{bytes, grouped, short};

/// A mode's name as people read it.
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

/// A difference of logits: 0 where there is none.
pub fn difference(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}") }
}

/// How the memory was measured, in a sentence.
pub fn measured_by(by: MeasuredBy) -> &'static str {
    match by {
        MeasuredBy::Allocator => "Memory is counted at every allocation, so its peak is that of the worst moment.",
        MeasuredBy::Pool => {
            "Memory is what the device's pool has in use after each phase (forward, backward, step): what an\n\
             operation needs for itself in between is not seen."
        }
    }
}

/// The whole ledger as text.
pub fn render(subject: &Subject, entries: &[Entry], growth: &[Growth]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut text, subject, entries, growth);
    text
}

fn write_all(out: &mut String, subject: &Subject, entries: &[Entry], growth: &[Growth]) -> std::fmt::Result {
    writeln!(out, "{}", subject.sentence())?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<19}{:>9}{:>19}{:>11}{:>9}{:>9}{:>7}{:>7}{:>9}",
        "", "time", "fastest-slowest", "tokens/s", "FLOPs", "FLOP/s", "ops", "graph", "off by"
    )?;
    for entry in entries {
        writeln!(
            out,
            "{:<19}{:>9}{:>19}{:>11}{:>9}{:>9}{:>7}{:>7}{:>9}",
            title(entry.mode),
            time(entry.time_s),
            format!("{}-{}", time(entry.time_min_s), time(entry.time_max_s)),
            short(entry.tokens_per_s),
            short(entry.flops),
            short(entry.flops / entry.time_s.max(1e-12)),
            short(entry.operations as f64),
            entry.graph_nodes,
            difference(entry.logits_difference),
        )?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "{:<19}{:<10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "memory", "", "weights", "gradients", "moments", "kept", "logits", "cache", "peak"
    )?;
    for entry in entries {
        for (name, kind, parts) in
            [(title(entry.mode), "measured", &entry.measured), (String::new(), "predicted", &entry.predicted)]
        {
            writeln!(out, "{name:<19}{kind:<10}{}", cells(parts))?;
        }
    }
    writeln!(out)?;
    for entry in entries {
        writeln!(out, "{}", title(entry.mode))?;
        writeln!(out, "    returns  {}", entry.returns)?;
        writeln!(out, "    random   {}", entry.random)?;
        let places: Vec<String> =
            entry.places.iter().map(|place| format!("{} {}", place.file, place.function)).collect();
        writeln!(out, "    where    {}", places.join("\n             "))?;
    }
    if !growth.is_empty() {
        writeln!(out)?;
        writeln!(
            out,
            "{:<10}{:>14}{:>14}{:>14}{:>14}{:>16}{:>16}",
            "length", "training", "its memory", "forward", "its memory", "token, cached", "token, uncached"
        )?;
        for row in growth {
            writeln!(
                out,
                "{:<10}{:>14}{:>14}{:>14}{:>14}{:>16}{:>16}",
                grouped(row.time as u64),
                time(row.training_s),
                bytes(row.training_bytes),
                time(row.forward_s),
                bytes(row.forward_bytes),
                time(row.cached_token_s),
                time(row.uncached_token_s),
            )?;
        }
    }
    writeln!(out)?;
    writeln!(out, "{}", measured_by(subject.measured_by))?;
    writeln!(
        out,
        "kept: what the graph keeps for the backward. graph: operations recorded. off by: the largest\n\
         difference of the logits from those of the plain forward, at the same positions. FLOPs: matrix\n\
         products, a multiply-add being two."
    )
}

fn cells(parts: &Parts) -> String {
    let cell = |value: u64| if value == 0 { "-".to_owned() } else { bytes(value) };
    let values = [
        parts.weights_bytes,
        parts.gradients_bytes,
        parts.moments_bytes,
        parts.activations_bytes,
        parts.logits_bytes,
        parts.cache_bytes,
        parts.peak_bytes,
    ];
    values.map(|value| format!("{:>10}", cell(value))).concat()
}
