//! Scoring: how probable given tokens are under the unmodified model. Nothing is chosen here, and nothing is learned.

use std::ops::Range;

use anyhow::{Result, anyhow, ensure};
use burn::tensor::activation::log_softmax;
use ember_model::Gpt;

use crate::engine::{check_ids, to_tensor};

/// Most logits held at once (64 MiB of float32): the head is applied to so many positions at a time.
const MOST_LOGITS: usize = 16 << 20;

/// Most tokens of a text that go through the model together.
const MOST_TOKENS: usize = 4096;

/// The natural log-probability of each target under the model, row-major `[batch, time]`: of `targets[b, t]` after
/// `inputs[b, ..=t]`, both row-major ids in rows of `time`. Give it a model without automatic differentiation.
///
/// # Errors
/// When the ids are not whole rows, are outside the vocabulary, or the rows exceed the context.
pub fn token_log_probabilities(model: &Gpt, inputs: &[u32], targets: &[u32], time: usize) -> Result<Vec<f32>> {
    let config = model.config();
    ensure!(
        time > 0 && inputs.len().is_multiple_of(time) && inputs.len() == targets.len(),
        "{} inputs and {} targets are not rows of {time} tokens",
        inputs.len(),
        targets.len()
    );
    ensure!(time <= config.context_length, "rows of {time} tokens exceed the context of {}", config.context_length);
    check_ids(inputs, config.vocab_size)?;
    check_ids(targets, config.vocab_size)?;
    if inputs.is_empty() {
        return Ok(Vec::new());
    }
    let device = model.device();
    let rows: Vec<&[u32]> = inputs.chunks(time).collect();
    let hidden = model.hidden(to_tensor(&rows, &device)); // [batch, time, n_embd]
    let hidden = hidden.reshape([1, inputs.len(), config.n_embd]); // [1, batch * time, n_embd]

    let at_once = (MOST_LOGITS / config.vocab_size).max(1);
    let mut logprobs = Vec::with_capacity(inputs.len());
    for (part, targets) in targets.chunks(at_once).enumerate() {
        let logits = model.logits(hidden.clone().narrow(1, part * at_once, targets.len())); // [1, positions, vocab]
        let chosen = to_tensor(&[targets], &device).unsqueeze_dim(2); // [1, positions, 1]
        let chosen = log_softmax(logits, 2).gather(2, chosen).into_data();
        logprobs.extend(chosen.try_into_vec::<f32>().map_err(|e| anyhow!("cannot read the log-probabilities: {e:?}"))?);
    }
    Ok(logprobs)
}

