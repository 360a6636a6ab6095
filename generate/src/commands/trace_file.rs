//! The file that `--trace` writes and `replay` reads: JSON Lines, first what was asked, then every
//! step, then every result.

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

/// The longest trace that is read: thousands of texts with all their steps.
const MOST_BYTES: u64 = 1 << 30;

/// What the first line says: all that it takes to do the same again.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    /// `run`.
    pub(super) event: String,
    /// The program's version.
    pub(super) version: String,
    /// The checkpoint folder.
    pub(super) checkpoint: PathBuf,
    /// A checksum of the weights, by which replay knows that it has the same ones.
    pub(super) weights: String,
    /// What the matrices were kept as; traces that do not say had float32.
    #[serde(default)]
    pub(super) weight_type: WeightType,
    /// The kind of device, such as `cpu`.
    pub(super) device: String,
    /// What rounds the last bits, where it is known.
    pub(super) machine: Option<Machine>,
    /// What special tokens' names were in prompts given as text; their ids are there either way.
    #[serde(default)]
    pub(super) special_tokens: SpecialTokens,
    /// The knobs.
    pub(super) config: GenerationConfig,
    /// What grammar the text must follow.
    pub(super) grammar: Option<Grammar>,
    /// What is continued, in order.
    pub(super) prompts: Vec<HeaderPrompt>,
    /// What was continued together.
    pub(super) batches: Vec<BatchNumbers>,
}

/// The numbers of prompts that are continued together, and which of their sequences: the first's
/// number and how many.
pub(super) type BatchNumbers = (Vec<usize>, usize, usize);

impl Header {
    /// The line.
    ///
    /// # Errors
    /// When the checkpoint's folder has a name that JSON cannot write.
    pub(super) fn to_line(&self) -> Result<Value> {
        let folder = self.checkpoint.display();
        serde_json::to_value(self)
            .with_context(|| format!("a trace cannot name the folder {folder}, which is no UTF-8 text; rename it"))
    }
}

/// On what a trace was written: another machine may round the last bits otherwise.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Machine {
    /// What the device calls itself.
    pub(super) device_name: String,
    /// The instructions that the CPU's kernels use, as `EMBER_SIMD` names them.
    pub(super) simd: String,
}

impl Machine {
    /// What rounds its last bits: a GPU itself, or the instructions of the processor.
    pub(super) fn rounds_by(&self, on_gpu: bool) -> &str {
        if on_gpu { &self.device_name } else { &self.simd }
    }

    /// This one, on a device of this name.
    pub(super) fn with(device_name: &str) -> Self {
        Self { device_name: device_name.to_owned(), simd: simd::level().name().to_owned() }
    }
}

/// A prompt in the header.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HeaderPrompt {
    pub(super) prompt: Option<String>,
    pub(super) prompt_ids: Vec<u32>,
}

/// Where the lines go.
pub(super) trait TraceSink {
    /// Takes the next line.
    ///
    /// # Errors
    /// When it cannot be written, or is not what was expected; the run ends.
    fn line(&mut self, line: Value) -> Result<()>;
}

/// A new trace on disk.
pub(super) struct TraceWriter {
    file: BufWriter<File>,
    path: PathBuf,
}

impl TraceWriter {
    /// Begins the file, which must not exist yet: a trace is a record.
    ///
    /// # Errors
    /// When there is a file of that name, or none can be made.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = create_record(path).context("--trace")?;
        Ok(Self { file: BufWriter::new(file), path: path.to_owned() })
    }

    /// Writes what is still held back.
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

/// A token's text, where there is a tokenizer.
pub(super) type TokenText<'a> = &'a dyn Fn(u32) -> Option<String>;

/// How many candidates of each step a trace tells, where not more are asked for.
pub(super) const TRACED_CANDIDATES: usize = 10;

/// The line of one choice: the draw, the chosen token, and what became of the candidates.
pub(super) fn choice((prompt, sequence): (usize, usize), choice: &ChoiceTrace, text: TokenText) -> Value {
    let mut choice = choice.clone();
    for candidate in &mut choice.candidates {
        candidate.token = text(candidate.id);
    }
    let token = text(choice.id);
    joined(json!({ "event": "choice", "prompt_index": prompt, "sequence_index": sequence, "token": token }), &choice)
}

