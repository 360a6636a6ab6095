//! Findings about the prepared text, as data and as a table to read.

use super::{
    corpus::Corpus, duplicates::Duplicates, encode::Encoded, options::PrepareOptions, reading::Source,
    sample::SAMPLE_BYTES, split::HoldOut, split::is_close_to_share, split::percent, survey::Survey,
};
use crate::leakage::Leakage;
use crate::numbers::{counted, grouped};
use crate::{source::Changes, source::LeftOut, tokenizer::END_OF_TEXT, tokenizer::Tokenizer};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Findings about a text and its tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Documents in training and validation.
    pub documents: [u64; 2],
    /// Bytes of UTF-8 text in training and validation.
    pub bytes: [u64; 2],
    /// Characters in training and validation.
    pub characters: [u64; 2],
    /// Tokens in training and validation, including `<|endoftext|>`.
    pub tokens: [u64; 2],
    /// Bytes of text per token, including `<|endoftext|>`.
    pub bytes_per_token: f64,
    /// Number of token ids.
    pub vocab_size: usize,
    /// Ids that occur.
    pub vocab_used: usize,
    /// Distinct characters that occur.
    pub different_characters: usize,
    /// Those of them that are rare.
    pub rare_characters: RareCharacters,
    /// Documents that occur more than once.
    pub duplicates: Duplicates,
    /// How much of the held-out text is also in training.
    pub leakage: Leakage,
    /// Sentences about what was done with the text.
    pub notes: Vec<String>,
}

/// Characters that occur too rarely to be learnt well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RareCharacters {
    /// A character is rare when it occurs fewer times than this.
    pub below: u64,
    /// How many characters are rare.
    pub count: usize,
    /// Some of them, the rarest first.
    pub examples: Vec<char>,
}

/// A character is rare when it occurs fewer times than this.
const RARE_BELOW: u64 = 10;

const RARE_EXAMPLES: usize = 12;

/// At most this many special tokens are named in a note.
const NAMES_SHOWN: usize = 8;

impl Report {
    /// Combines the findings of both passes.
    pub(super) fn new(
        survey: &Survey,
        encoded: &Encoded,
        corpus: &Corpus,
        tokenizer: &Tokenizer,
        leakage: Leakage,
    ) -> Self {
        let (train, val) = (&encoded.train, &encoded.val);
        let unknown = (train.unknown + val.unknown) as f64 / (train.tokens + val.tokens) as f64;
        let mut rare: Vec<(u64, char)> =
            survey.characters.iter().map(|(&c, &count)| (count, c)).filter(|&(count, _)| count < RARE_BELOW).collect();
        rare.sort_unstable();
        let bytes = [train.bytes, val.bytes];
        let tokens = [train.tokens, val.tokens];
        Self {
            documents: [train.documents, val.documents],
            bytes,
            characters: [train.characters, val.characters],
            tokens,
            bytes_per_token: bytes.iter().sum::<u64>() as f64 / tokens.iter().sum::<u64>() as f64,
            vocab_size: tokenizer.vocab_size(),
            vocab_used: encoded.ids_used.iter().filter(|&&is_used| is_used).count(),
            different_characters: survey.characters.len(),
            rare_characters: RareCharacters {
                below: RARE_BELOW,
                count: rare.len(),
                examples: rare.iter().take(RARE_EXAMPLES).map(|&(_, character)| character).collect(),
            },
            duplicates: survey.duplicates,
            leakage,
            notes: notes(survey, bytes, corpus, tokenizer).into_iter().chain(without_token(unknown)).collect(),
        }
    }
}

/// A note if the text has unknown tokens.
fn without_token(share: f64) -> Option<String> {
    (share > 0.0).then(|| {
        format!(
            "{:.1}% of the tokens stand for text that the tokenizer lacks: a model cannot learn it, and bits per byte are not reported.",
            (100.0 * share).max(0.1)
        )
    })
}

