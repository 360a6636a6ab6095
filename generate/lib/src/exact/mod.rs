//! Exact search: the most probable continuation, and whether it is proven to be.
//!
//! Log-probabilities are at most 0, so a text only becomes less probable as it grows, and the score
//! of a prefix is an upper bound for all its continuations. The search expands the best prefix
//! first. A complete text that is at least as probable as every open prefix is then the most
//! probable of all. This is A* ([Hart, Nilsson and Raphael
//! 1968](https://doi.org/10.1109/TSSC.1968.300136)) with a heuristic of zero. It makes the search
//! error of beam search measurable, as [Stahlberg and Byrne
//! 2019](https://arxiv.org/abs/1908.10090) did for translation.
//!
//! The search maximises the sum of the processed log-probabilities, as beam search does. There is
//! no length penalty: normalised by length, a text may become more probable as it grows. A text is
//! complete with an end token, with a stop string, or at `max_new_tokens`.

mod tree;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use crate::completion::{ChosenToken, Completion, Finding, FinishReason};
use crate::config::{GenerationConfig, Overflow};
use crate::error::{Error, Overrun, Result};
use crate::logprobs::{chosen, finite_log_sum_exp, logprob};
use crate::trace::{Recorder, TracedStep};
use crate::watch::{Certain, Traced, Watch};
use crate::{job::Job, processors::Step, sequences::Sequences, tokens::common_prefix};
use tree::{Prefix, Tree};

/// Most prefixes in one pass through the model. A strict best-first search would expand one at a
/// time, since a child of the best may beat the second best. But one pass over sixteen rows, which
/// reads the weights once, costs less than sixteen passes.
pub(crate) const MAX_ROWS: usize = 16;

/// Continues the first prompt by its most probable texts.
pub(crate) fn write(sequences: &mut dyn Sequences, job: &Job, watch: &mut dyn Watch) -> Result<Vec<Vec<Completion>>> {
    let Job { plan, first_prompt: prompt, .. } = *job;
    let room = sequences.room(0);
    let certain = |nodes| Certain { row: job.row(prompt, 0), tokens: &[], steps: nodes };
    let (mut completions, finding) = search(sequences, job, &mut |nodes| watch.certain(certain(nodes)))?;
    let cut_short = matches!(finding, Finding::Exact { cut_short: Some(_), .. });
    for (number, completion) in completions.iter_mut().enumerate() {
        // If the search was cut short, trace only the best text: each token costs a pass.
        if plan.traced_candidates > 0 && (number == 0 || !cut_short) {
            retrace(sequences, completion, job, job.row(prompt, number), watch)?;
        }
        (completion.slid, completion.finding) = (completion.ids.len() > room, Some(finding.clone()));
    }
    Ok(vec![completions])
}

/// Traces each token of a finished text afterwards: the alternatives at every step, by the
/// processed log-probabilities that the search ranked by.
fn retrace(
    sequences: &mut dyn Sequences,
    completion: &Completion,
    job: &Job,
    row: usize,
    watch: &mut dyn Watch,
) -> Result<()> {
    let prompt_len = sequences.ids(0).len();
    for (step, token) in completion.tokens.iter().enumerate() {
        let logits = sequences.logits()?;
        let log_sum_exp = finite_log_sum_exp(&logits)?;
        let mut logprobs: Vec<f32> = logits.iter().map(|&logit| logprob(logit, log_sum_exp)).collect();
        let mut recorder = Recorder::new(&logprobs);
        let (prompt, generated) = sequences.ids(0).split_at(prompt_len);
        let step_so_far = Step { prompt, generated };
        job.chain.process_observed(&step_so_far, &mut logprobs, &mut |name, now| recorder.after(name, now));
        let choice = recorder.finish(step, token.id, token.logprob, None, job.plan.traced_candidates);
        let step = TracedStep { choice, unmodified: logits, processed: logprobs };
        watch.traced(Traced::Choice { row, step: &step });
        sequences.extend(0, &[token.id]);
    }
    sequences.truncate(0, prompt_len);
    Ok(())
}

/// Callback after each pass through the model, with the number of prefixes expanded so far.
/// Breaking with a reason ends the search.
type OnProgress<'a> = dyn FnMut(usize) -> ControlFlow<FinishReason> + 'a;

/// Rejects knobs under which a text may become more probable as it grows.
///
/// A repetition penalty below 1 is allowed: it multiplies log-probabilities, which stay at most 0.
///
/// # Errors
/// [`Error::Unbounded`] for the first such knob.
fn check(config: &GenerationConfig) -> Result<()> {
    let bias = config.logit_bias.iter().map(|(_, bias)| *bias).fold(0.0, f32::max);
    let (presence, frequency) = (config.presence_penalty, config.frequency_penalty);
    let knobs = [
        ("logit-bias", bias, "at most 0", bias > 0.0),
        ("presence-penalty", presence, "0 or more", presence < 0.0),
        ("frequency-penalty", frequency, "0 or more", frequency < 0.0),
    ];
    match knobs.into_iter().find(|(.., breaks_it)| *breaks_it) {
        None => Ok(()),
        Some((knob, value, range, _)) => Err(Error::Unbounded { knob, value, range }),
    }
}

