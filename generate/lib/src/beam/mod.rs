//! Beam search: several hypotheses grow side by side, and the best are kept.
//!
//! Three variants, with the same sequences and scores as transformers: beam search and beam
//! sampling as in `_beam_search` of transformers 5, and diverse beams ([Vijayakumar et al.
//! 2018](https://arxiv.org/abs/1610.02424)) as in `_group_beam_search` of 4.55.4, the last version
//! with them in its core. Every step is the same: the model scores the next tokens of every beam,
//! the candidates are ranked by the sum of their log-probabilities (or drawn), those that end go
//! into a pool, and the best of the others become the new beams.
//!
//! Differences from transformers:
//! - A prompt gives the same result alone and in any batch, and its rows leave the batch when it is
//!   done.
//! - A prompt starts as one row and forks, so nothing is computed for beams that do not exist yet.
//!   Nor are there filler beams where too few different texts exist: fewer sequences may be
//!   returned than were asked for.
//! - It streams: a prefix that all beams and the best finished text share is final.

mod candidates;
#[cfg(test)]
mod examples;
mod group;
#[cfg(test)]
mod parity;
#[cfg(test)]
mod tests;
mod tree;

use std::ops::ControlFlow;

use self::candidates::{Row, Scorer};
use self::group::{Finished, Group, StepInfo, TransformersVersion, candidate_count};
use self::tree::{NodeId, ROOT, Tree};
use crate::completion::{Completion, FinishReason};
use crate::config::{GenerationConfig, Overflow, Strategy};
use crate::error::Result;
use crate::watch::{Certain, Traced, Watch};
use crate::{job::Job, processors::Step, sequences::Sequences, trace::BeamStep};

/// Beam search, beam sampling and diverse beams.
///
/// A completion's `score` is transformers' `sequences_scores`: the sum of the processed
/// log-probabilities, divided by the generated length (end token included) to the power of
/// `length_penalty`.
pub(crate) fn write(sequences: &mut dyn Sequences, job: &Job, watch: &mut dyn Watch) -> Result<Vec<Vec<Completion>>> {
    Search::new(sequences, job).run(sequences, watch)
}

/// The search for the best continuations of all prompts.
struct Search<'a> {
    job: &'a Job<'a>,
    scorer: Scorer<'a>,
    groups: usize,
    prompts: Vec<Prompt>,
    slides: bool,
}

/// The current step and time.
#[derive(Clone, Copy)]
struct Moment {
    /// Tokens generated before this step.
    step: usize,
    seconds: f64,
}

impl<'a> Search<'a> {
    fn new(sequences: &dyn Sequences, job: &'a Job) -> Self {
        let config = job.plan.config;
        let groups = if config.strategy == Strategy::DiverseBeam { config.num_beam_groups.max(1) } else { 1 };
        let size = config.num_beams / groups;
        let (bias, chain) = job.chain.split_behind("logit-bias");
        let scorer =
            Scorer { config, bias, chain, count: candidate_count(size, config), traced: job.plan.traced_candidates };
        let prompt = |number: usize| {
            let prompt_len = sequences.ids(number).len();
            let limit = if config.overflow == Overflow::Stop { sequences.room(number) } else { usize::MAX };
            Prompt {
                number,
                prompt_len,
                limit: config.max_new_tokens.min(limit),
                tree: Tree::default(),
                groups: (0..groups).map(|_| Group::new(size, number)).collect(),
                emitted: ROOT,
                done: false,
            }
        };
        Self { job, scorer, groups, prompts: (0..sequences.rows()).map(prompt).collect(), slides: false }
    }

    fn run(mut self, sequences: &mut dyn Sequences, watch: &mut dyn Watch) -> Result<Vec<Vec<Completion>>> {
        for step in 0.. {
            self.check_context(sequences, step)?;
            let logits = sequences.logits()?;
            let now = Moment { step, seconds: self.job.seconds() };
            // One group after another, because later groups avoid the tokens of earlier ones.
            for group in 0..self.groups {
                self.advance(group, now, &logits, sequences, watch)?;
            }
            for prompt in self.prompts.iter_mut().filter(|prompt| !prompt.done) {
                prompt.end_step(now, self.job, watch)?;
            }
            let (parents, tokens) = self.next_rows();
            if parents.is_empty() {
                break;
            }
            sequences.select(&parents);
            for (row, token) in tokens.into_iter().enumerate() {
                sequences.extend(row, &[token]);
            }
        }
        Ok(self.prompts.iter().map(|prompt| prompt.completions(self.job.plan.config, self.slides)).collect())
    }

