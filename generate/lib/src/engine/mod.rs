//! The engine: reads prompts, then chooses one token after another for all of them at once. Token ids in, token ids out.

mod choice;
mod strategies;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{Device, Int, Tensor, TensorData};
use ember_model::Gpt;
use serde::Serialize;

use crate::beam::BeamStep;
use crate::config::{GenerationConfig, Overflow, Strategy};
use crate::constraint::Constraint;
use crate::error::{Error, Overrun, Place, Result};
use crate::exact;
use crate::processors::Chain;
use crate::sequences::{ModelSequences, Sequences};
use crate::speculative::Acceptance;
use crate::stop::{Clock, EndsText, FinishReason};
use crate::trace::ChoiceTrace;
use choice::{Chooser, Traced};

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
        /// The row: sequences of the first prompt first.
        row: usize,
        /// The token.
        token: &'a ChosenToken,
    },
    /// How that token came to be chosen, right before [`Event::Token`]; only where a trace is asked for.
    Choice {
        /// The row, as in [`Event::Token`].
        row: usize,
        /// The account.
        choice: &'a ChoiceTrace,
        /// The model's logits at that step, `[vocab]`.
        unmodified: &'a [f32],
        /// What the processors made of them, `[vocab]`; minus infinity where a token was removed.
        processed: &'a [f32],
    },
    /// What the beams of one prompt, or one group of them, did at a step; only where a trace is asked for. Breaking has no
    /// effect here.
    Beams(&'a BeamStep),
    /// After each step of a prompt's beams: tokens, often none, with which its best sequence is now known to go on. Breaking
    /// with a reason ends this prompt's search with what there is.
    Agreed {
        /// The prompt's place in the batch.
        prompt: usize,
        /// The tokens.
        tokens: &'a [ChosenToken],
    },
    /// How far an exact search is; breaking with a reason ends it with what there is.
    Searching {
        /// The prompt's place in the batch.
        prompt: usize,
        /// Prefixes looked at, the best text so far, and what is still possible.
        progress: exact::Progress,
    },
    /// What a finished row's strategy has to say beside its tokens.
    Found {
        /// The row, as in [`Event::Token`].
        row: usize,
        /// What it is.
        finding: &'a Finding,
    },
    /// A window begins to slide, said once: from here on each of that row's tokens costs a pass over `context_length` tokens.
    ContextFull,
}

/// What a strategy found out beside the text.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Of an exact search.
    Exact {
        /// Whether no other continuation is more probable.
        proven: bool,
        /// Prefixes looked at.
        nodes: usize,
        /// No continuation that was not looked at has a log-probability above this, in nats; none where all were.
        bound: Option<f64>,
        /// Time or interruption, where one of them ended the search.
        #[serde(skip_serializing_if = "Option::is_none")]
        cut_short: Option<FinishReason>,
    },
    /// Of speculative decoding.
    Draft(Acceptance),
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
    /// Sum of the chosen tokens' log-probabilities under the unmodified model, in nats; of beams, what they are ranked by.
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

/// Everything that decides how prompts are continued.
#[derive(Clone)]
pub struct Plan<'a> {
    /// The knobs.
    pub config: &'a GenerationConfig,
    /// What form the text must have.
    pub constraint: Option<Arc<Constraint>>,
    /// Whether a text ends with these generated ids: at a stop string, or where a grammar has nothing to add.
    pub ends: Option<&'a EndsText<'a>>,
    /// Names the draws, one for each prompt: its sequence i draws as `first_sequences[prompt] + i`, so that a sequence is the
    /// same (up to rounding in the model) alone and in any batch. A prompt without one begins at 0.
    pub first_sequences: &'a [u64],
    /// How many candidates of each step to give account of, in [`Event::Choice`] and [`Event::Beams`]; 0 is none.
    pub traced_candidates: usize,
    /// What says that `max_time_s` is over, one for each prompt; a prompt without one goes by the time.
    pub clocks: &'a [Clock],
    /// What proposes tokens for the model to check, where `draft_tokens` is above 0.
    pub draft: Draft<'a>,
}

/// Where the proposals of speculative decoding come from.
#[derive(Clone, Copy, Debug, Default)]
pub enum Draft<'a> {
    /// What followed the last words earlier in the text.
    #[default]
    Lookup,
    /// A smaller model with the same vocabulary.
    Model(&'a Gpt),
}

impl<'a> Plan<'a> {
    /// The knobs and nothing else.
    pub fn new(config: &'a GenerationConfig) -> Self {
        Self {
            config,
            constraint: None,
            ends: None,
            first_sequences: &[],
            traced_candidates: 0,
            clocks: &[],
            draft: Draft::Lookup,
        }
    }
}

