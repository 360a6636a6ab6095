//! Weights that are not finite: known from the start, or come about in this session.

use ember_model::Gpt;

use super::folder::{Pointer, RunFolder};
use super::report::Reporter;
use crate::error::{GuardError, Result};
use crate::step::guard::diagnosis::weight_not_finite;

/// Looks at the weights that a session begins with, and says where they are not finite: a person
/// chose to train them, so they may be saved.
pub fn come_damaged(gpt: &Gpt, reporter: &mut dyn Reporter) -> bool {
    let found = weight_not_finite(gpt);
    if let Some((name, place)) = &found {
        let line = "is not finite in the checkpoint that this begins with: batches that meet it will be left out";
        reporter.note(format!("{name} {place:?} {line}").into());
    }
    found.is_some()
}

/// Makes sure that no weight ceased to be finite in this session. Every gradient was finite, so it
/// takes a fault of the device or a step beyond all measure; the way back is the last checkpoint,
/// which a resume takes.
///
/// # Errors
/// Names the first such weight and the way back.
pub fn ensure_whole(gpt: &Gpt, run: &RunFolder) -> Result<()> {
    let Some((parameter, place)) = weight_not_finite(gpt) else { return Ok(()) };
    Err(GuardError::DamagedWeights { parameter, place, saved: run.pointed(Pointer::Latest)? }.into())
}
