//! What pages share: a frame that works offline, in light and dark, on a phone; templates to fill
//! in; and text that cannot become markup.

use std::fmt::Display;

use serde_json::Value;

/// A whole page: `title` is text, `style` CSS and `body` a template in HTML, filled with `values`.
pub fn page(title: &str, style: &str, body: &str, values: &[(&str, &dyn Display)]) -> String {
    let (title, body) = (escape(title), fill(body, values));
    let values: [(_, &dyn Display); 3] = [("title", &title), ("style", &style.trim_end()), ("body", &body.trim_end())];
    fill(include_str!("page/frame.html"), &values)
}

/// The template with every `{{name}}` replaced; what is put in is not searched again.
pub fn fill(template: &str, values: &[(&str, &dyn Display)]) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        out += before;
        out += &values.iter().find(|value| value.0 == name).map(|value| value.1.to_string()).unwrap_or_default();
        rest = after;
    }
    out + rest
}

/// Text as it is written in HTML, between tags and in quoted attributes.
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// JSON that cannot end the script element that it stands in: `<` occurs in JSON inside strings
/// only.
pub fn json_in_script(json: &Value) -> String {
    json.to_string().replace('<', "\\u003c")
}

/// Places as the points of an SVG's line.
pub fn line_points(places: impl Iterator<Item = (f64, f64)>) -> String {
    places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_once() {
        let values: [(&str, &dyn Display); 2] = [("a", &"{{b}}"), ("b", &"x")];
        assert_eq!(fill("1 {{a}} 2 {{b}} {{c}}.", &values), "1 {{b}} 2 x .");
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(escape("<a href=\"x\">R&D's</a>"), "&lt;a href=&quot;x&quot;&gt;R&amp;D&#39;s&lt;/a&gt;");
    }

    #[test]
    fn no_text_in_json_ends_the_script_that_holds_it() {
        let json = serde_json::json!({ "name": "</script><!-- " });
        assert_eq!(json_in_script(&json), r#"{"name":"\u003c/script>\u003c!-- "}"#);
    }
}
