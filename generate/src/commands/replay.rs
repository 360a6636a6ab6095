//! `ember-generate replay`: runs a trace again, and shows that the same tokens come, or where they part.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use ember_model::folder;
use serde_json::{Map, Value};

use super::loaded::Loaded;
use super::session::{Batch, Prompt, Session};
use super::trace_file::{Trace, TraceSink};
use crate::interrupt::Interrupt;
use crate::program::{CommonArgs, Notes, Outcome};
use crate::stop::Clock;

/// How far two numbers may lie apart, as a share of the larger and at least of 1: other processors and devices round
/// otherwise.
const TOLERANCE: f64 = 1e-4;

/// Arguments of `replay`.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit code 0: every token is the same, and every number within 1e-4. Else 1, and the line names the first step and the first
quantity that differ.")]
pub struct ReplayArgs {
    /// A file that `text --trace` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The run or checkpoint to replay with [default: the one that the trace names]
    #[arg(long, value_name = "RUN")]
    from: Option<PathBuf>,
}

pub(super) fn run(args: &ReplayArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    let Trace { header, lines } = Trace::read(&args.file)?;
    let from = args.from.as_ref().unwrap_or(&header.checkpoint);
    let loaded = Loaded::new(Some(from), true, common, &notes)?;
    let weights = folder::weights_checksum(&loaded.folder)?;
    if weights != header.weights {
        notes.say("these are not the weights that the trace was written with: expect other numbers");
    }
    if loaded.device_kind != header.device {
        notes.say(format!("the trace was written on {}, this is {}", header.device, loaded.device_kind));
    }

    let prompts: Vec<Prompt> = header
        .prompts
        .into_iter()
        .map(|prompt| Prompt { text: prompt.prompt, ids: prompt.prompt_ids, id: None })
        .collect();
    for prompt in &prompts {
        loaded.check_ids(&format!("{}", args.file.display()), &prompt.ids)?;
    }
    let mut session = Session::new(loaded, header.config, header.grammar, None, interrupt)?;
    // A clock and a user cannot be replayed: what they cut short is cut at the same place, and nothing else is.
    let ends = Ends::of(&lines, session.config.strategy.has_beams());
    session.interrupted = ends.interrupted;
    if let Some(nodes) = ends.nodes {
        session.config.max_nodes = nodes;
    }

    let mut comparison = Comparison { expected: lines.into_iter(), line: 1, steps: 0, widest: 0.0 };
    let mut sequences = 0;
    for (numbers, first, count) in &header.batches {
        let batch = Batch {
            prompts: numbers.iter().map(|&number| (number, &prompts[number])).collect(),
            first: *first,
            count: *count,
        };
        let steps = numbers.iter().filter_map(|number| ends.timed.get(number)).max();
        session.clock = Clock::Steps(steps.copied().unwrap_or(usize::MAX));
        let written = session.write(&batch, None, Some(&mut comparison))?;
        sequences += written.answers.len();
        if interrupt.requested() {
            return Ok(Outcome::Interrupted);
        }
    }
    if let Some(more) = comparison.expected.next() {
        bail!("line {} of the trace has no counterpart: {}", comparison.line + 1, place(&more));
    }
    notes.say(format!(
        "the same again: {sequences} sequences, {} steps, every token equal, numbers within {:.1e}",
        comparison.steps, comparison.widest
    ));
    Ok(Outcome::Done)
}

/// What ended texts from outside, and after how many steps.
#[derive(Debug, Default, PartialEq)]
struct Ends {
    /// The clock, which ends a whole batch: by prompt.
    timed: HashMap<usize, usize>,
    /// The user: by prompt and sequence. Beams end together and count as sequence 0.
    interrupted: HashMap<(usize, usize), usize>,
    /// Prefixes that an exact search without a proof looked at.
    nodes: Option<usize>,
}

