//! Assembles the page: one HTML file with its style, its scripts and the model.

use base64::{Engine, engine::general_purpose::STANDARD};
use ember_page::{Page, fill, json_in_script, script};
use serde_json::Value;

/// The page's security policy: no access to anything outside it, whatever the model contains.
const HEAD: &str = r#"<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline' blob:; worker-src blob:; style-src 'unsafe-inline'; img-src data:; connect-src 'none'; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
"#;
const BODY: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");

/// The parts of the script, in order of dependency. The page and its worker run the same script.
const SCRIPTS: [&str; 15] = [
    include_str!("numbers.js"),
    include_str!("products.js"),
    include_str!("weights.js"),
    include_str!("model.js"),
    include_str!("random.js"),
    include_str!("choice.js"),
    include_str!("heap.js"),
    include_str!("tokenizer.js"),
    include_str!("writing.js"),
    include_str!("worker.js"),
    include_str!("words.js"),
    include_str!("facts.js"),
    include_str!("knobs.js"),
    include_str!("paper.js"),
    include_str!("main.js"),
];

/// The whole file. `head` holds everything but the weights.
pub fn page(title: &str, head: &Value, weights: &[u8]) -> String {
    let (head, weights, script) = (json_in_script(head), STANDARD.encode(weights), script(&SCRIPTS));
    let body = fill(BODY, &[("model", &head), ("weights", &weights), ("script", &script)]);
    Page { title, head: HEAD, style: STYLE, body: &body }.html()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_text_ends_the_script_that_holds_it_and_no_part_is_taken_for_a_name() {
        let html = page("a </title> {{style}}", &json!({ "name": "</script><!-- {{script}}" }), b"foobar");
        assert!(html.contains("<title>a &lt;/title&gt; {{style}}</title>"));
        assert!(html.contains(r#"{"name":"\u003c/script>\u003c!-- {{script}}"}</script>"#));
        assert!(html.contains(">Zm9vYmFy</script>"));
        assert!(html.contains("startWorker();\nelse startPage();"));
    }

    #[test]
    fn the_template_has_a_place_for_each_part() {
        for name in ["model", "weights", "script"] {
            assert_eq!(BODY.matches(&format!("{{{{{name}}}}}")).count(), 1, "{name}");
        }
    }
}
