//! The page: one HTML file that holds its style, its scripts, and the model.

use base64::{Engine, engine::general_purpose::STANDARD};
use ember_study::page::{escape, json_in_script};
use serde_json::Value;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");

/// The parts of the script, each what those behind it build on; the page and its worker run the
/// same.
const SCRIPTS: [&str; 14] = [
    include_str!("numbers.js"),
    include_str!("products.js"),
    include_str!("weights.js"),
    include_str!("model.js"),
    include_str!("random.js"),
    include_str!("choice.js"),
    include_str!("tokenizer.js"),
    include_str!("writing.js"),
    include_str!("worker.js"),
    include_str!("elements.js"),
    include_str!("facts.js"),
    include_str!("knobs.js"),
    include_str!("paper.js"),
    include_str!("main.js"),
];

/// The whole file. `head` is all but the weights.
pub fn page(title: &str, head: &Value, weights: &[u8]) -> String {
    let (title, head, weights, scripts) =
        (escape(title), json_in_script(head), STANDARD.encode(weights), SCRIPTS.concat());
    let parts = [
        ("<!--TITLE-->", title.as_str()),
        ("/*STYLE*/", STYLE),
        ("/*MODEL*/", &head),
        ("/*WEIGHTS*/", &weights),
        ("/*SCRIPT*/", &scripts),
    ];
    filled(TEMPLATE, &parts)
}

/// The template with each mark, in the order in which they stand in it, replaced by its part; so
/// that nothing inside a part is taken for a mark.
fn filled(template: &str, parts: &[(&str, &str)]) -> String {
    let mut page = String::with_capacity(template.len() + parts.iter().map(|(_, part)| part.len()).sum::<usize>());
    let mut rest = template;
    for (mark, part) in parts {
        if let Some((before, after)) = rest.split_once(mark) {
            page += before;
            page += part;
            rest = after;
        }
    }
    page + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_text_ends_the_script_that_holds_it_and_no_part_is_taken_for_a_mark() {
        let html = page("a </title> /*STYLE*/", &json!({ "name": "</script><!-- /*SCRIPT*/" }), b"foobar");
        assert!(html.contains("<title>a &lt;/title&gt; /*STYLE*/</title>"));
        assert!(html.contains(r#"{"name":"\u003c/script>\u003c!-- /*SCRIPT*/"}</script>"#));
        assert!(html.contains(">Zm9vYmFy</script>"));
        assert!(html.contains("startWorker();\nelse startPage();"));
    }

    #[test]
    fn the_template_has_a_place_for_each_part() {
        for mark in ["<!--TITLE-->", "/*STYLE*/", "/*MODEL*/", "/*WEIGHTS*/", "/*SCRIPT*/"] {
            assert_eq!(TEMPLATE.matches(mark).count(), 1, "{mark}");
        }
    }
}
