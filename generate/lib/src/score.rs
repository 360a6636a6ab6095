//! Scoring: the log-probabilities of given tokens under the unmodified model. No sampling, no
//! training.

mod texts;

use std::ops::ControlFlow;

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};
use ember_model::Gpt;

use crate::batches;
use crate::error::{Error, Result};
use crate::tokens::{check_ids, from_tensor, to_tensor};

pub use texts::{Tally, bytes_of, check_length, score_texts, scored_bytes};

/// Most logits held at once (16 MiB of float32), which limits the positions per application of the
/// head. Many more no longer fit into a processor's caches, and far fewer read a large head's
/// weights too often; both measured slower.
pub const MAX_LOGITS: usize = 4 << 20;

/// Most tokens in one pass through the model, if the device allows as many.
const MAX_TOKENS: usize = 4096;

/// The natural log-probability of each target under the model, row-major `[batch, time]`: of
/// `targets[b, t]` after `inputs[b, ..=t]`, both row-major ids in rows of `time`. The model should
/// be without automatic differentiation.
///
/// # Errors
/// If the ids are not whole rows or outside the vocabulary, or the rows exceed the context.
pub fn token_log_probabilities(model: &Gpt, inputs: &[u32], targets: &[u32], time: usize) -> Result<Vec<f32>> {
    let mut logprobs = Vec::with_capacity(targets.len());
    at_all_positions(model, inputs, targets, time, MAX_LOGITS, &mut |log_p, targets| {
        logprobs.extend(from_tensor(log_p.gather(2, targets))?);
        Ok(())
    })?;
    Ok(logprobs)
}

/// The surprise of a token, and the expected surprise at its position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Surprise {
    /// The natural log-probability of the actual token.
    pub log_p: f32,
    /// The entropy of the model's distribution, `-sum p ln p`, in nats. For a calibrated model it
    /// is on average equal to `-log_p`.
    pub entropy: f32,
    /// The variance of `ln p` under the model's distribution, in nats squared.
    pub variance: f32,
}

/// As [`token_log_probabilities`], with entropy and variance at each position.
///
/// # Errors
/// As there.
pub fn token_surprises(model: &Gpt, inputs: &[u32], targets: &[u32], time: usize) -> Result<Vec<Surprise>> {
    let mut surprises = Vec::with_capacity(targets.len());
    // Up to three tensors are live at once, so use chunks of half the size: together less than two
    // full ones.
    at_all_positions(model, inputs, targets, time, MAX_LOGITS / 2, &mut |log_p, targets| {
        let expected = log_p.clone().exp() * log_p.clone(); // p ln p, [1, positions, vocab]
        let entropy = expected.clone().sum_dim(2).neg(); // [1, positions, 1]
        let square = (expected * log_p.clone()).sum_dim(2);
        let variance = square - entropy.clone() * entropy.clone();
        let [log_p, entropy, variance] = [log_p.gather(2, targets), entropy, variance].map(from_tensor);
        let numbers = log_p?.into_iter().zip(entropy?).zip(variance?);
        surprises.extend(numbers.map(|((log_p, entropy), variance)| Surprise { log_p, entropy, variance }));
        Ok(())
    })?;
    Ok(surprises)
}

/// As [`at_positions`] for all positions of whole rows, in passes of as many rows as the device
/// allows.
fn at_all_positions(
    model: &Gpt,
    inputs: &[u32],
    targets: &[u32],
    time: usize,
    most_logits: usize,
    each: &mut Each,
) -> Result<()> {
    let are_rows = time > 0 && inputs.len().is_multiple_of(time) && inputs.len() == targets.len();
    if !are_rows {
        return Err(Error::NotRows { inputs: inputs.len(), targets: targets.len(), time });
    }
    let tokens = (model.tokens_at_once(inputs.len()) / time).max(1) * time;
    for (inputs, targets) in inputs.chunks(tokens).zip(targets.chunks(tokens)) {
        let positions: Vec<u32> = (0..inputs.len() as u32).collect();
        at_positions(model, inputs, time, &positions, targets, most_logits, each)?;
    }
    Ok(())
}

/// Tokens that the model reads in one pass. The last `scored` of them are scored, each given all
/// the tokens before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch<'a> {
    /// Its ids; the last is only predicted, never read.
    pub ids: &'a [u32],
    /// How many ids at the end are scored: at least 1, never the first id, which has no context.
    pub scored: usize,
}

