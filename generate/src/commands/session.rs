//! Continuing prompts with one model and one configuration: what `text` and `replay` have in common.

use std::collections::HashMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Error, Result, ensure};
use ember_model::Gpt;
use serde_json::Value;

use super::loaded::Loaded;
use super::text_output::{Answer, Row};
use super::trace_file::{self, TraceSink};
use ember_cli::program::{UsageError, exit_code};
use ember_decoding::config::GenerationConfig;
use ember_decoding::constraint::{Constraint, Grammar};
use ember_decoding::engine::{Draft, Event, Finding, Plan, generate_batch};
use ember_decoding::stop::{Clock, FinishReason, StopStrings};
use ember_host::interrupt::Interrupt;

/// Candidates of each step that a trace tells of, unless `--logprobs` asks for more.
const TRACED_CANDIDATES: usize = 10;

/// What is to be continued; no text where there is no tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prompt {
    /// Its place among all that were given, by which its answers and draws are named.
    pub(super) index: usize,
    /// Where it was given, for errors; empty where the command line itself gave it.
    pub(super) place: String,
    pub(super) text: Option<String>,
    pub(super) ids: Vec<u32>,
    /// What a file of prompts calls it.
    pub(super) id: Option<Value>,
}

impl Prompt {
    /// An error with the line that the prompt stands on; a wrong flag is nothing that a prompt can help.
    pub(super) fn blame(&self, error: Error) -> Error {
        if self.place.is_empty() || exit_code(&error) == 2 { error } else { error.context(self.place.clone()) }
    }
}

/// Prompts that are continued together, each as `count` sequences from its number `first` on.
#[derive(Clone, Debug)]
pub(super) struct Batch<'a> {
    pub(super) prompts: Vec<&'a Prompt>,
    pub(super) first: usize,
    pub(super) count: usize,
    /// Where another run of it was cut short, if this one is to repeat that.
    pub(super) repeats: Repeats,
}

/// Where a run was cut short from outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Repeats {
    /// What says that time is over, one for each prompt of the batch; none for a run of its own.
    pub(super) clocks: Vec<Clock>,
    /// The user's interruption: after so many steps of a prompt's sequence. Beams end together and count as sequence 0.
    pub(super) interrupted: HashMap<(usize, usize), usize>,
}

/// One model and one configuration.
pub(super) struct Session<'a> {
    pub(super) loaded: Loaded,
    pub(super) config: GenerationConfig,
    pub(super) constraint: Option<Arc<Constraint>>,
    pub(super) draft: Option<Gpt>,
    stops: StopStrings,
    pub(super) interrupt: &'a Interrupt,
}

