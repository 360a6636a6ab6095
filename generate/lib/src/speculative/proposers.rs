//! Proposers of draft tokens: prompt lookup, or a smaller draft model.

use super::continuation::{Continuation, Draw};
use crate::error::{Error, Result};
use crate::sampler::{greedy, weighted};
use crate::{
    config::Strategy, logprobs::finite_log_sum_exp, processors::Step, sequences::Sequences, softmax::softmax,
    tokens::common_prefix,
};

/// One proposed token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Proposal {
    /// The token.
    pub(crate) id: u32,
    /// The probabilities `[vocab]` that it was drawn from; `None` if it was not drawn but had
    /// probability 1.
    pub(crate) drawn_from: Option<Vec<f32>>,
}

/// Proposes continuations of a text.
pub(crate) trait Proposer {
    /// Proposes up to `most` (at least 1) next tokens of `ids`, possibly none. The first
    /// `prompt_len` ids are the prompt.
    ///
    /// # Errors
    /// If a model fails.
    fn propose(
        &mut self,
        ids: &[u32],
        prompt_len: usize,
        most: usize,
        continuation: &Continuation,
    ) -> Result<Vec<Proposal>>;
}

/// Longest suffix, in tokens, that prompt lookup searches for earlier in the text.
const LONGEST_SUFFIX: usize = 3;

/// Prompt lookup: finds an earlier occurrence of the text's last few tokens and proposes what
/// followed them there ([Saxena 2023](https://github.com/apoorvumang/prompt-lookup-decoding);
/// transformers `PromptLookupCandidateGenerator`).
///
/// It tries suffixes of 3 tokens, then 2, then 1, and takes the first occurrence, which has the
/// most tokens after it. It proposes an end token too, which transformers leaves to the model, but
/// nothing after one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PromptLookup;

impl Proposer for PromptLookup {
    fn propose(&mut self, ids: &[u32], _: usize, most: usize, continuation: &Continuation) -> Result<Vec<Proposal>> {
        let followed = (1..=LONGEST_SUFFIX.min(ids.len())).rev().find_map(|n| {
            // Search all but the last id: the suffix itself is no earlier occurrence.
            let start = ids[..ids.len() - 1].windows(n).position(|window| window == &ids[ids.len() - n..])?;
            Some(&ids[start + n..])
        });
        let followed = followed.unwrap_or_default();
        let end = followed.iter().position(|id| continuation.job.plan.config.end_tokens.contains(id));
        let end = end.map_or(followed.len(), |at| at + 1);
        let proposals = followed[..end].iter().take(most);
        Ok(proposals.map(|&id| Proposal { id, drawn_from: None }).collect())
    }
}

/// A draft model: one row of a smaller model, which proposes what it would generate with the same
/// knobs. The row may hold any earlier text.
pub(crate) struct SmallerModel<S>(pub(crate) S);

impl<S: Sequences> Proposer for SmallerModel<S> {
    fn propose(
        &mut self,
        ids: &[u32],
        prompt_len: usize,
        most: usize,
        continuation: &Continuation,
    ) -> Result<Vec<Proposal>> {
        let (Self(model), job) = (self, continuation.job);
        // Drop the rejected tokens and append the ones that replaced them.
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
                let id = weighted(continuation.uniform(generated.len(), Draw::Proposal), &q).id;
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
