//! `ember-generate text`: continues a prompt, as a stream for people or as JSON for programs.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use ember_model::folder::read_end_tokens;

use super::loaded::Loaded;
use super::text_output::{Answer, Row};
use crate::config::{FolderSettings, GenerationConfig, Knobs, Overflow, Strategy};
use crate::engine::{Completion, Event, Plan, generate_batch};
use crate::interrupt::Interrupt;
use crate::program::{CommonArgs, Notes, Outcome, OutputFormat, UsageError};
use crate::stop::{FinishReason, StopStrings};

/// Most sequences that go through the model together.
const MOST_ROWS: usize = 64;

/// Arguments of `text`.
#[derive(Args, Debug)]
#[command(after_help = "\
Without --strategy, any sampling knob means sampling, else the text is greedy. A knob left out is what the checkpoint's
generation_config.json says, else off. The result goes to standard output, everything else to standard error.

Examples:
  ember-generate text \"Once upon a time\"
  ember-generate text \"To be\" --temperature 0.8 --top-p 0.95 --max-new-tokens 100
  echo \"Dear diary\" | ember-generate text --stop \".\" --format json")]
pub struct TextArgs {
    /// The text to continue; without one a terminal is asked again and again, and a pipe is read. An empty one starts a new
    /// document
    #[arg(value_name = "PROMPT", conflicts_with = "prompt_ids")]
    prompt: Option<String>,

    /// Token ids as the prompt, such as 1,2,3: needs no tokenizer
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    prompt_ids: Option<Vec<u32>>,

    /// The run or checkpoint to write with [default: the newest run under runs/]
    #[arg(long, value_name = "RUN")]
    from: Option<PathBuf>,

    /// How each token is chosen [default: sample where a sampling knob is given, else greedy]
    #[arg(long, value_enum, value_name = "STRATEGY")]
    strategy: Option<Strategy>,

    /// Most tokens to write [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    max_new_tokens: Option<u32>,

    /// Sharpens (below 1) or flattens (above 1) the distribution; 0 means greedy here, where Hugging Face refuses it
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f32>,

    /// Sample from the K best tokens and those that tie with the last of them; 0 is off
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(0..), allow_negative_numbers = true)]
    top_k: Option<u32>,

    /// Sample from the fewest best tokens whose probabilities reach P; 1 is off
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f64>,

    /// End the text before this string; may be given again
    #[arg(long = "stop", value_name = "STRING", allow_hyphen_values = true)]
    stops: Vec<String>,

    /// How many texts to sample from the prompt
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000), allow_negative_numbers = true)]
    num_return_sequences: u32,

    /// At the end of what the model can look back on: go on with a sliding window (each token then costs a pass over all of
    /// it), stop, or fail
    #[arg(long, value_enum, default_value_t = Overflow::Slide, value_name = "HOW")]
    overflow: Overflow,

    /// With --format json: the log-probabilities of each chosen token and of the N best
    #[arg(long, value_name = "N")]
    logprobs: Option<u32>,

    /// Show the text as it is written: what --format text does with a single text anyway
    #[arg(long)]
    stream: bool,
}

pub(super) fn run(args: &TextArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    args.check(common.format)?;
    let notes = Notes::new(common.quiet);
    let stops = StopStrings::new(args.stops.clone())?;
    // Flags are checked before anything is loaded: a wrong one should not cost a wait.
    GenerationConfig::resolve(&args.knobs(), &FolderSettings::default())?;
    let source = Source::choose(args, interrupt)?;
    let loaded = Loaded::new(args.from.as_deref(), args.prompt_ids.is_some(), common, &notes)?;
    if loaded.tokenizer.is_none() && !args.stops.is_empty() {
        bail!(UsageError::new("--stop needs a tokenizer, and the checkpoint holds none; drop --stop"));
    }
    let config = args.config(&loaded, common.seed, &notes)?;
    let writer = Writer { loaded, config, stops, args, format: common.format, notes, interrupt };
    match source {
        Source::Ids(ids) => {
            writer.loaded.check_ids("--prompt-ids", &ids)?;
            ensure!(!ids.is_empty(), UsageError::new("--prompt-ids is empty; give at least one id"));
            writer.write(0, &Prompt { text: writer.loaded.text_of(&ids)?, ids })
        }
        Source::Text(text) => writer.write(0, &writer.prompt(text)?),
        Source::Ask => writer.ask_again_and_again(),
    }
}