/// The log-probabilities, in nats, of the scored tokens of each stretch. `on_batch` is called after
/// every pass through the model with the number of tokens scored in it; if it breaks, the remaining
/// stretches are `None`.
///
/// Stretches of similar length share a batch, one per row. Rows are padded at the end, where causal
/// attention hides the padding, so batched and single results are equal up to rounding. The head,
/// which is most of a small model's work, is applied only at the scored positions.
///
/// # Errors
/// If a stretch is longer than the context plus one token, or scores none or all of its tokens, an
/// id is outside the vocabulary, or the model's logits are not finite.
pub fn score_stretches(
    model: &Gpt,
    stretches: &[Stretch],
    on_batch: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Vec<Option<Vec<f32>>>> {
    for Stretch { ids, scored } in stretches {
        if !(1..ids.len()).contains(scored) {
            return Err(Error::Stretch { scored: *scored, length: ids.len() });
        }
    }
    let lengths: Vec<usize> = stretches.iter().map(|stretch| stretch.ids.len() - 1).collect();
    let mut logprobs = vec![None; stretches.len()];
    let most_tokens = model.tokens_at_once(MAX_TOKENS);
    for batch in batches::by_length(&lengths, |longest| most_tokens / longest) {
        let time = lengths[batch[0]];
        let mut inputs = Vec::with_capacity(batch.len() * time);
        let (mut positions, mut targets) = (Vec::new(), Vec::new());
        for (row, &number) in batch.iter().enumerate() {
            let Stretch { ids, scored } = stretches[number];
            inputs.extend_from_slice(&ids[..ids.len() - 1]);
            positions.extend((inputs.len() - scored..inputs.len()).map(|position| position as u32));
            targets.extend_from_slice(&ids[ids.len() - scored..]);
            inputs.resize((row + 1) * time, 0);
        }
        let all = log_probabilities_at(model, &inputs, time, &positions, &targets)?;
        if !all.iter().all(|logprob| logprob.is_finite()) {
            return Err(Error::NotFinite);
        }
        let mut all = all.into_iter();
        for &number in &batch {
            logprobs[number] = Some(all.by_ref().take(stretches[number].scored).collect());
        }
        if on_batch(targets.len()).is_break() {
            break;
        }
    }
    Ok(logprobs)
}

/// The log-probability of each of `targets` at its entry of `positions`, which are indices into
/// `inputs`, rows of `time` ids.
fn log_probabilities_at(
    model: &Gpt,
    inputs: &[u32],
    time: usize,
    positions: &[u32],
    targets: &[u32],
) -> Result<Vec<f32>> {
    let mut logprobs = Vec::with_capacity(targets.len());
    at_positions(model, inputs, time, positions, targets, MAX_LOGITS, &mut |log_p, targets| {
        logprobs.extend(from_tensor(log_p.gather(2, targets))?);
        Ok(())
    })?;
    Ok(logprobs)
}

/// Callback for a chunk of positions: the log-probabilities of all tokens `[1, positions, vocab]`
/// and the targets `[1, positions, 1]`.
type Each<'a> = dyn FnMut(Tensor<3>, Tensor<3, Int>) -> Result<()> + 'a;

/// Calls `each` for the `positions` in order, in chunks of at most `most_logits` logits.
fn at_positions(
    model: &Gpt,
    inputs: &[u32],
    time: usize,
    positions: &[u32],
    targets: &[u32],
    most_logits: usize,
    each: &mut Each,
) -> Result<()> {
    let config = model.config();
    if time > config.context_length {
        return Err(Error::LongRows { time, context_length: config.context_length });
    }
    check_ids(inputs, config.vocab_size)?;
    check_ids(targets, config.vocab_size)?;
    if inputs.is_empty() {
        return Ok(());
    }
    let device = model.device();
    let rows: Vec<&[u32]> = inputs.chunks(time).collect();
    let hidden = model.hidden(to_tensor(&rows, &device)); // [batch, time, n_embd]
    let hidden = hidden.reshape([1, inputs.len(), config.n_embd]); // [1, batch * time, n_embd]

    let at_once = (most_logits / config.vocab_size).max(1);
    for (positions, targets) in positions.chunks(at_once).zip(targets.chunks(at_once)) {
        let places = to_tensor(&[positions], &device).reshape([positions.len()]); // [positions]
        let logits = model.logits(hidden.clone().select(1, places)); // [1, positions, vocab]
        let chosen = to_tensor(&[targets], &device).unsqueeze_dim(2); // [1, positions, 1]
        each(log_softmax(logits, 2), chosen)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::softmax::log_sum_exp;
    use burn::tensor::Device;
    use ember_model::GptConfig;
    use itertools::Itertools;
    use proptest::prelude::*;

    pub(crate) const CONTEXT: usize = 8;

    pub(crate) fn model() -> Gpt {
        Gpt::new(&GptConfig::new(13, CONTEXT, 2, 2, 8), 1, &Device::flex()).unwrap()
    }

    pub(crate) fn to_the_end(_: usize) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// log p(last id | the ids before it), computed from the logits.
    pub(crate) fn by_hand(model: &Gpt, ids: &[u32]) -> f32 {
        let (last, before) = ids.split_last().unwrap();
        let logits = model.forward(to_tensor(&[before], &model.device())).into_data().try_into_vec::<f32>().unwrap();
        let logits = &logits[(before.len() - 1) * model.config().vocab_size..];
        (f64::from(logits[*last as usize]) - log_sum_exp(logits)) as f32
    }

    /// Compared with the definitions, summed in double precision.
    #[test]
    fn entropy_and_variance_are_those_of_the_distribution() {
        let model = model();
        let [surprise] = token_surprises(&model, &[7], &[2], 1).unwrap().try_into().unwrap();
        let ln: Vec<f64> = (0..13).map(|id| f64::from(by_hand(&model, &[7, id]))).collect();
        let mean = |of: &dyn Fn(f64) -> f64| ln.iter().map(|ln| ln.exp() * of(*ln)).sum::<f64>();
        let entropy = -mean(&|ln| ln);
        let variance = mean(&|ln| (ln + entropy).powi(2));
        let Surprise { log_p, .. } = surprise;
        for (got, want) in [(log_p, ln[2]), (surprise.entropy, entropy), (surprise.variance, variance)] {
            assert!((f64::from(got) - want).abs() < 1e-5, "{got} {want}");
        }
        assert!(variance > 0.0 && entropy < 13f64.ln());
    }

    #[test]
    fn what_cannot_be_scored_is_refused() {
        let model = model();
        let refused = |ids: &[u32], scored| {
            score_stretches(&model, &[Stretch { ids, scored }], &mut to_the_end).unwrap_err().to_string()
        };
        assert!(refused(&[1, 2], 0).contains("0 tokens of a stretch of 2"));
        assert!(refused(&[1, 2], 2).contains("2 tokens of a stretch of 2"));
        assert!(refused(&[1; CONTEXT + 2], 1).contains("rows of 9 tokens exceed the context of 8"));
        assert!(refused(&[1, 13], 1).contains("token id 13"));
        assert!(token_log_probabilities(&model, &[1, 2, 3], &[1, 2, 3], 2).is_err());
    }

    #[test]
    fn what_was_scored_before_it_broke_off_is_kept() {
        let stretches = [Stretch { ids: &[1, 2], scored: 1 }; MAX_TOKENS + 1];
        let scored = score_stretches(&model(), &stretches, &mut |_| ControlFlow::Break(())).unwrap();
        assert!(scored[..MAX_TOKENS].iter().all(Option::is_some));
        assert_eq!(scored[MAX_TOKENS], None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn batched_equals_alone(
            rows in prop::collection::vec((prop::collection::vec(0..13_u32, 2..=CONTEXT + 1), any::<prop::sample::Index>()), 0..12),
        ) {
            let model = model();
            let stretches: Vec<Stretch> =
                rows.iter().map(|(ids, scored)| Stretch { ids, scored: 1 + scored.index(ids.len() - 1) }).collect();
            let mut told = 0;
            let together = score_stretches(&model, &stretches, &mut |tokens| {
                told += tokens;
                ControlFlow::Continue(())
            });
            for (stretch, together) in stretches.iter().zip_eq(together.unwrap()) {
                told -= stretch.scored;
                let first = stretch.ids.len() - stretch.scored;
                let together = together.unwrap();
                prop_assert_eq!(together.len(), stretch.scored);
                for (position, got) in (first..).zip(together) {
                    let alone = by_hand(&model, &stretch.ids[..=position]);
                    prop_assert!((got - alone).abs() < 1e-5, "token {position}: {got}, alone {alone}");
                }
            }
            prop_assert_eq!(told, 0);
        }

        #[test]
        fn every_position_of_whole_rows_is_scored(
            (time, ids) in (1..=CONTEXT).prop_flat_map(|time| (Just(time), prop::collection::vec(0..13_u32, 3 * time + 3))),
        ) {
            let model = model();
            let rows: Vec<&[u32]> = ids.chunks(time + 1).collect();
            let inputs: Vec<u32> = rows.iter().flat_map(|row| row[..time].to_vec()).collect();
            let targets: Vec<u32> = rows.iter().flat_map(|row| row[1..].to_vec()).collect();
            let logprobs = token_log_probabilities(&model, &inputs, &targets, time).unwrap();
            for (row, logprobs) in rows.iter().zip_eq(logprobs.chunks(time)) {
                for (t, got) in logprobs.iter().enumerate() {
                    prop_assert!((got - by_hand(&model, &row[..=t + 1])).abs() < 1e-5);
                }
            }
            let surprises = token_surprises(&model, &inputs, &targets, time).unwrap();
            for (surprise, log_p) in surprises.iter().zip_eq(&logprobs) {
                prop_assert_eq!(surprise.log_p, *log_p);
            }
        }
    }
}
