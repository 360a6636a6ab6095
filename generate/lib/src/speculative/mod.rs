//! Speculative decoding: cheap guesses at the next few tokens, all verified in one pass through the
//! model, which leave the output distributed exactly as without them.
//!
//! One pass over a few positions, which reads the weights once, costs less than as many passes over
//! one. So a [`Proposer`] guesses what follows, the model says what it thinks at each guessed
//! position, and a rule of acceptance keeps a beginning of the guesses and adds one token of the
//! model's own. Greedy, a guess is kept where it is the token that would have been chosen: the text
//! is that without guesses. Sampling, a guess x drawn from q is kept with probability min(1, p(x) /
//! q(x)), p being the model's processed distribution, and otherwise replaced by a draw from max(0,
//! p - q), normalised: together exactly p ([Leviathan, Kalman and Matias 2023, section 2.3 and
//! appendix A.1](https://arxiv.org/abs/2211.17192); [Chen et al.
//! 2023](https://arxiv.org/abs/2302.01318)).
//!
//! Guesses that are wrong cost time, never quality.

mod proposers;
mod request;

#[cfg(test)]
mod tests;

use crate::completion::{Acceptance, ChosenToken, Completion, Finding};
use crate::error::{Error, Result};
use crate::logprobs::{chosen, finite_log_sum_exp};
use crate::sampler::{greedy, weighted};
use crate::sequences::{ModelSequences, Sequences, slots};
use crate::softmax::{highest, softmax};
use crate::watch::{Certain, Watch};
use crate::{config::Strategy, job::Job, processors::Step};
use proposers::{PromptLookup, Proposal, Proposer, SmallerModel};
use request::{Draw, Request};

/// Writes the first prompt's sequences one after another.
pub(crate) fn write(target: &mut dyn Sequences, job: &Job, watch: &mut dyn Watch) -> Result<Vec<Vec<Completion>>> {
    let (ids, config, vocab_size) = (target.ids(0).to_vec(), job.plan.config, target.vocab_size());
    if let Some(draft) = job.plan.draft
        && draft.config().vocab_size != vocab_size
    {
        return Err(Error::DraftVocabulary { draft_vocab_size: draft.config().vocab_size, vocab_size });
    }
    let mut completions = Vec::with_capacity(config.num_return_sequences);
    for number in 0..config.num_return_sequences {
        let request = Request { job, number };
        let (completion, acceptance) = match job.plan.draft {
            None => generate(accept_or_replace, target, &mut PromptLookup, &request, watch)?,
            Some(draft) => {
                // Its window slides where the text is longer than its own context.
                let slots = slots(&[&ids], 1, config.max_new_tokens, draft.config().context_length, true);
                let mut proposer = SmallerModel(ModelSequences::new(draft, &[&ids], slots));
                generate(accept_or_replace, target, &mut proposer, &request, watch)?
            }
        };
        completions.push(Completion { finding: Some(Finding::Draft(acceptance)), ..completion });
    }
    Ok(vec![completions])
}

/// What becomes of a guess, given the model's distribution `[vocab]` in its place and two uniform
/// draws: the token that is the guess or replaces it.
type Rule = fn(&[f32], &Proposal, [f64; 2]) -> u32;

