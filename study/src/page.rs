//! A page of figures in one file: a heading, and the content below it.

use std::fmt::Display;

use ember_page::{Page, escape, fill};

/// A whole page: `title` is text, `style` CSS and `body` a template in HTML, filled with `values`.
pub fn page(title: &str, style: &str, body: &str, values: &[(&str, &dyn Display)]) -> String {
    let style = [include_str!("page/style.css"), style].concat();
    let body = format!("<h1>{}</h1>\n{}", escape(title), fill(body, values));
    Page { title, style: &style, body: &body, ..Page::default() }.html()
}

/// Points as the attribute of an SVG line.
pub fn line_points(places: impl Iterator<Item = (f64, f64)>) -> String {
    places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}
