//! The file that `--trace` writes and `replay` reads: JSON Lines with a header, then every step,
//! then every result.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, ensure};
use ember_data::tokenizer::SpecialTokens;
use ember_host::{files::read_whole, output::create_record};
use ember_kernels::simd;
use ember_model::WeightType;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use ember_cli::wording;
use ember_decoding::generator::Written;
use ember_decoding::trace::{BeamStep, ChoiceTrace};
use ember_decoding::{FinishReason, config::GenerationConfig, constraint::Grammar, tokens::check_ids};

/// Largest trace that is read: enough for thousands of texts with all their steps.
const MAX_BYTES: u64 = 1 << 30;

/// The first line: everything needed to repeat the run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    /// `run`.
    pub(super) event: String,
    /// The program's version.
    pub(super) version: String,
    /// The checkpoint folder.
    pub(super) checkpoint: PathBuf,
    /// A checksum of the weights, which replay compares with its own.
    pub(super) weights: String,
    /// Type in which the matrices were stored; float32 if absent.
    #[serde(default)]
    pub(super) weight_type: WeightType,
    /// The kind of device, such as `cpu`.
    pub(super) device: String,
    /// What determines rounding of the last bits, if known.
    pub(super) machine: Option<Machine>,
    /// How names of special tokens in text prompts were read; the header holds the resulting ids in
    /// any case.
    #[serde(default)]
    pub(super) special_tokens: SpecialTokens,
    /// The knobs.
    pub(super) config: GenerationConfig,
    /// The grammar that the text must follow.
    pub(super) grammar: Option<Grammar>,
    /// The prompts, in order.
    pub(super) prompts: Vec<HeaderPrompt>,
    /// The batches that were continued together.
    pub(super) batches: Vec<PlannedBatch>,
}

/// A batch by numbers: the same sequences of one or several prompts. The file has it as a list:
/// `[[0, 3], 0, 4]` is the four sequences of the prompts 0 and 3, `[[0], 64, 6]` the sequences 64 to
/// 69 of prompt 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "BatchList", into = "BatchList")]
pub(super) struct PlannedBatch {
    /// The prompts' numbers.
    pub(super) prompts: Vec<usize>,
    /// The number of the first sequence of each prompt.
    pub(super) first: usize,
    /// How many sequences of each prompt.
    pub(super) count: usize,
}

/// The form of a [`PlannedBatch`] in the file.
type BatchList = (Vec<usize>, usize, usize);

impl From<BatchList> for PlannedBatch {
    fn from((prompts, first, count): BatchList) -> Self {
        Self { prompts, first, count }
    }
}

impl From<PlannedBatch> for BatchList {
    fn from(PlannedBatch { prompts, first, count }: PlannedBatch) -> Self {
        (prompts, first, count)
    }
}

impl PlannedBatch {
    /// Whether a sequence of a prompt is in this batch.
    pub(super) fn contains(&self, prompt: usize, sequence: usize) -> bool {
        self.prompts.contains(&prompt) && (self.first..self.first + self.count).contains(&sequence)
    }

    /// Whether it is not empty and holds only prompts and sequences of a run with so many.
    fn is_within(&self, prompts: usize, sequences: usize) -> bool {
        !self.prompts.is_empty()
            && self.prompts.iter().all(|&prompt| prompt < prompts)
            && self.count > 0
            && self.first.checked_add(self.count).is_some_and(|end| end <= sequences)
    }
}

impl Header {
    /// The header as a JSON value.
    ///
    /// # Errors
    /// When the checkpoint folder's name is not UTF-8.
    pub(super) fn to_line(&self) -> Result<Value> {
        let folder = self.checkpoint.display();
        serde_json::to_value(self)
            .with_context(|| format!("a trace cannot name the folder {folder}, which is not UTF-8 text; rename it"))
    }
}

/// The machine that wrote a trace: another may round the last bits differently.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Machine {
    /// The device's own name.
    pub(super) device_name: String,
    /// The instruction set of the CPU kernels, by [`simd::Level::arithmetic`].
    pub(super) simd: String,
}

impl Machine {
    /// What determines rounding: the GPU, or the CPU's instruction set.
    pub(super) fn rounds_by(&self, on_gpu: bool) -> &str {
        if on_gpu { &self.device_name } else { &self.simd }
    }

    /// The current machine, with a device of this name.
    pub(super) fn with(device_name: &str) -> Self {
        Self { device_name: device_name.to_owned(), simd: simd::level().arithmetic().to_owned() }
    }
}

/// A prompt in the header.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HeaderPrompt {
    pub(super) prompt: Option<String>,
    pub(super) prompt_ids: Vec<u32>,
}

/// Receiver of a trace's lines.
pub(super) trait TraceSink {
    /// Takes the next line.
    ///
    /// # Errors
    /// When it cannot be written, or differs from the recorded one; the run ends.
    fn line(&mut self, line: Value) -> Result<()>;
}

/// Writes a new trace file.
pub(super) struct TraceWriter {
    file: BufWriter<File>,
    path: PathBuf,
}

