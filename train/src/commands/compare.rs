//! `ember-train compare`: draws several runs together and lists how they differ.

use std::{collections::BTreeMap, io::IsTerminal};

use clap::ValueEnum;
use ember_cli::terminal::printable;
use ember_host::{file_error::with_causes, output::is_standard_output};
use ember_training::run::folder::CONFIG;
use serde_json::json;

use crate::prelude::*;
use ember_study::compare::{self, Axis, Record, Scale, Style, chart, differences, differing, svg, table};
use ember_study::{error::Error as StudyError, plot::loss_svg, plot::own_loss_svg};

/// Arguments of `compare`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ember-train compare runs/a runs/b
  ember-train compare runs/a runs/b --by tokens --svg both.svg")]
pub struct CompareArgs {
    /// The runs' folders; they may still be running
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// X axis of the curves
    #[arg(long, value_enum, default_value_t = By::Step)]
    pub by: By,
    /// Draw losses on a logarithmic scale
    #[arg(long)]
    pub log: bool,
    /// File of the picture [default for a single run over its steps: its loss.svg]
    #[arg(long, value_name = "FILE", value_parser = output_file::picture())]
    pub svg: Option<PathBuf>,
}

/// What curves are drawn over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Optimizer steps.
    Step,
    /// Target tokens learned from.
    Tokens,
    /// Seconds since the run began, evaluations and saves included.
    Time,
}

impl From<By> for Axis {
    fn from(by: By) -> Self {
        match by {
            By::Step => Self::Step,
            By::Tokens => Self::Tokens,
            By::Time => Self::Time,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// When a run cannot be read or the picture cannot be written.
pub fn run(args: &CompareArgs, common: &CommonArgs) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    let runs = compare::open(&args.runs)?;
    for run in runs.iter().filter(|run| run.config.is_empty()) {
        let file = run.path.join(CONFIG);
        let what = if file.exists() { "an empty" } else { "no" };
        notes.say(format!("{} has {what} config.toml: its settings are unknown", run.path.display()));
    }
    for run in runs.iter().filter(|run| !run.has_loss()) {
        notes.say(format!("{} holds no loss yet: it has no curve", run.path.display()));
    }
    if let Some(note) = compare::note(&runs) {
        notes.say(note);
    }
    let scale = if args.log { Scale::Logarithmic } else { Scale::Linear };
    match common.format {
        // With the picture on standard output, text there would become part of it.
        _ if args.svg.as_deref().is_some_and(is_standard_output) => {
            notes.say(shown(&runs, args, scale, Style::Letters).trim_end());
        }
        OutputFormat::Text if has_colour() => show_coloured(&shown(&runs, args, scale, Style::Dots(printable)))?,
        OutputFormat::Text => show(&shown(&runs, args, scale, Style::Letters))?,
        OutputFormat::Json => show(&lines(&runs)?)?,
    }

    // A single run's loss.svg has steps on its axis and a linear scale.
    let own = if let [only] = &runs[..] { Some(only).filter(|_| args.by == By::Step && !args.log) } else { None };
    let Some(path) = args.svg.clone().or_else(|| own.map(|run| run.path.join("loss.svg"))) else {
        notes.say("--svg FILE writes the picture");
        return Ok(Outcome::Done);
    };
    match own {
        Some(own) if args.svg.is_some() => loss_svg(&own.rows, &own.name, &path)?,
        Some(own) => match own_loss_svg(&own.rows, &own.name, &path) {
            // Without --svg this is only a note: the run's folder may be read-only.
            Err(StudyError::Write { source, .. }) => {
                notes.say(format!("{}; --svg FILE draws the losses elsewhere", with_causes(&source)));
                return Ok(Outcome::Done);
            }
            drawn => drawn?,
        },
        None => write_file(&path, &svg(&runs, args.by.into(), scale)?)?,
    }
    notes.say(format!("the losses are drawn in {}", path.display()));
    Ok(Outcome::Done)
}

/// The chart and the tables, sized for standard output.
fn shown(runs: &[Record], args: &CompareArgs, scale: Scale, style: Style) -> String {
    let size = if std::io::stdout().is_terminal() { crossterm::terminal::size().ok() } else { None };
    let (columns, rows) = size.map_or((80, 40), |(columns, rows)| (columns.min(140) as usize, rows as usize));
    let mut text = chart(runs, args.by.into(), scale, style, columns, (rows / 2).clamp(8, 24));
    text += &format!("\n{}", table(runs, style));
    let differing = differing(runs);
    if !differing.is_empty() {
        text += &format!("\n{}", style.words(&differing));
    }
    text
}

/// One JSON line per run: its metrics, and its values (as TOML) of the configuration keys that
/// differ between the runs.
fn lines(runs: &[Record]) -> Result<String> {
    let differences = differences(runs);
    json_lines(runs.iter().enumerate().map(|(number, run)| {
        let differs: BTreeMap<_, _> = differences.iter().map(|(key, values)| (key, &values[number])).collect();
        Joined { first: run.summary(), then: json!({ "differs": differs }) }
    }))
}
