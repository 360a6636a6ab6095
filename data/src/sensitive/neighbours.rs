//! What stands beside a place of a text: a shape that goes on is another thing.

/// Spaces that part groups of digits, as a class of regular expressions: the plain one, and those
/// that no line ends at, as French has them.
pub const SPACE: &str = r"[ \u{a0}\u{202f}]";

/// The character before byte `at`.
pub fn before(text: &str, at: usize) -> Option<char> {
    text[..at].chars().next_back()
}

/// The character from byte `at` on.
pub fn behind(text: &str, at: usize) -> Option<char> {
    text[at..].chars().next()
}
