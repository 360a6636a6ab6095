//! `ember-generate text`: continues a prompt, as a stream for people or as JSON for programs.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::ops::ControlFlow;

use anyhow::{Context, Result, ensure};

use super::loaded::Loaded;
use super::text_args::TextArgs;
use super::text_output::{Answer, Row};
use crate::config::{FolderSettings, GenerationConfig};
use crate::engine::{Completion, Event, Plan, generate_batch};
use crate::interrupt::Interrupt;
use crate::program::{CommonArgs, Notes, Outcome, OutputFormat, UsageError};
use crate::run_folder;
use crate::stop::{FinishReason, StopStrings};

/// Most sequences that go through the model together.
const MOST_ROWS: usize = 64;

pub(super) fn run(args: &TextArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    args.check(common.format)?;
    let notes = Notes::new(common.quiet);
    // What the strategy would ignore depends on the folder's file too; it is read before the model, which is a wait.
    let folder = run_folder::find(args.from.as_deref())?.folder;
    GenerationConfig::resolve(&args.knobs_without_words(), &FolderSettings::read(&folder)?)?;
    let source = Source::choose(args, interrupt)?;
    let loaded = Loaded::new(args.from.as_deref(), args.prompt_ids.is_some(), common, &notes)?;
    let config = args.config(&loaded, common.seed, &notes)?;
    let stops = StopStrings::new(config.stop_strings.clone())?;
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
        let total = self.config.num_return_sequences;
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
        let streams = self.format == OutputFormat::Text
            && self.config.num_return_sequences == 1
            && self.loaded.tokenizer.is_some();
        if streams && self.args.prompt.is_some() && self.notes.are_shown() && out.is_terminal() {
            write!(out, "{}", prompt.text.as_deref().unwrap_or_default())?;
        }

        let mut rows: Vec<Row> = (0..count).map(|_| Row::new(self.stops.clone())).collect();
        let mut written = Ok(());
        let mut slid = false;
        let first_sequence = prompt_index * self.config.num_return_sequences + first;
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
