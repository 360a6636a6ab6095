//! What every page has: a frame that works offline, in light and dark, on a phone; and text that
//! cannot become markup.

/// A whole page: `title` is text, `style` CSS and `body` HTML of its own.
pub fn page(title: &str, style: &str, body: &str) -> String {
    format!(include_str!("page.html"), title = escape(title), style = style, body = body)
}

/// Text as it is written in HTML, between tags and in quoted attributes.
pub fn escape(text: &str) -> String {
    // The ampersand first, since the others bring one.
    const ENTITIES: [(char, &str); 5] =
        [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")];
    ENTITIES.iter().fold(text.to_owned(), |text, (character, entity)| text.replace(*character, entity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(escape("<a href=\"x\">R&D's</a>"), "&lt;a href=&quot;x&quot;&gt;R&amp;D&#39;s&lt;/a&gt;");
    }
}