/// Finds the most probable continuations of the job's first prompt, which is the one row of
/// `sequences` before and after. Processors may lower log-probabilities freely, but must not raise
/// one above 0. The job's clock counts expanded prefixes as steps.
///
/// Returns up to `num_return_sequences` continuations, best first, and a [`Finding::Exact`]. The
/// `score` of each is its sum of processed log-probabilities. A completion whose score is at least
/// the bound is proven by itself; another's falls short of the best by at most the difference. If
/// time or the caller ends the search, or the measuring pass after it, only the first tokens of the
/// best completion have their alternatives.
///
/// The search opens with a beam search, so that there is soon an answer to improve on. Its expanded
/// prefixes count as nodes and are not expanded again. `max_nodes` ends the search, but not before
/// a text is complete. `on_progress` is called after each pass through the model. If it breaks with
/// a reason, the search returns the best complete texts so far, or if there are none the longest
/// prefix with that finish reason.
///
/// # Errors
/// If a knob breaks the bound ([`check`]), the context is too short under [`Overflow::Error`],
/// processors leave no complete text, or the model fails.
pub(crate) fn search(
    sequences: &mut dyn Sequences,
    job: &Job,
    on_progress: &mut OnProgress,
) -> Result<(Vec<Completion>, Finding)> {
    let config = job.plan.config;
    check(config)?;
    let max_text_len = max_text_len(sequences, config)?;
    let mut tree = Tree::new(job, sequences.ids(0).to_vec(), max_text_len);
    let cut_short = grow(sequences, &mut tree, on_progress)?;
    sequences.select(&[0]);

    let (nodes, bound) = (tree.nodes(), tree.bound());
    let proven = !tree.found.is_empty() && bound <= tree.to_beat();
    if let Some(finish_reason) = cut_short
        && tree.found.is_empty()
        && let Some(prefix) = tree.longest_open()
    {
        tree.found.push((prefix, finish_reason));
    }
    if tree.found.is_empty() {
        return Err(match bound.is_finite() {
            true => Error::NoCompleteText { nodes, processors: job.chain.bans() },
            // No open prefix is left: the last one expanded had no children either.
            false => job.plan.nothing_left(job.chain, &tree.last_expanded()),
        });
    }
    let seconds = job.seconds();
    // Measuring passes, which recompute what the search does not store per token. The best text
    // always gets its first pass.
    let mut passes = 0;
    let mut go_on = || {
        passes += 1;
        let out_of_time = || job.plan.is_out_of_time(job.first_prompt, job.seconds(), nodes);
        passes == 1 || (cut_short.is_none() && !out_of_time() && on_progress(nodes).is_continue())
    };
    let mut completions = Vec::with_capacity(tree.found.len());
    for (prefix, finish_reason) in &tree.found {
        let tokens = measured(sequences, tree.tokens(prefix), config.logprobs, &mut go_on)?;
        completions.push(Completion { score: prefix.score, ..Completion::new(tokens, *finish_reason, seconds) });
    }
    let bound = Some(bound).filter(|bound| bound.is_finite());
    Ok((completions, Finding::Exact { proven, nodes, bound, cut_short }))
}

/// Expands prefixes until no open one can improve the answer, or `max_nodes` is reached. Returns
/// the reason if something else ended the search.
fn grow(sequences: &mut dyn Sequences, tree: &mut Tree, on_progress: &mut OnProgress) -> Result<Option<FinishReason>> {
    let (vocab_size, job) = (sequences.vocab_size(), tree.job);
    let prompt_len = sequences.ids(0).len();
    // The opening beam search may use half of the nodes.
    let beams = (job.plan.config.max_nodes / 2 / tree.max_text_len).clamp(1, MAX_ROWS);
    let mut opening = true;
    let mut next = vec![Prefix::ROOT];
    loop {
        let paths: Vec<Vec<u32>> = next.iter().map(|prefix| tree.ids(prefix)).collect();
        let mut logits = logits_after(sequences, prompt_len, &paths)?;
        // The beam search ranks all children. After it, `keep` would drop those out of reach, and
        // there may be many: up to one for each token of the vocabulary and each prefix.
        let limit = if opening { f64::NEG_INFINITY } else { tree.out_of_reach };
        let mut children = Vec::new();
        for (prefix, logits) in next.into_iter().zip(logits.chunks_mut(vocab_size)) {
            tree.expand(prefix, logits, limit, &mut children)?;
        }

        (next, opening) = next_to_expand(tree, children, opening.then_some(beams));

        // Ask the caller and the clock.
        let answer = on_progress(tree.nodes());
        if next.is_empty() {
            return Ok(None); // nothing can improve the answer
        }
        let out_of_time = job.plan.is_out_of_time(job.first_prompt, job.seconds(), tree.nodes());
        let cut_short = answer.break_value().or(out_of_time.then_some(FinishReason::Time));

        // Keep to `max_nodes`, which does not end the beam search before there is an answer.
        let needs_answer = opening && tree.found.is_empty();
        let allowed = match cut_short {
            Some(_) => 0,
            None => tree.nodes_left().max(usize::from(needs_answer)),
        };
        tree.reopen(next.split_off(allowed.min(next.len())));
        if next.is_empty() {
            return Ok(cut_short);
        }
    }
}

