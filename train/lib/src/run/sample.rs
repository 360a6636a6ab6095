//! Samples text while the model learns: with the same prompts and the same random numbers every
//! time, so that only the model differs. The sampling settings are the checkpoint's defaults.

use std::ops::ControlFlow;

use ember_data::prepare::Manifest;
use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_decoding::config::{GenerationConfig, Sampling};
use ember_decoding::watch::Certain;
use ember_decoding::{FinishReason, generate};
use ember_model::Gpt;
use serde::{Deserialize, Serialize};

use crate::config::TrainConfig;
use crate::error::{Cause, Error, Result};

/// A prompt that the tokenizer cannot read.
#[derive(Debug, thiserror::Error)]
#[error("sample_prompts: {prompt:?}")]
pub struct UnknownPrompt {
    /// The prompt.
    pub prompt: String,
    /// Why it cannot be encoded.
    pub source: Cause,
}

/// A sampled continuation of one prompt: a row of `samples/samples.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Optimizer steps taken.
    pub step: u64,
    /// Which of `sample_prompts`, from 0.
    pub prompt_index: usize,
    /// The prompt; empty if the model began a new text.
    pub prompt: String,
    /// The continuation, without an end token.
    pub text: String,
    /// Number of new tokens, including an end token.
    pub tokens: usize,
    /// Mean `-ln p` of the new tokens under the model itself, in nats: its confidence. `None`,
    /// which JSON writes as null, if that is not finite.
    pub own_loss: Option<f64>,
}

impl Sample {
    /// The prompt and its continuation.
    pub fn whole(&self) -> String {
        format!("{}{}", self.prompt, self.text)
    }
}

/// A token that occurs less often than this in the training text is hardly learned. After such an
/// opening token a model predicts badly: with a byte-pair vocabulary it would write bytes that
/// occur in no text.
const SELDOM: u64 = 20;

/// The default sampling settings of a model of this data. For the built-in stories (only they have
/// marks) the model's own distribution, since a small model can learn them completely. For other
/// text slightly sharper: a model's worst predictions are in the tail of its distribution, while
/// greedy decoding would soon repeat itself.
///
/// A text without a prompt begins like a document, or like a line if there are few documents.
pub fn sampling(manifest: &Manifest, tokenizer: &Tokenizer) -> Sampling {
    let line_end = tokenizer.encode("\n").ok().and_then(|ids| <[u32; 1]>::try_from(ids).ok()).map(|[id]| id);
    let end_of_text = tokenizer.end_of_text();
    let opening = if manifest.train.documents < SELDOM { line_end.or(end_of_text) } else { end_of_text.or(line_end) };
    match manifest.marks {
        Some(_) => Sampling { temperature: 1.0, top_p: 1.0, opening },
        None => Sampling { temperature: 0.8, top_p: 0.95, opening },
    }
}

/// The continuations of the configured prompts by `gpt`, which is on a device without automatic
/// differentiation; `None` if `stop` returned true before the last token.
///
/// # Errors
/// When a prompt has a character that the tokenizer does not know.
pub fn samples(
    gpt: &Gpt,
    tokenizer: &Tokenizer,
    sampling: Sampling,
    config: &TrainConfig,
    step: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Vec<Sample>>> {
    let knobs = |prompt_index: usize| GenerationConfig {
        max_new_tokens: config.sample_tokens.max(1),
        end_tokens: tokenizer.end_of_text().into_iter().collect(),
        seed: config.seed.wrapping_add(prompt_index as u64),
        ..sampling.config()
    };
    let each = config.sample_prompts.iter().enumerate().map(|(prompt_index, prompt)| {
        let sample = Sample { step, prompt_index, prompt: prompt.clone(), ..Sample::default() };
        continued(gpt, tokenizer, &knobs(prompt_index), sample, sampling.opening, stop)
    });
    each.collect()
}

/// The sample with the continuation of its prompt; `None` if `stop` interrupted it.
fn continued(
    gpt: &Gpt,
    tokenizer: &Tokenizer,
    knobs: &GenerationConfig,
    sample: Sample,
    opening: Option<u32>,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Sample>> {
    let prompt_ids = prompt_ids(tokenizer, &sample.prompt, opening)?;
    let mut interrupt_on_stop =
        |_: Certain| if stop() { ControlFlow::Break(FinishReason::Interrupted) } else { ControlFlow::Continue(()) };
    let completion = generate(gpt, &prompt_ids, knobs, &mut interrupt_on_stop)?;
    if completion.finish_reason == FinishReason::Interrupted {
        return Ok(None);
    }
    let visible = |ids: &[u32]| -> Result<String> {
        // A model may have more ids than its tokenizer has tokens, to round its vocabulary up.
        let is_text = |id: &u32| Some(*id) != tokenizer.end_of_text() && (*id as usize) < tokenizer.vocab_size();
        let ids: Vec<u32> = ids.iter().copied().filter(is_text).collect();
        Ok(tokenizer.decode_text(&ids)?)
    };
    // Decoded together with the prompt: some tokenizers decode the first token of a text
    // differently.
    let whole = visible(&[&prompt_ids[..], &completion.ids].concat())?;
    let text = match whole.strip_prefix(&visible(&prompt_ids)?) {
        Some(text) => text.to_owned(),
        None => visible(&completion.ids)?,
    };
    let tokens = completion.ids.len();
    let own_loss = Some(-completion.score / tokens.max(1) as f64).filter(|loss| loss.is_finite());
    Ok(Some(Sample { text, tokens, own_loss, ..sample }))
}

/// The token ids that a sample starts from: the prompt's; for an empty prompt the opening token,
/// else token 0.
fn prompt_ids(tokenizer: &Tokenizer, text: &str, opening: Option<u32>) -> Result<Vec<u32>> {
    let unknown = |error| UnknownPrompt { prompt: text.to_owned(), source: Error::from(error).into() };
    let ids =
        tokenizer.encode_prompt(text, SpecialTokens::Parse).map_err(|error| Error::Other(unknown(error).into()))?;
    Ok(if ids.is_empty() { vec![opening.unwrap_or(0)] } else { ids })
}

/// Refuses prompts that the tokenizer cannot encode, before training begins.
///
/// # Errors
/// Names the prompt and the character.
pub fn check_prompts(tokenizer: &Tokenizer, prompts: &[String]) -> Result<()> {
    prompts.iter().try_for_each(|prompt| prompt_ids(tokenizer, prompt, None).map(drop))
}

/// The samples of one step as readable text; if there are several, each under its prompt.
pub fn page(samples: &[Sample]) -> String {
    if let [only] = samples {
        return only.whole();
    }
    let each = samples.iter().map(|sample| {
        format!("--- prompt {}: {:?}\n{}\n", sample.prompt_index, sample.prompt, sample.whole().trim_end())
    });
    each.collect::<Vec<_>>().join("\n")
}
