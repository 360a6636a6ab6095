//! Greedy decoding and sampling: one token after another, for all prompts at once.

pub(crate) mod choice;

use crate::completion::{ChosenToken, Completion, FinishReason};
use crate::watch::{Certain, Traced, Watch};
use crate::{error::Result, job::Job, processors::Step, sequences::Sequences};
use choice::{Choice, choose_all, read};

/// Extends each row by the best token, or a drawn one, at every step.
pub(crate) fn write(sequences: &mut dyn Sequences, job: &Job, watch: &mut dyn Watch) -> Result<Vec<Vec<Completion>>> {
    let prompts = sequences.rows();
    let each = job.plan.config.num_return_sequences;
    let mut rows = Row::all(sequences, job);
    // Prefill: every prompt is read once, however many continuations it has. All positions go
    // through the model in one pass, as in training: much work, limited by arithmetic.
    let parents: Vec<usize> = rows.iter().map(|row| row.prompt).collect();
    let mut next = read(job, sequences)?.select(&parents, sequences.vocab_size());
    sequences.select(&parents);
    // The rows that are still being written; `sequences` holds these, in this order.
    let mut live: Vec<usize> = (0..rows.len()).collect();
    loop {
        let step = |(place, &row): (usize, &usize)| {
            let (prompt, generated) = sequences.ids(place).split_at(rows[row].prompt_len);
            (Step { prompt, generated }, rows[row].sequence)
        };
        let steps: Vec<(Step, u64)> = live.iter().enumerate().map(step).collect();
        let choices = choose_all(job, &steps, next, sequences.vocab_size())?;
        take(choices, &live, &mut rows, sequences, job, watch);
        end_what_is_full(&live, &mut rows, sequences, job)?;
        let going_on: Vec<usize> = (0..live.len()).filter(|&place| rows[live[place]].finished.is_none()).collect();
        if going_on.is_empty() {
            break;
        }
        if going_on.len() < live.len() {
            sequences.select(&going_on);
            live = going_on.into_iter().map(|place| live[place]).collect();
        }
        // Decode: one position per row goes through the model and attends to the cache. Little
        // work, limited by reading the weights.
        next = read(job, sequences)?;
    }
    let mut completions = rows.into_iter().map(Row::into_completion);
    Ok((0..prompts).map(|_| completions.by_ref().take(each).collect()).collect())
}

/// Appends the chosen token to each row, emits it, and ends the rows that end with it.
fn take(
    choices: Vec<Choice>,
    live: &[usize],
    rows: &mut [Row],
    sequences: &mut dyn Sequences,
    job: &Job,
    watch: &mut dyn Watch,
) {
    // One time for all rows of the step.
    let seconds = job.seconds();
    for (place, (&number, Choice { token, trace })) in live.iter().zip(choices).enumerate() {
        if let Some(step) = &trace {
            watch.traced(Traced::Choice { row: number, step });
        }
        let row = &mut rows[number];
        row.tokens.push(token);
        let steps = row.tokens.len();
        let answer = watch.certain(Certain { row: number, tokens: &row.tokens[steps - 1..], steps });
        sequences.extend(place, &[row.tokens[steps - 1].id]);
        let generated = &sequences.ids(place)[row.prompt_len..];
        row.finished = job.plan.reason_to_end(row.prompt, generated, answer, seconds).map(|why| (why, seconds));
    }
}

/// Ends the rows that have outgrown the context, or records that their window slides.
fn end_what_is_full(live: &[usize], rows: &mut [Row], sequences: &dyn Sequences, job: &Job) -> Result<()> {
    let context_length = sequences.context_length();
    for (place, &number) in live.iter().enumerate() {
        let row = &mut rows[number];
        if row.finished.is_some() || sequences.ids(place).len() <= context_length {
            continue;
        }
        let end = job.outgrown(context_length, row.tokens.len())?;
        row.slid |= end.is_none();
        row.finished = end.map(|why| (why, job.seconds()));
    }
    Ok(())
}

/// One growing sequence.
struct Row {
    prompt: usize,
    /// Number of ids that belong to the prompt.
    prompt_len: usize,
    /// The number that keys its random draws.
    sequence: u64,
    tokens: Vec<ChosenToken>,
    finished: Option<(FinishReason, f64)>,
    slid: bool,
}

impl Row {
    /// The rows of all prompts; the prompts are the rows of `sequences`.
    fn all(sequences: &dyn Sequences, job: &Job) -> Vec<Self> {
        let row = |prompt: usize, number: usize| {
            let (prompt_len, sequence) = (sequences.ids(prompt).len(), job.plan.sequence(prompt, number));
            let slid = prompt_len > sequences.context_length();
            Self { prompt, prompt_len, sequence, tokens: Vec::new(), finished: None, slid }
        };
        let each = job.plan.config.num_return_sequences;
        (0..sequences.rows()).flat_map(|prompt| (0..each).map(move |number| row(prompt, number))).collect()
    }

    fn into_completion(self) -> Completion {
        let (finish_reason, seconds) = self.finished.unwrap_or((FinishReason::Length, 0.0));
        Completion { slid: self.slid, ..Completion::new(self.tokens, finish_reason, seconds) }
    }
}
