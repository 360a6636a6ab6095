//! The engine: prefill the cache with the prompt, then decode one token after another. Token ids in, token ids out.

use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use burn::tensor::{Device, Int, Tensor, TensorData};
use ember_model::{Gpt, KvCache};

use crate::config::{GenerationConfig, Overflow};
use crate::processors::Step;
use crate::sampler::Chooser;
use crate::softmax::log_sum_exp;
use crate::stop::FinishReason;

/// A token that was chosen, and what the model itself thought of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenToken {
    /// Its id.
    pub id: u32,
    /// Its natural log-probability under the unmodified model: before temperature and every other knob.
    pub logprob: f32,
    /// The most probable tokens of this step and their log-probabilities, best first; as many as `logprobs` asks for.
    pub top: Vec<(u32, f32)>,
}

/// What the engine tells its caller while it works.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A row got its next token; breaking with a reason ends that row.
    Token {
        /// The row in the batch.
        row: usize,
        /// The token.
        token: &'a ChosenToken,
    },
    /// The window begins to slide, said once: from here on each token costs a pass over `context_length` tokens.
    ContextFull,
}

/// What one prompt was continued with.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The new tokens' ids, an end token included.
    pub ids: Vec<u32>,
    /// The new tokens with their log-probabilities, one for each id.
    pub tokens: Vec<ChosenToken>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Sum of the chosen tokens' log-probabilities under the unmodified model, in nats.
    pub score: f64,
    /// From the start of the prefill to this row's last token.
    pub seconds: f64,
}

impl Completion {
    /// New tokens a second, prefill included.
    pub fn tokens_per_s(&self) -> f64 {
        self.ids.len() as f64 / self.seconds.max(1e-9)
    }
}

/// Reads whole rows of equal length into an empty cache and gives the logits that follow each, `[batch, vocab]`.
///
/// All positions go through the model at once, as in training: much work, limited by arithmetic.
pub fn prefill(model: &Gpt, rows: &[&[u32]], cache: &mut KvCache) -> Result<Vec<f32>> {
    to_host(model.forward_cached_last(to_tensor(rows, &model.device()), cache))
}

/// Reads one token a row behind what the cache holds and gives the logits that follow each, `[batch, vocab]`.
///
/// One position goes through the model and looks back on the cache: little work, limited by reading the weights.
pub fn decode_step(model: &Gpt, tokens: &[u32], cache: &mut KvCache) -> Result<Vec<f32>> {
    let rows: Vec<&[u32]> = tokens.chunks(1).collect();
    to_host(model.forward_cached_last(to_tensor(&rows, &model.device()), cache))
}

/// Continues one prompt. The draws are those of sequence 0; see [`generate_batch`].
///
/// # Errors
/// As [`generate_batch`].
pub fn generate(
    model: &Gpt,
    prompt: &[u32],
    config: &GenerationConfig,
    on_event: &mut dyn FnMut(Event) -> ControlFlow<FinishReason>,
) -> Result<Completion> {
    let completions = generate_batch(model, &[prompt], config, 0, on_event)?;
    completions.into_iter().next().context("one prompt has one completion")
}

