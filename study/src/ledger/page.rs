//! The ledger as one HTML file with pictures, without network access or scripts.

use super::picture::{Bar, Curve, bars, curves};
use super::table::{difference, measured_by, time, title};
use super::{Entry, Place, Subject, growth::Growth};
use crate::page::page as whole_page;
use ember_page::{escape, fill};
use ember_training::{memory::prediction::Parts, units::bytes, units::grouped, units::short};

const PAGE: &str = include_str!("page/page.html");
const GROWTH: &str = include_str!("page/growth.html");
const STYLE: &str = include_str!("page/style.css");

/// The page; without `growth` it has no curves.
pub fn render(subject: &Subject, entries: &[Entry], growth: &[Growth]) -> String {
    whole_page(
        "What training and inference cost",
        STYLE,
        PAGE,
        &[
            ("subject", &escape(&subject.sentence())),
            ("measured_by", &measured_by(subject.measured_by)),
            ("legend", &legend()),
            ("time", &times(entries)),
            ("memory", &memories(entries)),
            ("predicted", &predictions(entries)),
            ("graph", &graphs(entries)),
            ("growth", &if growth.is_empty() { String::new() } else { growths(growth) }),
            ("table", &numbers(entries)),
            ("modes", &descriptions(entries)),
        ],
    )
}

/// Sizes with their CSS classes.
type ClassSizes = Vec<(&'static str, f64)>;

/// The parts of a bar: a part's name is also its class, and so determines its colour.
fn parts(parts: &Parts) -> ClassSizes {
    let [parts @ .., _peak] = parts.named();
    parts.map(|(name, size)| (name, size as f64)).to_vec()
}

fn legend() -> String {
    let item = |(class, _)| {
        let name = if class == "activations" { "kept for the backward pass" } else { class };
        format!(r#"<span><i class="{class}"></i>{name}</span>"#)
    };
    parts(&Parts::default()).into_iter().map(item).collect()
}

/// A bar for each mode; `bar` gives its text, its parts and its mark.
fn by_mode(description: &str, entries: &[Entry], bar: fn(&Entry) -> (String, ClassSizes, Option<f64>)) -> String {
    let labelled = |entry: &Entry| {
        let (value, parts, mark) = bar(entry);
        Bar { label: title(entry.mode), value, parts, mark }
    };
    bars(description, &entries.iter().map(labelled).collect::<Vec<_>>())
}

fn times(entries: &[Entry]) -> String {
    by_mode("Median time of each way to use the model", entries, |entry| {
        let value = format!("{}, {} tokens/s", time(entry.time_s), short(entry.tokens_per_s));
        (value, vec![("weights", entry.time_s)], None)
    })
}

fn memories(entries: &[Entry]) -> String {
    by_mode("Measured memory of each way to use the model, by part", entries, |Entry { measured, .. }| {
        let value = format!("{} at most", bytes(measured.peak_bytes));
        (value, parts(measured), Some(measured.peak_bytes as f64))
    })
}

fn graphs(entries: &[Entry]) -> String {
    by_mode("What the graph keeps in each way to use the model", entries, |entry| {
        let kept = entry.measured.activations_bytes;
        let value = format!("{} operations, {}", grouped(entry.graph_nodes), bytes(kept));
        (value, vec![("activations", kept as f64)], None)
    })
}

fn growths(growth: &[Growth]) -> String {
    let curve = |name, class, value: fn(&Growth) -> f64| Curve {
        name,
        class,
        points: growth.iter().map(|row| (row.time as f64, value(row))).collect(),
    };
    let times = [
        curve("training step", "activations", |row| row.training_s),
        curve("forward pass", "weights", |row| row.forward_s),
    ];
    let memories = [
        curve("training step", "activations", |row| row.training_bytes as f64),
        curve("forward pass", "weights", |row| row.forward_bytes as f64),
    ];
    let tokens = [
        curve("without the cache", "activations", |row| row.uncached_token_s),
        curve("with the cache", "weights", |row| row.cached_token_s),
    ];
    let memory = |y| bytes(y as u64);
    let times = curves("Time of a training step and of a forward pass by length", "tokens", &times, time);
    let memories = curves("Memory of a training step and of a forward pass by length", "tokens", &memories, memory);
    let tokens = curves("Time of one token with the cache and without it by length", "tokens", &tokens, time);
    fill(GROWTH, &[("times", &times), ("memories", &memories), ("tokens", &tokens)])
}

/// A table whose rows begin with their names; `name` is its own.
fn table(name: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head: String = head.iter().map(|cell| format!("<th scope=\"col\">{}</th>", escape(cell))).collect();
    let cell = |(column, cell): (usize, &String)| match column {
        0 => format!("<th scope=\"row\">{}</th>", escape(cell)),
        _ => format!("<td>{}</td>", escape(cell)),
    };
    let row = |row: Vec<String>| format!("<tr>{}</tr>", row.iter().enumerate().map(cell).collect::<String>());
    let rows: String = rows.map(row).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{name}\">\
         <table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

fn predictions(entries: &[Entry]) -> String {
    let rows = entries.iter().map(|entry| {
        let (predicted, measured) = (entry.predicted.peak_bytes, entry.measured.peak_bytes);
        let off = 100.0 * (predicted as f64 / measured.max(1) as f64 - 1.0);
        vec![title(entry.mode), bytes(predicted), bytes(measured), format!("{off:+.1}%")]
    });
    table("Predicted and measured memory", &["", "predicted", "measured", "off by"], rows)
}

fn numbers(entries: &[Entry]) -> String {
    let head = ["", "time", "tokens", "FLOPs", "FLOP/s", "operations", "logits off by"];
    let rows = entries.iter().map(|entry| {
        vec![
            title(entry.mode),
            time(entry.time_s),
            grouped(entry.tokens),
            short(entry.flops),
            short(entry.flops / entry.time_s.max(1e-12)),
            grouped(entry.operations),
            difference(entry.logits_difference),
        ]
    });
    table("All numbers", &head, rows)
}

/// What each mode returns, what in it is random, and where it is implemented.
fn descriptions(entries: &[Entry]) -> String {
    let place = |place: &Place| format!("<code>{}</code> in <code>{}</code>", place.function, place.file);
    let item = |Entry { mode, returns, random, places, .. }: &Entry| {
        let places: Vec<String> = places.iter().map(place).collect();
        format!("<dt>{}</dt>\n<dd>Returns {returns}.<br>Random: {random}.<br>{}</dd>\n", title(mode), places.join(", "))
    };
    format!("<dl>\n{}</dl>", entries.iter().map(item).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_name_and_so_have_its_rows() {
        let html = table("Times", &["", "time"], [["a&b", "1 s"].map(str::to_owned).to_vec()].into_iter());
        let expected = "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Times\"><table><thead><tr>\
                        <th scope=\"col\"></th><th scope=\"col\">time</th></tr></thead><tbody><tr>\
                        <th scope=\"row\">a&amp;b</th><td>1 s</td></tr></tbody></table></div>";
        assert_eq!(html, expected);
    }

    /// The page loads no other file, and every placeholder of the templates is filled.
    #[test]
    fn the_page_needs_nothing_else() {
        for never in ["http:", "https:", "src=", "href=", "@import", "<script"] {
            assert!(![PAGE, GROWTH, STYLE].iter().any(|text| text.contains(never)), "{never}");
        }
        let holes: Vec<&str> = PAGE.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()).collect();
        let known =
            ["subject", "time", "legend", "measured_by", "memory", "predicted", "graph", "growth", "table", "modes"];
        assert_eq!(holes, known);
    }
}
