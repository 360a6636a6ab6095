//! The ledger as one HTML file with pictures, which needs neither a network nor a script.

use std::fmt::Write as _;

use super::growth::Growth;
use super::picture::{Bar, Curve, bars, curves, escape};
use super::table::{difference, measured_by, time, title};
use super::{Entry, Subject};
use ember_training::memory::prediction::Parts;
use ember_training::units::{bytes, grouped, short};

const PAGE: &str = include_str!("page/page.html");
const GROWTH: &str = include_str!("page/growth.html");
const STYLE: &str = include_str!("page/style.css");

/// The page; without a growth it has no curves.
pub fn render(subject: &Subject, entries: &[Entry], growth: &[Growth]) -> String {
    fill(
        PAGE,
        &[
            ("style", STYLE.trim_end().to_owned()),
            ("subject", escape(&subject.sentence())),
            ("measured_by", escape(measured_by(subject.measured_by))),
            ("legend", legend()),
            ("time", times(entries)),
            ("memory", memories(entries)),
            ("predicted", predictions(entries)),
            ("graph", graphs(entries)),
            ("growth", if growth.is_empty() { String::new() } else { growths(growth) }),
            ("table", numbers(entries)),
            ("places", places(entries)),
        ],
    )
}

/// The template with every `{{name}}` replaced; what is put in is not searched again.
fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        out += before;
        out += values.iter().find(|value| value.0 == name).map_or("", |value| value.1.as_str());
        rest = after;
    }
    out + rest
}

/// A part's class, which is also its colour, its name and its size.
fn parts(parts: &Parts) -> [(&'static str, &'static str, u64); 6] {
    [
        ("weights", "weights", parts.weights_bytes),
        ("gradients", "gradients", parts.gradients_bytes),
        ("moments", "moments", parts.moments_bytes),
        ("activations", "kept for the backward", parts.activations_bytes),
        ("logits", "logits", parts.logits_bytes),
        ("cache", "cache", parts.cache_bytes),
    ]
}

fn legend() -> String {
    parts(&Parts::default()).map(|(class, name, _)| format!(r#"<span><i class="{class}"></i>{name}</span>"#)).concat()
}

fn times(entries: &[Entry]) -> String {
    let bar = |entry: &Entry| Bar {
        label: title(entry.mode),
        value: format!("{}, {} tokens/s", time(entry.time_s), short(entry.tokens_per_s)),
        parts: vec![("weights", entry.time_s)],
        mark: None,
    };
    bars("Median time of each way to use the model", &entries.iter().map(bar).collect::<Vec<_>>())
}

fn memories(entries: &[Entry]) -> String {
    let bar = |entry: &Entry| Bar {
        label: title(entry.mode),
        value: format!("{} at most", bytes(entry.measured.peak_bytes)),
        parts: parts(&entry.measured).iter().map(|(class, _, size)| (*class, *size as f64)).collect(),
        mark: Some(entry.measured.peak_bytes as f64),
    };
    bars("Measured memory of each way to use the model, by part", &entries.iter().map(bar).collect::<Vec<_>>())
}

fn graphs(entries: &[Entry]) -> String {
    let bar = |entry: &Entry| Bar {
        label: title(entry.mode),
        value: format!("{} operations, {}", grouped(entry.graph_nodes), bytes(entry.measured.activations_bytes)),
        parts: vec![("activations", entry.measured.activations_bytes as f64)],
        mark: None,
    };
    bars("What the graph keeps in each way to use the model", &entries.iter().map(bar).collect::<Vec<_>>())
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
    fill(
        GROWTH,
        &[
            ("times", curves("Time of a training step and of a forward pass by length", "tokens", &times, time)),
            (
                "memories",
                curves("Memory of a training step and of a forward pass by length", "tokens", &memories, |y| {
                    bytes(y as u64)
                }),
            ),
            ("tokens", curves("Time of one token with the cache and without it by length", "tokens", &tokens, time)),
        ],
    )
}

fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut html = String::from("<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>");
    for cell in head {
        let _ = write!(html, "<th scope=\"col\">{}</th>", escape(cell));
    }
    html += "</tr></thead><tbody>";
    for row in rows {
        html += "<tr>";
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escape(&cell));
        }
        html += "</tr>";
    }
    html + "</tbody></table></div>"
}

fn predictions(entries: &[Entry]) -> String {
    let rows = entries.iter().map(|entry| {
        let (predicted, measured) = (entry.predicted.peak_bytes, entry.measured.peak_bytes);
        let off = 100.0 * (predicted as f64 / measured.max(1) as f64 - 1.0);
        vec![title(entry.mode), bytes(predicted), bytes(measured), format!("{off:+.1}%")]
    });
    table(&["", "predicted", "measured", "off by"], rows)
}

fn numbers(entries: &[Entry]) -> String {
    let head = ["", "time", "tokens", "FLOPs", "FLOP/s", "operations", "logits off by", "random", "returns"];
    let rows = entries.iter().map(|entry| {
        vec![
            title(entry.mode),
            time(entry.time_s),
            grouped(entry.tokens),
            short(entry.flops),
            short(entry.flops / entry.time_s.max(1e-12)),
            grouped(entry.operations),
            difference(entry.logits_difference),
            entry.random.to_owned(),
            entry.returns.to_owned(),
        ]
    });
    table(&head, rows)
}

fn places(entries: &[Entry]) -> String {
    let mut html = String::from("<ul>");
    for entry in entries {
        let places: Vec<String> = entry
            .places
            .iter()
            .map(|place| format!("<code>{}</code> in <code>{}</code>", place.function, place.file))
            .collect();
        let _ = write!(html, "<li>{}: {}</li>", title(entry.mode), places.join(", "));
    }
    html + "</ul>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_once() {
        let values = [("a", "{{b}}".to_owned()), ("b", "x".to_owned())];
        assert_eq!(fill("1 {{a}} 2 {{b}} {{c}}.", &values), "1 {{b}} 2 x .");
    }

    /// No file is fetched, and every hole of the templates has something to fill it.
    #[test]
    fn the_page_needs_nothing_else() {
        for never in ["http:", "https:", "src=", "href=", "@import", "<script"] {
            assert!(![PAGE, GROWTH, STYLE].iter().any(|text| text.contains(never)), "{never}");
        }
        let holes: Vec<&str> = PAGE.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()).collect();
        let known = [
            "style",
            "subject",
            "time",
            "legend",
            "measured_by",
            "memory",
            "predicted",
            "graph",
            "growth",
            "table",
            "places",
        ];
        assert_eq!(holes, known);
    }
}