/// Continues several prompts of one length together, one pass through the model a step. Row r draws as sequence
/// `first_sequence + r`, so a sequence is the same (up to rounding in the model) alone and in any batch.
///
/// # Errors
/// When there is no prompt, one is empty, their lengths differ, an id is outside the vocabulary, the context is full under
/// `--overflow error`, or the logits are not finite.
pub fn generate_batch(
    model: &Gpt,
    prompts: &[&[u32]],
    config: &GenerationConfig,
    first_sequence: u64,
    on_event: &mut dyn FnMut(Event) -> ControlFlow<FinishReason>,
) -> Result<Vec<Completion>> {
    let shape = model.config();
    let (vocab_size, context_length) = (shape.vocab_size, shape.context_length);
    let prompt_len = check(prompts, vocab_size)?;
    if prompt_len > context_length && config.overflow != Overflow::Slide {
        bail!(overflow_error(context_length, &format!("the prompt has {prompt_len}")));
    }

    let started = Instant::now();
    let chooser = Chooser::new(config);
    let mut rows: Vec<Row> = prompts.iter().map(|prompt| Row::new(prompt)).collect();
    // The rows that go through the model. A finished one goes along, unread, until the cache is made anew.
    let mut batch: Vec<usize> = (0..rows.len()).collect();
    // The last token that can be chosen is never read back.
    let capacity = context_length.min(prompt_len + config.max_new_tokens.saturating_sub(1));
    let new_cache = |rows: usize| KvCache::new(shape, rows, capacity, &model.device());
    let mut cache = new_cache(batch.len());
    let mut slides = prompt_len > context_length;
    if slides {
        let _ = on_event(Event::ContextFull);
    }
    let mut logits = prefill(model, &windows(&rows, &batch, context_length), &mut cache)?;

    loop {
        for (&number, logits) in batch.iter().zip(logits.chunks_mut(vocab_size)) {
            let row = &mut rows[number];
            if row.finished.is_none() {
                let token = choose(&chooser, row, first_sequence + number as u64, config.logprobs, logits)?;
                row.push(token, config, started, |token| on_event(Event::Token { row: number, token }));
            }
        }
        if rows.iter().all(|row| row.finished.is_some()) {
            break;
        }
        if cache.len() < cache.capacity() {
            let last: Vec<u32> = batch.iter().map(|&number| rows[number].last()).collect();
            logits = decode_step(model, &last, &mut cache)?;
            continue;
        }
        match config.overflow {
            Overflow::Slide => {
                if !slides {
                    slides = true;
                    let _ = on_event(Event::ContextFull);
                }
                // Every token moves by one position, and positions are part of what keys and values are made of: nothing in
                // the cache holds any more.
                cache.clear();
                let before = batch.len();
                batch.retain(|&number| rows[number].finished.is_none());
                if batch.len() < before {
                    cache = new_cache(batch.len());
                }
                logits = prefill(model, &windows(&rows, &batch, context_length), &mut cache)?;
            }
            Overflow::Stop => {
                for row in &mut rows {
                    row.finish(FinishReason::Length, started);
                }
                break;
            }
            Overflow::Error => {
                let generated = rows.iter().map(|row| row.tokens.len()).max().unwrap_or(0);
                bail!(overflow_error(context_length, &format!("prompt and text reached it after {generated} new")));
            }
        }
    }
    Ok(rows.into_iter().map(Row::into_completion).collect())
}

/// One sequence in the making.
struct Row {
    /// The prompt, then the generated tokens.
    ids: Vec<u32>,
    prompt_len: usize,
    tokens: Vec<ChosenToken>,
    finished: Option<(FinishReason, f64)>,
}

impl Row {
    fn new(prompt: &[u32]) -> Self {
        Self { ids: prompt.to_vec(), prompt_len: prompt.len(), tokens: Vec::new(), finished: None }
    }

    fn last(&self) -> u32 {
        self.ids[self.ids.len() - 1]
    }

    fn push(
        &mut self,
        token: ChosenToken,
        config: &GenerationConfig,
        started: Instant,
        on_token: impl FnOnce(&ChosenToken) -> ControlFlow<FinishReason>,
    ) {
        let id = token.id;
        let asked = on_token(&token);
        self.ids.push(id);
        self.tokens.push(token);
        if config.end_tokens.contains(&id) {
            self.finish(FinishReason::Eos, started);
        } else if let ControlFlow::Break(reason) = asked {
            self.finish(reason, started);
        } else if self.tokens.len() >= config.max_new_tokens {
            self.finish(FinishReason::Length, started);
        }
    }

    fn finish(&mut self, reason: FinishReason, started: Instant) {
        self.finished.get_or_insert((reason, started.elapsed().as_secs_f64()));
    }

    fn into_completion(mut self) -> Completion {
        let (finish_reason, seconds) = self.finished.unwrap_or((FinishReason::Length, 0.0));
        let ids = self.ids.split_off(self.prompt_len);
        let score = self.tokens.iter().map(|token| f64::from(token.logprob)).sum();
        Completion { ids, tokens: self.tokens, finish_reason, score, seconds }
    }
}

