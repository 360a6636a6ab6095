//! The line as a page: a slider through the steps, which plays by itself, and under it every text
//! in a list that needs no script. What changed from one step to the next is marked.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;

use super::Moment;
use ember_training::run::report::html::{escape, page as whole_page};
use ember_training::units::grouped;

const STYLE: &str = "
.prompt { border-left: 3px solid #d9822b; padding-left: 0.6em }
.stage { border: 1px solid color-mix(in srgb, currentColor 25%, transparent); border-radius: 0.5em; padding: 0.8em 1em }
.text { white-space: pre-wrap; overflow-wrap: anywhere; font: 15px/1.5 ui-monospace, monospace; margin: 0.4em 0 }
.stage .text { min-height: 12em }
.text b { font-weight: 600 }
.same { opacity: 0.55 }
.new { background: color-mix(in srgb, #d9822b 22%, transparent); border-radius: 2px }
.controls { display: flex; gap: 0.8em; align-items: center }
.controls input { flex: 1 }
.figures { font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto; display: block }
svg polyline { fill: none; stroke: #2b7bba; stroke-width: 2 }
svg circle { fill: #d9822b }
svg line { stroke: currentColor; opacity: 0.3 }
svg text { fill: currentColor; font: 11px system-ui, sans-serif; opacity: 0.7 }
details { margin: 1em 0 3em }
h3 { margin-bottom: 0; font-size: 1em }";

/// Moves every stage by its slider, and lets it play.
const SCRIPT: &str = include_str!("page.js");

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 110.0;
const SIDE: f64 = 44.0;
const EDGE: f64 = 16.0;

/// A page that needs nothing but itself.
pub fn page(title: &str, lines: &BTreeMap<usize, Vec<Moment>>) -> String {
    let mut body = String::from(
        "<p>The same prompt and the same noise at every look: the text changes only where the model has. Grey is what stood \
         there at the look before; what is new is marked. Move the slider, or play.</p>\n",
    );
    for (prompt, line) in lines {
        body += &section(*prompt, line);
    }
    let data: Vec<_> = lines.values().map(|line| line.iter().map(facts).collect::<Vec<_>>()).collect();
    // `<` occurs in JSON inside strings only: written so, no text can end the script.
    let data = json!(data).to_string().replace('<', "\\u003c");
    let _ = writeln!(body, "<script>\nconst lines = {data};\n{SCRIPT}</script>");
    whole_page(title, STYLE, &body)
}

/// What the script knows of a moment.
fn facts(moment: &Moment) -> serde_json::Value {
    let (same, new) = moment.parts();
    json!({ "prompt": moment.sample.prompt, "same": same, "new": new, "figures": figures(moment) })
}

fn figures(moment: &Moment) -> String {
    let mut figures = format!("step {}", grouped(moment.sample.step));
    if let Some((loss, of)) = moment.loss() {
        let _ = write!(figures, " · {of} {loss:.3}");
    }
    let _ = write!(figures, " · loss on its own words {:.3}", moment.sample.own_loss);
    figures
}

fn section(prompt: usize, line: &[Moment]) -> String {
    let Some(last) = line.last() else { return String::new() };
    let named = match last.sample.prompt.as_str() {
        "" => "a text of its own".to_owned(),
        prompt => format!("“{}”", escape(prompt)),
    };
    let mut html = format!("<section>\n<h2 class=\"prompt\">{named}</h2>\n<div class=\"stage\">\n{}", curve(line));
    let end = line.len() - 1;
    let _ = write!(
        html,
        "<div class=\"controls\"><button type=\"button\" aria-label=\"play prompt {prompt}\">Play</button>\
         <input type=\"range\" min=\"0\" max=\"{end}\" value=\"{end}\" aria-label=\"step of prompt {prompt}\"></div>\n\
         <p class=\"figures\" aria-live=\"polite\">{}</p>\n<p class=\"text\">{}</p>\n</div>\n<details>\n\
         <summary>All {} texts</summary>\n",
        escape(&figures(last)),
        marked(last),
        line.len()
    );
    for moment in line {
        let _ = write!(html, "<h3>{}</h3>\n<p class=\"text\">{}</p>\n", escape(&figures(moment)), marked(moment));
    }
    html + "</details>\n</section>\n"
}

/// The prompt, what stayed and what is new.
fn marked(moment: &Moment) -> String {
    let (same, new) = moment.parts();
    format!(
        "<b>{}</b><span class=\"same\">{}</span><span class=\"new\">{}</span>",
        escape(&moment.sample.prompt),
        escape(same),
        escape(new)
    )
}

/// The losses as a small curve, a dot on it for each text; the script makes the dot of the shown
/// text the large one.
fn curve(line: &[Moment]) -> String {
    let points: Vec<(f64, f64)> =
        line.iter().filter_map(|moment| Some((moment.sample.step as f64, moment.loss()?.0))).collect();
    if points.len() != line.len() || points.iter().any(|point| !point.1.is_finite()) {
        return String::new();
    }
    let span = |of: fn(&(f64, f64)) -> f64| {
        points.iter().map(of).fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)))
    };
    let ((first, last), (low, high)) = (span(|point| point.0), span(|point| point.1));
    let share = |x: f64, low: f64, high: f64| if high > low { (x - low) / (high - low) } else { 0.5 };
    let place = |point: &(f64, f64)| {
        let x = SIDE + share(point.0, first, last) * (WIDTH - 2.0 * SIDE);
        let y = EDGE + (1.0 - share(point.1, low, high)) * (HEIGHT - 2.0 * EDGE);
        (x, y)
    };
    let places: Vec<(f64, f64)> = points.iter().map(place).collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"the loss at each text, from {high:.2} to {low:.2}\">\
         <text x=\"0\" y=\"{:.1}\">{high:.2}</text><text x=\"0\" y=\"{:.1}\">{low:.2}</text><polyline points=\"{}\"/>",
        EDGE + 4.0,
        HEIGHT - EDGE + 4.0,
        path.join(" ")
    );
    for (x, y) in places {
        let _ = write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>");
    }
    svg + "</svg>\n"
}
