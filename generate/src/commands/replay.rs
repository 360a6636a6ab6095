//! `ember-generate replay`: repeats a traced run and checks that the same tokens come, or shows
//! where they diverge.

use std::{collections::HashMap, io::Write, path::PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use ember_model::{WeightType, folder};
use serde_json::{Map, Value, json};

use super::session::{Batch, Cutoffs, Session};
use super::trace_file::{Header, HeaderPrompt, LineHead, Machine, PlannedBatch, Trace, TraceSink};
use super::{loaded::Loaded, model_args::weight_type, prompts::Prompt};
use ember_cli::program::{CommonArgs, Notes, Outcome, OutputFormat, UsageError};
use ember_cli::terminal;
use ember_data::numbers::counted;
use ember_decoding::{FinishReason, plan::Clock};
use ember_host::interrupt::Interrupt;

/// Largest allowed difference of two numbers, relative to the larger, or absolute below 1: other
/// processors and devices round differently.
const TOLERANCE: f64 = 1e-4;

/// Arguments of `replay`.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit code 0: every token is the same, and every number within 1e-4. Otherwise 1: the error names the first step and \
quantity that differ.

Examples:
  ember-generate text \"One day\" --trace trace.jsonl        writes one
  ember-generate replay trace.jsonl
  ember-generate replay trace.jsonl --weights int8          what another number type changes")]
pub struct ReplayArgs {
    /// A trace that `text --trace` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The run or checkpoint to replay with [default: the one that the trace names]
    #[arg(long, value_name = "RUN")]
    from: Option<PathBuf>,

    /// Number type of the model's matrices [default: the trace's]
    #[arg(long, value_parser = weight_type(), value_name = "TYPE", help_heading = "Everywhere")]
    weights: Option<WeightType>,
}

pub(super) fn run(args: &ReplayArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    ensure!(common.seed.is_none(), UsageError::new("--seed: replay uses the trace's own seed; drop it"));
    let notes = Notes::new(common.quiet);
    let trace = Trace::read(&args.file)?;
    let header = &trace.header;
    let cutoffs = recorded_cutoffs(trace.lines(), header)?;
    ensure!(
        cutoffs.iter().any(Option::is_some),
        "{}: nothing was recorded after its first line; give a trace of a run that wrote text",
        args.file.display()
    );
    let from = args.from.as_ref().unwrap_or(&header.checkpoint);
    ensure!(
        args.from.is_some() || from.exists(),
        "{}: the trace names the checkpoint {}, which does not exist; give --from RUN",
        args.file.display(),
        from.display()
    );
    let weight_type = args.weights.unwrap_or(header.weight_type);
    let loaded = Loaded::new(Some(from), true, weight_type, common, &notes)?;
    let same_weights = header.weights == folder::weights_checksum(&loaded.folder)?;
    note_differences(header, &loaded, same_weights, weight_type, &notes);

    let prompt = |(index, stated): (usize, &HeaderPrompt)| {
        let (text, ids) = (stated.prompt.clone(), stated.prompt_ids.clone());
        Prompt { index, place: None, text, ids, id: None }
    };
    let prompts: Vec<Prompt> = header.prompts.iter().enumerate().map(prompt).collect();
    let reason = match same_weights {
        true => "the file was changed",
        false => "the file was written with another model, or changed; give --from the model that it names",
    };
    trace.check(loaded.model.config().vocab_size, reason)?;
    let session = Session::new(&loaded, header.config.clone(), header.grammar.clone(), interrupt)?;

    let mut comparison = Comparison { expected: Box::new(trace.lines()), line: 1, steps: 0, max_diff: 0.0 };
    let mut sequences = 0;
    for (planned, cutoffs) in header.batches.iter().zip(cutoffs) {
        let Some(cutoffs) = cutoffs else { break }; // the recorded run was interrupted before this batch
        let prompts = planned.prompts.iter().map(|&number| &prompts[number]).collect();
        let batch = Batch { prompts, first: planned.first, count: planned.count, cutoffs };
        sequences += session.write(&batch, None, Some(&mut comparison))?.len();
        if interrupt.requested() {
            return Ok(Outcome::Interrupted);
        }
    }
    if let Some(more) = comparison.expected.next().transpose()? {
        bail!("line {} of the trace was not repeated: {}", comparison.line + 1, place(&more));
    }
    report_match(sequences, comparison.steps, comparison.max_diff, common.format, &notes)?;
    Ok(Outcome::Done)
}

/// Notes where weights or machine differ from those that wrote the trace.
fn note_differences(header: &Header, loaded: &Loaded, same_weights: bool, weight_type: WeightType, notes: &Notes) {
    if !same_weights {
        notes.say("these are not the weights that the trace was written with: expect other numbers");
    }
    if weight_type != header.weight_type {
        let (then, now) = (header.weight_type.name(), weight_type.name());
        notes.say(format!("the trace was written with weights in {then}, these are in {now}: expect other numbers"));
    }
    let now = Machine::with(&loaded.device_name);
    if loaded.device_kind != header.device {
        notes.say(format!("the trace was written on {}, this is {}", header.device, loaded.device_kind));
    } else if let Some(then) = &header.machine {
        let [then, now] = [then, &now].map(|machine| machine.rounds_by(loaded.on_gpu));
        if then != now {
            notes.say(format!("the trace was written with {then}, this is {now}: the last bits may differ"));
        }
    }
}

/// Reports that all tokens are equal, and the largest difference of numbers.
fn report_match(sequences: usize, steps: usize, max_diff: f64, format: OutputFormat, notes: &Notes) -> Result<()> {
    match format {
        OutputFormat::Json => {
            let same = json!({"same": true, "sequences": sequences, "steps": steps, "largest_difference": max_diff});
            writeln!(terminal::stdout(), "{same}")?;
        }
        OutputFormat::Text => {
            let numbers = match max_diff {
                0.0 => "the same to the last bit".to_owned(),
                max_diff => format!("within {max_diff:.1e}"),
            };
            let (sequences, steps) = (counted(sequences, "sequence"), counted(steps, "step"));
            notes.say(format!("the same again: {sequences} and {steps}, every token equal, numbers {numbers}"));
        }
    }
    Ok(())
}

/// For each batch, where a time limit or the user cut its texts short, in steps; `None` for a batch
/// that was not run. The clock and the user cannot be replayed, so the replay cuts these texts at
/// the same steps, and no others.
fn recorded_cutoffs(lines: impl Iterator<Item = Result<LineHead>>, header: &Header) -> Result<Vec<Option<Cutoffs>>> {
    let has_beams = header.config.strategy.has_beams();
    let mut batches: Vec<Option<Cutoffs>> = vec![None; header.batches.len()];
    let mut beam_steps: HashMap<usize, usize> = HashMap::new(); // by prompt
    for line in lines {
        let line = line?;
        let prompt = line.prompt_index;
        // The line of a beam step names no sequence; all beams of a prompt are in one batch.
        let contains_line = |batch: &PlannedBatch| match has_beams {
            true => batch.prompts.contains(&prompt),
            false => batch.contains(prompt, line.sequence_index),
        };
        let Some(number) = header.batches.iter().position(contains_line) else { continue };
        let prompts = &header.batches[number].prompts;
        let uncut = || Cutoffs { clocks: vec![Clock::Steps(usize::MAX); prompts.len()], interrupted: HashMap::new() };
        let cutoffs = batches[number].get_or_insert_with(uncut);
        let so_far = beam_steps.entry(prompt).or_default();
        if line.event == "beams" {
            *so_far = (*so_far).max(line.step + 1);
            continue;
        }
        let (sequence, steps) = cut_at(&line, has_beams, *so_far);
        match line.exact.map_or(line.finish_reason, |exact| exact.cut_short) {
            Some(FinishReason::Time) => {
                let mut clocks = prompts.iter().zip(&mut cutoffs.clocks);
                if let Some((_, clock)) = clocks.find(|(other, _)| **other == prompt) {
                    *clock = Clock::Steps(steps);
                }
            }
            Some(FinishReason::Interrupted) => drop(cutoffs.interrupted.insert((prompt, sequence), steps)),
            _ => {}
        }
    }
    Ok(batches)
}

/// Where a line's text was cut: the number of the sequence, and the steps until then, as the search
/// of this strategy counts them. `beam_steps` are those recorded for the prompt so far.
fn cut_at(line: &LineHead, has_beams: bool, beam_steps: usize) -> (usize, usize) {
    if has_beams {
        return (0, beam_steps); // one clock for all beams of a prompt
    }
    if let Some(exact) = &line.exact {
        return (0, exact.nodes); // a step per node
    }
    (line.sequence_index, line.ids.len()) // a step per token
}

/// Compares the recorded lines with those of the new run, one by one.
struct Comparison<'a> {
    expected: Box<dyn Iterator<Item = Result<Value>> + 'a>,
    /// The last line compared, counted from 1.
    line: usize,
    steps: usize,
    /// The largest difference of two numbers, measured like [`TOLERANCE`].
    max_diff: f64,
}