/// The log-probability of every token of a text but the first, which follows nothing; `None` when `interrupted` said so.
///
/// A text longer than the context is read in windows of `context_length` tokens, each `stride` after the one before, and a
/// token counts in the first window that holds it: the smaller the stride, the more context tokens have and the longer it
/// takes. This is [transformers' recipe](https://huggingface.co/docs/transformers/perplexity), but for a stride as long as
/// the context, where ours looks back one token to count a window's first token too.
///
/// # Errors
/// When there are fewer than 2 tokens, one is outside the vocabulary, or the stride is not in `1..=context_length`.
pub fn score_tokens(
    model: &Gpt,
    ids: &[u32],
    stride: usize,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<Vec<f32>>> {
    let context_length = model.config().context_length;
    ensure!(
        ids.len() >= 2,
        "{} token leaves nothing to score: each is scored after those before it; give more text",
        ids.len()
    );
    ensure!(
        (1..=context_length).contains(&stride),
        "the stride is {stride}; it must be at least 1 and at most the context of {context_length}"
    );
    let windows = windows(ids.len(), context_length, stride);
    let time = windows.iter().map(Window::time).max().unwrap_or(0);
    let mut logprobs = Vec::with_capacity(ids.len() - 1);
    for batch in windows.chunks((MOST_TOKENS / time).max(1)) {
        if interrupted() {
            return Ok(None);
        }
        let mut inputs = Vec::with_capacity(batch.len() * time);
        let mut targets = Vec::with_capacity(batch.len() * time);
        for window in batch {
            inputs.extend_from_slice(&ids[window.begin..window.scored.end - 1]);
            targets.extend_from_slice(&ids[window.begin + 1..window.scored.end]);
            // A short window is filled up at its end, where nothing that counts can see it.
            inputs.resize(inputs.len() + time - window.time(), 0);
            targets.resize(inputs.len(), 0);
        }
        let rows = token_log_probabilities(model, &inputs, &targets, time)?;
        for (window, row) in batch.iter().zip(rows.chunks(time)) {
            logprobs.extend_from_slice(&row[window.scored.start - window.begin - 1..window.time()]);
        }
    }
    Ok(Some(logprobs))
}

/// Mean loss in nats per token of some log-probabilities.
pub fn loss(logprobs: &[f32]) -> f64 {
    -logprobs.iter().map(|&logprob| f64::from(logprob)).sum::<f64>() / logprobs.len() as f64
}

/// A stretch of text that the model sees at once.
#[derive(Debug, PartialEq)]
struct Window {
    /// Position of its first token in the text.
    begin: usize,
    /// Positions of the tokens that are scored in it; it ends where they end.
    scored: Range<usize>,
}

impl Window {
    /// How many tokens the model reads: all but the last.
    fn time(&self) -> usize {
        self.scored.end - self.begin - 1
    }
}

/// Windows that score each position of `1..len` once.
fn windows(len: usize, context_length: usize, stride: usize) -> Vec<Window> {
    let mut windows = Vec::new();
    let mut next = 1;
    for begin in (0..).step_by(stride) {
        let end = len.min(begin + context_length);
        if end > next {
            windows.push(Window { begin: begin.min(next - 1), scored: next..end });
            next = end;
        }
        if end == len {
            break;
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::softmax::log_sum_exp;
    use burn::tensor::Device;
    use ember_model::GptConfig;
    use proptest::prelude::*;

    const CONTEXT: usize = 8;

    fn model() -> Gpt {
        Gpt::new(&GptConfig::new(13, CONTEXT, 2, 2, 8), 1, &Device::flex()).unwrap()
    }

    fn never() -> bool {
        false
    }

    /// log p(last id | the ids before it) from the logits themselves.
    fn by_hand(model: &Gpt, ids: &[u32]) -> f32 {
        let (last, before) = ids.split_last().unwrap();
        let logits = model.forward(to_tensor(&[before], &model.device())).into_data().try_into_vec::<f32>().unwrap();
        let logits = &logits[(before.len() - 1) * 13..];
        (f64::from(logits[*last as usize]) - log_sum_exp(logits)) as f32
    }

    #[test]
    fn windows_are_those_of_the_recipe() {
        let w = |begin, scored| Window { begin, scored };
        assert_eq!(windows(5, 8, 4), [w(0, 1..5)]);
        assert_eq!(windows(14, 8, 4), [w(0, 1..8), w(4, 8..12), w(8, 12..14)]);
        // A stride of the whole context: each window reads one token back, so that its first token is scored too.
        assert_eq!(windows(14, 8, 8), [w(0, 1..8), w(7, 8..14)]);
    }

    #[test]
    fn what_cannot_be_scored_is_refused() {
        let model = model();
        let refused = |ids: &[u32], stride| score_tokens(&model, ids, stride, &never).unwrap_err().to_string();
        assert!(refused(&[1], 4).contains("nothing to score"));
        assert!(refused(&[1, 13], 4).contains("token id 13"));
        assert!(refused(&[1, 2], 0).contains("stride is 0"));
        assert!(refused(&[1, 2], 9).contains("stride is 9"));
        assert!(token_log_probabilities(&model, &[1, 2, 3], &[1, 2, 3], 2).is_err());
        assert_eq!(score_tokens(&model, &[1, 2], 4, &|| true).unwrap(), None);
    }

    #[test]
    fn loss_is_the_mean() {
        assert!((loss(&[-1.0, -2.0, -6.0]) - 3.0).abs() < 1e-12);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn every_token_is_scored_once_with_all_the_context_of_its_window(
            ids in prop::collection::vec(0..13_u32, 2..40), stride in 1..=CONTEXT,
        ) {
            let model = model();
            let logprobs = score_tokens(&model, &ids, stride, &never).unwrap().unwrap();
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