    /// One step of one group of every prompt. The rows of all prompts are scored together.
    fn advance(
        &mut self,
        group: usize,
        now: Moment,
        logits: &[f32],
        sequences: &dyn Sequences,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        let taken: Vec<Vec<u32>> =
            self.prompts.iter().map(|prompt| prompt.taken(group, self.job.plan.config)).collect();
        let next_tokens = self.scorer.score(&self.rows(group, now, logits, sequences, &taken))?;

        let mut next_tokens = next_tokens.as_slice();
        for prompt in &mut self.prompts {
            let (number, prompt_len) = (prompt.number, prompt.prompt_len);
            let stops = |row: usize, token: u32| match self.job.plan.ends {
                Some(stops) => stops(&[&sequences.ids(row)[prompt_len..], &[token]].concat()),
                None => false,
            };
            let info = prompt.info(now, self.job, &stops);
            let Prompt { tree, groups, .. } = prompt;
            let running = &mut groups[group];
            if running.stopped.is_some() {
                continue;
            }
            let (ours, others) = next_tokens.split_at(running.beams.len());
            next_tokens = others;
            let candidates = running.advance(ours, tree, &info);
            if self.job.plan.traced_candidates > 0 {
                let (pool, stopped) = (running.pool_entries(tree), running.stopped);
                let beams = ours.iter().map(|row| row.traced.clone()).collect();
                let step = BeamStep { prompt: number, step: now.step, group, beams, candidates, pool, stopped };
                watch.traced(Traced::Beams(&step));
            }
        }
        Ok(())
    }

    /// The beams of this group of every prompt with their logits, given the tokens `taken` by each
    /// prompt's earlier groups.
    fn rows<'r>(
        &self,
        group: usize,
        now: Moment,
        logits: &'r [f32],
        sequences: &'r dyn Sequences,
        taken: &'r [Vec<u32>],
    ) -> Vec<Row<'r>> {
        let vocab_size = sequences.vocab_size();
        let mut rows = Vec::new();
        for (prompt, taken) in self.prompts.iter().zip(taken) {
            let sequence = self.job.plan.sequence(prompt.number, 0);
            for (number, beam) in prompt.groups[group].beams.iter().enumerate() {
                let (prompt, generated) = sequences.ids(beam.row).split_at(prompt.prompt_len);
                rows.push(Row {
                    step: Step { prompt, generated },
                    logits: &logits[beam.row * vocab_size..][..vocab_size],
                    taken,
                    place: [sequence, now.step as u64, number as u64],
                    score: beam.score,
                });
            }
        }
        rows
    }

    /// The parent row and the new token of each row of the next step.
    fn next_rows(&mut self) -> (Vec<usize>, Vec<u32>) {
        let mut parents = Vec::new();
        let mut tokens = Vec::new();
        for Prompt { tree, groups, .. } in &mut self.prompts {
            for beam in groups.iter_mut().flat_map(|group| &mut group.beams) {
                tokens.extend(tree.last(beam.text).map(|token| token.id));
                parents.push(beam.row);
                beam.row = parents.len() - 1;
            }
        }
        (parents, tokens)
    }

    /// Records whether a window slides; fails if it must not.
    fn check_context(&mut self, sequences: &dyn Sequences, step: usize) -> Result<()> {
        let context_length = sequences.context_length();
        let full = (0..sequences.rows()).any(|row| sequences.ids(row).len() > context_length);
        if full {
            // Under `Overflow::Stop` the prompt's `limit` has ended the text before this.
            self.job.outgrown(context_length, step)?;
            self.slides = true;
        }
        Ok(())
    }
}

