//! What stands beside a place of a text: a shape that goes on is another thing.

/// The character before byte `at`.
pub fn before(text: &str, at: usize) -> Option<char> {
    text[..at].chars().next_back()
}

/// The character from byte `at` on.
pub fn behind(text: &str, at: usize) -> Option<char> {
    text[at..].chars().next()
}
