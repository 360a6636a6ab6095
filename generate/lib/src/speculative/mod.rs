//! Speculative decoding: a cheap proposer drafts the next few tokens, and the model verifies them
//! all in one pass. The output distribution stays exactly the same.
//!
//! One pass over a few positions reads the weights once, so it costs less than several passes over
//! one position each. A [`Proposer`] drafts tokens, the model computes its logits at each drafted
//! position, and an acceptance rule keeps a prefix of the draft and adds one token of the model's
//! own. With greedy decoding a drafted token is accepted if the model would have chosen it. With
//! sampling, a token x drafted from q is accepted with probability min(1, p(x) / q(x)), where p is
//! the model's processed distribution. Otherwise it is replaced by a draw from max(0, p - q),
//! normalised. The result follows exactly p ([Leviathan, Kalman and Matias 2023, section 2.3 and
//! appendix A.1](https://arxiv.org/abs/2211.17192); [Chen et al.
//! 2023](https://arxiv.org/abs/2302.01318)).
//!
//! Rejected tokens cost time, never quality.

mod continuation;
mod proposers;

#[cfg(test)]
mod tests;

use crate::completion::{Acceptance, ChosenToken, Completion, Finding};
use crate::error::{Error, Result};
use crate::logprobs::{chosen, finite_log_sum_exp};
use crate::sampler::{greedy, weighted};
use crate::sequences::{ModelSequences, Sequences, most_positions};
use crate::softmax::{highest, softmax};
use crate::watch::{Certain, Watch};
use crate::{config::Strategy, job::Job, processors::Step};
use continuation::{Continuation, Draw};
use proposers::{PromptLookup, Proposal, Proposer, SmallerModel};

/// Generates the first prompt's sequences one after another.
pub(crate) fn write(target: &mut dyn Sequences, job: &Job, watch: &mut dyn Watch) -> Result<Vec<Vec<Completion>>> {
    let (ids, config, vocab_size) = (target.ids(0).to_vec(), job.plan.config, target.vocab_size());
    if let Some(draft) = job.plan.draft
        && draft.config().vocab_size != vocab_size
    {
        return Err(Error::DraftVocabulary { draft_vocab_size: draft.config().vocab_size, vocab_size });
    }
    let mut completions = Vec::with_capacity(config.num_return_sequences);
    for number in 0..config.num_return_sequences {
        let continuation = Continuation { job, number };
        let (completion, acceptance) = match job.plan.draft {
            None => generate(accept_or_replace, target, &mut PromptLookup, &continuation, watch)?,
            Some(draft) => {
                // The draft model's window slides if the text is longer than its own context.
                let positions = most_positions(&[&ids], 1, config.max_new_tokens, draft.config().context_length, true);
                let mut proposer = SmallerModel(ModelSequences::new(draft, &[&ids], positions));
                generate(accept_or_replace, target, &mut proposer, &continuation, watch)?
            }
        };
        completions.push(Completion { finding: Some(Finding::Draft(acceptance)), ..completion });
    }
    Ok(vec![completions])
}

/// An acceptance rule: given the model's distribution `[vocab]` at a position, the proposal and two
/// uniform draws, returns the proposed token or its replacement.
type AcceptanceRule = fn(&[f32], &Proposal, [f64; 2]) -> u32;