fn notes(survey: &Survey, bytes: [u64; 2], corpus: &Corpus, tokenizer: &Tokenizer) -> Vec<String> {
    let mut notes = vec![format!("Validation: {}.", survey.split.rule)];
    notes.extend(missed_share(survey.documents, bytes, corpus.options));
    if survey.bytes > SAMPLE_BYTES as u64 {
        let mib = SAMPLE_BYTES >> 20;
        notes.push(format!(
            "A tokenizer trained on this text learns from a sample of at most {mib} MiB, spread over the text."
        ));
    }
    if corpus.options.mask {
        let counted = survey.masked.iter().map(|(kind, &count)| format!("{} {}", grouped(count), kind.words(count)));
        let counted: Vec<String> = counted.collect();
        let counted = if counted.is_empty() { "nothing was found".to_owned() } else { counted.join(", ") };
        notes.push(format!("Masked: {counted}."));
    }
    let left_out = LeftOut::summary(&corpus.listing.left_out);
    if corpus.listing.left_out.len() > left_out.len() {
        notes.push("manifest.json lists everything that was left out, with the reason.".to_owned());
    }
    notes.extend(left_out.into_iter().map(|line| format!("Left out: {line}")));
    notes.extend(guesses(&survey.sources).map(|(line, _)| line));
    notes.extend(changes(&survey.sources));
    if survey.duplicates.examined < survey.documents {
        let examined = grouped(survey.duplicates.examined);
        notes.push(format!("Duplicates were looked for among the first {examined} documents only."));
    }
    let mut names: Vec<&str> = tokenizer.special_names().filter(|&name| name != END_OF_TEXT).collect();
    if !names.is_empty() {
        names.sort_unstable();
        let more = if names.len() > NAMES_SHOWN { ", ..." } else { "" };
        names.truncate(NAMES_SHOWN);
        notes.push(format!(
            "Names of special tokens ({}{more}) in the text are plain text; only {END_OF_TEXT} separates documents of plain text.",
            names.join(", ")
        ));
    }
    notes
}

/// A note if the validation fraction is far from the requested one. A single document is exempt: it
/// is cut by characters, which differ in bytes.
fn missed_share(documents: u64, [train, val]: [u64; 2], options: &PrepareOptions) -> Option<String> {
    let (share, wanted) = (val as f64 / (train + val) as f64, options.val_fraction);
    if documents == 1 || is_close_to_share(share, wanted) {
        return None;
    }
    let [is, asked] = [100.0 * share, percent(wanted)];
    let why = if options.hold_out == HoldOut::Any && !options.only_stories() {
        ": short documents are not split, and equal ones stay together; more varied text comes closer"
    } else {
        ""
    };
    Some(format!("Validation is {is:.1}% of the bytes, not {asked}%{why}."))
}

/// A sentence about the detected encodings, and the file that it names: the least certain one.
pub fn guesses(sources: &[Source]) -> Option<(String, &str)> {
    let guessed = || sources.iter().filter_map(|source| Some((source.name.as_str(), source.encoding?)));
    let (name, guess) = guessed().min_by(|(_, one), (_, other)| one.confidence.total_cmp(&other.confidence))?;
    let (count, sure) = (guessed().count(), guess.confidence);
    let files = if count == 1 { "1 file is".to_owned() } else { format!("{} files are", grouped(count as u64)) };
    let replaced: u64 = guessed().map(|(_, guess)| guess.replaced).sum();
    let lost = match replaced {
        0 => String::new(),
        count => format!("; {} could not be decoded", counted(grouped(count), "character")),
    };
    let encoding = guess.encoding.name();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    guessed().for_each(|(_, guess)| *counts.entry(guess.encoding.name()).or_default() += 1);
    let each: Vec<String> = counts.iter().map(|(name, &count)| format!("{} {name}", grouped(count))).collect();
    let each = if each.len() > 1 { format!(" ({})", each.join(", ")) } else { String::new() };
    let line = format!(
        "{files} not UTF-8, so the encoding was guessed{each}; least certain: {name}, {encoding}, confidence \
         {sure:.2}{lost}."
    );
    Some((line, name))
}