/// What a batch came to.
#[derive(Default)]
pub(super) struct Written {
    pub(super) answers: Vec<Answer>,
    /// Whether a window slid.
    pub(super) slid: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        loaded: Loaded,
        config: GenerationConfig,
        grammar: Option<Grammar>,
        draft: Option<Gpt>,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let stops = StopStrings::new(config.stop_strings.clone())?;
        let constraint = match (grammar, &loaded.tokenizer) {
            (None, _) => None,
            (Some(grammar), None) => {
                let source = grammar.source();
                return Err(
                    UsageError::new(format!("{source} needs a tokenizer, and the checkpoint holds none")).into()
                );
            }
            (Some(grammar), Some(tokenizer)) => {
                let vocab_size = loaded.model.config().vocab_size;
                Some(Arc::new(Constraint::new(grammar, tokenizer, vocab_size, &config.end_tokens)?))
            }
        };
        Ok(Self { loaded, config, constraint, draft, stops, interrupt })
    }

    /// Continues a batch. The text of the first sequence goes to `stream` as soon as it is certain, an account of each step
    /// to `trace`.
    pub(super) fn write(
        &self,
        batch: &Batch,
        mut stream: Option<&mut dyn Write>,
        mut trace: Option<&mut dyn TraceSink>,
    ) -> Result<Written> {
        let config = GenerationConfig { num_return_sequences: batch.count, ..self.config.clone() };
        let each = self.config.num_return_sequences;
        let first_sequences: Vec<u64> =
            batch.prompts.iter().map(|prompt| (prompt.index * each + batch.first) as u64).collect();
        let prompts: Vec<&[u32]> = batch.prompts.iter().map(|prompt| prompt.ids.as_slice()).collect();
        let traced_candidates = if trace.is_some() { TRACED_CANDIDATES.max(config.logprobs) } else { 0 };
        let ends = |generated: &[u32]| self.ends(generated);
        let something_ends = self.constraint.is_some() || (config.strategy.ranks_texts() && self.stops.longest() > 0);
        let plan = Plan {
            constraint: self.constraint.clone(),
            ends: something_ends.then_some(&ends),
            first_sequences: &first_sequences,
            traced_candidates,
            clocks: &batch.repeats.clocks,
            draft: self.draft.as_ref().map_or(Draft::Lookup, Draft::Model),
            ..Plan::new(&config)
        };

        let place = |row: usize| (batch.prompts[row / batch.count].index, batch.first + row % batch.count);
        let mut rows: Vec<Row> = (0..prompts.len() * batch.count).map(|_| Row::new(self.stops.clone())).collect();
        let mut steps = vec![0; rows.len()];
        let mut findings: Vec<Option<Finding>> = vec![None; rows.len()];
        let (mut slid, mut failed) = (false, Ok(()));
        let interrupted =
            |row: usize, steps: usize| batch.repeats.interrupted.get(&place(row)).is_some_and(|&after| steps >= after);
        let mut on_event = |event: Event| -> ControlFlow<FinishReason> {
            // The rows that new tokens belong to, and whether a step of theirs is over.
            let (row, tokens) = match event {
                Event::ContextFull => {
                    slid = true;
                    return ControlFlow::Continue(());
                }
                Event::Found { row, finding } => {
                    findings[row] = Some(finding.clone());
                    return ControlFlow::Continue(());
                }
                Event::Searching { prompt, progress } => {
                    return match interrupted(prompt * batch.count, progress.nodes) {
                        true => ControlFlow::Break(FinishReason::Interrupted),
                        false => self.go_on(&failed),
                    };
                }
                Event::Choice { row, choice, .. } => {
                    if let Some(sink) = trace.as_mut().filter(|_| failed.is_ok()) {
                        failed = sink.line(trace_file::choice(place(row), choice, &self.loaded));
                    }
                    return self.go_on(&failed);
                }
                Event::Beams(step) => {
                    if let Some(sink) = trace.as_mut().filter(|_| failed.is_ok()) {
                        failed = sink.line(trace_file::beams(batch.prompts[step.prompt].index, step, &self.loaded));
                    }
                    return self.go_on(&failed);
                }
                Event::Token { row, token } => (row, std::slice::from_ref(token)),
                Event::Agreed { prompt, tokens } => (prompt * batch.count, tokens),
            };
            steps[row] += 1;
            for token in tokens {
                let certain = rows[row].push(token.id, &self.loaded, &config.end_tokens);
                if let Some(stream) = stream.as_mut().filter(|_| row == 0 && failed.is_ok()) {
                    failed = write!(stream, "{certain}").and_then(|()| stream.flush()).map_err(Into::into);
                }
            }
            if rows[row].stopped() && !config.strategy.has_beams() {
                ControlFlow::Break(FinishReason::Stop)
            } else if interrupted(row, steps[row]) {
                ControlFlow::Break(FinishReason::Interrupted)
            } else {
                self.go_on(&failed)
            }
        };
        let completions = generate_batch(&self.loaded.model, &prompts, &plan, &mut on_event)?;
        failed?;

        let mut answers = Vec::new();
        // A search may return fewer sequences than it was asked for, so a row is not just the next number.
        let completions = completions.into_iter().enumerate().flat_map(|(prompt, completions)| {
            completions
                .into_iter()
                .enumerate()
                .map(move |(number, completion)| (prompt * batch.count + number, completion))
        });
        for (row, completion) in completions {
            let mut text = std::mem::replace(&mut rows[row], Row::new(self.stops.clone()));
            let already = text.tokens();
            let mut certain = String::new();
            for &id in completion.ids.iter().skip(already) {
                certain += &text.push(id, &self.loaded, &config.end_tokens);
            }
            certain += &text.finish();
            if let Some(stream) = stream.as_mut().filter(|_| row == 0) {
                write!(stream, "{certain}")?;
            }
            let (prompt_index, sequence_index) = place(row);
            let valid = self.constraint.as_ref().map(|constraint| constraint.is_accepting(&completion.ids));
            let (text, finding) = (text.into_text(), findings[row].take());
            let answer = Answer { prompt_index, sequence_index, text, completion, finding, valid };
            if let Some(sink) = &mut trace {
                sink.line(trace_file::end(&answer))?;
            }
            answers.push(answer);
        }
        Ok(Written { answers, slid })
    }

    fn go_on(&self, failed: &Result<()>) -> ControlFlow<FinishReason> {
        if failed.is_err() || self.interrupt.requested() {
            ControlFlow::Break(FinishReason::Interrupted)
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Whether a text ends where it is: because the grammar has nothing to add, or, of beams, whose texts are nobody's until
    /// the search is over, because of a stop string.
    fn ends(&self, generated: &[u32]) -> bool {
        self.constraint.as_ref().is_some_and(|constraint| constraint.is_complete(generated))
            || (self.config.strategy.ranks_texts() && self.holds_a_stop_string(generated))
    }

    /// Whether the text of the tokens holds a stop string that the last token completes.
    fn holds_a_stop_string(&self, generated: &[u32]) -> bool {
        let Some((&last, before)) = generated.split_last() else { return false };
        let mut text = self.loaded.bytes_of(last);
        // As much of the text before it as a stop string can need, and no more.
        let enough = text.len() + self.stops.longest();
        for &id in before.iter().rev() {
            if text.len() >= enough {
                break;
            }
            text = [self.loaded.bytes_of(id), text].concat();
        }
        self.stops.find(&String::from_utf8_lossy(&text)).is_some()
    }
}

/// Refuses a draft model that does not speak the same tokens.
pub(super) fn check_draft(loaded: &Loaded, draft: &Loaded) -> Result<()> {
    let (model, other) = (&loaded.model.config().vocab_size, &draft.model.config().vocab_size);
    let same_tokens = match (&loaded.tokenizer, &draft.tokenizer) {
        (Some(a), Some(b)) => (0..*model as u32).all(|id| a.token_bytes(id) == b.token_bytes(id)),
        (None, None) => true,
        _ => false,
    };
    ensure!(
        model == other && same_tokens,
        UsageError::new(format!(
            "--draft {}: its tokens are not those of {}; a draft model must have been trained with the same tokenizer",
            draft.folder.display(),
            loaded.folder.display()
        ))
    );
    Ok(())
}
