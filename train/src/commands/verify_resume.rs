//! `ember-train verify-resume`: checks that a run that stops half-way and is resumed ends like one
//! that never stopped.

use std::fs;

use ember_training::config::keys::assigned_name;
use ember_training::run::folder::{CONFIG, DATA, RunFolder};
use ember_training::run::verify::{Comparison, Difference, compare};
use ember_training::run::{self, Run, Start};
use ember_training::{distributed::Alone, distributed::launch::Launch};
use serde_json::json;

use super::run::{RunArgs, RunHooks, settings};
use crate::prelude::*;

/// Arguments of `verify-resume`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ember-train verify-resume                                     on the built-in stories
  ember-train verify-resume shakespeare.txt --config shakespeare-char-cpu --steps 10")]
pub struct VerifyResumeArgs {
    /// As for `run`
    pub text: Vec<String>,
    /// A configuration file, or the name of a shipped one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Change one key of the configuration; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Steps before the stop, and as many after it
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub steps: u64,
}

/// Runs the command.
///
/// # Errors
/// When the two runs differ, naming the first tensor; and as `run` and `resume` do.
pub fn run(args: &VerifyResumeArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    ensure!(
        Launch::of_this_process().is_none(),
        UsageError::new(
            "verify-resume compares runs of one process; start it without mpirun (tools/check-mpi compares several)"
        )
    );
    refuse_length(&args.set)?;
    let notes = Notes::new(common.quiet);
    let selected = select(common, &notes)?;
    let folder = temporary_folder()?;
    let (whole, halves) = (folder.path().join("whole"), folder.path().join("halves"));
    let mut screen = Screen::new(true);

    notes.say(format!("training {} in one go", counted(grouped(2 * args.steps), "step")));
    if !prepare(args, common, &whole, interrupt)? {
        return Ok(Outcome::Interrupted);
    }
    copy_beginning(&whole, &halves)?;
    let mut trained = |run: Run| train(run, &Alone, &mut screen, &Notes::new(true), interrupt);
    let begun = |folder: &Path| Run::from_the_start(RunFolder::open(folder)?, selected.clone(), &Alone);
    if trained(begun(&whole)?)? == Outcome::Interrupted {
        return Ok(Outcome::Interrupted);
    }
    let steps = counted(grouped(args.steps), "step");
    notes.say(format!("training {steps}, stopping, and resuming from the disk"));
    trained(Run { pause_at: Some(args.steps), ..begun(&halves)? })?;
    if interrupt.requested() {
        return Ok(Outcome::Interrupted);
    }
    let resumed = run::resume(&halves, &[], selected.clone(), None, &Alone, &mut Screen::new(true))?;
    // Else runs that were never stopped would be compared, or parts that say nothing of a resume.
    let stopped_at = resumed.progress.step;
    ensure!(stopped_at == args.steps, "the run did not stop at step {} but at step {stopped_at}", args.steps);
    if trained(resumed)? == Outcome::Interrupted {
        return Ok(Outcome::Interrupted);
    }

    let comparison = compare(&whole, &halves, 2 * args.steps)?;
    conclude(&comparison, args.steps, &selected.id, common.format)
}

/// Refuses assignments that change the length: `--steps` sets the length of both runs.
fn refuse_length(assignments: &[String]) -> Result<()> {
    if let Some(assignment) = assignments.iter().find(|of| ["max_steps", "patience"].contains(&assigned_name(of))) {
        bail!(UsageError::new(format!("--set {assignment}: --steps sets the length of both runs; leave it out")));
    }
    Ok(())
}

/// Prepares the text and writes the configuration of a run of twice `--steps`; false if
/// interrupted.
fn prepare(args: &VerifyResumeArgs, common: &CommonArgs, whole: &Path, interrupt: &Interrupt) -> Result<bool> {
    let steps = args.steps;
    let mut args =
        RunArgs { text: args.text.clone(), config: args.config.clone(), set: args.set.clone(), ..RunArgs::default() };
    args.set.extend([format!("max_steps={}", 2 * steps), "patience=0".to_owned()]);
    let mut screen = Screen::new(true);
    let hooks = RunHooks { deadline: None, quiet: true, interrupt };
    let start = Start::new(settings(&args, common)?, common.device, None, &hooks, &mut screen)?;
    Ok(start.describe(&RunFolder::create(whole)?, 1, &hooks, &mut screen)?.is_some())
}

/// Copies the configuration and data of a run that has not trained yet to a second run.
fn copy_beginning(from: &Path, to: &Path) -> Result<()> {
    let copy = |name: &Path| {
        fs::copy(from.join(name), to.join(name)).with_context(|| format!("cannot copy {}", from.join(name).display()))
    };
    fs::create_dir_all(to.join(DATA)).with_context(|| format!("cannot create {}", to.display()))?;
    copy(Path::new(CONFIG))?;
    // The data folder is missing if the text was prepared elsewhere.
    let Ok(entries) = fs::read_dir(from.join(DATA)) else { return Ok(()) };
    for entry in entries.flatten() {
        copy(&Path::new(DATA).join(entry.file_name()))?;
    }
    Ok(())
}

/// Prints the result; a difference is an error.
fn conclude(comparison: &Comparison, steps: u64, device: &str, format: OutputFormat) -> Result<Outcome> {
    let Comparison { tensors, values, state, rows, difference } = comparison;
    let same = difference.is_none();
    let (both, values) = (grouped(2 * steps), grouped(*values as u64));
    show(&match format {
        OutputFormat::Json => {
            let subject = json!({ "same": same, "device": device, "steps": steps });
            json_line(&Joined { first: subject, then: comparison })?
        }
        OutputFormat::Text if same => format!(
            "the same bits on {device} after {steps} + {steps} steps as after {both}: {values} values in {tensors} tensors of \
             weights and optimizer, {state} entries of state, {rows} rows of metrics\n"
        ),
        OutputFormat::Text => String::new(),
    })?;
    match difference {
        None => Ok(Outcome::Done),
        Some(difference) => bail!("not the same on {device} after {steps} + {steps} steps: {}", describe(difference)),
    }
}

/// A difference in one line.
fn describe(difference: &Difference) -> String {
    let Difference { file, name, place, values, first, second } = difference;
    let place = if place.is_empty() { String::new() } else { format!(" {place:?}") };
    format!("{file}: {name}{place} is {first} in one go and {second} after a resume; {values} of its values differ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_difference_is_an_error_that_names_it() {
        let [file, name, first, second] = ["model.safetensors", "wte.weight", "0.5", "0.25"].map(str::to_owned);
        let difference = Some(Difference { file, name, place: vec![1, 2], values: 3, first, second });
        let found = Comparison { difference, ..Comparison::default() };
        let error = conclude(&found, 8, "cpu", OutputFormat::Text).unwrap_err();
        let expected = "not the same on cpu after 8 + 8 steps: model.safetensors: wte.weight [1, 2] is 0.5 in one go and \
                        0.25 after a resume; 3 of its values differ";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_length_of_one_s_own_is_refused_and_nothing_else() {
        let refused = |assignment: &str| refuse_length(&["n_embd=8".to_owned(), assignment.to_owned()]).is_err();
        assert!(refused("max_steps=20") && refused(" patience = 3") && refused("max_steps"));
        assert!(!refused("max_grad_norm=1") && !refused("text=max_steps"));
    }
}
