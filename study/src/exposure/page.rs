//! The figures as a page: the losses by position, the drift with its uncertainty, the loops.

use std::fmt::Write;

use super::{Exposure, Figures, Stretch};
use ember_training::run::report::html::page as whole_page;

const STYLE: &str = "
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif }
svg text { fill: currentColor }
svg .axis { stroke: currentColor; stroke-width: 1; opacity: 0.4 }
svg polyline { fill: none; stroke-width: 2.5 }
.real { stroke: #2b7bba } .sampled { stroke: #d9822b } .greedy { stroke: #8a4fbf; stroke-dasharray: 6 4 }
.drift { stroke: #d9822b; fill: #d9822b }
.table { overflow-x: auto }";

/// Size of a picture and of the margins around its plot, in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 40.0;

/// A page that needs nothing but itself.
pub fn page(title: &str, exposure: &Exposure) -> String {
    let prefix = exposure.settings.prefix;
    let mut body = format!(
        "<p>{} windows of validation text. Behind {prefix} real tokens come the real words, words drawn from the model at \
         temperature 1 ({} times), or its most probable words (greedy).</p>\n",
        exposure.windows, exposure.settings.samples
    );
    body += "<h2>Loss by position</h2>\n<p>-ln p of the token that stands there, in nats. Drawn tokens cost what the model \
             expects; real ones more, as far as it does not know them; greedy ones less, least where it repeats itself.</p>\n";
    body += &losses(&exposure.positions);
    body += "<h2>Drift</h2>\n<p>What the model expects to lose on its own words less what it expects on real ones, in nats a \
             token, with two standard errors to each side. At 0 its own words lead it nowhere that real text does not go.</p>\n";
    body += &drift(&exposure.positions);
    body += &table(exposure);
    if !exposure.loops.is_empty() {
        let _ = writeln!(
            body,
            "<h2>Loops</h2>\n<p>Of texts of {} tokens, how many end in a stretch said at least {} times in a row (over at least \
             {} tokens).</p>\n<table><tr><th>text</th><th>in a loop</th><th>of</th><th>mean onset</th><th>mean period</th></tr>",
            exposure.settings.loop_tokens,
            super::TIMES,
            super::LEAST_TOKENS
        );
        for of in &exposure.loops {
            let mean = |mean: Option<f64>| mean.map_or_else(String::new, |mean| format!("{mean:.1}"));
            let (onset, period) = (mean(of.mean_onset), mean(of.mean_period));
            let _ = writeln!(
                body,
                "<tr><th>{}</th><td>{}</td><td>{}</td><td>{onset}</td><td>{period}</td></tr>",
                of.text, of.loops, of.texts
            );
        }
        body += "</table>\n";
    }
    whole_page(title, STYLE, &body)
}

fn table(exposure: &Exposure) -> String {
    let mut html =
        "<h2>Every figure</h2>\n<div class=\"table\" tabindex=\"0\"><table>\n<tr><th rowspan=\"2\">position</th>\
                    <th colspan=\"3\">loss</th><th colspan=\"3\">expected loss</th><th colspan=\"3\">probability</th>\
                    <th colspan=\"3\">repeated</th><th rowspan=\"2\">drift</th></tr>\n<tr>"
            .to_owned();
    html += &"<th>real</th><th>own</th><th>greedy</th>".repeat(4);
    html += "</tr>\n";
    for stretch in exposure.positions.iter().chain([&exposure.whole]) {
        let _ = write!(html, "<tr><th>{}</th>", positions(stretch));
        let figures: [fn(&Figures) -> f64; 4] =
            [|of| of.loss, |of| of.expected_loss, |of| of.probability, |of| of.repeated];
        for of in figures {
            for text in [&stretch.real, &stretch.sampled, &stretch.greedy] {
                let _ = write!(html, "<td>{:.3}</td>", of(text));
            }
        }
        let _ = writeln!(html, "<td>{:+.3} ± {:.3}</td></tr>", stretch.drift.mean, stretch.drift.standard_error);
    }
    html + "</table></div>\n"
}

/// "1" or "5 to 8".
fn positions(stretch: &Stretch) -> String {
    if stretch.from == stretch.to { stretch.from.to_string() } else { format!("{} to {}", stretch.from, stretch.to) }
}

/// A curve: its class, its label and its value.
type Curve = (&'static str, &'static str, fn(&Stretch) -> f64);

fn losses(stretches: &[Stretch]) -> String {
    let curves: [Curve; 3] = [
        ("real", "real", |of| of.real.loss),
        ("sampled", "own", |of| of.sampled.loss),
        ("greedy", "greedy", |of| of.greedy.loss),
    ];
    let most = stretches.iter().flat_map(|of| curves.map(|(_, _, loss)| loss(of))).fold(0.0, f64::max);
    let frame = Frame { low: 0.0, high: most * 1.05 + 1e-9, columns: stretches.len() };
    let mut svg = frame.open("Loss by position behind the prefix, of real, drawn and greedy words", stretches);
    // Labels that would meet are moved apart, from the top down.
    let last = |curve: fn(&Stretch) -> f64| stretches.last().map_or(0.0, |of| frame.y(curve(of)));
    let mut labels: Vec<_> = curves.iter().map(|&(class, label, curve)| (last(curve), class, label)).collect();
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut lowest = f64::NEG_INFINITY;
    for (class, _, curve) in curves {
        let points: Vec<String> = stretches
            .iter()
            .enumerate()
            .map(|(i, of)| format!("{:.1},{:.1}", frame.x(i), frame.y(curve(of))))
            .collect();
        let _ = writeln!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }
    for (y, class, label) in labels {
        lowest = y.max(lowest + 16.0);
        let x = WIDTH - RIGHT + 8.0;
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{x}\" x2=\"{}\" y1=\"{lowest:.1}\" y2=\"{lowest:.1}\" stroke-width=\"2.5\"/>",
            x + 16.0
        );
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{:.1}\">{label}</text>", x + 22.0, lowest + 4.0);
    }
    svg + "</svg>\n"
}