impl TraceWriter {
    /// Creates the file. It must not exist: a trace is a record, which is never overwritten.
    ///
    /// # Errors
    /// When the file exists or cannot be created.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = create_record(path).context("--trace")?;
        Ok(Self { file: BufWriter::new(file), path: path.to_owned() })
    }

    /// Flushes the buffer.
    ///
    /// # Errors
    /// When the disk is full.
    pub(super) fn finish(mut self) -> Result<()> {
        self.file.flush().with_context(|| format!("--trace: cannot write {}", self.path.display()))
    }
}

impl TraceSink for TraceWriter {
    fn line(&mut self, line: Value) -> Result<()> {
        writeln!(self.file, "{line}").with_context(|| format!("--trace: cannot write {}", self.path.display()))
    }
}

/// Function from a token id to its text; `None` without a tokenizer.
pub(super) type TokenText<'a> = &'a dyn Fn(u32) -> Option<String>;

/// Candidates per step in a trace, unless more log-probabilities are requested.
pub(super) const TRACED_CANDIDATES: usize = 10;

/// The line of one choice: the draw, the chosen token, and each candidate's fate.
pub(super) fn choice((prompt, sequence): (usize, usize), choice: &ChoiceTrace, text: TokenText) -> Value {
    let mut choice = choice.clone();
    for candidate in &mut choice.candidates {
        candidate.token = text(candidate.id);
    }
    let token = text(choice.id);
    merged(json!({ "event": "choice", "prompt_index": prompt, "sequence_index": sequence, "token": token }), &choice)
}

/// The line of one beam search step of a prompt.
pub(super) fn beams(prompt: usize, step: &BeamStep, text: TokenText) -> Value {
    let mut line = merged(json!({ "event": "beams", "prompt_index": prompt }), step);
    if let Some(object) = line.as_object_mut() {
        object.remove("prompt"); // its index in the batch, meaningless to readers
    }
    // Not in the fields of `step`: without a tokenizer, the `token` would be missing instead of null.
    let beams = line.get_mut("beams").and_then(Value::as_array_mut);
    for (beam, recorded) in beams.into_iter().flatten().zip(&step.beams) {
        add_texts(beam, "token", recorded.iter().map(|candidate| text(candidate.id)));
    }
    add_texts(&mut line["candidates"], "text", step.candidates.iter().map(|candidate| text(candidate.token)));
    line
}

/// Adds `key` to each object of a list, with the text of its token; null without a tokenizer.
fn add_texts(objects: &mut Value, key: &str, texts: impl Iterator<Item = Option<String>>) {
    for (object, text) in objects.as_array_mut().into_iter().flatten().zip(texts) {
        object[key] = json!(text);
    }
}

/// The line of one result.
pub(super) fn end(answer: &Written) -> Value {
    let completion = &answer.completion;
    let line = json!({
        "event": "end",
        "prompt_index": answer.prompt,
        "sequence_index": answer.number,
        "text": answer.text,
        "ids": completion.ids,
        "finish_reason": completion.finish_reason,
        "score": completion.score,
    });
    match &completion.finding {
        Some(finding) => merged(line, finding),
        None => line,
    }
}

/// An object with the keys of `head`, then those of `rest`.
fn merged(mut head: Value, rest: &impl Serialize) -> Value {
    if let (Some(head), Ok(Value::Object(rest))) = (head.as_object_mut(), serde_json::to_value(rest)) {
        head.extend(rest);
    }
    head
}

/// A trace read from disk.
pub struct Trace {
    pub(super) header: Header,
    text: String,
    path: PathBuf,
}

/// The fields of the lines after the header that a replay needs before it starts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LineHead {
    pub(super) event: String,
    pub(super) prompt_index: usize,
    pub(super) sequence_index: usize,
    pub(super) step: usize,
    /// In an `end` line: the tokens of the text.
    pub(super) ids: Vec<u32>,
    pub(super) finish_reason: Option<FinishReason>,
    /// In the `end` line of an exact search.
    pub(super) exact: Option<ExactHead>,
}

/// How far an exact search got.
#[derive(Debug, Deserialize)]
pub(super) struct ExactHead {
    pub(super) nodes: usize,
    pub(super) cut_short: Option<FinishReason>,
}

