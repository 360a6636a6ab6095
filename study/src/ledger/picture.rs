//! SVG pictures: stacked bars, and curves. Colours are classes, so that the page's light and dark
//! styles choose them.

use crate::page::line_points;
use ember_page::escape;

/// Width of every picture in its own units; the page scales it.
const WIDTH: f64 = 480.0;

/// One bar.
pub struct Bar {
    /// Text above it.
    pub label: String,
    /// Text above it on the right.
    pub value: String,
    /// Its parts, left to right: class and size.
    pub parts: Vec<(&'static str, f64)>,
    /// Position of a mark, on the same scale.
    pub mark: Option<f64>,
}

/// Bars on one scale; the longest takes the whole width.
pub fn bars(description: &str, bars: &[Bar]) -> String {
    const ROW: f64 = 44.0;
    let reach = |bar: &Bar| bar.parts.iter().map(|part| part.1).sum::<f64>().max(bar.mark.unwrap_or(0.0));
    let longest = bars.iter().map(reach).fold(0.0, f64::max);
    let scale = if longest > 0.0 { (WIDTH - 4.0) / longest } else { 0.0 };
    let mut svg = open(description, ROW * bars.len() as f64);
    for (i, bar) in bars.iter().enumerate() {
        let [text_y, mark_y, y] = [14.0, 16.0, 20.0].map(|below| ROW * i as f64 + below);
        let [label, value] = [&bar.label, &bar.value].map(|text| escape(text));
        svg += &format!(r#"<text x="0" y="{text_y:.1}">{label}</text>"#);
        svg += &format!(r#"<text x="{WIDTH}" y="{text_y:.1}" text-anchor="end">{value}</text>"#);
        let mut x = 0.0;
        for (class, size) in &bar.parts {
            let width = size * scale;
            svg += &format!(r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="16"/>"#);
            x += width;
        }
        if let Some(x) = bar.mark.map(|mark| mark * scale) {
            svg += &format!(r#"<rect class="mark" x="{x:.1}" y="{mark_y:.1}" width="2" height="24"/>"#);
        }
    }
    svg + "</svg>"
}

/// One curve.
pub struct Curve {
    /// Its name, for the legend.
    pub name: &'static str,
    /// Its class, which determines its colour.
    pub class: &'static str,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Curves over an axis from 0, with the largest value and the largest x as text.
pub fn curves(description: &str, x_name: &str, all: &[Curve], y_text: impl Fn(f64) -> String) -> String {
    const HEIGHT: f64 = 250.0;
    const LEFT: f64 = 4.0;
    const TOP: f64 = 42.0;
    const BOTTOM: f64 = 30.0;
    let points = || all.iter().flat_map(|curve| &curve.points);
    let most_x = points().map(|point| point.0).fold(f64::MIN_POSITIVE, f64::max);
    let most_y = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
    let x = |value: f64| LEFT + value / most_x * (WIDTH - 2.0 * LEFT);
    let y = |value: f64| HEIGHT - BOTTOM - value / most_y * (HEIGHT - TOP - BOTTOM);

    let mut svg = open(description, HEIGHT);
    for share in [0.0, 0.5, 1.0] {
        let (height, text) = (y(share * most_y), y_text(share * most_y));
        svg += &format!(r#"<line class="grid" x1="0" x2="{WIDTH}" y1="{height:.1}" y2="{height:.1}"/>"#);
        if share > 0.0 {
            svg += &format!(r#"<text class="soft" x="0" y="{:.1}">{text}</text>"#, height - 4.0);
        }
    }
    let (below, x_name) = (HEIGHT - 12.0, escape(x_name));
    svg += &format!(r#"<text class="soft" x="0" y="{below:.1}">0</text>"#);
    svg += &format!(r#"<text class="soft" x="{WIDTH}" y="{below:.1}" text-anchor="end">{most_x} {x_name}</text>"#);
    let mut legend = 0.0;
    for Curve { name, class, points } in all {
        let places: Vec<(f64, f64)> = points.iter().map(|point| (x(point.0), y(point.1))).collect();
        let path = line_points(places.iter().copied());
        svg += &format!(r#"<polyline class="line {class}" points="{path}"/>"#);
        for (x, y) in places {
            svg += &format!(r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="3"/>"#);
        }
        svg += &format!(r#"<rect class="{class}" x="{legend:.1}" y="2" width="12" height="12"/>"#);
        svg += &format!(r#"<text x="{:.1}" y="13">{}</text>"#, legend + 17.0, escape(name));
        legend += 34.0 + 8.2 * name.len() as f64;
    }
    svg + "</svg>"
}

fn open(description: &str, height: f64) -> String {
    let description = escape(description);
    format!(r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{description}"><title>{description}</title>"#)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// Every number after `name="`.
    fn numbers(svg: &str, name: &str) -> Vec<f64> {
        let pattern = format!(" {name}=\"");
        svg.split(&pattern).skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
    }

    proptest! {
        #[test]
        fn bars_keep_their_proportions(
            rows in prop::collection::vec(prop::collection::vec(0.0..1e9_f64, 0..5), 1..6),
        ) {
            let bar = |parts: &Vec<f64>| Bar {
                label: "a < b".into(),
                value: String::new(),
                parts: parts.iter().map(|size| ("x", *size)).collect(),
                mark: None,
            };
            let svg = bars("d", &rows.iter().map(bar).collect::<Vec<_>>());
            prop_assert!(svg.contains("a &lt; b"));
            let longest = rows.iter().map(|row| row.iter().sum::<f64>()).fold(0.0, f64::max);
            let drawn = numbers(&svg, "width");
            prop_assert_eq!(drawn.len(), rows.iter().map(Vec::len).sum::<usize>());
            for (size, drawn) in rows.iter().flatten().zip(drawn) {
                // Written with one decimal.
                prop_assert!((drawn - size / longest * (WIDTH - 4.0)).abs() <= 0.051, "{size} {drawn}");
            }
        }

        #[test]
        fn curves_stay_inside_and_rise_where_the_numbers_do(ys in prop::collection::vec(0.0..1e6_f64, 2..9)) {
            let points: Vec<(f64, f64)> = ys.iter().enumerate().map(|(i, y)| (i as f64 + 1.0, *y)).collect();
            let svg = curves("d", "tokens", &[Curve { name: "one", class: "a", points }], |y| format!("{y}"));
            let (xs, drawn) = (numbers(&svg, "cx"), numbers(&svg, "cy"));
            prop_assert!(xs.iter().all(|x| (0.0..=WIDTH).contains(x)) && drawn.iter().all(|y| (0.0..=250.0).contains(y)));
            for (y, at) in ys.windows(2).zip(drawn.windows(2)) {
                // A larger value is drawn higher, at a smaller coordinate; nearly equal ones may be
                // written alike.
                prop_assert!(if y[0] < y[1] { at[0] >= at[1] } else { at[0] <= at[1] }, "{y:?} {at:?}");
            }
        }
    }
}
