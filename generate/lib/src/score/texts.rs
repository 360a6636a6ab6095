//! Scoring whole texts, which may be longer than the context, in windows; and the totals.

use std::iter::Sum;
use std::ops::{Add, ControlFlow};

use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_model::Gpt;

use super::{Stretch, score_stretches};
use crate::error::{Error, Result};

/// The log-probability of every token of each text except its first, which has no context.
/// `on_batch` is called after every pass through the model with the number of tokens scored in it;
/// if it breaks, the texts that are not complete are `None`.
///
/// A text longer than the context is read in windows of `context_length` tokens that start `stride`
/// tokens apart. A token is scored in the first window that holds it. A smaller stride gives tokens
/// more context and takes longer. The windows of all texts share batches.
///
/// The windows are those of [transformers'
/// recipe](https://huggingface.co/docs/transformers/perplexity), token for token, with two
/// deliberate differences. [`Tally::loss`] weights all tokens equally. The recipe weights the mean
/// of a window that scores n tokens by n - 1, which is right only for the first window; in later
/// ones all n tokens have one before them. And with a stride equal to the context, windows here
/// look back one token, so that their first token is scored too.
///
/// # Errors
/// If a text has fewer than 2 tokens, one is outside the vocabulary, the stride is not in
/// `1..=context_length`, or the model's logits are not finite.
pub fn score_texts(
    model: &Gpt,
    texts: &[&[u32]],
    stride: usize,
    on_batch: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Vec<Option<Vec<f32>>>> {
    let context_length = model.config().context_length;
    texts.iter().try_for_each(|ids| check_length(ids))?;
    if !(1..=context_length).contains(&stride) {
        return Err(Error::Stride { stride, context_length });
    }
    let windows: Vec<Vec<Stretch>> = texts.iter().map(|ids| windows(ids, context_length, stride)).collect();
    let mut logprobs = score_stretches(model, &windows.concat(), on_batch)?.into_iter();
    let whole = |windows: &Vec<Stretch>| -> Option<Vec<f32>> {
        let own: Vec<Option<Vec<f32>>> = logprobs.by_ref().take(windows.len()).collect();
        Some(own.into_iter().collect::<Option<Vec<_>>>()?.concat())
    };
    Ok(windows.iter().map(whole).collect())
}

/// Rejects a text with nothing to score.
///
/// # Errors
/// If it has fewer than 2 tokens.
pub fn check_length(ids: &[u32]) -> Result<()> {
    if ids.len() < 2 { Err(Error::NothingToScore { tokens: ids.len() }) } else { Ok(()) }
}

/// Bytes that the tokens stand for, if their tokenizer is exact.
pub fn bytes_of(ids: &[u32], tokenizer: &Tokenizer) -> Option<usize> {
    let bytes = |&id: &u32| Some(tokenizer.token_bytes(id)?.len());
    ids.iter().map(bytes).sum::<Option<usize>>().filter(|_| tokenizer.is_exact())
}

/// Bytes of `text` whose tokens are scored: all but those of the first of its `ids`, which has no
/// context. Tokens that the tokenizer adds around a text stand for none of its bytes.
pub fn scored_bytes(text: &str, ids: &[u32], tokenizer: &Tokenizer, special: SpecialTokens) -> Option<usize> {
    match tokenizer.before(text, special) {
        [] => bytes_of(ids.get(1..ids.len() - tokenizer.behind().len()).unwrap_or_default(), tokenizer),
        _ => Some(text.len()),
    }
}

/// The total of scored tokens, of one text or of many. Tallies add up, with equal weight per token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tally {
    /// How many tokens were scored.
    pub tokens: usize,
    /// The sum of their negative log-probabilities, in nats.
    pub nats: f64,
    /// How many bytes of text they stand for, if known.
    pub bytes: Option<usize>,
}

impl Tally {
    /// The tally of some log-probabilities in nats, whose tokens stand for `bytes`.
    pub fn new(logprobs: &[f32], bytes: Option<usize>) -> Self {
        // Subtracted from 0, so that the loss of tokens that are certain is 0 and not -0.
        let nats = 0.0 - logprobs.iter().map(|&logprob| f64::from(logprob)).sum::<f64>();
        Self { tokens: logprobs.len(), nats, bytes }
    }