impl TraceSink for Comparison<'_> {
    fn line(&mut self, line: Value) -> Result<()> {
        self.line += 1;
        let place = place(&line);
        let expected = self.expected.next().transpose()?;
        let expected =
            expected.with_context(|| format!("{place}: the trace ends before it, at line {}", self.line - 1))?;
        self.steps += usize::from(line["event"] != "end");
        match first_difference("", &expected, &line, &mut self.max_diff) {
            None => Ok(()),
            Some(difference) => bail!("{place} differs (line {}): {difference}", self.line),
        }
    }
}

/// Describes the position of a trace's line for people.
fn place(line: &Value) -> String {
    let prompt = &line["prompt_index"];
    match line["event"].as_str() {
        Some("choice") => {
            format!("prompt {prompt}, sequence {}, step {}", line["sequence_index"], line["step"])
        }
        Some("beams") => format!("prompt {prompt}, beams at step {}", line["step"]),
        _ => format!("prompt {prompt}, the end of sequence {}", line["sequence_index"]),
    }
}

/// The first quantity in which two lines differ, and its two values. Tokens and draws are compared
/// first: other differences follow from them.
fn first_difference(path: &str, expected: &Value, found: &Value, max_diff: &mut f64) -> Option<String> {
    let differ = || Some(format!("{path} was {expected}, now {found}"));
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            let missing = keys(a, b).find(|key| a.contains_key(*key) != b.contains_key(*key));
            if let Some(key) = missing {
                return Some(format!("{} is in only one of the two", join(path, key)));
            }
            keys(a, b).find_map(|key| first_difference(&join(path, key), &a[key], &b[key], max_diff))
        }
        (Value::Array(a), Value::Array(b)) => {
            let mut pairs = a.iter().zip(b).enumerate();
            let inside =
                |(i, (a, b)): (usize, (&Value, &Value))| first_difference(&format!("{path}[{i}]"), a, b, max_diff);
            let lengths = || format!("{path} had {} entries, now {}", a.len(), b.len());
            pairs.find_map(inside).or_else(|| (a.len() != b.len()).then(lengths))
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => {
            let (a, b) = (a.as_f64()?, b.as_f64()?);
            let distance = (a - b).abs() / a.abs().max(b.abs()).max(1.0);
            *max_diff = max_diff.max(distance);
            if distance <= TOLERANCE { None } else { differ() }
        }
        _ if expected == found => None,
        _ => differ(),
    }
}

