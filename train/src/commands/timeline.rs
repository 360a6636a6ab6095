//! `ember-train timeline`: shows the samples of each prompt over the course of training.

use std::collections::BTreeMap;

use ember_cli::terminal::printable;
use ember_host::{files::name_of, output::is_standard_output};

use crate::prelude::*;
use ember_study::timeline::{self, LossKind, Moment, page};

/// Arguments of `timeline`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ember-train timeline runs/my-writing
  ember-train timeline runs/my-writing --prompt 0 --last 5 --html timeline.html")]
pub struct TimelineArgs {
    /// The run's folder; it may still be running
    pub run: PathBuf,
    /// Only this prompt of sample_prompts, counted from 0 [default: all]
    #[arg(long, value_name = "N")]
    pub prompt: Option<usize>,
    /// Only the last K texts of each prompt
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
    /// Write a page to browse and play
    #[arg(long, value_name = "FILE", value_parser = output_file::page())]
    pub html: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When the run has no such samples, or the page cannot be written.
pub fn run(args: &TimelineArgs, common: &CommonArgs) -> Result<Outcome> {
    let mut lines = timeline::read(&args.run)?;
    if let Some(prompt) = args.prompt {
        let known: Vec<String> = lines.keys().map(ToString::to_string).collect();
        lines.retain(|number, _| *number == prompt);
        let (run, known) = (args.run.display(), known.join(", "));
        ensure!(
            !lines.is_empty(),
            UsageError::new(format!("--prompt {prompt}: {run} has samples only of the prompts {known}"))
        );
    }
    if let Some(last) = args.last {
        lines.values_mut().for_each(|line| keep_last(line, last as usize));
    }
    let notes = Notes::new(common.quiet);
    match common.format {
        // With the page on standard output, text there would become part of it.
        _ if args.html.as_deref().is_some_and(is_standard_output) => notes.say(shown(&lines, false).trim_end()),
        OutputFormat::Text if has_colour() => show_coloured(&shown(&lines, true))?,
        OutputFormat::Text => show(&shown(&lines, false))?,
        OutputFormat::Json => show(&json_lines(lines.values().flatten())?)?,
    }
    if let Some(path) = &args.html {
        let run = args.run.canonicalize().unwrap_or_else(|_| args.run.clone());
        let name = name_of(&run).unwrap_or_default();
        write_file(path, &page(&format!("{name}: samples during training"), &lines))?;
        notes.say(format!("the page is in {}", path.display()));
    }
    Ok(Outcome::Done)
}

/// Drops all but the last texts of a timeline, so that the first of these has none before it.
fn keep_last(line: &mut Vec<Moment>, last: usize) {
    line.drain(..line.len().saturating_sub(last));
    if let Some(first) = line.first_mut() {
        (first.same_characters, first.is_same) = (None, false);
    }
}

/// The samples as text; with colour the part unchanged since the previous sample is dimmed.
fn shown(lines: &BTreeMap<usize, Vec<Moment>>, has_colour: bool) -> String {
    let mut text = String::new();
    for (number, line) in lines {
        let prompt = line.first().map_or("", |moment| moment.sample.prompt.as_str());
        let named = if prompt.is_empty() { "none".to_owned() } else { format!("{prompt:?}") };
        text += &format!("prompt {number}: {named}\n");
        let loss = LossKind::of(line);
        for moment in line {
            text += &format!("\n{}\n", heading(moment, loss));
            let (same, new) = moment.parts();
            let prompt = &moment.sample.prompt;
            let whole = if has_colour {
                let [prompt, same, new] = [prompt, same, new].map(printable);
                format!("{prompt}\u{1b}[2m{same}\u{1b}[22m{new}")
            } else {
                format!("{prompt}{same}{new}")
            };
            for line in whole.trim_end().lines() {
                text += &format!("    {line}\n");
            }
        }
        text.push('\n');
    }
    text
}

/// The step, the loss, and how much of the text is unchanged.
fn heading(moment: &Moment, shown: LossKind) -> String {
    let mut heading = format!("step {}", grouped(moment.sample.step));
    if let Some(loss) = shown.loss(moment) {
        heading += &format!("  {} {loss:.4}", shown.name());
    }
    match moment.same_characters {
        None => heading,
        Some(_) if moment.is_same => heading + "  unchanged",
        Some(1) => heading + "  unchanged for one character",
        Some(same) => heading + &format!("  unchanged for {} characters", grouped(same as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(text: &str, same_characters: Option<usize>, is_same: bool) -> Moment {
        let sample = serde_json::json!({ "step": 20, "prompt_index": 0, "prompt": "", "text": text, "tokens": 3 });
        let sample = serde_json::from_value(sample).expect("these are its keys");
        Moment { sample, train_loss: None, val_loss: None, same_characters, is_same }
    }

    #[test]
    fn the_first_text_that_is_shown_is_not_compared_with_one_that_is_not() {
        let mut line =
            vec![moment("a cat", None, false), moment("a cat", Some(5), true), moment("a car", Some(4), false)];
        keep_last(&mut line, 2);
        assert_eq!(line, [moment("a cat", None, false), moment("a car", Some(4), false)]);
        keep_last(&mut line, 5);
        assert_eq!(line.len(), 2);
    }

    #[test]
    fn a_text_that_ends_earlier_is_not_unchanged() {
        let heading_of =
            |text: &str, same_characters, is_same| heading(&moment(text, same_characters, is_same), LossKind::Training);
        assert_eq!(heading_of("a cat", None, false), "step 20");
        assert_eq!(heading_of("a cat", Some(5), true), "step 20  unchanged");
        assert_eq!(heading_of("a cat", Some(5), false), "step 20  unchanged for 5 characters");
        assert_eq!(heading_of("", Some(0), false), "step 20  unchanged for 0 characters");
    }
}