impl Plan<'_> {
    /// What the draws of a prompt's sequence are named by.
    fn sequence(&self, prompt: usize, number: usize) -> u64 {
        self.first_sequences.get(prompt).copied().unwrap_or(0) + number as u64
    }

    /// What says that time is over for a prompt.
    pub(crate) fn clock(&self, prompt: usize) -> Clock {
        self.clocks.get(prompt).copied().unwrap_or_default()
    }

    /// Why a sequence of a prompt ends with its last token, if it does; `asked` is what the caller said to that token, and
    /// `seconds` have passed since generation began.
    pub(crate) fn reason_to_end(
        &self,
        prompt: usize,
        generated: &[u32],
        asked: ControlFlow<FinishReason>,
        seconds: f64,
    ) -> Option<FinishReason> {
        let config = self.config;
        if generated.last().is_some_and(|last| config.end_tokens.contains(last)) {
            return Some(FinishReason::Eos);
        }
        if let ControlFlow::Break(reason) = asked {
            return Some(reason);
        }
        if self.ends.is_some_and(|ends| ends(generated)) {
            return Some(FinishReason::Stop);
        }
        if generated.len() >= config.max_new_tokens {
            return Some(FinishReason::Length);
        }
        self.clock(prompt).is_over(config.max_time_s, seconds, generated.len()).then_some(FinishReason::Time)
    }

    /// The error to report where the knobs leave no token to follow `generated`.
    pub(crate) fn nothing_left(&self, chain: &Chain, generated: &[u32]) -> Error {
        match &self.constraint {
            Some(constraint) => constraint.nothing_left(generated).into(),
            None => chain.nothing_left(Place::After(generated.len())),
        }
    }
}

/// Continues one prompt by the knobs alone.
///
/// # Errors
/// As [`generate_batch`].
pub fn generate(
    model: &Gpt,
    prompt: &[u32],
    config: &GenerationConfig,
    on_event: &mut dyn FnMut(Event) -> ControlFlow<FinishReason>,
) -> Result<Completion> {
    let completions = generate_batch(model, &[prompt], &Plan::new(config), on_event)?;
    Ok(completions.into_iter().flatten().next().expect("one prompt has one completion"))
}

/// Continues several prompts together, one pass through the model a step (an exact search and speculative decoding take
/// them one after another): for each its `num_return_sequences` completions, the best first where they are ranked, and
/// fewer where a search finds no more.
///
/// # Errors
/// When there is no prompt, one is empty, an id is outside the vocabulary, the context is full under [`Overflow::Error`], the
/// knobs leave no token to choose from, or the logits are not finite.
pub fn generate_batch(
    model: &Gpt,
    prompts: &[&[u32]],
    plan: &Plan,
    on_event: &mut dyn FnMut(Event) -> ControlFlow<FinishReason>,
) -> Result<Vec<Vec<Completion>>> {
    let started = Instant::now();
    let shape = model.config();
    check_prompts(prompts, shape.vocab_size)?;
    let context_length = shape.context_length;
    let longest = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or(0);
    if longest > context_length && plan.config.overflow != Overflow::Slide {
        return Err(Error::ContextFull { context_length, overrun: Overrun::Prompt(longest) });
    }
    let config = plan.config;
    let rows = config.num_return_sequences.max(config.num_beams);
    let sequences = || ModelSequences::new(model, prompts, slots(prompts, rows, config.max_new_tokens, context_length));
    match config.strategy {
        Strategy::Greedy | Strategy::Sample if config.draft_tokens > 0 => {
            strategies::speculatively(model, prompts, plan, started, on_event)
        }
        Strategy::Greedy | Strategy::Sample => write(&mut sequences(), plan, started, on_event),
        Strategy::Exact => strategies::exactly(model, prompts, plan, started, on_event),
        Strategy::Beam | Strategy::BeamSample | Strategy::DiverseBeam => {
            strategies::beams(&mut sequences(), plan, started, on_event)
        }
    }
}

/// Positions that the cache will hold at most, where each prompt is continued as `rows` at a time: each prompt once, and what
/// every row adds to it.
fn slots(prompts: &[&[u32]], rows: usize, max_new_tokens: usize, context_length: usize) -> usize {
    let new = max_new_tokens.min(context_length);
    let each = |prompt: &&[u32]| match prompt.len().saturating_add(max_new_tokens) > context_length + 1 {
        true => rows * context_length + new, // a sliding window shares nothing
        false => prompt.len() + rows * new,
    };
    prompts.iter().map(each).sum()
}

