//! `ember-train runs`: lists the runs, with their progress and disk usage; `runs remove` deletes
//! some.

use std::{io, io::IsTerminal, io::Write, time::SystemTime, time::UNIX_EPOCH};

use crate::prelude::*;
use clap::Subcommand;
use ember_cli::{terminal, terminal::printable};
use ember_decoding::run_folder::RUNS;
use ember_host::file_error::with_causes;
use ember_study::compare::aligned;
use ember_training::error::FolderError;
use ember_training::run::runs::{self, Removal, Summary};
use serde_json::json;

/// Arguments of `runs`.
#[derive(Args, Debug)]
#[command(
    override_usage = "ember-train runs [OPTIONS] [FOLDERS]...\n       ember-train runs <COMMAND>",
    after_help = "\
Examples:
  ember-train runs                     those in runs/, last trained first
  ember-train runs elsewhere a-run     those in another folder, and one run more
  ember-train runs remove stories-2    remove one, after asking"
)]
pub struct RunsArgs {
    /// Runs, or folders of runs [default: runs]
    pub folders: Vec<PathBuf>,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Remove runs from the disk: checkpoints, logs, samples, prepared text
    Remove(RemoveArgs),
}

#[derive(Args, Debug)]
struct RemoveArgs {
    /// Runs by their names in runs/, or by their paths
    #[arg(required = true, value_name = "NAME")]
    names: Vec<PathBuf>,
    /// Remove without asking
    #[arg(long)]
    yes: bool,
}

/// Runs the command.
///
/// # Errors
/// When a folder is no run's and holds none, or a run cannot be removed.
pub fn run(args: &RunsArgs, common: &CommonArgs) -> Result<Outcome> {
    match &args.action {
        Some(Action::Remove(args)) => remove(args, common),
        None => list(&args.folders, common),
    }
}

fn list(folders: &[PathBuf], common: &CommonArgs) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    let all = [PathBuf::from(RUNS)];
    let runs = match runs::list(if folders.is_empty() { &all } else { folders }) {
        Err(FolderError::Missing(_) | FolderError::NoRuns(_)) if folders.is_empty() => Vec::new(),
        listed => listed?,
    };
    answer(common, || if runs.is_empty() { String::new() } else { table(&runs) }, || json_lines(&runs))?;
    for run in &runs {
        if let Some(problem) = &run.problem {
            notes.say(format!("{}: {}", run.name, with_causes(problem)));
        }
    }
    if runs.is_empty() {
        notes.say("there is no run here yet; `ember-train run` makes one");
    } else if common.format == OutputFormat::Text && runs.iter().any(|run| run.lowest) {
        notes.say("* the lowest loss on its text");
    }
    Ok(Outcome::Done)
}

fn remove(args: &RemoveArgs, common: &CommonArgs) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    let mut paths = args.names.iter().map(|name| runs::named(name)).collect::<Result<Vec<_>, _>>()?;
    // Several names may mean the same run: a, runs/a and ./runs/a. Of a link and its target the
    // link is kept: removing it removes the target too, but not the other way round.
    paths.sort_by_cached_key(|path| (path.canonicalize().ok(), !path.is_symlink()));
    paths.dedup_by_key(|path| path.canonicalize().ok());
    // Before `Removal` takes the locks, since a locked run would be listed as running.
    let summaries = runs::list(&paths)?;
    let dependents = runs::learning_from(&paths);
    if args.yes || !io::stdin().is_terminal() {
        ensure!(
            dependents.is_empty(),
            "{}; to remove both, name both in one command",
            dependent_warnings(&dependents).join(", ")
        );
    }
    let removals = paths.iter().map(|path| Removal::new(path)).collect::<Result<Vec<_>, _>>()?;
    if !args.yes && !is_agreed_to(&removals, &summaries, &dependents)? {
        notes.say("nothing was removed");
        return Ok(Outcome::Done);
    }
    for removal in removals {
        let (path, size) = (removal.path().display().to_string(), removal.bytes());
        let link_target = link_target(removal.path()).map(|run| run.display().to_string());
        removal.carry_out().with_context(|| format!("{path} is partly removed; remove it again"))?;
        let linked =
            link_target.as_ref().map_or_else(String::new, |run| format!(" and the run that it links to, {run}"));
        let json = || json_line(&json!({ "removed": path, "led_to": link_target, "bytes": size }));
        answer(common, || format!("removed {path}{linked}, {}\n", bytes(size)), json)?;
    }
    Ok(Outcome::Done)
}

