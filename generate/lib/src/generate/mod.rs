//! Continues prompts by the configured strategy. Token ids in, token ids out.

#[cfg(test)]
mod tests;

use std::time::Instant;

use ember_model::GptConfig;

use crate::config::{GenerationConfig, Overflow, Strategy};
use crate::error::{Error, Overrun, Result};
use crate::sequences::{Continues, Sequences, most_positions};
use crate::{beam, exact, one_by_one, speculative};
use crate::{completion::Completion, job::Job, plan::Plan, tokens::check_ids, watch::Watch};

/// Continues one prompt with the given knobs.
///
/// # Errors
/// As [`generate_batch`].
pub fn generate(
    model: &dyn Continues,
    prompt: &[u32],
    config: &GenerationConfig,
    watch: &mut dyn Watch,
) -> Result<Completion> {
    let completions = generate_batch(model, &[prompt], &Plan::new(config), watch)?;
    Ok(completions.into_iter().flatten().next().expect("one prompt has one completion"))
}

/// Continues several prompts, batched where the strategy can. Returns `num_return_sequences`
/// completions per prompt, best first if they are ranked; a search may find fewer.
///
/// # Errors
/// If [`GenerationConfig::check`] rejects the knobs ([`Error::Knob`]), there is no prompt, one is
/// empty, an id is outside the vocabulary, the context is full under [`Overflow::Error`], the knobs
/// leave no token to choose from, or the logits are not finite.
pub fn generate_batch(
    model: &dyn Continues,
    prompts: &[&[u32]],
    plan: &Plan,
    watch: &mut dyn Watch,
) -> Result<Vec<Vec<Completion>>> {
    let started = Instant::now();
    let (shape, config) = (model.config(), plan.config);
    config.check_usable(shape.vocab_size)?;
    check_prompts(prompts, config, shape)?;
    let chain = plan.chain();
    let (write, together, rows) = strategy(config, prompts.len());
    let mut completions = Vec::with_capacity(prompts.len());
    for (number, prompts) in prompts.chunks(together).enumerate() {
        let slides = config.overflow == Overflow::Slide;
        let positions = most_positions(prompts, rows, config.max_new_tokens, shape.context_length, slides);
        let draft_positions = config.draft_tokens.min(shape.context_length); // not yet verified
        let mut sequences = model.sequences(prompts, positions + draft_positions);
        let job = Job { plan, chain: &chain, first_prompt: number * together, started };
        completions.extend(write(&mut *sequences, &job, watch)?);
    }
    Ok(completions)
}

/// A strategy's entry point. The prompts are the rows of the sequences, and they fit into the
/// context unless the window slides. Returns `num_return_sequences` completions per prompt, best
/// first if they are ranked; a search may find fewer.
///
/// Fails if the context is full and the window may not slide, the knobs leave no token to choose
/// from, the logits are not finite, or a device fails.
type Write = fn(&mut dyn Sequences, &Job, &mut dyn Watch) -> Result<Vec<Vec<Completion>>>;

/// How many of the `prompts` are continued together, and as how many rows each at most: what the KV
/// cache has to hold at once.
pub fn rows_at_once(config: &GenerationConfig, prompts: usize) -> (usize, usize) {
    let (_, together, rows) = strategy(config, prompts);
    (together, rows)
}

/// The configured strategy, how many of the `prompts` it batches into each pass through the model,
/// and as how many rows per prompt at most.
fn strategy(config: &GenerationConfig, prompts: usize) -> (Write, usize, usize) {
    let each = config.num_return_sequences;
    match config.strategy {
        // One sequence after another, because each verifies draft tokens at different positions.
        Strategy::Greedy | Strategy::Sample if config.draft_tokens > 0 => (speculative::write, 1, 1),
        Strategy::Greedy | Strategy::Sample => (one_by_one::write, prompts, each),
        Strategy::Beam | Strategy::BeamSample | Strategy::DiverseBeam => {
            (beam::write, prompts, each.max(config.num_beams))
        }
        // One prompt after another, because each fills the passes with its own prefixes.
        Strategy::Exact => (exact::write, 1, exact::MAX_ROWS.min(config.max_nodes)),
    }
}

/// Rejects prompts that cannot be continued.
fn check_prompts(prompts: &[&[u32]], config: &GenerationConfig, shape: &GptConfig) -> Result<()> {
    let GptConfig { vocab_size, context_length, .. } = *shape;
    let longest = prompts.iter().map(|prompt| prompt.len()).max().ok_or(Error::NoPrompt)?;
    if prompts.iter().any(|prompt| prompt.is_empty()) {
        return Err(Error::EmptyPrompt);
    }
    prompts.iter().try_for_each(|prompt| check_ids(prompt, vocab_size))?;
    if longest > context_length && config.overflow != Overflow::Slide {
        return Err(Error::ContextFull { context_length, overrun: Overrun::Prompt(longest) });
    }
    Ok(())
}