/// Continues the rows of `sequences`, one for each prompt, token by token.
fn write(
    sequences: &mut dyn Sequences,
    plan: &Plan,
    started: Instant,
    on_event: &mut dyn FnMut(Event) -> ControlFlow<FinishReason>,
) -> Result<Vec<Vec<Completion>>> {
    let config = plan.config;
    let context_length = sequences.context_length();
    let chooser = Chooser::new(plan);
    let prompt_lens: Vec<usize> = (0..sequences.rows()).map(|prompt| sequences.ids(prompt).len()).collect();

    // Prefill: every prompt is read once, whatever the number of its continuations. All positions go through the model at
    // once, as in training: much work, limited by arithmetic.
    let mut slides = false;
    let mut say_once = |sequences: &dyn Sequences, on_event: &mut dyn FnMut(Event) -> ControlFlow<FinishReason>| {
        if !slides && (0..sequences.rows()).any(|row| sequences.ids(row).len() > context_length) {
            slides = true;
            let _ = on_event(Event::ContextFull);
        }
    };
    say_once(sequences, on_event);
    let read = chooser.read(sequences)?;
    let each = config.num_return_sequences;
    let parents: Vec<usize> = (0..prompt_lens.len()).flat_map(|prompt| vec![prompt; each]).collect();
    let mut next = read.select(&parents, sequences.vocab_size());
    sequences.select(&parents);

    let mut rows: Vec<Row> = parents
        .iter()
        .enumerate()
        .map(|(row, &prompt)| Row::new(prompt, prompt_lens[prompt], plan.sequence(prompt, row % each)))
        .collect();
    // The rows that are still being written; `sequences` holds these, in this order.
    let mut live: Vec<usize> = (0..rows.len()).collect();
    loop {
        let choices = chooser.choose_all(plan, sequences, &live, &rows, next)?;
        // Once for all rows: what is late is the step.
        let seconds = started.elapsed().as_secs_f64();
        for (place, (&number, choice)) in live.iter().zip(choices).enumerate() {
            if let Some(Traced { account, unmodified, processed }) = &choice.trace {
                let _ = on_event(Event::Choice { row: number, choice: account, unmodified, processed });
            }
            let asked = on_event(Event::Token { row: number, token: &choice.token });
            sequences.extend(place, &[choice.token.id]);
            let row = &mut rows[number];
            row.push(choice.token);
            let generated = &sequences.ids(place)[row.prompt_len..];
            row.finished = plan.reason_to_end(row.prompt, generated, asked, seconds).map(|why| (why, seconds));
        }
        let full: Vec<usize> = (0..live.len())
            .filter(|&place| rows[live[place]].finished.is_none() && sequences.ids(place).len() > context_length)
            .collect();
        match config.overflow {
            Overflow::Slide => {}
            Overflow::Stop => full.iter().for_each(|&place| {
                rows[live[place]].finished = Some((FinishReason::Length, seconds));
            }),
            Overflow::Error => {
                if let Some(&place) = full.first() {
                    let generated = rows[live[place]].tokens.len();
                    return Err(Error::ContextFull { context_length, overrun: Overrun::Text(generated) });
                }
            }
        }
        let going_on: Vec<usize> = (0..live.len()).filter(|&place| rows[live[place]].finished.is_none()).collect();
        if going_on.is_empty() {
            break;
        }
        if going_on.len() < live.len() {
            sequences.select(&going_on);
            live = going_on.into_iter().map(|place| live[place]).collect();
        }
        say_once(sequences, on_event);
        // Decode: one position of each row goes through the model and looks back on the cache. Little work, limited by
        // reading the weights.
        next = chooser.read(sequences)?;
    }
    let mut completions = rows.into_iter().map(Row::into_completion);
    Ok(prompt_lens.iter().map(|_| completions.by_ref().take(each).collect()).collect())
}

/// One sequence in the making.
struct Row {
    prompt: usize,
    prompt_len: usize,
    /// What its draws are named by.
    sequence: u64,
    tokens: Vec<ChosenToken>,
    finished: Option<(FinishReason, f64)>,
}

impl Row {
    fn new(prompt: usize, prompt_len: usize, sequence: u64) -> Self {
        Self { prompt, prompt_len, sequence, tokens: Vec::new(), finished: None }
    }

    fn push(&mut self, token: ChosenToken) {
        self.tokens.push(token);
    }

    fn into_completion(self) -> Completion {
        let (finish_reason, seconds) = self.finished.unwrap_or((FinishReason::Length, 0.0));
        let score = self.tokens.iter().map(|token| f64::from(token.logprob)).sum();
        let ids = self.tokens.iter().map(|token| token.id).collect();
        Completion { ids, tokens: self.tokens, finish_reason, score, seconds }
    }
}

/// Refuses prompts that cannot be continued.
fn check_prompts(prompts: &[&[u32]], vocab_size: usize) -> Result<()> {
    if prompts.is_empty() {
        return Err(Error::NoPrompt);
    }
    if prompts.iter().any(|prompt| prompt.is_empty()) {
        return Err(Error::EmptyPrompt);
    }
    prompts.iter().try_for_each(|prompt| check_ids(prompt, vocab_size))
}

/// Refuses ids that the model has no embedding for.
///
/// # Errors
/// Names the first such id and the vocabulary's size.
pub fn check_ids(ids: &[u32], vocab_size: usize) -> Result<()> {
    match ids.iter().find(|&&id| id as usize >= vocab_size) {
        Some(&id) => Err(Error::OutsideVocabulary { id, vocab_size }),
        None => Ok(()),
    }
}

/// Rows of one length as a tensor, `[batch, time]`.
pub fn to_tensor(rows: &[&[u32]], device: &Device) -> Tensor<2, Int> {
    let shape = [rows.len(), rows.first().map_or(0, |row| row.len())];
    let ids: Vec<i32> = rows.iter().flat_map(|row| row.iter().map(|&id| id as i32)).collect();
    Tensor::from_data(TensorData::new(ids, shape), device)
}