/// Lists the runs and warnings on the terminal, and asks whether to remove them.
///
/// # Errors
/// When nobody can be asked, or the answer cannot be read.
fn is_agreed_to(removals: &[Removal], summaries: &[Summary], dependents: &[(PathBuf, PathBuf)]) -> Result<bool> {
    let size = bytes(removals.iter().map(Removal::bytes).sum());
    let question = format!("remove {}, {size}?", counted(removals.len(), "run"));
    ensure!(
        io::stdin().is_terminal(),
        UsageError::new(format!("{question} Standard input is not a terminal to answer on; add --yes"))
    );
    let mut stderr = terminal::stderr();
    let linked = removals.iter().filter_map(|removal| {
        let (link, run) = (removal.path(), link_target(removal.path())?);
        Some(format!("{} is a link: this removes the run {}", link.display(), run.display()))
    });
    let warnings: String = linked.chain(dependent_warnings(dependents)).map(|line| line + "\n").collect();
    write!(stderr, "{}{}{question} [y/N] ", table(summaries), printable(&warnings))?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// The run that a symbolic link points to, which is removed with the link.
fn link_target(path: &Path) -> Option<PathBuf> {
    if path.is_symlink() { path.canonicalize().ok() } else { None }
}

/// A warning for each remaining run whose text is in a run to be removed.
fn dependent_warnings(dependents: &[(PathBuf, PathBuf)]) -> Vec<String> {
    let line = |(run, owner): &(PathBuf, PathBuf)| {
        format!("{} learns from the text in {} and would lose it", run.display(), owner.display())
    };
    dependents.iter().map(line).collect()
}

/// The runs as a table with headings: text left-aligned, numbers right-aligned.
fn table(runs: &[Summary]) -> String {
    let headings =
        ["run", "", "trained", "model", "steps", "best loss", "bits/byte", "parameters", "checkpoints", "size"];
    let headings = headings.map(String::from).to_vec();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let lines: Vec<_> = [headings].into_iter().chain(runs.iter().map(|run| cells(run, now))).collect();
    aligned(&lines, 4).join("\n") + "\n"
}

fn cells(run: &Summary, now: f64) -> Vec<String> {
    let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "-".into());
    let model: Vec<&str> = run.architecture.iter().chain(&run.tokenizer).map(String::as_str).collect();
    let star = if run.lowest { "* " } else { "" };
    vec![
        run.name.replace(char::is_control, "\u{fffd}"),
        word(run.state).replace('_', " "),
        ago((now - run.trained) as u64),
        or_dash(Some(model.join(", ")).filter(|model| !model.is_empty())),
        match run.max_steps {
            Some(most) if most != run.step => format!("{} of {}", grouped(run.step), grouped(most)),
            _ => grouped(run.step),
        },
        or_dash(run.best.map(|best| format!("{star}{:.4} at {}", best.val_loss, grouped(best.step)))),
        or_dash(run.bits_per_byte.map(|bits| format!("{bits:.3}"))),
        or_dash(run.parameters.map(|number| short(number as f64))),
        bytes(run.checkpoint_bytes),
        bytes(run.bytes),
    ]
}

/// How long ago something was, in the largest unit that fits.
fn ago(seconds: u64) -> String {
    let (number, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{} ago", counted(number as usize, unit))
}