/// Continues the prompt, which is the one row of `target` before and after, as plain generation
/// would: greedy the same tokens, sampling the same distribution. Each token is told in order;
/// breaking with a reason ends the text there.
///
/// The rule is a parameter for the tests, which must be able to tell it from wrong ones.
///
/// # Errors
/// When the context is full and the window may not slide, the logits are not finite, processors
/// leave no token, or a device fails.
pub(crate) fn generate(
    rule: Rule,
    target: &mut dyn Sequences,
    proposer: &mut dyn Proposer,
    request: &Request,
    watch: &mut dyn Watch,
) -> Result<(Completion, Acceptance)> {
    let Job { plan, first_prompt, .. } = *request.job;
    let (config, row) = (plan.config, request.job.row(first_prompt, request.number));
    let (vocab_size, context_length) = (target.vocab_size(), target.context_length());
    let prompt_len = target.ids(0).len();
    let mut acceptance = Acceptance::default();
    let mut tokens: Vec<ChosenToken> = Vec::new();
    let mut slid = false;
    let mut most = config.draft_tokens;

    let finish_reason = 'text: loop {
        let len = target.ids(0).len();
        if len > context_length {
            if let Some(reason) = request.job.outgrown(context_length, tokens.len())? {
                break reason;
            }
            slid = true;
        }

        // The pass gives one token more than is guessed: the model's own.
        let room = context_length.saturating_sub(len).min(config.max_new_tokens - tokens.len() - 1);
        let proposals = match most.min(room) {
            0 => Vec::new(),
            most => proposer.propose(target.ids(0), prompt_len, most, request)?,
        };
        let guessed: Vec<u32> = proposals.iter().map(|proposal| proposal.id).collect();
        target.extend(0, &guessed);
        let mut logits = target.logits_of_last(&[guessed.len() + 1])?;
        acceptance.passes += 1;
        acceptance.proposed += guessed.len();

        let mut all_accepted = true;
        for (position, logits) in logits.chunks_mut(vocab_size).enumerate() {
            // Up to here every guess was kept, so the row's beginning is the text so far.
            let (prompt, generated) = target.ids(0)[..len + position].split_at(prompt_len);
            let proposal = proposals.get(position);
            let token = choose(rule, request, &Step { prompt, generated }, proposal, logits)?;
            let accepted = proposal.is_some_and(|proposal| proposal.id == token.id);
            acceptance.accepted += usize::from(accepted);
            if !accepted {
                target.truncate(0, len + position);
                target.extend(0, &[token.id]);
            }

            tokens.push(token);
            let steps = tokens.len();
            let asked = watch.certain(Certain { row, tokens: &tokens[steps - 1..], steps });
            let generated = &target.ids(0)[prompt_len..len + position + 1];
            if let Some(reason) = plan.reason_to_end(first_prompt, generated, asked, request.job.seconds()) {
                break 'text reason;
            }
            if proposal.is_some() && !accepted {
                all_accepted = false;
                break;
            }
        }
        // Guesses that are right are worth more of them, as in transformers' heuristic schedule.
        if !guessed.is_empty() {
            most = if all_accepted { config.draft_tokens.min(most.saturating_add(2)) } else { (most - 1).max(1) };
        }
    };

    target.truncate(0, prompt_len);
    let completion = Completion::new(tokens, finish_reason, request.job.seconds());
    Ok((Completion { slid, ..completion }, acceptance))
}

/// The token at one position, of which the model gave `logits` `[vocab]`: by `rule` where one is
/// proposed, else as without guesses.
///
/// # Errors
/// When the logits are not finite, or processors leave no token.
fn choose(
    rule: Rule,
    request: &Request,
    step: &Step,
    proposal: Option<&Proposal>,
    logits: &mut [f32],
) -> Result<ChosenToken> {
    let Job { plan, chain, .. } = *request.job;
    let unmodified = logits.to_vec();
    let log_sum_exp = finite_log_sum_exp(&unmodified)?;
    chain.process(step, logits);
    if chain.checked_highest(logits)? == f32::NEG_INFINITY {
        return Err(plan.nothing_left(chain, step.generated));
    }
    let drawn = |what| request.uniform(step.generated.len(), what);
    let id = match (plan.config.strategy, proposal) {
        (Strategy::Sample, None) => weighted(drawn(Draw::Token), &softmax(logits)).id,
        (Strategy::Sample, Some(proposal)) => {
            rule(&softmax(logits), proposal, [Draw::Acceptance, Draw::Token].map(drawn))
        }
        _ => greedy(logits),
    };
    Ok(chosen(id, &unmodified, log_sum_exp, plan.config.logprobs))
}

/// The rule of acceptance: the guess with probability min(1, p / q), else a draw from max(0, p -
/// q).
fn accept_or_replace(p: &[f32], proposal: &Proposal, [acceptance, token]: [f64; 2]) -> u32 {
    let id = proposal.id as usize;
    let q_of_guess = proposal.drawn_from.as_ref().map_or(1.0, |q| q[id]);
    if acceptance * f64::from(q_of_guess) < f64::from(p[id]) {
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
    // Nothing is left where p and q differ by rounding alone.
    weighted(token, if highest(&rest) > 0.0 { &rest } else { p }).id
}
