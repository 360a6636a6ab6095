//! The figures as a page: losses by position, drift with its uncertainty, loops.

use super::{Exposure, Figures, Loops, MIN_TOKENS, Stretch, TIMES, t_quantile};
use crate::drawing::decimals;
use crate::page::{line_points, page as whole_page};
use ember_page::fill;
use ember_training::units::counted;
use plotters::coord::{ranged1d::Ranged, types::RangedCoordf64};

const STYLE: &str = include_str!("page/style.css");

/// Size of a picture and of the margins around its plot, in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 40.0;

/// Room along the axis for each character of a label, the gap to the next label included.
const CHARACTER: f64 = 7.0;

/// A self-contained page.
pub fn page(title: &str, exposure: &Exposure) -> String {
    let Exposure { windows, settings, positions, whole, loops, .. } = exposure;
    let loops = match loops.as_slice() {
        [] => String::new(),
        all => fill(
            include_str!("page/loops.html"),
            &[
                ("loop_tokens", &settings.loop_tokens),
                ("times", &TIMES),
                ("least_tokens", &MIN_TOKENS),
                ("rows", &all.iter().map(loops_row).collect::<String>()),
            ],
        ),
    };
    whole_page(
        title,
        STYLE,
        include_str!("page/page.html"),
        &[
            ("windows", windows),
            ("prefix", &counted(settings.prefix, "real token")),
            ("samples", &counted(settings.samples, "time")),
            ("losses", &losses(positions)),
            ("drift", &drift(positions, t_quantile(*windows))),
            ("figures", &positions.iter().chain([whole]).map(figures_row).collect::<String>()),
            ("loops", &loops),
        ],
    )
}

fn loops_row(of: &Loops) -> String {
    let [onset, period] =
        [of.mean_onset, of.mean_period].map(|mean| mean.map_or_else(String::new, |mean| format!("{mean:.1}")));
    format!(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{onset}</td><td>{period}</td></tr>\n",
        if of.text == "sampled" { "own" } else { of.text },
        of.loops,
        of.texts
    )
}

fn figures_row(stretch: &Stretch) -> String {
    let figures: [fn(&Figures) -> f64; 4] =
        [|of| of.loss, |of| of.expected_loss, |of| of.probability, |of| of.repeated];
    let texts = [&stretch.real, &stretch.sampled, &stretch.greedy];
    let cells: String = figures.iter().flat_map(|of| texts.map(|text| format!("<td>{:.3}</td>", of(text)))).collect();
    let drift = stretch.drift;
    format!(
        "<tr><th scope=\"row\">{}</th>{cells}<td>{:+.3} ± {:.3}</td></tr>\n",
        positions(stretch),
        drift.mean,
        drift.standard_error
    )
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
    let mut svg = frame.open("Loss by position after the prefix, of real, sampled and greedy words", stretches);
    for (class, _, curve) in curves {
        let points = line_points(stretches.iter().enumerate().map(|(i, of)| (frame.x(i), frame.y(curve(of)))));
        svg += &format!("<polyline class=\"{class}\" points=\"{points}\"/>\n");
    }
    let last = |curve: fn(&Stretch) -> f64| stretches.last().map_or(0.0, |of| frame.y(curve(of)));
    let mut labels = curves.map(|(class, label, curve)| (last(curve), class, label));
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Labels that would overlap are moved apart, from the top down.
    let mut lowest = f64::NEG_INFINITY;
    let x = WIDTH - RIGHT + 8.0;
    let [end, text_x] = [x + 16.0, x + 22.0];
    for (y, class, label) in labels {
        lowest = y.max(lowest + 16.0);
        let text_y = lowest + 4.0;
        svg += &format!(
            "<line class=\"{class}\" x1=\"{x}\" x2=\"{end}\" y1=\"{lowest:.1}\" y2=\"{lowest:.1}\" stroke-width=\"2.5\"/>\n\
             <text x=\"{text_x}\" y=\"{text_y:.1}\">{label}</text>\n"
        );
    }
    svg + "</svg>"
}

/// The drift, with so many standard errors to each side.
fn drift(stretches: &[Stretch], standard_errors: f64) -> String {
    let reach = |of: &Stretch| of.drift.mean.abs() + standard_errors * of.drift.standard_error;
    let most = stretches.iter().map(reach).fold(0.0, f64::max) * 1.1 + 1e-9;
    let frame = Frame { low: -most, high: most, columns: stretches.len() };
    let (zero, right) = (frame.y(0.0), WIDTH - RIGHT);
    let mut svg = frame.open("Drift by position after the prefix", stretches);
    svg += &format!("<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{zero}\" y2=\"{zero}\"/>\n");
    for (place, of) in stretches.iter().enumerate() {
        let (x, y) = (frame.x(place), frame.y(of.drift.mean));
        let [top, bottom] =
            [1.0, -1.0].map(|side| frame.y(of.drift.mean + side * standard_errors * of.drift.standard_error));
        svg += &format!(
            "<g class=\"drift\"><line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\" stroke-width=\"2\"/>\
             <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/></g>\n"
        );
    }
    svg + "</svg>"
}

/// A plot's range and its columns, one for each stretch.
struct Frame {
    low: f64,
    high: f64,
    columns: usize,
}

impl Frame {
    fn column_width(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.columns as f64
    }

    fn x(&self, column: usize) -> f64 {
        LEFT + self.column_width() * (column as f64 + 0.5)
    }

    /// How many columns lie from one label to the next, so that none overlaps another.
    fn label_interval(&self, labels: &[String]) -> usize {
        let longest = labels.iter().map(String::len).max().unwrap_or(0);
        ((longest as f64 * CHARACTER / self.column_width()).ceil() as usize).max(1)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - self.low) / (self.high - self.low)
    }

    /// The start of a picture: its name, its axes, their labels.
    fn open(&self, label: &str, stretches: &[Stretch]) -> String {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">\n\
             <path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\n"
        );
        for value in RangedCoordf64::from(self.low..self.high).key_points(5_usize) {
            let (x, y, label) = (LEFT - 8.0, self.y(value) + 4.0, decimals(value, self.high - self.low));
            svg += &format!("<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>\n");
        }
        let labels: Vec<String> = stretches.iter().map(positions).collect();
        // From the last column on, which shows what grows with length.
        for (place, label) in labels.iter().enumerate().rev().step_by(self.label_interval(&labels)) {
            let (x, y) = (self.x(place), bottom + 18.0);
            svg += &format!("<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>\n");
        }
        svg
    }
}
