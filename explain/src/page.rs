//! The page: one HTML file that holds its style, its scripts and its numbers, and asks the network
//! for nothing.

use super::Explanation;

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const ARITHMETIC: &str = include_str!("page/arithmetic.js");

/// The page's scripts, in the order in which they are joined.
const SCRIPTS: [&str; 8] = [
    include_str!("page/elements.js"),
    include_str!("page/steps.js"),
    include_str!("page/knobs.js"),
    include_str!("page/ways.js"),
    include_str!("page/beams.js"),
    include_str!("page/insight.js"),
    include_str!("page/noise.js"),
    include_str!("page/page.js"),
];

/// Characters of the prompt in the page's title.
const TITLE: usize = 60;

/// The whole file.
pub fn page(explanation: &Explanation) -> String {
    let title = match explanation.prompt.text.as_deref().map(str::trim) {
        None | Some("") => "A text, explained".to_owned(),
        Some(prompt) => format!("{}: explained", escaped(&prompt.chars().take(TITLE).collect::<String>())),
    };
    let json = inside_script(&explanation.to_json());
    let scripts = SCRIPTS.concat();
    let parts = [
        ("title", title.as_str()),
        ("style", STYLE),
        ("arithmetic", ARITHMETIC),
        ("page", &scripts),
        ("explanation", &json),
    ];
    filled(TEMPLATE, &parts)
}

/// The template with each `{{name}}` replaced by its part, in one pass, so that nothing inside a
/// part is taken for a name.
fn filled(template: &str, parts: &[(&str, &str)]) -> String {
    let mut pieces = template.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let filled = parts.iter().find_map(|(name, part)| Some([part, piece.strip_prefix(name)?.strip_prefix("}}")?]));
        page.extend(filled.unwrap_or(["{{", piece]));
    }
    page
}

/// JSON that cannot end the script element that it stands in: `<` occurs in JSON inside strings
/// only.
fn inside_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// Text as HTML, between tags.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_looks_like_a_name_stays_what_it_is() {
        let parts = [("title", "{{page}} {{"), ("page", "p")];
        assert_eq!(filled("<{{title}}|{{page}}|{{other}}|{{", &parts), "<{{page}} {{|p|{{other}}|{{");
    }

    #[test]
    fn the_template_has_a_place_for_each_part() {
        for name in ["title", "style", "arithmetic", "page", "explanation"] {
            assert_eq!(TEMPLATE.matches(&format!("{{{{{name}}}}}")).count(), 1, "{name}");
        }
    }

    #[test]
    fn no_text_ends_the_script_that_holds_it() {
        assert_eq!(inside_script(r#"{"a":"</script><!--"}"#), r#"{"a":"\u003c/script>\u003c!--"}"#);
        assert_eq!(escaped("<b> & \"c\""), "&lt;b&gt; &amp; \"c\"");
    }
}