impl Trace {
    /// Reads a whole trace.
    ///
    /// # Errors
    /// One line that names the file and the line in it that is wrong.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = read_whole(path, MAX_BYTES).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let text = text.with_context(|| format!("cannot read the trace {name}"))?;
        let first = text.lines().next();
        let first = first.with_context(|| format!("{name} is empty; give a file that --trace has written"))?;
        let header: Header = serde_json::from_str(first).with_context(|| {
            format!("{name}: line 1 is not the header of a trace; give a file that --trace has written")
        })?;
        let (prompts, sequences) = (header.prompts.len(), header.config.num_return_sequences);
        ensure!(
            header.batches.iter().all(|batch| batch.is_within(prompts, sequences)),
            "{name}: line 1 names prompts or sequences that it does not hold; the file was changed"
        );
        Ok(Self { header, text, path: path.to_owned() })
    }

    /// Refuses a header that no command line could have produced for a model with this vocabulary
    /// size.
    ///
    /// # Errors
    /// Names the file, what is wrong with its first line, and the likely reason for that.
    pub fn check(&self, vocab_size: usize, reason: &str) -> Result<()> {
        let Header { config, prompts, .. } = &self.header;
        let check = || -> Result<()> {
            config.check(vocab_size).map_err(|error| Error::msg(wording::decoding::recorded(&error)))?;
            ensure!(config.draft_tokens == 0, "draft_tokens is {}, and a trace has no drafts", config.draft_tokens);
            for HeaderPrompt { prompt_ids, .. } in prompts {
                ensure!(!prompt_ids.is_empty(), "a prompt has no tokens");
                check_ids(prompt_ids, vocab_size)?;
            }
            Ok(())
        };
        check().map_err(|error| anyhow!("{}: line 1: {error:#}; {reason}", self.path.display()))
    }

    /// The lines after the header, parsed lazily: a parsed trace takes many times its size on disk.
    pub fn lines<T: DeserializeOwned>(&self) -> impl Iterator<Item = Result<T>> {
        let parse = |(number, line): (usize, &str)| {
            let broken = "is incomplete; the run that wrote it was killed, or the file was changed";
            serde_json::from_str(line).with_context(|| format!("{}: line {number} {broken}", self.path.display()))
        };
        (1..).zip(self.text.lines()).skip(1).map(parse)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ember_decoding::trace::{BeamCandidate, Candidate, Fate, Standing};

    #[test]
    fn a_batch_is_a_list_in_the_file() {
        let (batch, list) = (PlannedBatch { prompts: vec![0, 3], first: 64, count: 6 }, json!([[0, 3], 64, 6]));
        assert_eq!(serde_json::to_value(&batch).unwrap(), list);
        assert_eq!(serde_json::from_value::<PlannedBatch>(list).unwrap(), batch);
        assert!(batch.contains(3, 69) && !batch.contains(3, 70) && !batch.contains(1, 64));
        assert!(batch.is_within(4, 70) && !batch.is_within(4, 69) && !batch.is_within(3, 70));
    }

    /// The candidates of a beam have a `token` in any case: a replay would take its absence for a
    /// difference from traces that have been written.
    #[test]
    fn lines_have_the_tokens_texts_or_null() {
        let before = Standing { logit: -1.0, probability: 0.5, rank: 1 };
        let traced = Candidate { id: 7, token: None, before, changes: vec![], removed_by: None };
        let ranked = BeamCandidate {
            parent: 0,
            token: 8,
            logprob: -0.5,
            model_logprob: -1.0,
            score: -0.5,
            rank_key: -0.5,
            fate: Fate::Pruned,
        };
        let (beams_before, candidates) = (vec![vec![traced.clone()]], vec![ranked]);
        let step =
            BeamStep { prompt: 2, step: 0, group: 1, beams: beams_before, candidates, pool: vec![], stopped: None };
        let of_beams = |token: Value, text: Value| {
            json!({
                "event": "beams", "prompt_index": 5, "step": 0, "group": 1,
                "beams": [[{
                    "id": 7, "token": token, "before": {"logit": -1.0, "probability": 0.5, "rank": 1},
                    "changes": [], "removed_by": null,
                }]],
                "candidates": [{
                    "parent": 0, "token": 8, "text": text, "logprob": -0.5, "model_logprob": -1.0, "score": -0.5,
                    "rank_key": -0.5, "fate": {"fate": "pruned"},
                }],
                "pool": [], "stopped": null,
            })
        };
        let (named, unnamed) = (|id: u32| Some(format!("<{id}>")), |_: u32| None::<String>);
        assert_eq!(beams(5, &step, &named), of_beams(json!("<7>"), json!("<8>")));
        assert_eq!(beams(5, &step, &unnamed), of_beams(Value::Null, Value::Null));
        let without_beams = beams(5, &BeamStep { beams: vec![], ..step }, &named);
        assert!(without_beams.get("beams").is_none(), "{without_beams}");

        let chosen =
            ChoiceTrace { step: 3, candidates: vec![traced], draw: None, interval: None, id: 7, logprob: -1.0 };
        let of_choice = |token: Value, candidate: Value| {
            json!({
                "event": "choice", "prompt_index": 5, "sequence_index": 1, "token": token, "step": 3,
                "candidates": [candidate], "draw": null, "interval": null, "id": 7, "logprob": -1.0,
            })
        };
        let mut candidate = json!({
            "id": 7, "before": {"logit": -1.0, "probability": 0.5, "rank": 1}, "changes": [], "removed_by": null,
        });
        assert_eq!(choice((5, 1), &chosen, &unnamed), of_choice(Value::Null, candidate.clone()));
        candidate["token"] = json!("<7>");
        assert_eq!(choice((5, 1), &chosen, &named), of_choice(json!("<7>"), candidate));
    }
}