fn drift(stretches: &[Stretch]) -> String {
    let reach = |of: &Stretch| of.drift.mean.abs() + 2.0 * of.drift.standard_error;
    let most = stretches.iter().map(reach).fold(0.0, f64::max) * 1.1 + 1e-9;
    let frame = Frame { low: -most, high: most, columns: stretches.len() };
    let mut svg = frame.open("Drift by position behind the prefix", stretches);
    let zero = frame.y(0.0);
    let _ = writeln!(svg, "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{zero}\" y2=\"{zero}\"/>", WIDTH - RIGHT);
    for (place, of) in stretches.iter().enumerate() {
        let (x, y) = (frame.x(place), frame.y(of.drift.mean));
        let [top, bottom] = [1.0, -1.0].map(|side| frame.y(of.drift.mean + side * 2.0 * of.drift.standard_error));
        let _ = writeln!(
            svg,
            "<g class=\"drift\"><line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\" stroke-width=\"2\"/>\
             <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/></g>"
        );
    }
    svg + "</svg>\n"
}

/// A plot's range and its columns, one for each stretch.
struct Frame {
    low: f64,
    high: f64,
    columns: usize,
}

impl Frame {
    fn x(&self, column: usize) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (column as f64 + 0.5) / self.columns as f64
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - self.low) / (self.high - self.low)
    }

    /// The beginning of a picture: its name, its axes, their labels.
    fn open(&self, label: &str, stretches: &[Stretch]) -> String {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">\n\
             <path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\n"
        );
        for fifth in 0..=4 {
            let value = self.low + (self.high - self.low) * f64::from(fifth) / 4.0;
            let (x, y) = (LEFT - 8.0, self.y(value) + 4.0);
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{value:.2}</text>");
        }
        for (place, stretch) in stretches.iter().enumerate() {
            let (x, y) = (self.x(place), bottom + 18.0);
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", positions(stretch));
        }
        svg
    }
}