/// What cleaning changed, summed over all sources.
fn changes(sources: &[Source]) -> Vec<String> {
    let mut all = Changes::default();
    sources.iter().for_each(|source| all += source.changes);
    let Changes {
        page_lines,
        hyphens,
        quoted_lines,
        signature_lines,
        composed,
        line_ends,
        blanks,
        mojibake,
        lone_surrogates,
    } = all;
    let cleaned = [
        (page_lines, "line", " repeated on pages"),
        (hyphens, "hyphen", " at line ends"),
        (quoted_lines, "line", " of quoted mail"),
        (signature_lines, "line", " of signatures"),
        (composed, "character", " not in Unicode's NFC"),
        (line_ends, "line end", ""),
        (blanks, "odd space", ""),
    ];
    let told: Vec<String> = cleaned
        .into_iter()
        .filter(|&(count, ..)| count > 0)
        .map(|(count, what, rest)| counted(grouped(count), what) + rest)
        .collect();
    let mut notes = Vec::new();
    if !told.is_empty() {
        notes.push(format!("Cleaned: {}.", told.join(", ")));
    }
    if mojibake > 0 {
        let worst =
            sources.iter().max_by_key(|source| source.changes.mojibake).map_or("", |source| source.name.as_str());
        notes.push(format!(
            "Looks like UTF-8 that was read in another encoding (such as Ã© for é): {}, most in {worst}.",
            counted(grouped(mojibake), "character")
        ));
    }
    if lone_surrogates > 0 {
        let escapes = counted(grouped(lone_surrogates), "escape");
        notes.push(format!("Unpaired surrogates in JSON Lines, read as U+FFFD: {escapes}."));
    }
    notes
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<22}{:>16}{:>16}{:>16}", "", "training", "validation", "together")?;
        let rows = [
            ("documents", self.documents),
            ("characters", self.characters),
            ("bytes", self.bytes),
            ("tokens", self.tokens),
        ];
        for (name, [train, val]) in rows {
            writeln!(f, "{name:<22}{:>16}{:>16}{:>16}", grouped(train), grouped(val), grouped(train + val))?;
        }
        let rare = &self.rare_characters;
        let examples: Vec<String> = rare.examples.iter().map(|character| format!("{character:?}")).collect();
        let more = if rare.count > examples.len() { " ..." } else { "" };
        let shown = if rare.count == 0 { String::new() } else { format!(": {}{more}", examples.join(" ")) };
        let [used, of, different, rare_count] =
            [self.vocab_used, self.vocab_size, self.different_characters, rare.count]
                .map(|count| grouped(count as u64));
        let near = self.duplicates.near;
        let [exact, both] = [self.duplicates.exact, self.duplicates.on_both_sides + near.on_both_sides].map(grouped);
        let sampled = if near.one_in > 1 { format!(", in a sample of one in {}", near.one_in) } else { String::new() };
        let [documents, groups] =
            [(near.documents, "document"), (near.groups, "group")].map(|(number, noun)| counted(grouped(number), noun));
        let near = format!("{documents} in {groups}{sampled}");
        for (name, value) in [
            ("bytes per token", format!("{:.2}", self.bytes_per_token)),
            ("vocabulary used", format!("{used} of {of}")),
            ("different characters", different),
            ("rare characters", format!("{rare_count} occur fewer than {} times{shown}", rare.below)),
            ("exact duplicates", counted(exact, "document")),
            ("near-duplicates", near),
            ("in both splits", counted(both, "document")),
        ] {
            writeln!(f, "{name:<22}{value}")?;
        }
        let leakage = self.leakage;
        if leakage.stretches > 0 {
            let (percent, tokens) = (format!("{:.1}", 100.0 * leakage.share()), leakage.tokens);
            writeln!(f, "{:<22}{percent}% of the validation text's n-grams of {tokens} tokens", "also in training")?;
        }
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        Ok(())
    }
}