impl TextArgs {
    fn check(&self, format: OutputFormat) -> Result<()> {
        if self.logprobs.is_some() && format == OutputFormat::Text {
            bail!(UsageError::new("--logprobs has no place in --format text; add --format json"));
        }
        if self.stream && (format == OutputFormat::Json || self.num_return_sequences > 1) {
            bail!(UsageError::new(
                "--stream shows a single text as it is written; drop --format json and --num-return-sequences"
            ));
        }
        Ok(())
    }

    fn knobs(&self) -> Knobs {
        Knobs {
            strategy: self.strategy,
            max_new_tokens: self.max_new_tokens.map(|n| n as usize),
            temperature: self.temperature,
            top_k: self.top_k.map(|k| k as usize),
            top_p: self.top_p,
        }
    }

    /// The whole configuration, from the flags, the folder and the tokenizer; says where it came from.
    fn config(&self, loaded: &Loaded, seed: Option<u64>, notes: &Notes) -> Result<GenerationConfig> {
        let (mut config, remarks) = GenerationConfig::resolve(&self.knobs(), &FolderSettings::read(&loaded.folder)?)?;
        remarks.iter().for_each(|remark| notes.say(remark));
        let vocab_size = loaded.model.config().vocab_size;
        config.end_tokens = read_end_tokens(&loaded.folder)?;
        if config.end_tokens.is_empty() {
            config.end_tokens.extend(loaded.tokenizer.as_ref().and_then(|tokenizer| tokenizer.end_of_text()));
        }
        config.end_tokens.retain(|&id| (id as usize) < vocab_size);
        config.overflow = self.overflow;
        config.logprobs = (self.logprobs.unwrap_or(0) as usize).min(vocab_size);
        match config.strategy {
            Strategy::Greedy if self.num_return_sequences > 1 => bail!(UsageError::new(
                "--num-return-sequences above 1 would give the same greedy text again; add --strategy sample or a sampling knob"
            )),
            Strategy::Sample => {
                // Without a --seed, one that is short enough to type again.
                config.seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 32);
                notes.say(format!(
                    "sampling: temperature {}, top-k {}, top-p {}, up to {} new tokens, --seed {} repeats it",
                    config.temperature, config.top_k, config.top_p, config.max_new_tokens, config.seed
                ));
            }
            _ => notes.say(format!("greedy, up to {} new tokens", config.max_new_tokens)),
        }
        Ok(config)
    }
}

/// Where prompts come from.
enum Source {
    Ids(Vec<u32>),
    Text(String),
    Ask,
}

impl Source {
    fn choose(args: &TextArgs, interrupt: &Interrupt) -> Result<Self> {
        if let Some(ids) = &args.prompt_ids {
            return Ok(Self::Ids(ids.clone()));
        }
        if let Some(text) = &args.prompt {
            return Ok(Self::Text(text.clone()));
        }
        if io::stdin().is_terminal() {
            return Ok(Self::Ask);
        }
        let mut text = String::new();
        interrupt
            .while_waiting(|| io::stdin().read_to_string(&mut text))
            .context("cannot read the prompt from standard input as UTF-8 text")?;
        Ok(Self::Text(without_line_end(&text).to_owned()))
    }
}

/// A text without the line end that `echo` and the Enter key put behind it.
fn without_line_end(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// What is to be continued; no text where there is no tokenizer.
pub(super) struct Prompt {
    pub(super) text: Option<String>,
    pub(super) ids: Vec<u32>,
}

/// Continues prompts with one model and one configuration.
struct Writer<'a> {
    loaded: Loaded,
    config: GenerationConfig,
    stops: StopStrings,
    args: &'a TextArgs,
    format: OutputFormat,
    notes: Notes,
    interrupt: &'a Interrupt,
}

