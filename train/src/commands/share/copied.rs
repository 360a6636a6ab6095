//! Measures how much of the model's output occurs word for word in its training text, and finds
//! private data in it.

use std::{fmt, ops::Range};

use ember_data::sensitive::{self, Kind};
use ember_data::{prepare::Dataset, tokenizer::Tokenizer};
use ember_decoding::generator::{Generator, Prompts, Written};
use ember_decoding::{FinishReason, config::GenerationConfig, load};
use ember_model::WeightType;
use ember_model::device::{DeviceChoice, select};
use ember_study::copied::{Documents, Rule, TrainingText, beginning, check, together};
use serde_json::{Value, json};

use crate::prelude::*;

/// Number of generated texts, the tokens of validation text that prompt each (fewer if there are
/// not enough), and the tokens generated for each.
const TEXTS: usize = 24;
const PROMPT_TOKENS: usize = 16;
const NEW_TOKENS: usize = 200;

/// Minimum characters of a copied stretch, as in the command `copied`.
const MIN_CHARS: usize = 50;

/// How much of the generated text is copied.
#[derive(Debug, Serialize)]
pub struct Copied {
    /// Copied share of the generated characters.
    share: f64,
    min_chars: usize,
    characters: usize,
    /// Copied share of as much validation text, if there is so much: people's phrases recur too.
    unseen_share: f64,
    /// Number of those validation characters.
    #[serde(skip)]
    unseen_characters: usize,
}

/// The findings in the generated texts.
pub struct Samples {
    /// How much is copied.
    pub copied: Copied,
    /// Addresses, numbers and keys found.
    pub private: Vec<(Kind, String)>,
}

/// The private data found of one kind.
#[derive(Debug, PartialEq, Serialize)]
pub struct OfKind<'a> {
    kind: Kind,
    count: usize,
    /// The first few findings.
    texts: Vec<&'a str>,
}

/// The count and the first few findings of each kind. They are shown to the author, and not put
/// into the page.
pub fn by_kind(private: &[(Kind, String)]) -> Vec<OfKind<'_>> {
    const NAMED: usize = 3;
    let of_kind = |kind: Kind| {
        let found: Vec<&str> = private.iter().filter(|(known, _)| *known == kind).map(|(_, text)| &**text).collect();
        let texts = found.iter().copied().take(NAMED).collect();
        OfKind { kind, count: found.len(), texts }
    };
    Kind::ALL.into_iter().map(of_kind).filter(|found| found.count > 0).collect()
}

/// [`by_kind`] as a line of text.
pub fn private_line(private: &[(Kind, String)]) -> String {
    if private.is_empty() {
        return "these texts contain no addresses, telephone numbers, keys or account numbers".to_owned();
    }
    let of_kind = |OfKind { kind, count, texts }: &OfKind| {
        let named: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
        let more = if *count > texts.len() { ", ..." } else { "" };
        format!("{count} {} ({}{more})", kind.words(*count as u64), named.join(", "))
    };
    let kinds: Vec<String> = by_kind(private).iter().map(of_kind).collect();
    format!(
        "these texts contain {}; check whether you want to share them, or train on a text without them (prepare --mask; in run: \
         --set mask=true)",
        kinds.join(", ")
    )
}

/// The private data in a text, except at its very beginning and, if it was cut off, at its end:
/// there it may be part of something longer.
fn private_in(text: &str, is_cut_off: bool) -> impl Iterator<Item = (Kind, String)> {
    let end = if is_cut_off { text.len() } else { usize::MAX };
    let is_whole = move |range: &Range<usize>| range.start > 0 && range.end != end;
    let whole = sensitive::find(text).into_iter().filter(move |finding| is_whole(&finding.range));
    whole.map(|finding| (finding.kind, text[finding.range].to_owned()))
}

