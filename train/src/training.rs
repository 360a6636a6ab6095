//! Shared by `run` and `resume`: trains a run, draws its losses, and tells the user where the
//! results are.

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use anyhow::{Result, anyhow};
use ember_cli::failure;
use ember_cli::program::{CommonArgs, Notes, Outcome, UsageError, exit};
use ember_cli::terminal::{say, typed};
use ember_host::{file_error::with_causes, interrupt::Interrupt};
use ember_model::device::{self, DeviceError, Selected};
use ember_study::{error::Error, plot::own_loss_svg};
use ember_training::config::{self, ConfigError, Settings, keys::assigned_name};
use ember_training::distributed::watch::{Event, Gone};
use ember_training::distributed::{self, ProcessGroup, Program};
use ember_training::error::Error as TrainingError;
use ember_training::run::{Ended, Run, Trained, folder, folder::RunFolder};
use ember_training::{run::report::Row, run::report::jsonl, step::progress::Best};

use crate::{report::Screen, report::restore_terminal, wording, wording::exit_code};

/// Joins the group of processes that this one was started with.
pub fn join(interrupt: &Interrupt) -> Result<Box<dyn ProcessGroup>, ember_training::error::Error> {
    distributed::join(Program { code: exit_code, gone: report_gone }, interrupt)
}

/// The common arguments for this process: of several processes only the leader prints notes.
pub fn quiet_unless_leading(group: &dyn ProcessGroup, common: &CommonArgs) -> CommonArgs {
    CommonArgs { quiet: common.quiet || !group.leads(), ..common.clone() }
}

/// Trains to the end or to an interruption, draws the losses, and says where the results are.
pub fn train(
    run: Run,
    group: &dyn ProcessGroup,
    screen: &mut Screen,
    notes: &Notes,
    interrupt: &Interrupt,
) -> Result<Outcome> {
    interrupt.before_exit(restore_terminal);
    let path = run.folder.path().to_owned();
    let train = AssertUnwindSafe(|| run.train(group, screen, &|| interrupt.requested()));
    let failed = |line: String| anyhow!("{line}; {}", resume_advice(&path, folder::newest_step(&path), group.size()));
    let trained = match panic::catch_unwind(train) {
        Ok(Err(TrainingError::Device(problem))) => Err(failed(failure::of_device(&problem))),
        Ok(result) => result.map_err(Into::into),
        Err(payload) => match failure::of_device_panic(&*payload) {
            Some(line) => Err(failed(line)),
            None => panic::resume_unwind(payload),
        },
    }?;
    if group.leads() {
        conclude(&trained, notes);
    }
    group.leave();
    Ok(match trained.ended {
        Ended::Finished => Outcome::Done,
        Ended::Interrupted => Outcome::Interrupted,
    })
}

/// Draws the losses, and tells the user the result and the next command.
fn conclude(trained: &Trained, notes: &Notes) {
    let run = &trained.folder;
    let path = typed(run.path());
    let is_finished = trained.ended == Ended::Finished;
    if !is_finished {
        let step = trained.progress.step;
        notes.say(format!("interrupted at step {step}, which is saved; continue with `ember-train resume {path}`"));
    } else if let Some(Best { val_loss, .. }) = trained.progress.evaluations.best_saved {
        notes.say(format!("best validation loss {val_loss:.4}{}", marks(trained, val_loss)));
    }
    // The training is already saved, so a failure to draw is only a note: it can be drawn later.
    match draw(run) {
        Err(Error::NothingToPlot) if !is_finished => {} // no step was taken yet
        Err(Error::Write { source, .. }) => {
            let why = with_causes(&source);
            notes.say(format!("{why}; `ember-train compare {path} --svg FILE` draws the losses elsewhere"));
        }
        Err(error) => notes.say(format!("{:#}", wording::reworded(error.into()))),
        Ok(()) if is_finished => notes.say(format!("the losses are drawn in {}", run.file(folder::PLOT).display())),
        Ok(()) => {}
    }
    if is_finished {
        notes.say(format!(
            "generate with it: `ember-generate text --from {path}`, or in the clone `cargo write --from {path}`"
        ));
    }
}

/// Draws the losses of a run into its folder.
fn draw(run: &RunFolder) -> Result<(), Error> {
    let rows: Vec<Row> = jsonl::read(&run.file(folder::METRICS))?;
    own_loss_svg(&rows, &run.name(), &run.file(folder::PLOT))
}

