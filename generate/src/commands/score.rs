//! `ember-generate score`: how probable texts are under a checkpoint.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail, ensure};
use clap::Args;
use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::lines::{TextFile, any_id, beginning, standard_input};
use super::model_args::{SpecialTokensArgs, WeightsArgs};
use super::progress::{Progress, SCORED_BETWEEN_RESULTS};
use super::{choices, loaded::Loaded};
use ember_cli::program::{CommonArgs, Notes, Outcome, OutputFormat, UsageError};
use ember_cli::terminal;
use ember_data::numbers::counted;
use ember_decoding::batches::groups;
use ember_decoding::score::{Tally, bytes_of, check_length, score_texts, scored_bytes};
use ember_host::interrupt::Interrupt;

/// Arguments of `score`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each text is scored by itself, with the tokens that the tokenizer puts around texts, as in transformers; its first token \
follows nothing and is not scored. Begin a text with <|endoftext|> to score it as the start of a document. The loss is in \
nats per token, and the perplexity is its exponential. With several texts, the last line is for all tokens together.

--choices takes JSON Lines such as {\"context\": \"The sky is\", \"choices\": [\" blue\", \" made of cheese\"], \"answer\": 0}; the \
answer, counted from 0, may be left out. Each choice is appended to the context as it is. Choices are compared by their \
log-probability, its mean per token, and its mean per byte.

Examples:
  ember-generate score \"How likely is this?\"
  ember-generate score --file novel.txt --stride 64
  ember-generate score --lines sentences.txt --format json
  ember-generate score --choices questions.jsonl")]
pub struct ScoreArgs {
    /// The texts to score [default: standard input, if no other source is given]
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,

    /// A file whose whole content is one text; may be given again
    #[arg(long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// A file with one text per line; .jsonl and .json hold objects such as {"text": "..."}, whose
    /// "id" is passed through. Empty lines are skipped. May be given again
    #[arg(long = "lines", value_name = "FILE")]
    line_files: Vec<PathBuf>,

    /// Token ids instead of a text, such as 1,2,3: needs no tokenizer
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with_all = ["texts", "files", "line_files"])]
    prompt_ids: Option<Vec<u32>>,

    /// Multiple-choice questions instead of texts: JSON Lines with "context", "choices" and
    /// "answer"
    #[arg(long, value_name = "FILE", conflicts_with_all = ["texts", "files", "line_files", "prompt_ids", "stride"])]
    choices: Option<PathBuf>,

    /// The run or checkpoint to score with [default: the newest run under runs/]
    #[arg(long, value_name = "RUN")]
    from: Option<PathBuf>,

    #[command(flatten)]
    special: SpecialTokensArgs,

    #[command(flatten)]
    weights: WeightsArgs,

    /// Tokens from one window to the next in a text longer than the context; fewer give each token
    /// more context [default: half the context]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    stride: Option<u32>,
}

/// The JSON object of one text, its keys in this order; `token_texts[i]` is the text of `ids[i]`,
/// and `logprobs[i]` the log-probability of `ids[i + 1]`, in nats.
#[derive(Serialize)]
struct JsonScore<'a> {
    #[serde(flatten)]
    text: &'a Text,
    token_texts: Option<Vec<String>>,
    logprobs: &'a [f32],
    loss: f64,
    perplexity: f64,
    bits_per_byte: Option<f64>,
    tokens: usize,
}

pub(super) fn run(args: &ScoreArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    run_onto(args, common, interrupt, &mut terminal::stdout())
}

fn run_onto(args: &ScoreArgs, common: &CommonArgs, interrupt: &Interrupt, out: &mut dyn Write) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    let from = args.from.as_deref();
    if let Some(path) = &args.choices {
        let questions = choices::read(path)?;
        let loaded = Loaded::new(from, false, args.weights.chosen, common, &notes)?;
        return choices::answer(&questions, &loaded, args.special.chosen, common.format, &notes, interrupt, out);
    }
    let texts = given_texts(args)?;
    // Other programs take a file name here; the loss alone would not show that the name was scored.
    if let Some(name) = args.texts.iter().map(Path::new).find(|name| name.is_file()) {
        let file = terminal::typed(name);
        notes.say(format!("{file} is scored as a text itself; use --file {file} to score the file's content"));
    }
    let loaded = Loaded::new(from, args.prompt_ids.is_some(), args.weights.chosen, common, &notes)?;
    let context_length = loaded.model.config().context_length;
    let stride = args.stride.map_or((context_length / 2).max(1), |stride| stride as usize);
    if stride > context_length {
        bail!(UsageError::new(format!(
            "--stride is {stride}; it must be at most the model's context of {context_length}"
        )));
    }
    let texts = encode_texts(texts, args, &loaded)?;

    let tokens = texts.iter().map(|text| text.ids.len() - 1).sum();
    let progress = Progress::new("tokens", tokens, &notes).after(loaded.compile_progress());
    let lengths: Vec<usize> = texts.iter().map(|text| text.ids.len()).collect();
    let mut tallies = Vec::with_capacity(texts.len());
    for group in groups(&lengths, SCORED_BETWEEN_RESULTS) {
        let in_group = &texts[group.clone()];
        let ids: Vec<&[u32]> = in_group.iter().map(|text| text.ids.as_slice()).collect();
        let scored = score_texts(&loaded.model, &ids, stride, &mut progress.or_interrupt(interrupt))?;
        progress.aside(|| {
            for (text, logprobs) in in_group.iter().zip(&scored) {
                let Some(logprobs) = logprobs else { continue };
                let tally = Tally::new(logprobs, text.bytes);
                tallies.push(tally);
                let line = || format!("{}  {}", measures(&tally), beginning(text.text.as_deref().unwrap_or_default()));
                common.format.write_line(out, || text.json(&tally, logprobs, &loaded), line)?;
            }
            out.flush().map_err(Error::from)
        })?;
        if tallies.len() < group.end {
            let (done, all) = (tallies.len(), lengths.len());
            progress.aside(|| notes.say(format!("interrupted: {done} of {} scored", counted(all, "text"))));
            return Ok(Outcome::Interrupted);
        }
    }
    drop(progress);
    if tallies.len() > 1 {
        write_summary(&tallies, common.format, out)?;
    }
    Ok(Outcome::Done)
}