impl Copied {
    /// For the command's JSON line, with the same keys as in the command `copied`.
    pub fn json(&self) -> Value {
        let Self { share, min_chars, characters, unseen_share, unseen_characters } = self;
        json!({
            "min_chars": min_chars, "characters": characters, "copied_share": share,
            "validation": { "characters": unseen_characters, "copied_share": unseen_share },
        })
    }
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { share, min_chars, characters, unseen_share, unseen_characters } = *self;
        let unseen = match unseen_characters {
            fewer if fewer < characters => format!("{} characters of validation text", grouped(fewer as u64)),
            _ => "as much validation text".to_owned(),
        };
        write!(
            f,
            "{:.1}% of {} characters that it wrote are copied word for word from the training text, in spans of {min_chars} or \
             more; of {unseen}, {:.1}%",
            100.0 * share,
            grouped(characters as u64),
            100.0 * unseen_share
        )
    }
}

/// The reason not to search a training text that is too long: suffix indices have 31 bits.
pub fn too_long(text_bytes: u64) -> Option<String> {
    (text_bytes > i32::MAX as u64).then(|| {
        let text = bytes(text_bytes);
        format!(
            "the page does not say what the model copies: its text has {text}, of which at most 2.1 GB can be searched"
        )
    })
}

/// The ranges of the prompts in `held_out` tokens: at equal distances, each at most half the
/// distance to the next, and at least one token if there are any.
fn prompt_ranges(held_out: usize) -> impl Iterator<Item = Range<usize>> {
    let distance = held_out / TEXTS;
    let length = (distance / 2).clamp(1, PROMPT_TOKENS).min(held_out);
    (0..TEXTS).map(move |place| place * distance..place * distance + length)
}

