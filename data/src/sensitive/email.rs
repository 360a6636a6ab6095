//! E-mail addresses: a local part of at most 64 characters, and a domain name.

use super::neighbours::{after, before};
use regex::Regex;
use std::{ops::Range, sync::LazyLock};

static SHAPE: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?i-u)[a-z0-9_][a-z0-9._%+-]{0,63}@(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.){1,8}[a-z]{2,24}";
    Regex::new(pattern).expect("the pattern is valid")
});

/// File name extensions: `icon@2x.png` is not an address.
const FILE_EXTENSIONS: [&str; 10] = ["png", "jpg", "jpeg", "gif", "svg", "webp", "css", "js", "ts", "html"];

/// Ranges of e-mail addresses.
pub fn find(text: &str) -> Vec<Range<usize>> {
    if !text.contains('@') {
        return Vec::new();
    }
    let is_address = |range: &Range<usize>| {
        // Punctuation such as a list marker may precede an address, though it may also occur within
        // one.
        let continues = |character: char| character.is_alphanumeric() || "_@".contains(character);
        let top = text[range.clone()].rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        let next = after(text, range.end);
        // `git@host.org:folder` names a repository.
        let is_remote = next == Some(':') && after(text, range.end + 1).is_some_and(char::is_alphanumeric);
        !before(text, range.start).is_some_and(continues)
            && !next.is_some_and(|next| next.is_alphanumeric() || next == '@')
            && !FILE_EXTENSIONS.contains(&top.as_str())
            && !is_remote
    };
    SHAPE.find_iter(text).map(|found| found.range()).filter(is_address).collect()
}
