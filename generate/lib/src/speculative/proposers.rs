//! Who guesses: the text itself, or a smaller model.

use super::request::{Draw, Request};
use crate::error::{Error, Result};
use crate::sampler::{greedy, weighted};
use crate::{
    config::Strategy, logprobs::finite_log_sum_exp, processors::Step, sequences::Sequences, softmax::softmax,
    tokens::common_prefix,
};

/// A guess at one token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Proposal {
    /// The token.
    pub(crate) id: u32,
    /// The probabilities `[vocab]` that it was drawn from; `None` where nothing was drawn, so that
    /// it was certain.
    pub(crate) drawn_from: Option<Vec<f32>>,
}

/// Guesses what follows a text.
pub(crate) trait Proposer {
    /// Guesses at the next tokens of `ids`, at most `most` (at least 1) and maybe none. The first
    /// `prompt_len` are the prompt.
    ///
    /// # Errors
    /// When a model fails.
    fn propose(&mut self, ids: &[u32], prompt_len: usize, most: usize, request: &Request) -> Result<Vec<Proposal>>;
}

/// Of how many tokens the ending is at most that is looked for earlier in the text.
const LONGEST_ENDING: usize = 3;

/// Guesses that the text goes on as it did before: where its last few tokens occurred earlier, what
/// followed them there ([Saxena 2023](https://github.com/apoorvumang/prompt-lookup-decoding);
/// transformers `PromptLookupCandidateGenerator`).
///
/// The longest ending counts, of 3 tokens, 2 or 1; of several occurrences the first, which has most
/// behind it. An end token is guessed too, where transformers leaves it to the model, and nothing
/// behind one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PromptLookup;

impl Proposer for PromptLookup {
    fn propose(&mut self, ids: &[u32], _: usize, most: usize, request: &Request) -> Result<Vec<Proposal>> {
        let followed = (1..=LONGEST_ENDING.min(ids.len())).rev().find_map(|n| {
            // The last window is the ending itself, which nothing follows.
            let start = ids[..ids.len() - 1].windows(n).position(|window| window == &ids[ids.len() - n..])?;
            Some(&ids[start + n..])
        });
        let followed = followed.unwrap_or_default();
        let end = followed.iter().position(|id| request.job.plan.config.end_tokens.contains(id));
        let end = end.map_or(followed.len(), |at| at + 1);
        let guesses = followed[..end].iter().take(most);
        Ok(guesses.map(|&id| Proposal { id, drawn_from: None }).collect())
    }
}

/// One row of a smaller model, whatever it holds, guesses what that would write with the same
/// knobs.
pub(crate) struct SmallerModel<S>(pub(crate) S);

impl<S: Sequences> Proposer for SmallerModel<S> {
    fn propose(&mut self, ids: &[u32], prompt_len: usize, most: usize, request: &Request) -> Result<Vec<Proposal>> {
        let (Self(model), job) = (self, request.job);
        // What was rejected goes, what replaced it comes.
        let known = common_prefix(model.ids(0), ids);
        model.truncate(0, known);
        model.extend(0, &ids[known..]);
        let mut proposals = Vec::with_capacity(most);
        while proposals.len() < most {
            let mut logits = model.logits()?;
            finite_log_sum_exp(&logits).map_err(|error| Error::Draft(error.into()))?;
            let (prompt, generated) = model.ids(0).split_at(prompt_len);
            job.chain.process(&Step { prompt, generated }, &mut logits);
            if job.chain.checked_highest(&logits)? == f32::NEG_INFINITY {
                break;
            }
            let proposal = if job.plan.config.strategy == Strategy::Sample {
                let q = softmax(&logits);
                let id = weighted(request.uniform(generated.len(), Draw::Proposal), &q).id;
                Proposal { id, drawn_from: Some(q) }
            } else {
                Proposal { id: greedy(&logits), drawn_from: None }
            };
            let id = proposal.id;
            proposals.push(proposal);
            if job.plan.config.end_tokens.contains(&id) {
                break;
            }
            model.extend(0, &[id]);
        }
        Ok(proposals)
    }
}