/// Generates texts as the page will, and searches for them in the training text; None if there is
/// neither held-out text nor a token that starts a text, or if the model ends all texts at once.
///
/// # Errors
/// When the model or the text cannot be read.
pub fn measure(
    checkpoint: &Path,
    weights: WeightType,
    tokenizer: &Tokenizer,
    config: &GenerationConfig,
    dataset: Dataset,
) -> Result<Option<Samples>> {
    let Dataset { manifest, train, val, .. } = &dataset;
    let (gpt, _) = load::load(checkpoint, weights, true, || Ok(select(DeviceChoice::Cpu)?.device))?;
    let mut starts = vec![Vec::new(); TEXTS];
    for (range, ids) in prompt_ranges(val.len()).zip(&mut starts) {
        val.get(range, ids)?;
        if ids.is_empty() {
            let Some(opening) = load::opening(checkpoint, Some(tokenizer), gpt.config().vocab_size)? else {
                return Ok(None);
            };
            ids.push(opening);
        }
    }
    let ids: Vec<&[u32]> = starts.iter().map(Vec::as_slice).collect();
    let sequences: Vec<u64> = (0..TEXTS as u64).collect();
    let prompts = Prompts { ids: &ids, first_sequences: &sequences, ..Prompts::default() };
    // As many tokens even if the context is shorter: a text of fewer characters than a stretch
    // needs would count as not copied.
    let config = GenerationConfig { max_new_tokens: NEW_TOKENS, ..config.clone() };
    let written = Generator::new(&gpt, Some(tokenizer), config)?.write(&prompts, &mut ())?;
    let texts: Vec<&str> = written.iter().map(|written| written.text.as_str()).collect();
    if texts.iter().all(|text| text.is_empty()) {
        return Ok(None);
    }

    let text_of = |tokens, name: &str| -> Result<TrainingText> {
        Ok(Documents::from_tokens(tokens, tokenizer, manifest.end_of_text, &[], name)?.index()?)
    };
    let (training, unseen) = (text_of(train, "the training text")?, text_of(val, "the validation text")?);
    let rule = Rule { min_chars: MIN_CHARS, min_words: 0 };
    let share = |texts: &[&str]| -> Result<_> {
        let checked = texts.iter().map(|text| check(text, &training, None, rule, &|| false));
        let checked: Vec<_> = checked.collect::<Result<_, _>>()?;
        Ok(together(texts, &checked, &training, &|| false)?)
    };
    let found = share(&texts)?;
    let baseline = share(&beginning(&unseen, found.characters))?;
    let copied = Copied {
        share: found.copied_share,
        min_chars: MIN_CHARS,
        characters: found.characters,
        unseen_share: baseline.copied_share,
        unseen_characters: baseline.characters,
    };
    let is_cut_off = |written: &Written| written.completion.finish_reason == FinishReason::Length;
    let mut private: Vec<_> =
        written.iter().flat_map(|written| private_in(&written.text, is_cut_off(written))).collect();
    private.sort();
    private.dedup();
    Ok(Some(Samples { copied, private }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_cannot_be_searched_is_no_reason_to_make_no_page() {
        assert_eq!(too_long(2_100_000_000), None);
        assert!(too_long(2_200_000_000).unwrap_or_default().contains("has 2.2 GB, of which at most 2.1 GB"));
    }

    #[test]
    fn of_every_kind_it_is_said_how_much_there_is_and_some_of_it_as_it_would_be_in_a_program() {
        assert!(private_line(&[]).contains("no addresses"));
        let mail = |number: usize| (Kind::EmailAddress, format!("a{number}\u{1b}@b.org"));
        let telephone = (Kind::TelephoneNumber, "030 1234567".to_owned());
        let private: Vec<_> = (0..9).map(mail).chain([telephone]).collect();
        let line = private_line(&private);
        let mails = r#"9 e-mail addresses ("a0\u{1b}@b.org", "a1\u{1b}@b.org", "a2\u{1b}@b.org", ...)"#;
        assert!(line.contains(&format!(r#"contain {mails}, 1 telephone number ("030 1234567"); check"#)), "{line}");
        assert!(line.ends_with("without them (prepare --mask; in run: --set mask=true)"), "{line}");
        assert_eq!(
            json!(by_kind(&private)),
            json!([
                { "kind": "email_address", "count": 9, "texts": ["a0\u{1b}@b.org", "a1\u{1b}@b.org", "a2\u{1b}@b.org"] },
                { "kind": "telephone_number", "count": 1, "texts": ["030 1234567"] },
            ])
        );
    }

    #[test]
    fn what_stands_where_a_text_was_cut_may_be_a_part_and_is_not_named() {
        let text = "idt6@example.org or schmidt6@example.org or frida3@example.or";
        let found = |is_cut_off| private_in(text, is_cut_off).map(|(_, found)| found).collect::<Vec<_>>();
        assert_eq!(found(true), ["schmidt6@example.org"]);
        assert_eq!(found(false), ["schmidt6@example.org", "frida3@example.or"]);
    }

    #[test]
    fn a_short_text_is_begun_behind_too() {
        for held_out in [0, 1, 23, 24, 100, 333, 767, 768, 100_000] {
            let ranges: Vec<_> = prompt_ranges(held_out).collect();
            let length = ranges[0].len();
            assert_eq!(ranges.len(), TEXTS);
            assert!(
                ranges.iter().all(|range| range.end <= held_out && range.len() == length),
                "{held_out}: {ranges:?}"
            );
            assert_eq!(length, if held_out >= 768 { 16 } else { (held_out / 48).max(1).min(held_out) });
        }
    }

    /// A validation text shorter than the generated text is not described as equally long.
    #[test]
    fn beside_what_was_written_stands_how_much_was_held_out() {
        let of = |unseen_characters| {
            Copied { share: 0.5, min_chars: MIN_CHARS, characters: 4800, unseen_share: 0.0, unseen_characters }
                .to_string()
        };
        assert!(of(4800).ends_with("; of as much validation text, 0.0%"));
        assert!(of(1500).ends_with("; of 1,500 characters of validation text, 0.0%"));
    }
}
