//! `ember-train look`: describes a text before a model learns from it.

use ember_cli::wording;
use ember_data::prepare::{Dataset, PrepareOptions, excerpt};
use ember_data::{look::look, prepare};
use ember_host::names::name_of_existing;
use ember_study::{error::Error, look::Seen, look::page, look::seen};
use ember_training::run::text;

use super::plan::{EXCERPT_BYTES, proposal_lines};
use super::{prepare::prepare_shown, reading::ReadingArgs, run::parse_minutes};
use crate::prelude::*;
use crate::progress_bar::Bar;

/// Arguments of `look`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ember-train look my-writing/
  ember-train look my-writing/ --html look.html")]
pub struct LookArgs {
    /// Files, folders or archives of text, Word, PDF, mail and more (docs/texts.md), or - for standard
    /// input; none: 2,000 of the built-in stories
    pub text: Vec<String>,
    /// Write the findings as a page
    #[arg(long, value_name = "FILE", value_parser = output_file::page())]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Add to the page what `plan` proposes for a run of this many minutes
    #[arg(long, value_name = "M", value_parser = parse_minutes, requires = "html")]
    pub minutes: Option<f64>,
}

/// Runs the command.
///
/// # Errors
/// When the text cannot be read or the page cannot be written.
pub fn run(args: &LookArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    const STORIES: u64 = 2000;
    let is_piped = args.text.iter().any(|name| name == "-");
    ensure!(
        args.minutes.is_none() || !is_piped,
        UsageError::new(
            "--minutes M: a plan reads the text again, but standard input can be read only once; name a file"
        )
    );
    let folder = temporary_folder()?;
    let out = folder.path().join("data");
    std::fs::create_dir(&out).context("cannot create a temporary folder")?;
    let options = PrepareOptions {
        inputs: text::inputs(&args.text, STORIES),
        reading: args.reading.options()?,
        seed: common.seed.unwrap_or(0),
        out,
        describe: |error| wording::line(error).words(),
        ..PrepareOptions::default()
    };
    let bar = Bar::new(common.quiet, interrupt);
    let found = look(&options, &bar);
    bar.finish();
    let found = match found {
        Err(prepare::Error::Interrupted) => return Ok(Outcome::Interrupted),
        found => found?,
    };
    if let Some(path) = &args.html {
        let notes = Notes::new(common.quiet);
        let seen = if is_piped {
            let why = "standard input can be read only once; name a file";
            notes.say(format!("the page does not show what a model will see: {why}"));
            None
        } else {
            seen_by_a_model(args, &options, folder.path(), common, interrupt)?
        };
        write_file(path, &page(&title(&args.text), &found, seen.as_ref()))?;
        notes.say(format!("the page is in {}", path.display()));
    }
    answer_beside(args.html.as_deref(), common, || found.to_string(), || json_line(&found))
}

/// The page's title: the text's name without its folders, which are private.
fn title(texts: &[String]) -> String {
    let name = |text: &String| name_of_existing(Path::new(text)).unwrap_or_else(|| "A text".to_owned());
    match texts {
        [] => "The built-in stories".to_owned(),
        [one] => name(one),
        [one, others @ ..] => format!("{} and {} more", name(one), others.len()),
    }
}

/// The text as a model will see it, or an excerpt of a large text; `None` if it cannot be prepared,
/// such as a text of one character.
fn seen_by_a_model(
    args: &LookArgs,
    options: &PrepareOptions,
    folder: &Path,
    common: &CommonArgs,
    interrupt: &Interrupt,
) -> Result<Option<Seen>> {
    let (options, share) = match excerpt(options, EXCERPT_BYTES, folder)? {
        None => (options.clone(), 1.0),
        Some(part) => (part.options, part.share),
    };
    let notes = Notes::new(common.quiet);
    match prepare_shown(&options, common.quiet, interrupt) {
        Err(error) => {
            notes.say(format!("the page does not show what a model will see: {error}"));
            return Ok(None);
        }
        Ok(None) => return Err(Error::Stopped.into()),
        Ok(Some(_)) => {}
    }
    let dataset = Dataset::open(&options.out)?;
    let mut seen = seen(&dataset, share)?;
    if let Some(minutes) = args.minutes {
        notes.say("measuring the device");
        seen.plan = proposal_lines(&args.text, minutes, &dataset, share, common, interrupt)?;
    }
    Ok(Some(seen))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        look: LookArgs,
        #[command(flatten)]
        common: CommonArgs,
    }

    #[test]
    fn a_text_is_named_without_its_folders() {
        let texts = ["/home/ana/diary.txt", "b.txt", "c.txt"].map(str::to_owned);
        let titles = [0, 1, 3].map(|count| title(&texts[..count]));
        assert_eq!(titles, ["The built-in stories", "diary.txt", "diary.txt and 2 more"]);
        assert_eq!(title(&["/home/ana/letters/..".to_owned()]), "A text");
    }

    #[test]
    fn no_plan_is_made_for_what_can_be_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let html = folder.path().join("look.html");
        let typed = ["look", "-", "--minutes", "1", "--html", html.to_str().unwrap()];
        let Cli { look, common } = Cli::parse_from(typed);
        let error = run(&look, &common, &Interrupt::new()).unwrap_err();
        assert!(error.is::<UsageError>() && error.to_string().starts_with("--minutes M: a plan reads"), "{error}");
        assert!(!html.exists());
    }
}