impl Writer<'_> {
    /// The prompt of a text; an empty one starts from the end-of-text token, behind which documents begin.
    fn prompt(&self, text: String) -> Result<Prompt> {
        let tokenizer = self.loaded.tokenizer.as_ref().context("a prompt in words needs a tokenizer")?;
        let mut ids = tokenizer.encode_prompt(&text)?;
        if ids.is_empty() {
            let start = tokenizer.end_of_text().ok_or_else(|| {
                UsageError::new(
                    "the prompt is empty, and this model has no <|endoftext|> to start from; give at least one character",
                )
            })?;
            ids.push(start);
        }
        Ok(Prompt { text: Some(text), ids })
    }

    fn ask_again_and_again(&self) -> Result<Outcome> {
        self.notes.say("write a beginning and press Enter; Ctrl-D ends");
        for prompt_index in 0.. {
            if self.notes.are_shown() {
                eprint!("> ");
            }
            let mut line = String::new();
            let read = self.interrupt.while_waiting(|| io::stdin().lock().read_line(&mut line));
            if read.context("cannot read the prompt from the terminal")? == 0 {
                self.notes.say("");
                break;
            }
            // A prompt that cannot be continued is no reason to leave: say so, and ask for another.
            match self.prompt(without_line_end(&line).to_owned()) {
                Err(error) => eprintln!("error: {error:#}"),
                Ok(prompt) => {
                    if self.write(prompt_index, &prompt)? == Outcome::Interrupted {
                        return Ok(Outcome::Interrupted);
                    }
                }
            }
        }
        Ok(Outcome::Done)
    }

    /// Writes every continuation of one prompt.
    fn write(&self, prompt_index: usize, prompt: &Prompt) -> Result<Outcome> {
        let total = self.args.num_return_sequences as usize;
        let mut interrupted = false;
        for first in (0..total).step_by(MOST_ROWS) {
            let answers = self.write_batch(prompt_index, prompt, first, MOST_ROWS.min(total - first))?;
            interrupted = answers.iter().any(|completion| completion.finish_reason == FinishReason::Interrupted);
            if interrupted {
                break;
            }
        }
        Ok(if interrupted { Outcome::Interrupted } else { Outcome::Done })
    }

    fn write_batch(&self, prompt_index: usize, prompt: &Prompt, first: usize, count: usize) -> Result<Vec<Completion>> {
        let mut out = io::stdout().lock();
        let streams =
            self.format == OutputFormat::Text && self.args.num_return_sequences == 1 && self.loaded.tokenizer.is_some();
        if streams && self.args.prompt.is_some() && self.notes.are_shown() && out.is_terminal() {
            write!(out, "{}", prompt.text.as_deref().unwrap_or_default())?;
        }

        let mut rows: Vec<Row> = (0..count).map(|_| Row::new(self.stops.clone())).collect();
        let mut written = Ok(());
        let mut slid = false;
        let first_sequence = prompt_index * self.args.num_return_sequences as usize + first;
        let completions = generate_batch(
            &self.loaded.model,
            &vec![prompt.ids.as_slice(); count],
            &Plan { first_sequence: first_sequence as u64, ..Plan::new(&self.config) },
            &mut |event| {
                let Event::Token { row, token } = event else {
                    slid = true;
                    return ControlFlow::Continue(());
                };
                if !self.config.end_tokens.contains(&token.id) {
                    let certain = rows[row].push(&self.loaded.bytes_of(token.id));
                    if streams {
                        written = write!(out, "{certain}").and_then(|()| out.flush());
                    }
                }
                if rows[row].stopped() {
                    ControlFlow::Break(FinishReason::Stop)
                } else if written.is_err() || self.interrupt.requested() {
                    ControlFlow::Break(FinishReason::Interrupted)
                } else {
                    ControlFlow::Continue(())
                }
            },
        )?;
        written?;

        for (number, (mut row, completion)) in rows.into_iter().zip(&completions).enumerate() {
            let rest = row.finish();
            if streams {
                writeln!(out, "{rest}")?;
                continue;
            }
            let answer =
                Answer { loaded: &self.loaded, prompt_index, sequence_index: first + number, prompt, row, completion };
            match self.format {
                OutputFormat::Json => answer.write_json(&mut out, self.args.logprobs.is_some())?,
                OutputFormat::Text => answer.write_text(&mut out)?,
            }
        }
        out.flush()?;
        self.say_how_it_went(&completions, slid);
        Ok(completions)
    }

    fn say_how_it_went(&self, completions: &[Completion], slid: bool) {
        let tokens: usize = completions.iter().map(|completion| completion.ids.len()).sum();
        let seconds = completions.iter().map(|completion| completion.seconds).fold(0.0, f64::max);
        let ended = match completions {
            [one] => match one.finish_reason {
                FinishReason::Eos => ", ended by its end token",
                FinishReason::Length => ", ended by length",
                FinishReason::Stop => ", ended by a stop string",
                FinishReason::Time => ", ended by time",
                FinishReason::Interrupted => ", interrupted",
            },
            _ => "",
        };
        let rate = tokens as f64 / seconds.max(1e-9);
        self.notes.say(format!("{tokens} tokens in {seconds:.2} s, {rate:.0} tokens/s{ended}"));
        if slid {
            let context = self.loaded.model.config().context_length;
            self.notes.say(format!(
                "the text outgrew the context of {context} tokens: each token beyond it cost a pass over the last {context}; \
                 --overflow stop ends there"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_goes_and_no_more() {
        assert_eq!(without_line_end("a \n"), "a ");
        assert_eq!(without_line_end("a\r\n"), "a");
        assert_eq!(without_line_end("a\n\n"), "a\n");
        assert_eq!(without_line_end("a"), "a");
    }
}