/// The line of one step of one prompt's beams.
pub(super) fn beams(prompt: usize, step: &BeamStep, text: TokenText) -> Value {
    let mut line = joined(json!({ "event": "beams", "prompt_index": prompt }), step);
    if let Some(object) = line.as_object_mut() {
        object.remove("prompt"); // its place in the batch, which nobody outside knows
    }
    for beam in line.get_mut("beams").and_then(Value::as_array_mut).into_iter().flatten() {
        for candidate in beam.as_array_mut().into_iter().flatten() {
            let id = candidate["id"].as_u64().map_or(0, |id| id as u32);
            candidate["token"] = json!(text(id));
        }
    }
    let candidates = line.get_mut("candidates").and_then(Value::as_array_mut);
    for (candidate, told) in candidates.into_iter().flatten().zip(&step.candidates) {
        if let Some(object) = candidate.as_object_mut() {
            object.insert("text".to_owned(), json!(text(told.token)));
        }
    }
    line
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
        Some(finding) => joined(line, finding),
        None => line,
    }
}

/// An object with the keys of `head`, then those of `rest`.
fn joined(mut head: Value, rest: &impl Serialize) -> Value {
    if let (Some(head), Ok(Value::Object(rest))) = (head.as_object_mut(), serde_json::to_value(rest)) {
        head.extend(rest);
    }
    head
}

/// A trace that was read back.
pub struct Trace {
    pub(super) header: Header,
    text: String,
    path: PathBuf,
}

/// What every line behind the header tells of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LineHead {
    pub(super) event: String,
    pub(super) prompt_index: usize,
    pub(super) sequence_index: usize,
    pub(super) step: usize,
    /// Of an end: the tokens of the text.
    pub(super) ids: Vec<u32>,
    pub(super) finish_reason: Option<FinishReason>,
    /// Of the end of an exact search.
    pub(super) exact: Option<ExactHead>,
}

/// How far an exact search came.
#[derive(Debug, Deserialize)]
pub(super) struct ExactHead {
    pub(super) nodes: usize,
    pub(super) cut_short: Option<FinishReason>,
}

impl Trace {
    /// Reads a whole trace.
    ///
    /// # Errors
    /// One line that names the file, and the line of it that is wrong.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = read_whole(path, MOST_BYTES).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let text = text.with_context(|| format!("cannot read the trace {name}"))?;
        let first = text.lines().next();
        let first = first.with_context(|| format!("{name} is empty; give a file that --trace has written"))?;
        let header: Header = serde_json::from_str(first).with_context(|| {
            format!("{name}: line 1 is not the head of a trace; give a file that --trace has written")
        })?;
        let each = header.config.num_return_sequences;
        let holds = |(prompts, first, count): &BatchNumbers| {
            !prompts.is_empty()
                && prompts.iter().all(|&prompt| prompt < header.prompts.len())
                && *count > 0
                && first.checked_add(*count).is_some_and(|behind| behind <= each)
        };
        ensure!(
            header.batches.iter().all(holds),
            "{name}: line 1 names prompts or sequences that it does not hold; the file was changed"
        );
        Ok(Self { header, text, path: path.to_owned() })
    }

    /// Refuses a header that asks for what no flags can ask of a model with a vocabulary of this
    /// size.
    ///
    /// # Errors
    /// Names the file and what is wrong with its first line.
    pub fn check(&self, vocab_size: usize) -> Result<()> {
        let Header { config, prompts, .. } = &self.header;
        let check = || -> Result<()> {
            config.check(vocab_size).map_err(|error| Error::msg(wording::decoding::recorded(&error)))?;
            ensure!(config.draft_tokens == 0, "draft_tokens is {}, and a trace follows no drafts", config.draft_tokens);
            for HeaderPrompt { prompt_ids, .. } in prompts {
                ensure!(!prompt_ids.is_empty(), "a prompt holds no token");
                check_ids(prompt_ids, vocab_size)?;
            }
            Ok(())
        };
        check().map_err(|error| anyhow!("{}: line 1: {error:#}; the file was changed", self.path.display()))
    }

    /// The lines behind the header, each parsed when its turn comes: a trace is many times larger
    /// in memory than on disk.
    pub fn lines<T: DeserializeOwned>(&self) -> impl Iterator<Item = Result<T>> {
        let parse = |(number, line): (usize, &str)| {
            let broken = "is not whole; the run that wrote it was cut off, or the file was changed";
            serde_json::from_str(line).with_context(|| format!("{}: line {number} {broken}", self.path.display()))
        };
        (1..).zip(self.text.lines()).skip(1).map(parse)
    }
}
