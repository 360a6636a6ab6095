//! What a caller is told while texts are written: tokens that are certain, and how each step came
//! about.

use std::ops::ControlFlow;

use crate::completion::{ChosenToken, FinishReason};
use crate::trace::{BeamStep, TracedStep};

/// A caller that looks on. A closure that takes [`Certain`] is one; `()` is nobody.
pub trait Watch {
    /// After each step of a row: the tokens with which it is now certain to go on. Breaking with a
    /// reason ends the row, or where texts are ranked the prompt's search, with what there is.
    fn certain(&mut self, _certain: Certain) -> ControlFlow<FinishReason> {
        ControlFlow::Continue(())
    }

    /// How a step came about, before its tokens; only where a trace is asked for.
    fn traced(&mut self, _step: Traced) {}
}

impl Watch for () {}

impl<F: FnMut(Certain) -> ControlFlow<FinishReason>> Watch for F {
    fn certain(&mut self, certain: Certain) -> ControlFlow<FinishReason> {
        self(certain)
    }
}

/// Tokens that nothing takes back.
#[derive(Clone, Copy, Debug)]
pub struct Certain<'a> {
    /// The row: sequences of the first prompt first. Of texts that are ranked, that of the prompt's
    /// best.
    pub row: usize,
    /// The tokens behind those told before; often none while texts are ranked.
    pub tokens: &'a [ChosenToken],
    /// Steps so far: tokens of the row, steps of its beams, or prefixes that an exact search has
    /// looked at.
    pub steps: usize,
}

/// How a step came about.
#[derive(Clone, Copy, Debug)]
pub enum Traced<'a> {
    /// How the next token of a row was chosen.
    Choice {
        /// The row, as in [`Certain`].
        row: usize,
        /// The account, with the logits.
        step: &'a TracedStep,
    },
    /// What the beams of one prompt, or one group of them, did.
    Beams(&'a BeamStep),
}
