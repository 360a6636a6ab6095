//! Continues prompts with one model and one configuration; shared by `text` and `replay`.

use std::{collections::HashMap, io::Write, ops::ControlFlow};

use anyhow::Result;

use super::trace_file::{self, TraceSink};
use super::{loaded::Loaded, prompts::Prompt};
use ember_cli::compile_progress::CompileProgress;
use ember_decoding::generator::{Prompts, Reader, Written};
use ember_decoding::{FinishReason, Generator, Traced};
use ember_decoding::{config::GenerationConfig, constraint::Grammar, plan::Clock};
use ember_host::interrupt::Interrupt;

/// Prompts that are continued together, each with `count` sequences numbered from `first`.
#[derive(Clone, Debug)]
pub(super) struct Batch<'a> {
    pub(super) prompts: Vec<&'a Prompt>,
    pub(super) first: usize,
    pub(super) count: usize,
    /// In a replay, where the recorded run was cut short.
    pub(super) cutoffs: Cutoffs,
}

/// Where a run was cut short from outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cutoffs {
    /// The clock of the time limit, one per prompt of the batch; empty except in a replay.
    pub(super) clocks: Vec<Clock>,
    /// The user's interruption: (prompt, sequence) to the number of steps before it. Beams end
    /// together and count as sequence 0.
    pub(super) interrupted: HashMap<(usize, usize), usize>,
}

/// One model and one configuration.
pub(super) struct Session<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) generator: Generator<'a>,
    pub(super) interrupt: &'a Interrupt,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        loaded: &'a Loaded,
        config: GenerationConfig,
        grammar: Option<Grammar>,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let mut generator = Generator::new(&loaded.model, loaded.tokenizer.as_ref(), config)?;
        if let Some(grammar) = grammar {
            generator = generator.held_to(grammar)?;
        }
        Ok(Self { loaded, generator, interrupt })
    }

    /// Continues a batch. Streams the text of the first sequence to `stream` as soon as it is
    /// final, and writes each step to `trace`. The results carry the prompts' and sequences'
    /// numbers within the whole run.
    pub(super) fn write(
        &self,
        batch: &Batch,
        stream: Option<&mut dyn Write>,
        trace: Option<&mut dyn TraceSink>,
    ) -> Result<Vec<Written>> {
        let config = self.generator.config();
        let first_sequence = |prompt: &&Prompt| (prompt.index * config.num_return_sequences + batch.first) as u64;
        let first_sequences: Vec<u64> = batch.prompts.iter().map(first_sequence).collect();
        let ids: Vec<&[u32]> = batch.prompts.iter().map(|prompt| prompt.ids.as_slice()).collect();
        let prompts = Prompts {
            ids: &ids,
            first_sequences: &first_sequences,
            sequences: Some(batch.count),
            clocks: &batch.cutoffs.clocks,
            traced_candidates: if trace.is_some() { trace_file::TRACED_CANDIDATES.max(config.logprobs) } else { 0 },
        };
        let wait = Some(self.loaded.compile_progress());
        let mut listener = Listener { session: self, batch, stream, trace, wait, failed: Ok(()) };
        let written = self.generator.write(&prompts, &mut listener)?;
        let Listener { mut trace, failed, .. } = listener;
        failed?;
        let answers = written.into_iter().map(|mut answer| {
            (answer.prompt, answer.number) = batch.place(answer.prompt, answer.number);
            if let Some(sink) = &mut trace {
                sink.line(trace_file::end(&answer))?;
            }
            Ok(answer)
        });
        answers.collect()
    }
}

impl Batch<'_> {
    /// The numbers of a prompt and a sequence within the whole run.
    fn place(&self, prompt: usize, number: usize) -> (usize, usize) {
        (self.prompts[prompt].index, self.first + number)
    }

    /// The same for a row of the batch.
    fn place_of_row(&self, row: usize) -> (usize, usize) {
        self.place(row / self.count, row % self.count)
    }
}

/// Streams the text of the first sequence, writes the trace, and stops when the user interrupts.
struct Listener<'a, 'stream, 'trace> {
    session: &'a Session<'a>,
    batch: &'a Batch<'a>,
    stream: Option<&'stream mut dyn Write>,
    /// Shown until the first token.
    wait: Option<CompileProgress>,
    trace: Option<&'trace mut dyn TraceSink>,
    failed: Result<()>,
}

impl Reader for Listener<'_, '_, '_> {
    fn text(&mut self, row: usize, text: &str) {
        self.wait = None;
        if let Some(stream) = self.stream.as_mut().filter(|_| row == 0 && self.failed.is_ok()) {
            self.failed = write!(stream, "{text}").and_then(|()| stream.flush()).map_err(Into::into);
        }
    }

    fn go_on(&mut self, row: usize, steps: usize) -> ControlFlow<FinishReason> {
        let interrupted_after = self.batch.cutoffs.interrupted.get(&self.batch.place_of_row(row));
        let interrupted = interrupted_after.is_some_and(|&after| steps >= after);
        if interrupted || self.failed.is_err() || self.session.interrupt.requested() {
            ControlFlow::Break(FinishReason::Interrupted)
        } else {
            ControlFlow::Continue(())
        }
    }

    fn traced(&mut self, step: Traced) {
        let Some(sink) = self.trace.as_mut().filter(|_| self.failed.is_ok()) else { return };
        let text = |id| self.session.loaded.token_text(id);
        self.failed = sink.line(match step {
            Traced::Choice { row, step } => trace_file::choice(self.batch.place_of_row(row), &step.choice, &text),
            Traced::Beams(step) => trace_file::beams(self.batch.prompts[step.prompt].index, step, &text),
        });
    }
}
