//! Continues prompts by whichever strategy the knobs name. Token ids in, token ids out.

#[cfg(test)]
mod tests;

use std::time::Instant;

use ember_model::{Gpt, GptConfig};

use crate::config::{GenerationConfig, Overflow, Strategy};
use crate::decoder::{Decoder, Job};
use crate::error::{Error, Overrun, Result};
use crate::{
    beam::BeamSearch, completion::Completion, exact::ExactSearch, one_by_one::OneByOne, plan::Plan,
    sequences::ModelSequences, speculative::Speculative, tokens::check_ids, watch::Watch,
};

/// Continues one prompt by the knobs alone.
///
/// # Errors
/// As [`generate_batch`].
pub fn generate(model: &Gpt, prompt: &[u32], config: &GenerationConfig, watch: &mut dyn Watch) -> Result<Completion> {
    let completions = generate_batch(model, &[prompt], &Plan::new(config), watch)?;
    Ok(completions.into_iter().flatten().next().expect("one prompt has one completion"))
}

/// Continues several prompts, together where the strategy can: for each its `num_return_sequences`
/// completions, the best first where they are ranked, and fewer where a search finds no more.
///
/// # Errors
/// When there is no prompt, one is empty, an id is outside the vocabulary, the context is full
/// under [`Overflow::Error`], the knobs leave no token to choose from, or the logits are not
/// finite.
pub fn generate_batch(
    model: &Gpt,
    prompts: &[&[u32]],
    plan: &Plan,
    watch: &mut dyn Watch,
) -> Result<Vec<Vec<Completion>>> {
    let started = Instant::now();
    let (shape, config) = (model.config(), plan.config);
    check_prompts(prompts, config, shape)?;
    let chain = plan.chain();
    let decoder = decoder(config);
    let together = if decoder.takes_all_prompts() { prompts.len() } else { 1 };
    let mut completions = Vec::with_capacity(prompts.len());
    for (number, prompts) in prompts.chunks(together).enumerate() {
        let slots = decoder.slots(prompts, config, shape.context_length);
        let mut sequences = ModelSequences::new(model, prompts, slots);
        let job = Job { plan, chain: &chain, first_prompt: number * together, started };
        completions.extend(decoder.write(&mut sequences, &job, watch)?);
    }
    Ok(completions)
}

/// The strategy that the knobs name.
fn decoder(config: &GenerationConfig) -> &'static dyn Decoder {
    match config.strategy {
        Strategy::Greedy | Strategy::Sample if config.draft_tokens > 0 => &Speculative,
        Strategy::Greedy | Strategy::Sample => &OneByOne,
        Strategy::Beam | Strategy::BeamSample | Strategy::DiverseBeam => &BeamSearch,
        Strategy::Exact => &ExactSearch,
    }
}

/// Refuses prompts that cannot be continued.
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