/// The prefixes to expand after those whose `children` are given, and whether the opening beam
/// search goes on. While it lasts, with this many `beams`, they are the best children, even if
/// shorter prefixes are more probable. It ends when no child is left; from then on, they are the
/// best open prefixes.
fn next_to_expand(tree: &mut Tree, children: Vec<Prefix>, beams: Option<usize>) -> (Vec<Prefix>, bool) {
    if let Some(beams) = beams {
        let best = tree.take_best_of(children, beams);
        if !best.is_empty() {
            return (best, true);
        }
    } else {
        tree.keep(children);
    }
    (tree.take_best(MAX_ROWS), false)
}

/// The length at which a text is complete whatever its last token.
fn max_text_len(sequences: &dyn Sequences, config: &GenerationConfig) -> Result<usize> {
    if config.overflow == Overflow::Slide {
        return Ok(config.max_new_tokens);
    }
    let room = sequences.room(0);
    if config.overflow == Overflow::Error && config.max_new_tokens > room {
        let tokens = sequences.ids(0).len().saturating_add(config.max_new_tokens - 1);
        let context_length = sequences.context_length();
        return Err(Error::ContextFull { context_length, overrun: Overrun::Longest(tokens) });
    }
    Ok(config.max_new_tokens.min(room))
}

/// The logits after the prompt and each of `paths`, `[paths, vocab]`. Row 0 stays the prompt. Every
/// other row is forked from the row with the longest common prefix, to recompute as little as
/// possible.
fn logits_after(sequences: &mut dyn Sequences, prompt_len: usize, paths: &[Vec<u32>]) -> Result<Vec<f32>> {
    if paths.iter().all(Vec::is_empty) {
        return sequences.logits(); // in row 0, so that the prompt's cache belongs to row 0
    }
    let nearest = |path: &Vec<u32>| {
        let rows = (0..sequences.rows()).map(|row| (row, common_prefix(&sequences.ids(row)[prompt_len..], path)));
        rows.fold((0, 0), |best, row| if row.1 > best.1 { row } else { best })
    };
    let nearest: Vec<(usize, usize)> = paths.iter().map(nearest).collect();
    let mut parents = vec![0];
    parents.extend(nearest.iter().map(|(row, _)| row));
    sequences.select(&parents);
    for (row, (path, (_, shared))) in (1..).zip(paths.iter().zip(nearest)) {
        sequences.truncate(row, prompt_len + shared);
        sequences.extend(row, &path[shared..]);
    }
    let mut counts = vec![1; parents.len()];
    counts[0] = 0;
    sequences.logits_of_last(&counts)
}

/// The tokens of a continuation of the one row, recomputed with the `top` best at each step. Once
/// `go_on`, called before each pass, returns false, the remaining tokens are taken from the search,
/// without alternatives.
fn measured(
    sequences: &mut dyn Sequences,
    known: Vec<ChosenToken>,
    top: usize,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Vec<ChosenToken>> {
    let ids: Vec<u32> = known.iter().map(|token| token.id).collect();
    let (vocab_size, prompt_len) = (sequences.vocab_size(), sequences.ids(0).len());
    // One pass for all tokens within the context, then one for each token beyond it.
    let together = ids.len().min(sequences.room(0).max(1));
    let mut tokens = Vec::with_capacity(ids.len());
    while tokens.len() < ids.len() && go_on() {
        let (done, count) = (tokens.len(), if tokens.is_empty() { together } else { 1 });
        sequences.extend(0, &ids[done.saturating_sub(1)..done + count - 1]);
        let logits = sequences.logits_of_last(&[count])?;
        for (logits, &id) in logits.chunks(vocab_size).zip(&ids[done..]) {
            tokens.push(chosen(id, logits, finite_log_sum_exp(logits)?, top));
        }
    }
    sequences.truncate(0, prompt_len);
    let done = tokens.len();
    tokens.extend(known.into_iter().skip(done));
    Ok(tokens)
}
