//! The timelines as a page: a slider through the steps, which can play by itself, and under it a
//! list of all texts that needs no script. Changes from one step to the next are marked.

use std::collections::BTreeMap;

use ember_page::{escape, fill, json_in_script};
use ember_training::units::{counted, grouped};
use serde_json::json;

use super::{LossKind, Moment};
use crate::page::{line_points, page as whole_page};

const STYLE: &str = include_str!("page/style.css");

/// The script that moves each timeline by its slider, and plays it.
const SCRIPT: &str = include_str!("page/page.js");

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 110.0;
const SIDE: f64 = 44.0;
const EDGE: f64 = 16.0;

/// A self-contained page.
pub fn page(title: &str, lines: &BTreeMap<usize, Vec<Moment>>) -> String {
    let sections: String = lines.iter().map(|(prompt, line)| section(*prompt, line)).collect();
    let data: Vec<_> = lines.values().map(|line| line_facts(line)).collect();
    let data = json_in_script(&json!(data));
    let template = include_str!("page/page.html");
    whole_page(title, STYLE, template, &[("sections", &sections), ("data", &data), ("script", &SCRIPT)])
}

/// The data of a timeline for the script.
fn line_facts(line: &[Moment]) -> Vec<serde_json::Value> {
    let shown = LossKind::of(line);
    let facts = |moment: &Moment| {
        let (same, new) = moment.parts();
        json!({ "prompt": moment.sample.prompt, "same": same, "new": new, "figures": figures(moment, shown) })
    };
    line.iter().map(facts).collect()
}

fn figures(moment: &Moment, shown: LossKind) -> String {
    let loss = shown.loss(moment).map_or_else(String::new, |loss| format!(" · {} {loss:.3}", shown.name()));
    let own_loss =
        moment.sample.own_loss.map_or_else(String::new, |loss| format!(" · loss on its own words {loss:.3}"));
    format!("step {}{loss}{own_loss}", grouped(moment.sample.step))
}

fn section(prompt: usize, line: &[Moment]) -> String {
    let Some(last) = line.last() else { return String::new() };
    let named = match last.sample.prompt.as_str() {
        "" => "no prompt".to_owned(),
        prompt => format!("“{}”", escape(prompt)),
    };
    let shown = LossKind::of(line);
    let figures = |moment| escape(&figures(moment, shown));
    let text = |moment| format!("<h3>{}</h3>\n<p class=\"text\">{}</p>\n", figures(moment), marked(moment));
    fill(
        include_str!("page/section.html"),
        &[
            ("named", &named),
            ("prompt", &prompt),
            ("curve", &curve(line, shown)),
            ("end", &(line.len() - 1)),
            ("figures", &figures(last)),
            ("text", &marked(last)),
            ("count", &counted(line.len(), "text")),
            ("texts", &line.iter().map(text).collect::<String>()),
        ],
    )
}

/// The prompt, the unchanged text and the new text.
fn marked(moment: &Moment) -> String {
    let (same, new) = moment.parts();
    let [prompt, same, new] = [&moment.sample.prompt, same, new].map(escape);
    format!("<b>{prompt}</b><span class=\"same\">{same}</span><span class=\"new\">{new}</span>")
}

/// The losses as a small curve with a dot for each text that has one; the script enlarges the shown
/// text's dot.
fn curve(line: &[Moment], shown: LossKind) -> String {
    let point = |(text, moment): (usize, &Moment)| Some((text, (moment.sample.step as f64, shown.loss(moment)?)));
    let (texts, points): (Vec<usize>, Vec<(f64, f64)>) = line.iter().enumerate().filter_map(point).unzip();
    if points.len() < 2 || points.iter().any(|point| !point.1.is_finite()) {
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
    let path = line_points(places.iter().copied());
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"the {} at each text, between {low:.2} and {high:.2}\">\
         <text x=\"0\" y=\"{:.1}\">{high:.2}</text><text x=\"0\" y=\"{:.1}\">{low:.2}</text><polyline points=\"{path}\"/>",
        shown.name(),
        EDGE + 4.0,
        HEIGHT - EDGE + 4.0,
    );
    let dots = texts.iter().zip(&places);
    svg.extend(
        dots.map(|(text, (x, y))| format!("<circle data-text=\"{text}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>")),
    );
    svg + "</svg>\n"
}