    /// Mean loss in nats per token.
    pub fn loss(&self) -> f64 {
        self.nats / self.tokens as f64
    }

    /// The exponential of the loss: the model is as uncertain as among this many equally probable
    /// tokens.
    pub fn perplexity(&self) -> f64 {
        self.loss().exp()
    }

    /// Bits per byte of text. Unlike the loss it is comparable between different tokenizers.
    pub fn bits_per_byte(&self) -> Option<f64> {
        let bytes = self.bytes.filter(|&bytes| bytes > 0)?;
        Some(self.nats / (std::f64::consts::LN_2 * bytes as f64))
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let bytes = self.bytes.zip(other.bytes).map(|(a, b)| a + b);
        Self { tokens: self.tokens + other.tokens, nats: self.nats + other.nats, bytes }
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::new(&[], Some(0)), Self::add)
    }
}

/// Windows that together score each token except the first once.
fn windows(ids: &[u32], context_length: usize, stride: usize) -> Vec<Stretch<'_>> {
    let mut windows = Vec::new();
    let mut next = 1;
    for begin in (0..).step_by(stride) {
        let end = ids.len().min(begin + context_length);
        if end > next {
            windows.push(Stretch { ids: &ids[begin.min(next - 1)..end], scored: end - next });
            next = end;
        }
        if end == ids.len() {
            break;
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::MAX_TOKENS;
    use super::super::tests::{CONTEXT, by_hand, model, to_the_end};
    use super::*;
    use burn::tensor::Device;
    use itertools::Itertools;
    use proptest::prelude::*;
    use serde_json::Value;
    use std::{ops::Range, path::Path};

    /// A window's start in its text, and the positions scored in it.
    #[derive(Debug, PartialEq)]
    struct Window {
        begin: usize,
        scored: Range<usize>,
    }

    fn windows(len: usize, context_length: usize, stride: usize) -> Vec<Window> {
        let positions: Vec<u32> = (0..len as u32).collect();
        let window = |Stretch { ids, scored }: Stretch| {
            let (begin, end) = (ids[0] as usize, ids[0] as usize + ids.len());
            Window { begin, scored: end - scored..end }
        };
        super::windows(&positions, context_length, stride).into_iter().map(window).collect()
    }

    #[test]
    fn windows_are_those_of_the_recipe() {
        let w = |begin, scored| Window { begin, scored };
        assert_eq!(windows(5, 8, 4), [w(0, 1..5)]);
        assert_eq!(windows(14, 8, 4), [w(0, 1..8), w(4, 8..12), w(8, 12..14)]);
        // A stride of the whole context: each window begins one token earlier, so that its first
        // token is scored too.
        assert_eq!(windows(14, 8, 8), [w(0, 1..8), w(7, 8..14)]);
    }

    /// What transformers' recipe computes for texts and strides (tools/make_score_fixtures.py), on
    /// its own model.
    #[test]
    fn scores_are_those_of_transformers() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let model =
            ember_model::checkpoint::load(&folder.join("../../model/tests/fixtures/b"), &Device::flex()).unwrap();
        let fixture = std::fs::read_to_string(folder.join("tests/fixtures/score.json")).unwrap();
        let fixture: Value = serde_json::from_str(&fixture).unwrap();
        let cases = fixture["cases"].as_array().unwrap();
        assert!(cases.len() >= 6);
        for case in cases {
            let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
            let number = |key: &str| case[key].as_f64().unwrap();
            let stride = case["stride"].as_u64().unwrap() as usize;
            let logprobs = score_texts(&model, &[&ids], stride, &mut to_the_end).unwrap().remove(0).unwrap();
            let expected: Vec<f64> = serde_json::from_value(case["logprobs"].clone()).unwrap();
            assert_eq!(logprobs.len(), expected.len());
            for (got, expected) in logprobs.iter().zip_eq(&expected) {
                assert!((f64::from(*got) - expected).abs() < 1e-5, "{got} is not {expected}");
            }
            let tally = Tally::new(&logprobs, None);
            assert!((tally.loss() - number("loss")).abs() < 1e-5);

            // The recipe's own perplexity, with its weights: one less than a window's scored
            // tokens, except for the first window.
            let (mut nats, mut tokens) = (0.0, 0);
            for window in windows(ids.len(), model.config().context_length, stride) {
                let own = Tally::new(&logprobs[window.scored.start - 1..window.scored.end - 1], None);
                let weight = own.tokens - usize::from(window.begin > 0);
                nats += own.loss() * weight as f64;
                tokens += weight;
            }
            let recipe = number("recipe_perplexity").ln();
            assert!((nats / tokens as f64 - recipe).abs() < 1e-5, "{} is not {recipe}", nats / tokens as f64);
        }
    }

    #[test]
    fn what_cannot_be_scored_is_refused() {
        let model = model();
        let refused = |ids: &[u32], stride| {
            score_texts(&model, &[&[1, 2], ids], stride, &mut to_the_end).unwrap_err().to_string()
        };
        assert!(refused(&[], 4).contains("no token leaves nothing to score"));
        assert!(refused(&[1], 4).contains("1 token leaves nothing to score"));
        assert!(refused(&[1, 13], 4).contains("token id 13"));
        assert!(refused(&[1, 2], 0).contains("stride is 0"));
        assert!(refused(&[1, 2], 9).contains("stride is 9"));
    }

    #[test]
    fn texts_that_were_read_whole_before_it_broke_off_are_kept() {
        let (text, texts) = ([1; 2 * CONTEXT], 300);
        // Two windows each, the second one token longer: all second windows are read before any
        // first.
        let firsts = MAX_TOKENS / CONTEXT - texts;
        let scored = score_texts(&model(), &vec![&text[..]; texts], CONTEXT, &mut |_| ControlFlow::Break(())).unwrap();
        assert!(scored[..firsts].iter().all(|text| text.as_ref().is_some_and(|text| text.len() == 2 * CONTEXT - 1)));
        assert!(firsts < texts && scored[firsts..].iter().all(Option::is_none));
    }

    #[test]
    fn tallies_add_up_token_by_token() {
        let short = Tally::new(&[-1.0, -2.0, -6.0], Some(3));
        assert_eq!((short.loss(), short.perplexity()), (3.0, 3_f64.exp()));
        assert!((short.bits_per_byte().unwrap() - 3.0 / std::f64::consts::LN_2).abs() < 1e-12);
        let both: Tally = [short, Tally::new(&[-1.0], Some(2))].into_iter().sum();
        assert_eq!(both, Tally { tokens: 4, nats: 10.0, bytes: Some(5) });
        assert_eq!(both.loss(), 2.5); // not 2, the mean of the means
        assert_eq!((short + Tally::new(&[-1.0], None)).bits_per_byte(), None);
        assert_eq!(Tally::new(&[-1.0], Some(0)).bits_per_byte(), None);
        for certain in [0.0, -0.0] {
            assert_eq!(format!("{:.1}", Tally::new(&[certain], Some(1)).loss()), "0.0");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn every_token_is_scored_once_with_all_the_context_of_its_window(
            texts in prop::collection::vec(prop::collection::vec(0..13_u32, 2..40), 0..5), stride in 1..=CONTEXT,
        ) {
            let model = model();
            let borrowed: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
            let together = score_texts(&model, &borrowed, stride, &mut to_the_end).unwrap();
            prop_assert_eq!(together.len(), texts.len());
            for (ids, logprobs) in texts.iter().zip_eq(together) {
                let logprobs = logprobs.unwrap();
                prop_assert_eq!(logprobs.len(), ids.len() - 1);
                for window in windows(ids.len(), CONTEXT, stride) {
                    for position in window.scored {
                        let expected = by_hand(&model, &ids[window.begin..=position]);
                        let got = logprobs[position - 1];
                        prop_assert!((got - expected).abs() < 1e-5, "token {position}: {got}, by hand {expected}");
                    }
                }
            }
        }
    }
}
