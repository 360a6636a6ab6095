//! The subject of an explanation, and its run: generated with a full trace.

use std::ops::ControlFlow;

use serde::Serialize;

use super::stored::{Logits, Processed, Step};
use ember_decoding::config::{FolderSettings, GenerationConfig};
use ember_decoding::error::Result;
use ember_decoding::trace::{BeamStep, TracedStep};
use ember_decoding::{Certain, Completion, FinishReason, Plan, Traced, Watch, generate, generate_batch};
use ember_model::Gpt;

/// The subject of an explanation: a model, a prompt, and the run to explain.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The calling program with its version, named in the result.
    pub program: &'a str,
    /// The model.
    pub model: &'a Gpt,
    /// The model's name for people, without its path: the page may be sent to others.
    pub checkpoint: &'a str,
    /// The prompt as typed; `None` without a tokenizer.
    pub prompt_text: Option<&'a str>,
    /// The prompt's ids, at least one.
    pub prompt: &'a [u32],
    /// The knobs of the run; greedy or sampling.
    pub config: &'a GenerationConfig,
    /// The folder's default knobs, which the command line reads too.
    pub folder: &'a FolderSettings,
    /// Number of beams of the beam search.
    pub num_beams: usize,
    /// Maximum number of prefixes that the exact search may evaluate.
    pub exact_nodes: usize,
    /// The steps at which to inspect the model; `None` means the first and the last.
    pub steps: Option<&'a [usize]>,
    /// What tokens say.
    pub words: Words<'a>,
    /// Whether to continue; called often.
    pub go_on: &'a (dyn Fn() -> bool + Sync),
}

/// What tokens say.
#[derive(Clone, Copy, Default)]
pub struct Words<'a> {
    /// The bytes of a token; `None` without a tokenizer.
    pub bytes_of: Option<&'a dyn Fn(u32) -> Vec<u8>>,
}

/// A token's text, or its bytes if they are no text by themselves, such as part of a character.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Piece {
    Text(String),
    Bytes(Vec<u8>),
}

impl Words<'_> {
    /// The text of one token.
    pub(super) fn piece(&self, id: u32) -> Option<Piece> {
        let bytes_of = self.bytes_of?;
        Some(String::from_utf8(bytes_of(id)).map_or_else(|error| Piece::Bytes(error.into_bytes()), Piece::Text))
    }

    /// The text of several tokens; a byte that is no character, such as part of one, as `<E4>`.
    pub fn text(&self, ids: &[u32]) -> Option<String> {
        let bytes_of = self.bytes_of?;
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| bytes_of(id)).collect();
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            text += chunk.valid();
            chunk.invalid().iter().for_each(|byte| text += &format!("<{byte:02X}>"));
        }
        Some(text)
    }
}

impl Subject<'_> {
    /// Continues the prompt once more, with other knobs.
    pub(super) fn write(&self, config: &GenerationConfig) -> Result<Completion> {
        generate(self.model, self.prompt, config, &mut |_: Certain| self.flow())
    }

    /// Whether to continue after a step.
    pub(super) fn flow(&self) -> ControlFlow<FinishReason> {
        if (self.go_on)() { ControlFlow::Continue(()) } else { ControlFlow::Break(FinishReason::Interrupted) }
    }

    /// The text of generated ids, without end tokens.
    pub(super) fn text(&self, ids: &[u32]) -> Option<String> {
        let (bytes_of, ends) = (self.words.bytes_of?, &self.config.end_tokens);
        let bytes: Vec<u8> = ids.iter().filter(|id| !ends.contains(id)).flat_map(|&id| bytes_of(id)).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// A text with a trace of how each token was chosen.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The text.
    pub completion: Completion,
    /// One step per token.
    pub steps: Vec<TracedStep>,
}

/// Continues the prompt with the subject's knobs and keeps the logits of every step: 4 bytes times
/// the vocabulary each, twice.
///
/// # Errors
/// As [`generate_batch`].
pub fn record(subject: &Subject) -> Result<Recorded> {
    let (completions, recorder) = traced(subject, subject.config)?;
    let completion = completions.into_iter().next().expect("one prompt has one completion");
    Ok(Recorded { completion, steps: recorder.steps })
}

/// Continues the prompt with these knobs; returns the texts and the trace.
pub(super) fn traced<'a>(subject: &'a Subject, config: &GenerationConfig) -> Result<(Vec<Completion>, Recorder<'a>)> {
    let mut recorder = Recorder { subject, steps: Vec::new(), beams: Vec::new() };
    let plan = Plan { traced_candidates: 1, ..Plan::new(config) };
    let completions = generate_batch(subject.model, &[subject.prompt], &plan, &mut recorder)?;
    Ok((completions.into_iter().flatten().collect(), recorder))
}

/// Records how each token was chosen, or what the beams did.
pub(super) struct Recorder<'a> {
    subject: &'a Subject<'a>,
    steps: Vec<TracedStep>,
    pub(super) beams: Vec<BeamStep>,
}

impl Watch for Recorder<'_> {
    fn certain(&mut self, _: Certain) -> ControlFlow<FinishReason> {
        self.subject.flow()
    }

    fn traced(&mut self, step: Traced) {
        match step {
            Traced::Choice { step, .. } => self.steps.push(step.clone()),
            // The tree is drawn from the candidates alone; the processors' effects on each beam are
            // left to the trace.
            Traced::Beams(step) => self.beams.push(BeamStep { beams: Vec::new(), ..step.clone() }),
        }
    }
}

impl Recorded {
    /// The ids before `step`, prompt included.
    pub(super) fn before(&self, prompt: &[u32], step: usize) -> Vec<u32> {
        [prompt, &self.completion.ids[..step]].concat()
    }

    /// The steps as they are stored.
    pub(super) fn steps(&self, prompt: &[u32], context_length: usize) -> Vec<Step> {
        let store = |(number, step): (usize, &TracedStep)| {
            let before = self.before(prompt, number);
            // Any token may be drawn, so the chosen one is always stored one by one.
            let one_by_one = [before.as_slice(), &[step.choice.id]].concat();
            Step {
                step: number,
                window: [before.len().saturating_sub(context_length), before.len()],
                logits: Logits::of(&step.unmodified, &one_by_one),
                draw: step.choice.draw,
                interval: step.choice.interval,
                chosen: step.choice.id,
                logprob: step.choice.logprob,
                processed: Processed::of(&step.processed),
            }
        };
        self.steps.iter().enumerate().map(store).collect()
    }
}