/// On the built-in corpus: where the loss lies between the forgetful predictor's loss and the
/// entropy floor.
fn marks(trained: &Trained, loss: f64) -> String {
    let Some(marks) = &trained.marks else { return String::new() };
    let (forgetful, floor) = (marks.forgetful_loss, marks.entropy_floor);
    let closed = (forgetful - loss) / (forgetful - floor);
    let predictor = format!("a predictor that forgets every earlier sentence ({forgetful:.4})");
    if closed < 0.0 {
        return format!(" nats per token: above that of {predictor}; the lowest possible is {floor:.4}");
    }
    let percent = 100.0 * closed;
    format!(" nats per token: {percent:.1}% of the way from {predictor} to the lowest possible ({floor:.4})")
}

/// A recipe's settings; without one, those of the built-in stories if `is_default`, else none.
pub fn recipe(path: Option<&Path>, is_default: bool) -> Result<Settings, ConfigError> {
    match path {
        Some(path) => Settings::from_recipe(path),
        None if is_default => Settings::from_toml_str(config::DEFAULT),
        None => Ok(Settings::default()),
    }
}

/// Refuses an assignment to a key that is also set by an argument. `arguments` are pairs of a key and
/// its argument, and whether that is given.
pub fn refuse_set_twice(assignments: &[String], arguments: &[(&str, &str, bool)]) -> Result<(), UsageError> {
    for (key, argument, is_given) in arguments {
        let assignment = assignments.iter().find(|assignment| *is_given && assigned_name(assignment) == *key);
        if let Some(assignment) = assignment {
            return Err(UsageError::new(format!(
                "--set {assignment}: {argument} sets {key}, too; leave one of them out"
            )));
        }
    }
    Ok(())
}

/// Applies `--set`, and the command line's seed and text if given.
pub fn set_all(settings: &mut Settings, assignments: &[String], text: &[String], common: &CommonArgs) -> Result<()> {
    refuse_set_twice(assignments, &[("text", "TEXT", !text.is_empty()), ("seed", "--seed", common.seed.is_some())])?;
    let seed = common.seed.map(|seed| format!("seed={seed}"));
    assignments.iter().chain(&seed).try_for_each(|assignment| settings.set(assignment))?;
    if !text.is_empty() {
        settings.set_text(text);
    }
    Ok(())
}

/// The device that `--device` selects; prints it and the reason for the choice.
pub fn select(common: &CommonArgs, notes: &Notes) -> Result<Selected, DeviceError> {
    let selected = device::select(common.device)?;
    notes.say(selected.line());
    Ok(selected)
}

/// Tells the user of a process that is late, or of one that died, which ends this process too.
fn report_gone(gone: &Gone) {
    match gone.what {
        Event::LateStep => say(format_args!(
            "{}: the step has not finished; if mpirun ends it first, {}",
            gone.run.display(),
            resume_advice(&gone.run, gone.saved, gone.size)
        )),
        Event::Died { rank, pid, reports_here } => {
            if reports_here {
                let (run, size) = (gone.run.display(), gone.size);
                let died = format!("the process of rank {rank} (pid {pid}) has died, so all {size} end");
                say(format_args!("error: {run}: {died}; {}", resume_advice(&gone.run, gone.saved, gone.size)));
            }
            exit(1)
        }
    }
}

/// The last step saved, and the command that resumes from it with `processes` processes.
fn resume_advice(run: &Path, saved: Option<u64>, processes: usize) -> String {
    let saved = saved.map_or_else(|| "no step is saved yet".to_owned(), |step| format!("step {step} is saved"));
    let mpirun = if processes > 1 { format!("mpirun -n {processes} ") } else { String::new() };
    format!("{saved}, continue with `{mpirun}ember-train resume {}`", typed(run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_what_is_saved_and_the_command() {
        let run = Path::new("/a");
        assert_eq!(
            resume_advice(run, None, 2),
            "no step is saved yet, continue with `mpirun -n 2 ember-train resume /a`"
        );
        assert_eq!(resume_advice(run, Some(14), 1), "step 14 is saved, continue with `ember-train resume /a`");
        let spaced = if cfg!(windows) { "\"my run\"" } else { "'my run'" };
        let line = resume_advice(Path::new("my run"), Some(14), 1);
        assert_eq!(line, format!("step 14 is saved, continue with `ember-train resume {spaced}`"));
    }

    #[test]
    fn a_key_is_set_once() {
        let assignments = ["seed=5", " batch_size = 3"].map(str::to_owned);
        let refused = |arguments: &[(&str, &str, bool)]| {
            refuse_set_twice(&assignments, arguments).err().map(|error| error.to_string())
        };
        let expected = "--set  batch_size = 3: --batch sets batch_size, too; leave one of them out";
        assert_eq!(refused(&[("batch_size", "--batch", true)]).as_deref(), Some(expected));
        assert_eq!(refused(&[("batch_size", "--batch", false), ("text", "TEXT", true)]), None);
    }
}
