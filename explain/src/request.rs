//! What to explain, and what tokens say.

use std::ops::ControlFlow;

use ember_decoding::{Certain, Completion, FinishReason, generate};
use ember_decoding::{config::GenerationConfig, error::Result};
use ember_model::Gpt;

/// What to explain.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The model.
    pub model: &'a Gpt,
    /// Where it came from, for people.
    pub checkpoint: &'a str,
    /// The prompt as it was typed; none where there is no tokenizer.
    pub prompt_text: Option<&'a str>,
    /// The prompt's ids, at least one.
    pub prompt: &'a [u32],
    /// The knobs of the run; greedy or sampling.
    pub config: &'a GenerationConfig,
    /// Beams of the beam search.
    pub num_beams: usize,
    /// Prefixes that the exact search may look at.
    pub exact_nodes: usize,
    /// The steps to look into the model at; none means the first and the last.
    pub steps: Option<&'a [usize]>,
    /// What tokens say.
    pub words: Words<'a>,
    /// Whether to go on; asked often.
    pub go_on: &'a (dyn Fn() -> bool + Sync),
}

/// What tokens say.
#[derive(Clone, Copy, Default)]
pub struct Words<'a> {
    /// The bytes of a token; none where there is no tokenizer.
    pub bytes_of: Option<&'a dyn Fn(u32) -> Vec<u8>>,
}

impl Words<'_> {
    /// One token's text, bytes that are no character by themselves as U+FFFD.
    pub fn token(&self, id: u32) -> Option<String> {
        self.bytes_of.map(|bytes_of| String::from_utf8_lossy(&bytes_of(id)).into_owned())
    }

    /// The text of generated ids; end tokens say nothing.
    pub(crate) fn text(&self, ids: &[u32], end_tokens: &[u32]) -> Option<String> {
        let bytes_of = self.bytes_of?;
        let bytes: Vec<u8> = ids.iter().filter(|id| !end_tokens.contains(id)).flat_map(|&id| bytes_of(id)).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Request<'_> {
    /// Continues the prompt once more, by other knobs.
    pub(crate) fn write(&self, config: &GenerationConfig) -> Result<Completion> {
        generate(self.model, self.prompt, config, &mut |_: Certain| self.asked())
    }

    /// The answer to each step.
    pub(crate) fn asked(&self) -> ControlFlow<FinishReason> {
        if (self.go_on)() { ControlFlow::Continue(()) } else { ControlFlow::Break(FinishReason::Interrupted) }
    }

    pub(crate) fn text(&self, ids: &[u32]) -> Option<String> {
        self.words.text(ids, &self.config.end_tokens)
    }
}
