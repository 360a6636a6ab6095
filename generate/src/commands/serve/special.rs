//! Names of special tokens in a conversation: the token where the template wrote the name, plain
//! characters where a message contains it.
//!
//! A template joins both into one text, and may cut and join freely. So messages are marked
//! beforehand: a mark is inserted after the first character of each name, and removed when the text
//! is encoded.

use std::collections::{BTreeSet, HashMap, hash_map::Entry};
use std::iter::once;

use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use ember_data::tokenizer::{Error, SpecialTokens, Tokenizer};
use serde_json::Value;

/// The mark in a name that is not a special token. It is a Unicode noncharacter, reserved for
/// internal use; in messages it is escaped as [`ESCAPED_MARK`].
pub(super) const MARK: char = '\u{fdd0}';

/// A mark character that was part of a message.
const ESCAPED_MARK: &str = "\u{fdd0}\u{fdd0}";

/// The names of a tokenizer's special tokens.
pub(super) struct SpecialNames {
    /// Finds names in a text; of two at the same position the longer.
    finder: AhoCorasick,
    /// Finds all names, including overlapping ones.
    all: AhoCorasick,
}

impl SpecialNames {
    pub(super) fn new(tokenizer: &Tokenizer) -> Result<Self, BuildError> {
        let names: Vec<&str> = tokenizer.special_names().filter(|name| !name.is_empty()).collect();
        let finder = |kind| AhoCorasick::builder().match_kind(kind).build(&names);
        Ok(Self { finder: finder(MatchKind::LeftmostLongest)?, all: finder(MatchKind::Standard)? })
    }

    /// The value with the names in its texts marked.
    pub(super) fn marked(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.mark(text)),
            Value::Array(list) => list.iter().map(|value| self.marked(value)).collect(),
            Value::Object(map) => map.iter().map(|(key, value)| (self.mark(key), self.marked(value))).collect(),
            other => other.clone(),
        }
    }

    /// The text with the names marked. One pass, however many names there are: a conversation may
    /// be many short texts, and a tokenizer may have thousands of names.
    pub(super) fn mark(&self, text: &str) -> String {
        let text = text.replace(MARK, ESCAPED_MARK);
        let names: BTreeSet<usize> = self.all.find_overlapping_iter(&text).map(|name| name.start()).collect();
        let (mut marked, mut begin) = (String::with_capacity(text.len()), 0);
        for name in names {
            let head = text[name..].chars().next().map_or(0, char::len_utf8);
            marked += &text[begin..name + head];
            marked.push(MARK);
            begin = name + head;
        }
        marked + &text[begin..]
    }

    /// Encodes a rendered text.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_with`].
    pub(super) fn ids(&self, tokenizer: &Tokenizer, text: &str, special: SpecialTokens) -> Result<Vec<u32>, Error> {
        if special == SpecialTokens::Parse {
            return tokenizer.encode_with(&unmarked(text), SpecialTokens::Parse);
        }
        // A name of one character has its mark after it.
        let is_marked = |end: usize| text[end..].chars().take_while(|&next| next == MARK).count() % 2 == 1;
        let names = self.finder.find_iter(text).map(|name| name.range()).filter(|name| !is_marked(name.end));
        let (mut ids, mut begin) = (Vec::new(), 0);
        let mut known: HashMap<&str, Vec<u32>> = HashMap::new();
        for name in names.chain(once(text.len()..text.len())) {
            ids.extend(tokenizer.encode_with(&unmarked(&text[begin..name.start]), SpecialTokens::Text)?);
            begin = name.end;
            let name = &text[name];
            if let Entry::Vacant(place) = known.entry(name) {
                place.insert(tokenizer.encode_with(name, SpecialTokens::Parse)?);
            }
            ids.extend(&known[name]);
        }
        Ok(ids)
    }
}

/// The text without marks, as in the messages.
pub(super) fn unmarked(text: &str) -> String {
    let parts: Vec<String> = text.split(ESCAPED_MARK).map(|part| part.replace(MARK, "")).collect();
    parts.join(&ESCAPED_MARK[MARK.len_utf8()..])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, Instant};

    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// A byte tokenizer with these special tokens, with ids after its own.
    fn with_special<S: AsRef<str>>(names: &[S]) -> Tokenizer {
        let bytes = Tokenizer::bytes().unwrap();
        let mut json = bytes.to_value().unwrap();
        let added = json["added_tokens"].as_array_mut().unwrap();
        for (id, name) in (bytes.vocab_size()..).zip(names) {
            let mut token = added[0].clone();
            (token["id"], token["content"]) = (json!(id), json!(name.as_ref()));
            added.push(token);
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
        Tokenizer::from_folder(folder.path()).unwrap()
    }

    #[test]
    fn special_tokens_stand_where_the_template_wrote_them() {
        let tokenizer = with_special(&["<a>", "<a>b", "<none>", "ж"]);
        let first = Tokenizer::bytes().unwrap().vocab_size() as u32;
        let names = SpecialNames::new(&tokenizer).unwrap();
        let ids = |text: &str| names.ids(&tokenizer, text, SpecialTokens::Text).unwrap();
        let characters = |text: &str| tokenizer.encode(text).unwrap();
        // Of two names at one place the longer; a user's text contains none.
        let user_text = names.mark("<a>b");
        let text = format!("x<a><a>b<{user_text}<a>");
        assert_eq!(ids(&text), [characters("x"), vec![first, first + 1], characters("<<a>b"), vec![first]].concat());
        assert_eq!((ids("").len(), ids("<a>")), (0, vec![first]));
        // A name of one character, from the template and from a user; then a mark in a user's text.
        let text = format!("ж{}ж{}", names.mark("ж\u{fdd0}"), names.mark("\u{fdd0}"));
        let of = |user_text: &str| [vec![first + 3], characters(user_text)].concat();
        assert_eq!(ids(&text), [of("ж\u{fdd0}"), of("\u{fdd0}")].concat());
        // Searching many empty messages is linear, even if some names do not occur.
        let many = 200_000;
        assert!(ids(&"<a>".repeat(many)) == vec![first; many]);
    }

    proptest! {
        #[test]
        fn what_is_said_is_told_whole_and_is_no_special_token(
            user_text in "[<a>bж\u{fdd0}]{0,12}", more in "[<a>bж\u{fdd0}]{0,4}",
        ) {
            let tokenizer = with_special(&["<a>", "<a>b", "a><", "ж"]);
            let names = SpecialNames::new(&tokenizer).unwrap();
            let text = names.mark(&user_text) + "-" + &names.mark(&more);
            let whole = format!("{user_text}-{more}");
            let ids = names.ids(&tokenizer, &text, SpecialTokens::Text).unwrap();
            prop_assert_eq!(ids, tokenizer.encode(&whole).unwrap());
            prop_assert_eq!(unmarked(&text), whole);
        }
    }

    #[test]
    fn thousands_of_names_in_many_short_texts_take_no_time() {
        let tokenizer = with_special(&(0..5000).map(|i| format!("<unused{i}>")).collect::<Vec<_>>());
        let names = SpecialNames::new(&tokenizer).unwrap();
        let began = Instant::now();
        for _ in 0..400_000 {
            assert_eq!(names.mark("<unused77>"), "<\u{fdd0}unused77>");
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