/// The last `context_length` tokens of each row of the batch.
fn windows<'a>(rows: &'a [Row], batch: &[usize], context_length: usize) -> Vec<&'a [u32]> {
    let window = |ids: &'a [u32]| &ids[ids.len().saturating_sub(context_length)..];
    batch.iter().map(|&number| window(&rows[number].ids)).collect()
}

fn choose(chooser: &Chooser, row: &Row, sequence: u64, top: usize, logits: &mut [f32]) -> Result<ChosenToken> {
    let norm = log_sum_exp(logits);
    ensure!(
        norm.is_finite(),
        "the model's logits are not finite numbers: its weights are damaged, or its training diverged; use another checkpoint"
    );
    let logprob_of = |logit: f32| (f64::from(logit) - norm) as f32;
    let top = best(top, logits).into_iter().map(|id| (id, logprob_of(logits[id as usize]))).collect();
    let unmodified = logits.to_vec();
    let (prompt, generated) = row.ids.split_at(row.prompt_len);
    let id = chooser.choose(&Step { prompt, generated }, sequence, logits);
    Ok(ChosenToken { id, logprob: logprob_of(unmodified[id as usize]), top })
}

/// The ids of the `count` highest logits, highest first, of equal ones the lower id.
pub(crate) fn best(count: usize, logits: &[f32]) -> Vec<u32> {
    if count == 0 {
        return Vec::new();
    }
    let by_rank = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    if count < ids.len() {
        ids.select_nth_unstable_by(count - 1, by_rank);
        ids.truncate(count);
    }
    ids.sort_unstable_by(by_rank);
    ids
}

/// The prompts' one length.
fn check(prompts: &[&[u32]], vocab_size: usize) -> Result<usize> {
    let prompt_len = prompts.first().context("there is no prompt to continue")?.len();
    ensure!(
        prompt_len > 0,
        "the prompt holds no token; a model continues at least one, for example its end-of-text token"
    );
    ensure!(prompts.iter().all(|prompt| prompt.len() == prompt_len), "prompts continued together must be equally long");
    check_ids(prompts.concat().as_slice(), vocab_size)?;
    Ok(prompt_len)
}

/// Refuses ids that the model has no embedding for.
///
/// # Errors
/// Names the first such id and the vocabulary's size.
pub fn check_ids(ids: &[u32], vocab_size: usize) -> Result<()> {
    match ids.iter().find(|&&id| id as usize >= vocab_size) {
        Some(id) => bail!("token id {id} is outside the model's vocabulary, 0 to {}", vocab_size - 1),
        None => Ok(()),
    }
}

pub(crate) fn overflow_error(context_length: usize, what: &str) -> String {
    format!(
        "the context holds {context_length} tokens and {what}; shorten the prompt, lower --max-new-tokens, or use --overflow slide"
    )
}

/// Rows of one length as a tensor, `[batch, time]`.
pub(crate) fn to_tensor(rows: &[&[u32]], device: &Device) -> Tensor<2, Int> {
    let shape = [rows.len(), rows.first().map_or(0, |row| row.len())];
    let ids: Vec<i32> = rows.iter().flat_map(|row| row.iter().map(|&id| id as i32)).collect();
    Tensor::from_data(TensorData::new(ids, shape), device)
}