/// Continues the prompt, which is the one row of `target` before and after. Greedy decoding gives
/// the same tokens as without drafts, sampling the same distribution. Each token is emitted in
/// order; breaking with a reason ends the text there.
///
/// The rule is a parameter so that the tests can check that they reject wrong rules.
///
/// # Errors
/// If the context is full and the window may not slide, the logits are not finite, processors leave
/// no token, or a device fails.
pub(crate) fn generate(
    rule: AcceptanceRule,
    target: &mut dyn Sequences,
    proposer: &mut dyn Proposer,
    continuation: &Continuation,
    watch: &mut dyn Watch,
) -> Result<(Completion, Acceptance)> {
    let Job { plan, first_prompt, .. } = *continuation.job;
    let (config, row) = (plan.config, continuation.job.row(first_prompt, continuation.number));
    let (vocab_size, context_length) = (target.vocab_size(), target.context_length());
    let prompt_len = target.ids(0).len();
    let mut acceptance = Acceptance::default();
    let mut tokens: Vec<ChosenToken> = Vec::new();
    let mut slid = false;
    let mut most = config.draft_tokens;

    let finish_reason = 'text: loop {
        let len = target.ids(0).len();
        if len > context_length {
            if let Some(reason) = continuation.job.outgrown(context_length, tokens.len())? {
                break reason;
            }
            slid = true;
        }

        // The pass yields one token more than is proposed: the model's own.
        let room = context_length.saturating_sub(len).min(config.max_new_tokens - tokens.len() - 1);
        let proposals = match most.min(room) {
            0 => Vec::new(),
            most => proposer.propose(target.ids(0), prompt_len, most, continuation)?,
        };
        let proposed: Vec<u32> = proposals.iter().map(|proposal| proposal.id).collect();
        target.extend(0, &proposed);
        let mut logits = target.logits_of_last(&[proposed.len() + 1])?;
        acceptance.passes += 1;
        acceptance.proposed += proposed.len();

        let mut all_accepted = true;
        for (position, logits) in logits.chunks_mut(vocab_size).enumerate() {
            // All earlier proposals were accepted, so this prefix of the row is the text so far.
            let (prompt, generated) = target.ids(0)[..len + position].split_at(prompt_len);
            let proposal = proposals.get(position);
            let token = choose(rule, continuation, &Step { prompt, generated }, proposal, logits)?;
            let accepted = proposal.is_some_and(|proposal| proposal.id == token.id);
            acceptance.accepted += usize::from(accepted);
            if !accepted {
                target.truncate(0, len + position);
                target.extend(0, &[token.id]);
            }

            tokens.push(token);
            let steps = tokens.len();
            let answer = watch.certain(Certain { row, tokens: &tokens[steps - 1..], steps });
            let generated = &target.ids(0)[prompt_len..len + position + 1];
            if let Some(reason) = plan.reason_to_end(first_prompt, generated, answer, continuation.job.seconds()) {
                break 'text reason;
            }
            if proposal.is_some() && !accepted {
                all_accepted = false;
                break;
            }
        }
        // Propose more after full acceptance and fewer after a rejection, as in transformers'
        // heuristic schedule.
        if !proposed.is_empty() {
            most = if all_accepted { config.draft_tokens.min(most.saturating_add(2)) } else { (most - 1).max(1) };
        }
    };

    target.truncate(0, prompt_len);
    let completion = Completion::new(tokens, finish_reason, continuation.job.seconds());
    Ok((Completion { slid, ..completion }, acceptance))
}

/// Chooses the token at one position from the model's `logits` `[vocab]`: by `rule` if there is a
/// proposal, else as in plain decoding.
///
/// # Errors
/// If the logits are not finite, or processors leave no token.
fn choose(
    rule: AcceptanceRule,
    continuation: &Continuation,
    step: &Step,
    proposal: Option<&Proposal>,
    logits: &mut [f32],
) -> Result<ChosenToken> {
    let Job { plan, chain, .. } = *continuation.job;
    let unmodified = logits.to_vec();
    let log_sum_exp = finite_log_sum_exp(&unmodified)?;
    chain.process(step, logits);
    if chain.checked_highest(logits)? == f32::NEG_INFINITY {
        return Err(plan.nothing_left(chain, step.generated));
    }
    let drawn = |what| continuation.uniform(step.generated.len(), what);
    let id = match (plan.config.strategy, proposal) {
        (Strategy::Sample, None) => weighted(drawn(Draw::Token), &softmax(logits)).id,
        (Strategy::Sample, Some(proposal)) => {
            rule(&softmax(logits), proposal, [Draw::Acceptance, Draw::Token].map(drawn))
        }
        _ => greedy(logits),
    };
    Ok(chosen(id, &unmodified, log_sum_exp, plan.config.logprobs))
}

/// The acceptance rule: the proposed token with probability min(1, p / q), else a draw from
/// max(0, p - q).
fn accept_or_replace(p: &[f32], proposal: &Proposal, [acceptance, token]: [f64; 2]) -> u32 {
    let id = proposal.id as usize;
    let q_of_proposal = proposal.drawn_from.as_ref().map_or(1.0, |q| q[id]);
    if acceptance * f64::from(q_of_proposal) < f64::from(p[id]) {
        return proposal.id;
    }
    let mut rest = p.to_vec();
    match &proposal.drawn_from {
        None => rest[id] = 0.0,
        Some(q) => {
            for (p, q) in rest.iter_mut().zip(q) {
                *p = (*p - q).max(0.0);
            }
        }
    }
    // If p and q differ only by rounding, `rest` may be all zeros.
    weighted(token, if highest(&rest) > 0.0 { &rest } else { p }).id
}
