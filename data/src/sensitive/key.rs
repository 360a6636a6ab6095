//! Secret keys: recognized by the prefixes of well-known services, by the frame of private keys,
//! and, after a word such as `password =`, by looking random.

use super::neighbours::before;
use regex::Regex;
use std::{ops::Range, sync::LazyLock};

/// Keys with a known prefix: Amazon, GitHub, GitLab, OpenAI and Anthropic, Stripe, Google, Slack,
/// npm, Hugging Face, PyPI, SendGrid; JSON Web Tokens; and private keys in PEM format.
static KNOWN_FORMATS: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = [
        r"(?:AKIA|ASIA)[0-9A-Z]{16}",
        r"gh[pousr]_[A-Za-z0-9]{36,}",
        r"github_pat_[A-Za-z0-9_]{22,}",
        r"glpat-[A-Za-z0-9_-]{20,}",
        r"sk-[A-Za-z0-9_-]{20,}",
        r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",
        r"AIza[0-9A-Za-z_-]{35}",
        r"xox[abeprs]-[A-Za-z0-9-]{10,}",
        r"npm_[A-Za-z0-9]{36}",
        r"hf_[A-Za-z0-9]{30,}",
        r"pypi-[A-Za-z0-9_-]{50,}",
        r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
        r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\s:,-]*?-----END [A-Z ]{0,30}PRIVATE KEY-----",
    ];
    let pattern = format!("(?-u){}", pattern.join("|"));
    Regex::new(&pattern).expect("the pattern is valid")
});

/// A value after a label such as `password`.
static LABELLED: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = concat!(
        r"(?i-u)(?:api[_-]?key|secret|token|passwor[dt]|passwd|passphrase|bearer)(?:[_-]?(?:access|key|id|value)){0,3}",
        r#"["']?(?:\s{0,3}[:=]\s{0,3}|\s)["']?"#,
        r"([A-Za-z0-9_./+=!#$%^&*-]{12,})",
    );
    Regex::new(pattern).expect("the pattern is valid")
});

/// A value with at least this entropy, in bits per character, looks random; words and paths have
/// less.
const RANDOM_BITS: f64 = 3.3;

/// Ranges of keys.
pub fn find(text: &str) -> Vec<Range<usize>> {
    let is_key = |range: &Range<usize>| {
        let key = &text[range.clone()];
        let begins = !before(text, range.start).is_some_and(|before| before.is_alphanumeric() || "_-".contains(before));
        begins && (!key.starts_with("sk-") || looks_random(key))
    };
    let known = KNOWN_FORMATS.find_iter(text).map(|found| found.range()).filter(is_key);
    let labelled = LABELLED.captures_iter(text).filter_map(|found| Some(found.get(1)?.range()));
    known.chain(labelled.filter(|range| looks_random(&text[range.clone()]))).collect()
}

/// Whether a value has both digits and letters, and the Shannon entropy of random characters.
fn looks_random(value: &str) -> bool {
    let has = |kind: fn(&u8) -> bool| value.as_bytes().iter().any(kind);
    let mut counts = [0u32; 256];
    value.bytes().for_each(|byte| counts[byte as usize] += 1);
    let shares = counts.iter().filter(|&&count| count > 0).map(|&count| f64::from(count) / value.len() as f64);
    let bits: f64 = shares.map(|share| -share * share.log2()).sum();
    has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic) && bits >= RANDOM_BITS
}
