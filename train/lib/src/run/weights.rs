//! Weights that are not finite: known from the start, or come about in this session.

use ember_model::Gpt;

use super::folder::{Pointer, RunFolder};
use super::report::Reporter;
use crate::error::{GuardError, Result};
use crate::step::guard::diagnosis::weight_not_finite;

/// What is known of a session's weights.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// They held values that are not finite when the session began: a person chose to train them,
    /// so they may be saved.
    came_damaged: bool,
}

impl Weights {
    /// Looks at the weights that a session begins with, and says where they are not finite.
    pub fn at_the_start(gpt: &Gpt, reporter: &mut dyn Reporter) -> Self {
        let found = weight_not_finite(gpt);
        if let Some((name, place)) = &found {
            let place = format!("{name} {place:?}");
            let line = "is not finite in the checkpoint that this begins with: batches that meet it will be left out";
            reporter.note(format!("{place} {line}").into());
        }
        Self { came_damaged: found.is_some() }
    }

    /// Makes sure that no weight ceased to be finite in this session. Every gradient was finite, so
    /// it takes a fault of the device or a step beyond all measure; the way back is the last
    /// checkpoint, which a resume takes.
    ///
    /// # Errors
    /// Names the first such weight and the way back.
    pub fn ensure_whole(self, gpt: &Gpt, run: &RunFolder) -> Result<()> {
        if self.came_damaged {
            return Ok(());
        }
        let Some((parameter, place)) = weight_not_finite(gpt) else { return Ok(()) };
        Err(GuardError::DamagedWeights { parameter, place, saved: run.pointed(Pointer::Latest)? }.into())
    }
}
