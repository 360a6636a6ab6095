//! Small charts as SVG inside the page, with the page's colours and width.

use ember_page::escape;
use std::fmt::Write;

/// Size of a column chart, in its own units, about pixels each.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 150.0;
const BASE: f64 = 22.0;

/// A chart with a column for each value; labels that are not empty are printed below.
pub fn columns(title: &str, values: &[(String, f64, String)]) -> String {
    let most = values.iter().map(|value| value.1).fold(f64::MIN_POSITIVE, f64::max);
    let step = WIDTH / values.len().max(1) as f64;
    let wide = (step * 0.82).min(44.0);
    let mut svg = format!(
        "<svg class=\"columns\" viewBox=\"-12 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
        WIDTH + 24.0,
        HEIGHT + BASE,
        escape(title)
    );
    for (place, (label, value, says)) in values.iter().enumerate() {
        let high = HEIGHT * value / most;
        let middle = step * (place as f64 + 0.5);
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\"><title>{}</title></rect>",
            middle - wide / 2.0,
            HEIGHT - high,
            escape(says)
        );
        if !label.is_empty() {
            let _ = writeln!(svg, "<text x=\"{middle:.1}\" y=\"{:.1}\">{}</text>", HEIGHT + 16.0, escape(label));
        }
    }
    svg + "</svg>\n"
}

/// A bar as wide as `share`, for a table's cell.
pub fn bar(share: f64) -> String {
    format!(
        "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect width=\"{:.1}\" \
         height=\"8\"/></svg>",
        (100.0 * share).clamp(0.5, 100.0)
    )
}