fn to_host<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>> {
    tensor.into_data().try_into_vec::<f32>().map_err(|error| anyhow::anyhow!("cannot read the logits: {error:?}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::Strategy;
    use ember_model::GptConfig;
    use proptest::prelude::{ProptestConfig, Strategy as _, prop, prop_assert, prop_assert_eq, proptest};
    use std::path::Path;

    const VOCAB: usize = 11;
    const CONTEXT: usize = 8;

    fn model() -> Gpt {
        Gpt::new(&GptConfig::new(VOCAB, CONTEXT, 2, 2, 8), 3, &Device::flex()).unwrap()
    }

    fn greedy(max_new_tokens: usize) -> GenerationConfig {
        GenerationConfig { max_new_tokens, ..Default::default() }
    }

    fn sampling(max_new_tokens: usize) -> GenerationConfig {
        GenerationConfig { strategy: Strategy::Sample, seed: 5, ..greedy(max_new_tokens) }
    }

    fn all_of_it(_: Event) -> ControlFlow<FinishReason> {
        ControlFlow::Continue(())
    }

    /// Log-probabilities of the token after `ids`, by the forward pass of training over the last `CONTEXT` tokens.
    fn recomputed(model: &Gpt, ids: &[u32]) -> Vec<f64> {
        let window = &ids[ids.len().saturating_sub(CONTEXT)..];
        let logits = to_host(model.forward(to_tensor(&[window], &model.device()))).unwrap();
        let last = &logits[(window.len() - 1) * VOCAB..];
        last.iter().map(|&logit| f64::from(logit) - log_sum_exp(last)).collect()
    }

    fn prompts() -> impl proptest::prelude::Strategy<Value = Vec<u32>> {
        prop::collection::vec(0..VOCAB as u32, 1..2 * CONTEXT)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// The cache and the sliding window change nothing but speed: each token's log-probability, and that greedy found
        /// the best one, hold against a forward pass without a cache.
        #[test]
        fn cached_and_sliding_equal_recomputed(prompt in prompts(), max_new_tokens in 1..2 * CONTEXT) {
            let model = model();
            let completion = generate(&model, &prompt, &greedy(max_new_tokens), &mut all_of_it).unwrap();
            prop_assert_eq!(completion.ids.len(), max_new_tokens);
            let mut ids = prompt;
            for token in &completion.tokens {
                let expected = recomputed(&model, &ids);
                let best = expected.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let chosen = expected[token.id as usize];
                prop_assert!((f64::from(token.logprob) - chosen).abs() < 1e-5);
                prop_assert!(best - chosen < 1e-5, "greedy took {}, which is not the best", token.id);
                ids.push(token.id);
            }
        }

        #[test]
        fn batched_equals_alone(
            rows in (1..5_usize, 1..2 * CONTEXT).prop_flat_map(|(count, len)| {
                prop::collection::vec(prop::collection::vec(0..VOCAB as u32, len), count)
            }),
            first in 0..100_u64,
        ) {
            let model = model();
            // An end token, so that some rows finish before others.
            let config = GenerationConfig { end_tokens: vec![0], ..sampling(CONTEXT) };
            let prompts: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
            let together = generate_batch(&model, &prompts, &config, first, &mut all_of_it).unwrap();
            for (row, (prompt, batched)) in prompts.iter().zip(&together).enumerate() {
                let alone = generate_batch(&model, &[prompt], &config, first + row as u64, &mut all_of_it).unwrap();
                prop_assert_eq!(&batched.ids, &alone[0].ids);
                prop_assert_eq!(batched.finish_reason, alone[0].finish_reason);
                prop_assert!((batched.score - alone[0].score).abs() < 1e-4);
            }
        }
    }

    /// 64 tokens that transformers' greedy search chose on a model of ours to read (see the fixtures' README).
    #[test]
    fn greedy_text_is_that_of_transformers() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
        let model = ember_model::checkpoint::load(&fixtures.join("greedy"), &Device::flex()).unwrap();
        let json = std::fs::read_to_string(fixtures.join("greedy.json")).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&json).unwrap();
        let ids = |key: &str| serde_json::from_value::<Vec<u32>>(expected[key].clone()).unwrap();
        let completion = generate(&model, &ids("prompt_ids"), &greedy(64), &mut all_of_it).unwrap();
        assert_eq!(completion.ids, ids("ids"));
    }

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let model = model();
        let ids =
            |seed| generate(&model, &[1], &GenerationConfig { seed, ..sampling(24) }, &mut all_of_it).unwrap().ids;
        assert_eq!(ids(1), ids(1));
        assert_ne!(ids(1), ids(2));
    }

    #[test]
    fn each_way_to_end() {
        let model = model();
        let free = generate(&model, &[1, 2], &sampling(7), &mut all_of_it).unwrap();
        assert_eq!((free.finish_reason, free.ids.len()), (FinishReason::Length, 7));
        let sum: f64 = free.tokens.iter().map(|token| f64::from(token.logprob)).sum();
        assert_eq!(free.score, sum);

        // The end token is kept, and nothing comes after it.
        let end = free.ids[3];
        let until = free.ids.iter().position(|&id| id == end).unwrap();
        let config = GenerationConfig { end_tokens: vec![end], ..sampling(7) };
        let ended = generate(&model, &[1, 2], &config, &mut all_of_it).unwrap();
        assert_eq!((ended.finish_reason, ended.ids.as_slice()), (FinishReason::Eos, &free.ids[..=until]));

        let mut seen = 0;
        let mut second = |_: Event| {
            seen += 1;
            if seen == 2 { ControlFlow::Break(FinishReason::Stop) } else { ControlFlow::Continue(()) }
        };
        let stopped = generate(&model, &[1, 2], &sampling(7), &mut second).unwrap();
        assert_eq!((stopped.finish_reason, stopped.ids.as_slice()), (FinishReason::Stop, &free.ids[..2]));
    }

    #[test]
    fn the_context_end_slides_stops_or_fails() {
        let model = model();
        let config = |overflow| GenerationConfig { overflow, ..greedy(20) };
        let mut said = 0;
        let slid = generate(&model, &[1, 2, 3], &config(Overflow::Slide), &mut |event| {
            said += usize::from(matches!(event, Event::ContextFull));
            ControlFlow::Continue(())
        });
        assert_eq!((slid.unwrap().ids.len(), said), (20, 1));
        // 3 of 8 positions are the prompt's; the 8th position still has a next token.
        let stopped = generate(&model, &[1, 2, 3], &config(Overflow::Stop), &mut all_of_it).unwrap();
        assert_eq!((stopped.ids.len(), stopped.finish_reason), (6, FinishReason::Length));
        let error = generate(&model, &[1, 2, 3], &config(Overflow::Error), &mut all_of_it).unwrap_err().to_string();
        assert!(error.contains("holds 8 tokens") && error.contains("--overflow slide"), "{error}");
        for overflow in [Overflow::Stop, Overflow::Error] {
            let error = generate(&model, &[1; 9], &config(overflow), &mut all_of_it).unwrap_err().to_string();
            assert!(error.contains("the prompt has 9"), "{error}");
        }
    }

    #[test]
    fn the_most_probable_tokens_are_reported_in_order() {
        let model = model();
        let config = GenerationConfig { logprobs: 3, ..greedy(1) };
        let token = generate(&model, &[4, 2], &config, &mut all_of_it).unwrap().tokens.remove(0);
        let mut expected: Vec<(u32, f64)> = (0..).zip(recomputed(&model, &[4, 2])).collect();
        expected.sort_by(|a, b| b.1.total_cmp(&a.1));
        assert_eq!(token.top[0], (token.id, token.logprob));
        for (top, expected) in token.top.iter().zip(&expected) {
            assert!(top.0 == expected.0 && (f64::from(top.1) - expected.1).abs() < 1e-5, "{top:?} is not {expected:?}");
        }
        assert_eq!(best(2, &[1.0, 3.0, 3.0, 2.0]), [1, 2]);
        assert_eq!(best(9, &[1.0, 3.0]), [1, 0]);
    }

    #[test]
    fn what_cannot_be_continued_is_refused() {
        let model = model();
        let refused = |prompts: &[&[u32]]| {
            generate_batch(&model, prompts, &greedy(1), 0, &mut all_of_it).unwrap_err().to_string()
        };
        assert!(refused(&[]).contains("no prompt"));
        assert!(refused(&[&[]]).contains("holds no token"));
        assert!(refused(&[&[1], &[1, 2]]).contains("equally long"));
        assert!(refused(&[&[1, 11]]).contains("token id 11 is outside"));
    }

    #[test]
    fn broken_weights_are_named_and_not_sampled() {
        let row = Row::new(&[1]);
        for broken in [[0.0, f32::NAN], [0.0, f32::INFINITY], [f32::NEG_INFINITY; 2]] {
            let error = choose(&Chooser::Greedy, &row, 0, 0, &mut broken.clone()).unwrap_err().to_string();
            assert!(error.contains("not finite"), "{error}");
        }
    }
}
