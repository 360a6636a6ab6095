//! `ember-generate score`: how probable texts are under a checkpoint.

use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;

use super::loaded::Loaded;
use crate::interrupt::Interrupt;
use crate::program::{CommonArgs, Notes, Outcome, OutputFormat, UsageError};
use crate::score::{loss, score_tokens};

/// Arguments of `score`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each text is scored by itself; its first token follows nothing and is not counted. Begin a text with <|endoftext|> to score
it as the start of a document. Losses are nats per token, perplexity is their exponential.")]
pub struct ScoreArgs {
    /// The texts; without any, and without --file or --prompt-ids, standard input is one
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,

    /// A file whose whole content is one text; may be given again
    #[arg(long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Token ids instead of a text, such as 1,2,3: needs no tokenizer
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with_all = ["texts", "files"])]
    prompt_ids: Option<Vec<u32>>,

    /// The run or checkpoint to score with [default: the newest run under runs/]
    #[arg(long, value_name = "RUN")]
    from: Option<PathBuf>,

    /// Tokens from one window to the next in a text longer than the context; fewer give each token more context
    /// [default: half the context]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    stride: Option<u32>,
}

/// The JSON object of one text, its keys in this order; `logprobs[i]` is that of `ids[i + 1]`, in nats.
#[derive(Serialize)]
struct JsonScore {
    text: Option<String>,
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    loss: f64,
    perplexity: f64,
    bits_per_byte: Option<f64>,
    tokens: usize,
}

pub(super) fn run(args: &ScoreArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    let texts = texts(args, interrupt)?;
    let loaded = Loaded::new(args.from.as_deref(), args.prompt_ids.is_some(), common, &notes)?;
    let context_length = loaded.model.config().context_length;
    let stride = args.stride.map_or((context_length / 2).max(1), |stride| stride as usize);
    if stride > context_length {
        bail!(UsageError::new(format!(
            "--stride is {stride}; it must be at most the model's context of {context_length}"
        )));
    }
    let mut batch = Vec::new();
    match (&args.prompt_ids, &loaded.tokenizer) {
        (Some(ids), _) => {
            loaded.check_ids("--prompt-ids", ids)?;
            batch.push((loaded.text_of(ids)?, ids.clone()));
        }
        (None, Some(tokenizer)) => {
            for text in texts {
                let ids = tokenizer.encode_prompt(&text)?;
                batch.push((Some(text), ids));
            }
        }
        (None, None) => bail!("{} holds no tokenizer; give --prompt-ids", loaded.folder.display()),
    }
    let mut out = io::stdout().lock();
    for (text, ids) in batch {
        let Some(logprobs) = score_tokens(&loaded.model, &ids, stride, &|| interrupt.requested())? else {
            return Ok(Outcome::Interrupted);
        };
        let loss = loss(&logprobs);
        let bytes: Option<usize> =
            ids[1..].iter().map(|&id| Some(loaded.tokenizer.as_ref()?.token_bytes(id)?.len())).sum();
        let bits_per_byte = bytes
            .filter(|&bytes| bytes > 0)
            .map(|b| loss * logprobs.len() as f64 / (std::f64::consts::LN_2 * b as f64));
        match common.format {
            OutputFormat::Json => {
                let (perplexity, tokens) = (loss.exp(), logprobs.len());
                let score = JsonScore { text, ids, logprobs, loss, perplexity, bits_per_byte, tokens };
                writeln!(out, "{}", serde_json::to_string(&score)?)?;
            }
            OutputFormat::Text => {
                let per_byte = bits_per_byte.map_or(String::new(), |bits| format!("  {bits:.4} bits/byte"));
                let which = beginning(text.as_deref().unwrap_or_default());
                let tokens = logprobs.len();
                writeln!(out, "loss {loss:.4}  perplexity {:.3}{per_byte}  {tokens} tokens  {which}", loss.exp())?;
            }
        }
        out.flush()?;
    }
    Ok(Outcome::Done)
}

/// The texts to score; empty where ids are given instead.
fn texts(args: &ScoreArgs, interrupt: &Interrupt) -> Result<Vec<String>> {
    let mut texts = args.texts.clone();
    for file in &args.files {
        let bytes = fs::read(file).with_context(|| format!("cannot read --file {}", file.display()))?;
        let text = String::from_utf8(bytes)
            .map_err(|error| error.utf8_error())
            .with_context(|| format!("--file {} is not UTF-8 text; convert it first", file.display()))?;
        texts.push(text);
    }
    if texts.is_empty() && args.prompt_ids.is_none() {
        if io::stdin().is_terminal() {
            bail!(UsageError::new("there is no text to score; give TEXT, --file FILE, or a text on standard input"));
        }
        let mut text = String::new();
        interrupt
            .while_waiting(|| io::stdin().read_to_string(&mut text))
            .context("cannot read standard input as UTF-8 text")?;
        texts.push(text);
    }
    if texts.iter().any(String::is_empty) {
        bail!(UsageError::new("a text to score is empty; give at least two tokens of text"));
    }
    Ok(texts)
}

/// The first few words of a text, on one line.
fn beginning(text: &str) -> String {
    const MOST: usize = 40;
    let line: String = text.chars().take(MOST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() > MOST { format!("{line}...") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_named_by_its_beginning() {
        assert_eq!(beginning("short"), "short");
        assert_eq!(beginning("two\nlines"), "two lines");
        assert_eq!(beginning(&"\u{e9}".repeat(41)), format!("{}...", "\u{e9}".repeat(40)));
    }
}