/// A text as given, such as a line of JSON Lines, whose other keys are ignored.
#[derive(Deserialize)]
struct GivenText {
    /// Its location, for errors.
    #[serde(skip)]
    place: String,
    #[serde(default, deserialize_with = "any_id")]
    id: Option<Value>,
    text: String,
}

impl GivenText {
    fn encode(self, tokenizer: &Tokenizer, special: SpecialTokens) -> Result<Text> {
        let ids = tokenizer.encode_whole(&self.text, special).with_context(|| self.place.clone())?;
        check_length(&ids).with_context(|| self.place)?;
        let bytes = scored_bytes(&self.text, &ids, tokenizer, special);
        Ok(Text { id: self.id, text: Some(self.text), ids, bytes })
    }
}

/// Encodes the texts, or takes the ids of `--prompt-ids`.
fn encode_texts(texts: Vec<GivenText>, args: &ScoreArgs, loaded: &Loaded) -> Result<Vec<Text>> {
    match (&args.prompt_ids, &loaded.tokenizer) {
        (Some(ids), _) => {
            loaded.check_ids("--prompt-ids", ids)?;
            check_length(ids).context("--prompt-ids")?;
            let bytes = loaded.tokenizer.as_ref().and_then(|tokenizer| bytes_of(&ids[1..], tokenizer));
            Ok(vec![Text { id: None, text: loaded.text_of(ids)?, ids: ids.clone(), bytes }])
        }
        (None, Some(tokenizer)) => texts.into_iter().map(|text| text.encode(tokenizer, args.special.chosen)).collect(),
        (None, None) => bail!("{} holds no tokenizer; give --prompt-ids", loaded.folder.display()),
    }
}

/// The texts to score, in the order TEXT, --file, --lines; none if ids are given instead.
fn given_texts(args: &ScoreArgs) -> Result<Vec<GivenText>> {
    let named = |place: String, text: String| GivenText { place, id: None, text };
    let mut texts: Vec<GivenText> =
        (1..).zip(&args.texts).map(|(number, text)| named(format!("text {number}"), text.clone())).collect();
    for path in &args.files {
        let content = TextFile::read("--file", path)?.into_content();
        texts.push(named(format!("--file {}", path.display()), content));
    }
    for path in &args.line_files {
        let file = TextFile::read("--lines", path)?;
        let before = texts.len();
        if file.is_json_lines() {
            let objects = file.objects("{\"text\": \"...\"}")?.into_iter();
            texts.extend(objects.map(|(n, text)| GivenText { place: file.place(n), ..text }));
        } else {
            let lines = file.lines().filter(|(_, line)| !line.is_empty());
            texts.extend(lines.map(|(n, line)| named(file.place(n), line.to_owned())));
        }
        ensure!(texts.len() > before, "--lines {} holds no text; write one per line", path.display());
    }
    if texts.is_empty() && args.prompt_ids.is_none() {
        if io::stdin().is_terminal() {
            bail!(UsageError::new(
                "there is no text to score; give TEXT, --file FILE, --lines FILE, or a text on standard input"
            ));
        }
        texts.push(named("standard input".to_owned(), standard_input()?));
    }
    if let Some(empty) = texts.iter().find(|text| text.text.is_empty()) {
        bail!(UsageError::new(format!("{} is empty; give at least two tokens of text", empty.place)));
    }
    Ok(texts)
}

/// An encoded text of at least two tokens; its text is `None` if there is no tokenizer.
#[derive(Serialize)]
struct Text {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Value>,
    text: Option<String>,
    ids: Vec<u32>,
    /// Bytes that the scored tokens stand for, if the tokenizer can tell.
    #[serde(skip)]
    bytes: Option<usize>,
}

impl Text {
    fn json(&self, tally: &Tally, logprobs: &[f32], loaded: &Loaded) -> serde_json::Result<String> {
        serde_json::to_string(&JsonScore {
            text: self,
            token_texts: self.ids.iter().map(|&id| loaded.token_text(id)).collect(),
            logprobs,
            loss: tally.loss(),
            perplexity: tally.perplexity(),
            bits_per_byte: tally.bits_per_byte(),
            tokens: tally.tokens,
        })
    }
}

fn measures(tally: &Tally) -> String {
    let per_byte = tally.bits_per_byte().map_or(String::new(), |bits| format!("  {bits:.4} bits/byte"));
    let (loss, perplexity, tokens) = (tally.loss(), tally.perplexity(), counted(tally.tokens, "token"));
    format!("loss {loss:.4}  perplexity {perplexity:.3}{per_byte}  {tokens}")
}

/// The summary line for several texts, over all their tokens.
fn write_summary(tallies: &[Tally], format: OutputFormat, out: &mut dyn Write) -> Result<()> {
    let (texts, tally): (usize, Tally) = (tallies.len(), tallies.iter().copied().sum());
    let json = json!({ "summary": {
        "texts": texts,
        "loss": tally.loss(),
        "perplexity": tally.perplexity(),
        "bits_per_byte": tally.bits_per_byte(),
        "tokens": tally.tokens,
    } });
    let text = || format!("{}  in all {}", measures(&tally), counted(texts, "text"));
    format.write_line(out, || serde_json::to_string(&json), text)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests;