/// One prompt's search.
struct Prompt {
    /// Its index in the batch.
    number: usize,
    prompt_len: usize,
    /// Most generated tokens of a text.
    limit: usize,
    tree: Tree,
    groups: Vec<Group>,
    /// The common prefix that has been emitted as final.
    emitted: NodeId,
    done: bool,
}

impl Prompt {
    fn info<'a>(&self, now: Moment, job: &'a Job, stops: &'a dyn Fn(usize, u32) -> bool) -> StepInfo<'a> {
        let config = job.plan.config;
        let len = now.step + 1;
        let out_of_time = job.plan.is_out_of_time(self.number, now.seconds, len);
        let cut =
            if len >= self.limit { Some(FinishReason::Length) } else { out_of_time.then_some(FinishReason::Time) };
        let version = match config.strategy {
            Strategy::DiverseBeam => TransformersVersion::V4, // the last version with diverse beams
            _ => TransformersVersion::V5,
        };
        StepInfo { config, version, len, limit: self.limit, cut, stops, seconds: now.seconds }
    }

    /// The tokens that earlier groups chose at this step. A group that is already done repeats the
    /// end token, as in transformers when no padding token is set.
    fn taken(&self, group: usize, config: &GenerationConfig) -> Vec<u32> {
        let mut taken = Vec::new();
        for earlier in &self.groups[..group] {
            if earlier.beams.is_empty() {
                taken.extend(config.end_tokens.first().iter().flat_map(|&&end| vec![end; earlier.size]));
            }
            taken.extend(earlier.beams.iter().filter_map(|beam| self.tree.last(beam.text)).map(|token| token.id));
        }
        taken
    }

    /// Ends a step: drops the beams of stopped groups, and emits what has become final.
    fn end_step(&mut self, now: Moment, job: &Job, watch: &mut dyn Watch) -> Result<()> {
        for group in self.groups.iter_mut().filter(|group| group.stopped.is_some()) {
            group.beams.clear();
        }
        if self.groups.iter().any(|group| group.stopped.is_none()) {
            // The best text will be the best finished one or continue a running beam.
            let running = self.groups.iter().flat_map(|group| &group.beams).map(|beam| beam.text);
            let common = running.chain(self.best().map(|finished| finished.text)).reduce(|a, b| self.tree.common(a, b));
            let answer = self.emit(common.unwrap_or(self.emitted), now, job, watch);
            let ControlFlow::Break(reason) = answer else { return Ok(()) };
            let info = self.info(now, job, &|_, _| false);
            for group in &mut self.groups {
                group.cut(reason, &info);
                group.beams.clear();
            }
        }
        self.done = true;
        let Some(best) = self.best().map(|finished| finished.text) else {
            let newest: Vec<u32> = self.tree.tokens(self.tree.newest(), 0).iter().map(|token| token.id).collect();
            return Err(job.plan.nothing_left(job.chain, &newest));
        };
        let _ = self.emit(best, now, job, watch);
        Ok(())
    }

    /// Emits the tokens of `text` that have not been emitted before.
    fn emit(&mut self, text: NodeId, now: Moment, job: &Job, watch: &mut dyn Watch) -> ControlFlow<FinishReason> {
        let tokens = self.tree.tokens(text, self.tree.len(self.emitted));
        self.emitted = text;
        watch.certain(Certain { row: job.row(self.number, 0), tokens: &tokens, steps: now.step + 1 })
    }

    /// The best finished text so far; of equal ones the first.
    fn best(&self) -> Option<&Finished> {
        self.finished().into_iter().next()
    }

    /// The finished texts so far, best first.
    fn finished(&self) -> Vec<&Finished> {
        let mut finished: Vec<&Finished> = self.groups.iter().flat_map(|group| &group.finished).collect();
        finished.sort_by(|a, b| b.score.total_cmp(&a.score));
        finished
    }

    fn completions(&self, config: &GenerationConfig, slid: bool) -> Vec<Completion> {
        let completion = |finished: &&Finished| {
            let tokens = self.tree.tokens(finished.text, 0);
            let completion = Completion::new(tokens, finished.reason, finished.seconds);
            Completion { score: finished.score, slid, ..completion }
        };
        self.finished().iter().take(config.num_return_sequences).map(completion).collect()
    }
}
