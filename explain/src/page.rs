//! The page: one HTML file with its style, scripts and numbers, which loads nothing else.

use ember_page::{Page, fill, json_in_script, script};

use super::Explanation;

const BODY: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const ARITHMETIC: &str = include_str!("page/arithmetic.js");

/// The page's scripts, in the order in which they are joined.
const SCRIPTS: [&str; 8] = [
    include_str!("page/parts.js"),
    include_str!("page/steps.js"),
    include_str!("page/knobs.js"),
    include_str!("page/ways.js"),
    include_str!("page/beams.js"),
    include_str!("page/insight.js"),
    include_str!("page/noise.js"),
    include_str!("page/page.js"),
];

/// Maximum number of the prompt's characters in the page's title.
const TITLE: usize = 60;

/// The page as one HTML file.
pub fn page(explanation: &Explanation) -> String {
    let title = match explanation.prompt.text.as_deref().map(str::trim) {
        None | Some("") => "A text, explained".to_owned(),
        Some(prompt) => format!("{}: explained", prompt.chars().take(TITLE).collect::<String>()),
    };
    let (explanation, script) = (json_in_script(&explanation.to_json()), script(&SCRIPTS));
    let body = fill(BODY, &[("explanation", &explanation), ("arithmetic", &ARITHMETIC), ("script", &script)]);
    Page { title: &title, style: STYLE, body: &body, ..Page::default() }.html()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_template_has_a_place_for_each_part() {
        for name in ["explanation", "arithmetic", "script"] {
            assert_eq!(BODY.matches(&format!("{{{{{name}}}}}")).count(), 1, "{name}");
        }
    }

    #[test]
    fn every_place_in_the_code_is_there() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for places in BODY.split("In the code:").skip(1) {
            let places = places.split("</p>").next().unwrap();
            let mut code = String::new();
            for (name, _) in places.split("<code>").skip(1).filter_map(|rest| rest.split_once("</code>")) {
                if name.ends_with(".rs") {
                    code = std::fs::read_to_string(root.join(name)).unwrap();
                } else {
                    let function = name.rsplit("::").next().unwrap();
                    assert!(code.contains(&format!("fn {function}(")), "{places} has no {name}");
                }
            }
        }
    }
}
