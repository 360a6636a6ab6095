//! The run that is explained: written with everything that it tells on the way.

use std::ops::ControlFlow;

use super::Request;
use super::stored::{Logits, Processed, Step};
use ember_decoding::trace::{BeamStep, TracedStep};
use ember_decoding::{Certain, Completion, FinishReason, Plan, Traced, Watch, generate_batch};
use ember_decoding::{config::GenerationConfig, error::Result};

/// A text and how each of its tokens came to be.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The text.
    pub completion: Completion,
    /// One for each token.
    pub steps: Vec<TracedStep>,
}

/// Continues the prompt by the request's knobs and keeps the logits of every step: 4 bytes times the vocabulary each, twice.
///
/// # Errors
/// As [`generate_batch`].
pub fn record(request: &Request) -> Result<Recorded> {
    let (completions, recorder) = traced(request, request.config)?;
    let completion = completions.into_iter().next().expect("one prompt has one completion");
    Ok(Recorded { completion, steps: recorder.steps })
}

/// Continues the prompt by these knobs: its texts, and all that is told on the way.
pub(super) fn traced<'a>(request: &'a Request, config: &GenerationConfig) -> Result<(Vec<Completion>, Recorder<'a>)> {
    let mut recorder = Recorder { request, steps: Vec::new(), beams: Vec::new() };
    let plan = Plan { traced_candidates: 1, ..Plan::new(config) };
    let completions = generate_batch(request.model, &[request.prompt], &plan, &mut recorder)?;
    Ok((completions.into_iter().flatten().collect(), recorder))
}

/// Keeps how each token came to be, or what the beams did.
pub(super) struct Recorder<'a> {
    request: &'a Request<'a>,
    steps: Vec<TracedStep>,
    pub(super) beams: Vec<BeamStep>,
}

impl Watch for Recorder<'_> {
    fn certain(&mut self, _: Certain) -> ControlFlow<FinishReason> {
        self.request.asked()
    }

    fn traced(&mut self, step: Traced) {
        match step {
            Traced::Choice { step, .. } => self.steps.push(step.clone()),
            // The tree is drawn from the candidates; what the processors did to each beam's is the
            // trace's to tell.
            Traced::Beams(step) => self.beams.push(BeamStep { beams: Vec::new(), ..step.clone() }),
        }
    }
}

impl Recorded {
    /// The ids that stood before `step`, prompt included.
    pub(super) fn before(&self, prompt: &[u32], step: usize) -> Vec<u32> {
        [prompt, &self.completion.ids[..step]].concat()
    }

    /// The steps as they are stored.
    pub(super) fn steps(&self, prompt: &[u32], context_length: usize) -> Vec<Step> {
        let store = |(number, step): (usize, &TracedStep)| {
            let before = self.before(prompt, number);
            // A draw may fall to any token: the one chosen is stored by itself, too.
            let by_themselves = [before.as_slice(), &[step.choice.id]].concat();
            Step {
                step: number,
                window: [before.len().saturating_sub(context_length), before.len()],
                logits: Logits::of(&step.unmodified, &by_themselves),
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
