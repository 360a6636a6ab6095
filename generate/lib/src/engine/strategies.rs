//! The strategies beside plain greedy decoding and sampling, each called for what the plan asks.

use std::ops::ControlFlow;
use std::time::Instant;

use ember_model::Gpt;

use super::{Completion, Draft, Event, Finding, Plan, slots};
use crate::beam::{self, BeamEvent, BeamRequest};
use crate::chosen::{logprob, norm};
use crate::error::Result;
use crate::exact;
use crate::processors::{Chain, Step};
use crate::sequences::{ModelSequences, Sequences};
use crate::speculative::{self, DraftModel, PromptLookup, Proposer};
use crate::stop::FinishReason;
use crate::trace::Recorder;

type OnEvent<'a> = &'a mut dyn FnMut(Event) -> ControlFlow<FinishReason>;

/// Beam search, beam sampling and diverse beams: all prompts together.
pub(super) fn beams(
    sequences: &mut dyn Sequences,
    plan: &Plan,
    started: Instant,
    on_event: OnEvent,
) -> Result<Vec<Vec<Completion>>> {
    let chain = plan.chain();
    let request = BeamRequest {
        config: plan.config,
        chain: &chain,
        stops: plan.ends,
        first_sequences: plan.first_sequences,
        started,
        clocks: plan.clocks,
        traced_candidates: plan.traced_candidates,
    };
    beam::search(sequences, &request, &mut |event| match event {
        BeamEvent::Step(step) => on_event(Event::Beams(step)),
        BeamEvent::ContextFull => on_event(Event::ContextFull),
        BeamEvent::Agreed { prompt, tokens } => on_event(Event::Agreed { prompt, tokens }),
    })
}

/// Exact search: one prompt after another, since each wants the model for as many prefixes as fit.
pub(super) fn exactly(
    model: &Gpt,
    prompts: &[&[u32]],
    plan: &Plan,
    started: Instant,
    on_event: OnEvent,
) -> Result<Vec<Vec<Completion>>> {
    let chain = plan.chain();
    let never = |_: &[u32]| false;
    let each = plan.config.num_return_sequences;
    let search = |(prompt, ids): (usize, &&[u32])| {
        let context_length = model.config().context_length;
        let max_new_tokens = plan.config.max_new_tokens;
        // However many texts are asked for, no more prefixes than these are looked at together.
        let rows = each.min(exact::MOST_ROWS);
        let mut sequences = ModelSequences::new(model, &[ids], slots(&[ids], rows, max_new_tokens, context_length));
        if ids.len().saturating_add(max_new_tokens) > context_length + 1 {
            let _ = on_event(Event::ContextFull);
        }
        let request = exact::Request {
            config: plan.config,
            chain: &chain,
            stops: plan.ends.unwrap_or(&never),
            started,
            clock: plan.clock(prompt),
        };
        let found =
            exact::search(&mut sequences, &request, &mut |progress| on_event(Event::Searching { prompt, progress }))?;
        let finding = Finding::Exact {
            proven: found.proven,
            nodes: found.nodes,
            bound: Some(found.bound).filter(|bound| bound.is_finite()),
            cut_short: found.cut_short,
        };
        for (number, completion) in found.completions.iter().enumerate() {
            let row = prompt * each + number;
            // Once time is over, of the best text alone: each token costs a pass.
            if plan.traced_candidates > 0 && (number == 0 || found.cut_short.is_none()) {
                retrace(&mut sequences, completion, &chain, plan.traced_candidates, row, on_event)?;
            }
            let _ = on_event(Event::Found { row, finding: &finding });
        }
        Ok(found.completions)
    };
    prompts.iter().enumerate().map(search).collect()
}

/// Gives account of each token of a text that was found otherwise than token by token: what else could have come, by the
/// log-probabilities that the search went by.
fn retrace(
    sequences: &mut dyn Sequences,
    completion: &Completion,
    chain: &Chain,
    candidates: usize,
    row: usize,
    on_event: OnEvent,
) -> Result<()> {
    let prompt_len = sequences.ids(0).len();
    for (step, token) in completion.tokens.iter().enumerate() {
        let logits = sequences.logits()?;
        let norm = norm(&logits)?;
        let mut logprobs: Vec<f32> = logits.iter().map(|&logit| logprob(logit, norm)).collect();
        let mut recorder = Recorder::new(&logprobs);
        let (prompt, generated) = sequences.ids(0).split_at(prompt_len);
        chain.process_observed(&Step { prompt, generated }, &mut logprobs, &mut |name, now| recorder.after(name, now));
        let choice = recorder.finish(step, token.id, token.logprob, None, candidates);
        let _ = on_event(Event::Choice { row, choice: &choice, unmodified: &logits, processed: &logprobs });
        sequences.extend(0, &[token.id]);
    }
    sequences.truncate(0, prompt_len);
    Ok(())
}

/// Speculative decoding: one sequence after another, since each is checked at positions of its own.
pub(super) fn speculatively(
    model: &Gpt,
    prompts: &[&[u32]],
    plan: &Plan,
    started: Instant,
    on_event: OnEvent,
) -> Result<Vec<Vec<Completion>>> {
    let (config, chain) = (plan.config, plan.chain());
    let each = config.num_return_sequences;
    let context_length = model.config().context_length;
    let one_row = |ids: &[u32], context_length: usize| slots(&[ids], 1, config.max_new_tokens, context_length);
    let mut all = Vec::with_capacity(prompts.len());
    for (prompt, ids) in prompts.iter().enumerate() {
        let guesses = config.draft_tokens.min(context_length);
        let mut target = ModelSequences::new(model, &[ids], one_row(ids, context_length) + guesses);
        let mut completions = Vec::with_capacity(each);
        for number in 0..each {
            let request = speculative::Request {
                plan,
                chain: &chain,
                sequence: plan.sequence(prompt, number),
                prompt,
                row: prompt * each + number,
                started,
            };
            let mut drafts;
            let mut lookup = PromptLookup;
            let mut drafter;
            let proposer: &mut dyn Proposer = match plan.draft {
                Draft::Lookup => &mut lookup,
                Draft::Model(draft) => {
                    drafts = ModelSequences::new(draft, &[ids], one_row(ids, draft.config().context_length));
                    drafter = DraftModel::new(&mut drafts, target.vocab_size())?;
                    &mut drafter
                }
            };
            let (completion, acceptance) = speculative::generate(&mut target, proposer, &request, on_event)?;
            let _ = on_event(Event::Found { row: request.row, finding: &Finding::Draft(acceptance) });
            completions.push(completion);
        }
        all.push(completions);
    }
    Ok(all)
}

impl Plan<'_> {
    /// The processors that the plan switches on.
    pub(super) fn chain(&self) -> Chain {
        let constraint = self.constraint.clone().map(|constraint| constraint as _);
        Chain::new(self.config, constraint)
    }
}
