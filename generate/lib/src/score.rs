//! Scoring: how probable given tokens are under the unmodified model. Nothing is chosen here, and
//! nothing is learned.

mod texts;

use std::ops::ControlFlow;

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};
use ember_model::Gpt;

use crate::batches::plan;
use crate::error::{Error, Result};
use crate::tokens::{check_ids, from_tensor, to_tensor};

pub use texts::{Tally, bytes_of, check_length, score_texts, scored_bytes};

/// Most logits held at once (16 MiB of float32): the head is applied to so many positions at a
/// time. Many more no longer fit into a processor's caches, far fewer read a large head's weights
/// too often; both measured slower.
pub const MOST_LOGITS: usize = 4 << 20;

/// Most tokens that go through the model together, where the device bears as many.
const MOST_TOKENS: usize = 4096;

/// The natural log-probability of each target under the model, row-major `[batch, time]`: of
/// `targets[b, t]` after `inputs[b, ..=t]`, both row-major ids in rows of `time`. Give it a model
/// without automatic differentiation.
///
/// # Errors
/// When the ids are not whole rows, are outside the vocabulary, or the rows exceed the context.
pub fn token_log_probabilities(model: &Gpt, inputs: &[u32], targets: &[u32], time: usize) -> Result<Vec<f32>> {
    let mut logprobs = Vec::with_capacity(targets.len());
    everywhere(model, inputs, targets, time, MOST_LOGITS, &mut |log_p, targets| {
        logprobs.extend(from_tensor(log_p.gather(2, targets))?);
        Ok(())
    })?;
    Ok(logprobs)
}

/// What a model expected at a position, beside what came there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Surprise {
    /// The natural log-probability of what came.
    pub log_p: f32,
    /// The surprise that the model expects of its own distribution, `-sum p ln p`, in nats. Where
    /// it is as sure of itself as it may be, this is on average what it meets with.
    pub entropy: f32,
    /// How far single tokens of that distribution lie from it: the variance of `ln p`, in nats
    /// squared.
    pub variance: f32,
}

/// As [`token_log_probabilities`], with what the model expected at each position.
///
/// # Errors
/// As there.
pub fn token_surprises(model: &Gpt, inputs: &[u32], targets: &[u32], time: usize) -> Result<Vec<Surprise>> {
    let mut surprises = Vec::with_capacity(targets.len());
    // Of half as many logits there are up to three tensors at once, and together no more than two of all.
    everywhere(model, inputs, targets, time, MOST_LOGITS / 2, &mut |log_p, targets| {
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

/// As [`at_positions`] for all positions of whole rows, as many rows in a pass as the device bears.
fn everywhere(
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

/// Tokens that the model reads at once, of which the last `scored` are scored, each after all of
/// those before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch<'a> {
    /// Its ids; the last is only predicted, never read.
    pub ids: &'a [u32],
    /// How many at its end are scored: at least 1, and not the first of the ids, which follows
    /// nothing.
    pub scored: usize,
}

/// The log-probabilities, in nats, of the scored tokens of each stretch; `None` of those that are
/// left once `on_batch` breaks off, which is told after every pass through the model how many tokens
/// were scored in it.
///
/// Stretches of similar length go through the model together, each in a row of its own that is
/// filled up at its end, where nothing that counts can see it: together or alone they get the same
/// numbers, up to rounding. The head, which is most of a small model's work, is applied to no
/// position but those that are asked for.
///
/// # Errors
/// When a stretch is longer than the context and one token, or scores none or all of its tokens, an
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
    let most_tokens = model.tokens_at_once(MOST_TOKENS);
    for batch in plan(&lengths, |longest| most_tokens / longest) {
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

/// The log-probability of each of `targets` at its place in `positions`, an index into `inputs`,
/// which are rows of `time`.
fn log_probabilities_at(
    model: &Gpt,
    inputs: &[u32],
    time: usize,
    positions: &[u32],
    targets: &[u32],
) -> Result<Vec<f32>> {
    let mut logprobs = Vec::with_capacity(targets.len());
    at_positions(model, inputs, time, positions, targets, MOST_LOGITS, &mut |log_p, targets| {
        logprobs.extend(from_tensor(log_p.gather(2, targets))?);
        Ok(())
    })?;
    Ok(logprobs)
}

/// Takes the log-probabilities of all tokens `[1, positions, vocab]` and the targets there `[1,
/// positions, 1]`.
type Each<'a> = dyn FnMut(Tensor<3>, Tensor<3, Int>) -> Result<()> + 'a;

/// Calls `each` for so many `positions` at a time as have `most_logits`, in order.
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

    /// log p(last id | the ids before it) from the logits themselves.
    pub(crate) fn by_hand(model: &Gpt, ids: &[u32]) -> f32 {
        let (last, before) = ids.split_last().unwrap();
        let logits = model.forward(to_tensor(&[before], &model.device())).into_data().try_into_vec::<f32>().unwrap();
        let logits = &logits[(before.len() - 1) * model.config().vocab_size..];
        (f64::from(logits[*last as usize]) - log_sum_exp(logits)) as f32
    }

    /// Beside the definitions, summed in double precision.
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
        let stretches = [Stretch { ids: &[1, 2], scored: 1 }; MOST_TOKENS + 1];
        let scored = score_stretches(&model(), &stretches, &mut |_| ControlFlow::Break(())).unwrap();
        assert!(scored[..MOST_TOKENS].iter().all(Option::is_some));
        assert_eq!(scored[MOST_TOKENS], None);
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
