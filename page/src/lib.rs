//! The common parts of all our pages: the frame of one file that works offline, in light and dark,
//! on a phone; colours and fonts; building blocks for scripts; templates; and escaping, so that
//! text cannot become markup.

use std::fmt::Display;

/// A whole page; [`script`] joins its scripts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Page<'a> {
    /// The title: text.
    pub title: &'a str,
    /// Further lines of HTML for its head.
    pub head: &'a str,
    /// CSS in addition to that of all pages (`style.css`).
    pub style: &'a str,
    /// HTML.
    pub body: &'a str,
}

impl Page<'_> {
    /// The page as one HTML file.
    pub fn html(&self) -> String {
        let title = escape(self.title);
        let values: [(_, &dyn Display); 5] = [
            ("head", &self.head),
            ("title", &title),
            ("common", &include_str!("style.css")),
            ("style", &self.style),
            ("body", &self.body),
        ];
        fill(include_str!("frame.html"), &values)
    }
}

/// One script of `parts`, in JavaScript's strict mode; each part may use those before it, and all
/// may use the common `elements.js`, which comes first.
pub fn script(parts: &[&str]) -> String {
    ["\"use strict\";\n", include_str!("elements.js")].into_iter().chain(parts.iter().copied()).collect()
}

/// The template with every `{{name}}` replaced; inserted values are not searched again.
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

/// Text escaped for HTML, between tags and in quoted attributes.
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// JSON that cannot end its script element: `<` occurs in JSON inside strings only.
pub fn json_in_script(json: &impl Display) -> String {
    json.to_string().replace('<', "\\u003c")
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
        let json = r#"{"name":"</script><!-- "}"#;
        assert_eq!(json_in_script(&json), r#"{"name":"\u003c/script>\u003c!-- "}"#);
    }

    #[test]
    fn a_page_has_its_parts_in_their_places() {
        let page = Page { title: "<R&D>", head: "<meta>\n", style: "p {}\n", body: "{{title}}\n" }.html();
        assert!(page.contains("<meta>\n<link rel=\"icon\" href=\"data:,\">\n<title>&lt;R&amp;D&gt;</title>"), "{page}");
        assert!(page.contains("p {}\n</style>") && page.ends_with("<body>\n{{title}}\n</body>\n</html>\n"), "{page}");
        assert!(!page.contains("http"), "nothing is asked of the network");
    }
}
