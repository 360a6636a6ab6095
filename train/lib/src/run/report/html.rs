//! What every page has: a frame that works offline, in light and dark, on a phone; and text that
//! cannot become markup.

/// A whole page: `title` is text, `style` CSS and `body` HTML of its own.
pub fn page(title: &str, style: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n\
         :root {{ color-scheme: light dark }}\n\
         body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}\n\
         h1 {{ overflow-wrap: anywhere }}\n\
         table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}\n\
         th, td {{ text-align: right; padding: 0.1em 0.6em; white-space: nowrap }}\n\
         th[colspan] {{ text-align: center }}{style}\n</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}\
         </body>\n</html>\n"
    )
}

/// Text as it is written in HTML, between tags and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(escape("<a href=\"x\">R&D's</a>"), "&lt;a href=&quot;x&quot;&gt;R&amp;D&#39;s&lt;/a&gt;");
    }
}
