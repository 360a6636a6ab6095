//! Characters next to a match: if the word or number continues there, it is not a match.

/// Spaces between groups of digits, as a regular expression class: the plain space and the
/// non-breaking ones used in French.
pub const SPACE: &str = r"[ \u{a0}\u{202f}]";

/// The character before byte `at`.
pub fn before(text: &str, at: usize) -> Option<char> {
    text[..at].chars().next_back()
}

/// The character at byte `at`.
pub fn after(text: &str, at: usize) -> Option<char> {
    text[at..].chars().next()
}