/// The keys of two objects: tokens and draws first.
fn keys<'a>(a: &'a Map<String, Value>, b: &'a Map<String, Value>) -> impl Iterator<Item = &'a String> {
    let first = |key: &&String| ["id", "ids", "token", "draw"].contains(&key.as_str());
    let all = || a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
    all().filter(first).chain(all().filter(move |key| !first(key)))
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn difference(a: Value, b: Value) -> Option<String> {
        first_difference("", &a, &b, &mut 0.0)
    }

    #[test]
    fn the_first_quantity_that_differs_is_named() {
        let line = json!({"step": 3, "candidates": [{"id": 7, "before": {"logit": 1.5}}], "draw": 0.25, "id": 7});
        assert_eq!(difference(line.clone(), line.clone()), None);
        let mut other = line.clone();
        other["candidates"][0]["before"]["logit"] = json!(1.6);
        assert_eq!(
            difference(line.clone(), other.clone()).as_deref(),
            Some("candidates[0].before.logit was 1.5, now 1.6")
        );
        other["id"] = json!(8);
        assert_eq!(difference(line.clone(), other).as_deref(), Some("id was 7, now 8"));
        let mut rounded = line.clone();
        rounded["draw"] = json!(0.250_000_1);
        assert_eq!(difference(line.clone(), rounded), None);
        let mut shorter = line.clone();
        shorter["candidates"] = json!([]);
        assert_eq!(difference(line.clone(), shorter).as_deref(), Some("candidates had 1 entries, now 0"));
        let mut without = line.clone();
        without.as_object_mut().map(|object| object.remove("step"));
        assert_eq!(difference(line, without).as_deref(), Some("step is in only one of the two"));
    }

    #[test]
    fn what_was_cut_short_is_cut_at_the_same_place() {
        let header = |strategy: &str, batches: Value| -> Header {
            serde_json::from_value(json!({
                "event": "run", "version": "", "checkpoint": "", "weights": "", "device": "cpu", "grammar": null,
                "config": {"strategy": strategy}, "prompts": [], "batches": batches,
            }))
            .unwrap()
        };
        let end = |prompt: usize, sequence: usize, reason: &str| json!({"event": "end", "prompt_index": prompt, "sequence_index": sequence, "ids": [4, 5, 6], "finish_reason": reason});
        let of = |header: &Header, lines: &[Value]| {
            let heads = lines.iter().map(|line| Ok(serde_json::from_value(line.clone())?));
            recorded_cutoffs(heads, header).unwrap()
        };
        let of_batch = |found: &[Option<Cutoffs>], number: usize| found[number].clone().unwrap();
        // Two parts of one prompt, the second interrupted, and a third never started.
        let parts = header("sample", json!([[[0], 0, 2], [[0], 2, 2], [[0], 4, 2]]));
        let found = of(&parts, &[end(0, 0, "time"), end(0, 1, "eos"), end(0, 2, "interrupted")]);
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(of_batch(&found, 0).clocks, [Clock::Steps(3)]);
        assert_eq!(of_batch(&found, 1).interrupted, HashMap::from([((0, 2), 3)]));
        // Beams end together, one step after the last one recorded.
        let step = json!({"event": "beams", "prompt_index": 7, "step": 8});
        let found = of(&header("beam", json!([[[3, 7], 0, 2]])), &[step, end(7, 1, "time")]);
        assert_eq!(of_batch(&found, 0).clocks, [Clock::Steps(usize::MAX), Clock::Steps(9)]);
        let exact = json!({"event": "end", "exact": {"proven": false, "nodes": 77, "cut_short": "time"}});
        let found = of(&header("exact", json!([[[0], 0, 1]])), &[exact]);
        assert_eq!(of_batch(&found, 0).clocks, [Clock::Steps(77)]);
    }
}