impl Ends {
    fn of(lines: &[Value], beams: bool) -> Self {
        let number = |line: &Value, key: &str| line[key].as_u64().map_or(0, |number| number as usize);
        let mut steps: HashMap<usize, usize> = HashMap::new();
        let mut ends = Self::default();
        for line in lines {
            let prompt = number(line, "prompt_index");
            if line["event"] == "beams" {
                let so_far = steps.entry(prompt).or_default();
                *so_far = (*so_far).max(number(line, "step") + 1);
            }
            if line["event"] != "end" {
                continue;
            }
            if line["exact"]["proven"] == false {
                ends.nodes = line["exact"]["nodes"].as_u64().map(|nodes| nodes as usize);
            }
            let length = line["ids"].as_array().map_or(0, Vec::len);
            let (sequence, length) = match beams {
                true => (0, steps.get(&prompt).copied().unwrap_or(0)),
                false => (number(line, "sequence_index"), length),
            };
            match line["finish_reason"].as_str() {
                Some("time") => ends.timed.insert(prompt, length),
                Some("interrupted") => ends.interrupted.insert((prompt, sequence), length),
                _ => None,
            };
        }
        ends
    }
}

/// The recorded lines, compared with those of the new run one by one.
struct Comparison {
    expected: std::vec::IntoIter<Value>,
    /// The last line compared, counted from 1.
    line: usize,
    steps: usize,
    /// The widest difference of two numbers, as a share of the larger and at least of 1.
    widest: f64,
}

impl TraceSink for Comparison {
    fn line(&mut self, line: Value) -> Result<()> {
        self.line += 1;
        let place = place(&line);
        let expected = self
            .expected
            .next()
            .with_context(|| format!("{place}: the trace ends before it, at line {}", self.line - 1))?;
        self.steps += usize::from(line["event"] != "end");
        match first_difference("", &expected, &line, &mut self.widest) {
            None => Ok(()),
            Some(difference) => bail!("{place} differs (line {}): {difference}", self.line),
        }
    }
}

/// What a line of a trace tells about, for people.
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

/// The first quantity in which two lines differ, and its two values. What decides comes first: the token, then the draw.
fn first_difference(path: &str, expected: &Value, found: &Value, widest: &mut f64) -> Option<String> {
    let differ = || Some(format!("{path} was {expected}, now {found}"));
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            let missing = keys(a, b).find(|key| a.contains_key(*key) != b.contains_key(*key));
            if let Some(key) = missing {
                return Some(format!("{} is in only one of the two", join(path, key)));
            }
            keys(a, b).find_map(|key| first_difference(&join(path, key), &a[key], &b[key], widest))
        }
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b).enumerate();
            let inside =
                |(i, (a, b)): (usize, (&Value, &Value))| first_difference(&format!("{path}[{i}]"), a, b, widest);
            pairs
                .map(inside)
                .find(Option::is_some)
                .flatten()
                .or_else(|| (a.len() != b.len()).then(|| format!("{path} had {} entries, now {}", a.len(), b.len())))
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => {
            let (a, b) = (a.as_f64()?, b.as_f64()?);
            let distance = (a - b).abs() / a.abs().max(b.abs()).max(1.0);
            *widest = widest.max(distance);
            if distance <= TOLERANCE { None } else { differ() }
        }
        _ if expected == found => None,
        _ => differ(),
    }
}

/// The keys of two objects, what decides first.
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
    fn what_the_clock_ended_is_ended_at_the_same_place() {
        let end = |sequence: usize, reason: &str| json!({"event": "end", "prompt_index": 1, "sequence_index": sequence, "ids": [4, 5, 6], "finish_reason": reason});
        let ends = Ends::of(&[end(0, "length"), end(2, "time"), end(3, "interrupted")], false);
        assert_eq!((ends.timed, ends.interrupted), (HashMap::from([(1, 3)]), HashMap::from([((1, 3), 3)])));
        let step = json!({"event": "beams", "prompt_index": 1, "step": 8});
        assert_eq!(Ends::of(&[step.clone(), end(5, "interrupted")], true).interrupted, HashMap::from([((1, 0), 9)]));
        assert_eq!(Ends::of(&[step, end(5, "time")], true).timed, HashMap::from([(1, 9)]));
        let exact = json!({"event": "end", "exact": {"proven": false, "nodes": 77}});
        assert_eq!(Ends::of(&[exact], false).nodes, Some(77));
    }
}
