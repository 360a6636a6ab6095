//! Biases and bans, which depend only on the ids.

use super::{Processor, Step};
use crate::config::last_of_each;

/// The last token of `sequence`, if the text ends with the others.
fn completed_by(sequence: &[u32], step: &Step) -> Option<u32> {
    let (&last, before) = sequence.split_last()?;
    step.last(before.len()).eq(before.iter().copied()).then_some(last)
}

/// Removes tokens; ignores ids outside the vocabulary.
fn ban(ids: impl IntoIterator<Item = u32>, logits: &mut [f32]) {
    for id in ids {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Adds a bias, finite or minus infinity, to the logit of a token, or of the last token of a
/// sequence if the text ends with the others. If a sequence has several biases, the last counts
/// (transformers `SequenceBiasLogitsProcessor`).
pub fn logit_bias(biases: &[(Vec<u32>, f32)]) -> Processor {
    let biases = last_of_each(biases.iter().cloned());
    Processor::ban("logit-bias", move |step, logits| {
        for (sequence, bias) in &biases {
            if let Some(logit) = completed_by(sequence, step).and_then(|id| logits.get_mut(id as usize)) {
                *logit += bias;
            }
        }
    })
}

/// Removes each token that would complete an n-gram, n at least 1, that already occurs in the text,
/// prompt included ([Paulus, Xiong and Socher 2017, section
/// 2.5](https://arxiv.org/abs/1705.04304); transformers `NoRepeatNGramLogitsProcessor`).
pub fn no_repeat_ngram(n: usize) -> Processor {
    Processor::ban("no-repeat-ngram-size", move |step, logits| {
        let ids: Vec<u32> = step.last(step.len()).collect();
        if n == 0 || ids.len() < n {
            return;
        }
        let begun = &ids[ids.len() + 1 - n..];
        let repeated = ids.windows(n).filter(|ngram| ngram.starts_with(begun));
        ban(repeated.map(|ngram| ngram[n - 1]), logits);
    })
}

/// Removes the last token of each bad word if the text ends with the word's other tokens
/// (transformers `NoBadWordsLogitsProcessor`). A word that is just an end token is ignored, or no
/// text could end.
pub fn bad_words(words: &[Vec<u32>], end_tokens: &[u32]) -> Processor {
    let is_end = |word: &Vec<u32>| word.len() == 1 && end_tokens.contains(&word[0]);
    let words: Vec<Vec<u32>> = words.iter().filter(|word| !is_end(word)).cloned().collect();
    Processor::ban("bad-words", move |step, logits| {
        ban(words.iter().filter_map(|word| completed_by(word, step)), logits);
    })
}

/// Removes the end tokens until `count` tokens have been generated (transformers
/// `MinNewTokensLengthLogitsProcessor`).
pub fn min_new_tokens(count: usize, end_tokens: Vec<u32>) -> Processor {
    Processor::ban("min-new-tokens", move |step, logits| {
        if step.generated.len() < count {
            ban(end_tokens.iter().copied(), logits);
        }
    })
}

/// Removes tokens at every step (transformers `SuppressTokensLogitsProcessor`).
pub fn suppress(ids: Vec<u32>) -> Processor {
    Processor::ban("suppress-tokens", move |_, logits| ban(ids.iter().copied(), logits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::{kept_after, processed};

    fn step<'a>(prompt: &'a [u32], generated: &'a [u32]) -> Step<'a> {
        Step { prompt, generated }
    }

    #[test]
    fn a_bias_waits_for_the_tokens_before_its_own() {
        let bias = logit_bias(&[(vec![0], 1.0), (vec![3, 1], 2.0), (vec![2, 3, 1], -4.0), (vec![0], 0.5)]);
        assert_eq!(processed(&bias, &step(&[0, 2], &[]), &[0.0; 4]), [0.5, 0.0, 0.0, 0.0]);
        assert_eq!(processed(&bias, &step(&[0, 3], &[]), &[0.0; 4]), [0.5, 2.0, 0.0, 0.0]);
        assert_eq!(processed(&bias, &step(&[0, 2], &[3]), &[0.0; 4]), [0.5, -2.0, 0.0, 0.0]);
        // The match may span prompt and generated text.
        assert_eq!(processed(&bias, &step(&[2], &[3]), &[0.0; 4]), [0.5, -2.0, 0.0, 0.0]);
        assert_eq!(processed(&bias, &step(&[3], &[]), &[0.0; 4]), [0.5, 2.0, 0.0, 0.0]);
        assert_eq!(processed(&bias, &step(&[], &[]), &[0.0; 4]), [0.5, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn ngrams_of_the_prompt_and_across_its_end() {
        let text = step(&[0, 1, 2, 0], &[1, 3, 0]);
        assert_eq!(kept_after(&no_repeat_ngram(1), &text, &[0.0; 5]), [4]);
        assert_eq!(kept_after(&no_repeat_ngram(2), &text, &[0.0; 5]), [0, 2, 3, 4]);
        let across = step(&[3, 0], &[1, 2, 0, 1]);
        assert_eq!(kept_after(&no_repeat_ngram(3), &across, &[0.0; 5]), [0, 1, 3, 4]);
        assert_eq!(kept_after(&no_repeat_ngram(7), &across, &[0.0; 5]), [0, 1, 2, 3, 4]);
        // The text has six tokens: none follows the last five.
        assert_eq!(kept_after(&no_repeat_ngram(6), &across, &[0.0; 5]), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_bad_word_is_stopped_at_its_last_token_and_a_lone_end_token_is_none() {
        let words = bad_words(&[vec![1], vec![4], vec![2, 3], vec![3, 4]], &[4]);
        assert_eq!(kept_after(&words, &step(&[0, 0], &[]), &[0.0; 5]), [0, 2, 3, 4]);
        assert_eq!(kept_after(&words, &step(&[0, 2], &[]), &[0.0; 5]), [0, 2, 4]);
        assert_eq!(kept_after(&words, &step(&[0], &[3]), &[0.0; 5]), [0, 2, 3]);
    }

    #[test]
    fn ends_wait_and_suppressed_tokens_never_come() {
        let ends = min_new_tokens(2, vec![1, 3]);
        assert_eq!(kept_after(&ends, &step(&[0, 0, 0], &[2]), &[0.0; 4]), [0, 2]);
        assert_eq!(kept_after(&ends, &step(&[0], &[2, 2]), &[0.0; 4]), [0, 1, 2, 3]);
        assert_eq!(kept_after(&suppress(vec![0, 2]), &step(&[0], &[2, 2]), &[0.0; 4]), [1, 3]);
    }
}
