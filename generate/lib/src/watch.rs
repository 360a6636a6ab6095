//! Events emitted to the caller during generation: final tokens, and traces of each step.

use std::ops::ControlFlow;

use crate::completion::{ChosenToken, FinishReason};
use crate::trace::{BeamStep, TracedStep};

/// Receives the events of a generation. A closure that takes [`Certain`] implements it; `()`
/// ignores everything.
pub trait Watch {
    /// Called after each step of a row with the tokens that became final. Breaking with a reason
    /// ends the row (or the prompt's search, if texts are ranked) with the result so far.
    fn certain(&mut self, _certain: Certain) -> ControlFlow<FinishReason> {
        ControlFlow::Continue(())
    }

    /// The trace of a step, before its tokens; only if tracing is on.
    fn traced(&mut self, _step: Traced) {}
}

impl Watch for () {}

impl<F: FnMut(Certain) -> ControlFlow<FinishReason>> Watch for F {
    fn certain(&mut self, certain: Certain) -> ControlFlow<FinishReason> {
        self(certain)
    }
}

/// Tokens that are final.
#[derive(Clone, Copy, Debug)]
pub struct Certain<'a> {
    /// The row, numbered prompt by prompt. If texts are ranked, the row of the prompt's best text.
    pub row: usize,
    /// The newly final tokens; often none while texts are ranked.
    pub tokens: &'a [ChosenToken],
    /// Steps so far: tokens of the row, steps of its beams, or prefixes that an exact search has
    /// expanded.
    pub steps: usize,
}

/// The trace of one step.
#[derive(Clone, Copy, Debug)]
pub enum Traced<'a> {
    /// How the next token of a row was chosen.
    Choice {
        /// The row, as in [`Certain`].
        row: usize,
        /// The trace, with the logits.
        step: &'a TracedStep,
    },
    /// One step of a prompt's beams, or of one group of them.
    Beams(&'a BeamStep),
}
