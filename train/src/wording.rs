//! The libraries' errors and notes in the program's words: with the flags and commands that help.

use std::{error::Error as StdError, io::ErrorKind};

use anyhow::anyhow;
use ember_cli::program::{ReportedElsewhere, UsageError};
use ember_cli::{failure, terminal::typed, wording, wording::Worded, wording::Wording, wording::shared};
use ember_data::{prepare, tokenizer};
use ember_decoding::run_folder;
use ember_host::file_error::FileError;
use ember_study::error::Error as StudyError;
use ember_training::error::{
    CheckpointError, ConfigError, DoesNotFit, Error, FolderError, GroupError, GuardError, InitError, remedy,
};
use ember_training::note::Note;

/// The error that ends the program, in the program's words and with its exit code.
pub fn reworded(error: anyhow::Error) -> anyhow::Error {
    let elsewhere = error.chain().find_map(|cause| match Error::unwrapped(cause).downcast_ref()? {
        GroupError::ReportedElsewhere(code) => Some(*code),
        _ => None,
    });
    match elsewhere {
        Some(code) => ReportedElsewhere(code).into(),
        None => wording::reworded(error, words),
    }
}

/// The exit code for an error when several processes end together: 2 for wrong arguments, else 1.
pub fn exit_code(error: &Error) -> u8 {
    wording::words_by(error, words).exit_code()
}

/// A note, with the flag that changes what it reports.
pub fn note(note: &Note) -> String {
    match note {
        Note::Length(_) => format!("{note}; a longer run learns more: --set max_steps=N"),
        Note::RateEnds { .. } => format!("{note}; change that with --set lr_decay_steps=N"),
        _ => note.with_errors_as(line),
    }
}

fn line(error: &Error) -> String {
    wording::words_by(error, words).words()
}

/// The program's words for one error of a chain; None if it has none of its own.
fn words(cause: &(dyn StdError + 'static)) -> Option<Worded> {
    // No error has two of these types, so their order does not matter.
    const OWN: [Wording; 10] = [
        |cause| of_checkpoint(downcast(cause)?).map(Worded::Failure),
        |cause| of_guard(downcast(cause)?).map(Worded::Failure),
        |cause| of_init(downcast(cause)?).map(Worded::Failure),
        |cause| of_study(downcast(cause)?).map(Worded::Failure),
        |cause| of_device(downcast(cause)?).map(Worded::Failure),
        |cause| of_tokenizer(cause).map(Worded::Failure),
        |cause| Some(Worded::Usage(of_config(downcast(cause)?))),
        |cause| Some(Worded::Usage(downcast::<DoesNotFit>(cause)?.to_string())),
        |cause| of_processes(downcast(cause)?).map(Worded::Usage),
        |cause| of_folder(downcast(cause)?),
    ];
    let cause = StudyError::unwrapped(cause);
    OWN.iter().find_map(|words| words(cause)).or_else(|| shared(cause))
}

/// Downcasts `cause` to an error of type `E`, boxed or not.
fn downcast<'a, E: StdError + 'static>(cause: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    cause.downcast_ref().or_else(|| cause.downcast_ref::<Box<E>>().map(|error| &**error))
}

/// Converts an error of the program to the library's type, which the library's callbacks return.
pub fn training_error(error: anyhow::Error) -> Error {
    let other = |error: anyhow::Error| Error::Other(error.reallocate_into_boxed_dyn_error_without_backtrace());
    error.downcast().unwrap_or_else(other)
}

/// The error of a command that looks for the text of a run and resumes nothing.
pub fn text_unknown(error: Error) -> anyhow::Error {
    match error {
        Error::Folder(FolderError::LostConfig(run)) => anyhow!(
            "{} has checkpoints but no config.toml, so its training text is unknown; restore that file",
            run.display()
        ),
        error => reworded(error.into()),
    }
}

/// Advises `instead` when the device lacks the run's precision and the command cannot change it;
/// any other error is unchanged.
pub fn precision_kept(error: Error, instead: &str) -> anyhow::Error {
    match error {
        Error::Config(ConfigError::Precision { precision, device, name, problem }) => {
            UsageError::new(format!("precision = {precision}: {device} ({name}) {problem}; {instead}")).into()
        }
        error => error.into(),
    }
}

fn of_config(error: &ConfigError) -> String {
    use ConfigError::*;
    match error {
        NoEquals(assignment) => {
            format!("--set {assignment} has no \"=\"; write --set key=value, as in --set max_steps=500")
        }
        Fixed { .. } => format!("--set {error}"),
        UnknownKey { nearest: None, .. } => format!("{error}; `ember-train run --help-config` lists them all"),
        Precision { precision, device, name, problem } => format!(
            "precision = {precision}: {device} ({name}) {problem}; use --set precision=f32, or another --device"
        ),
        Limits(error) => wording::limits(error),
        VocabSize { recipe, tokenizer } => format!(
            "--config {}: tokenizer = \"{tokenizer}\" does not determine the vocabulary size; add --set tokenizer=bpe:SIZE",
            recipe.display()
        ),
        _ => error.to_string(),
    }
}

fn of_folder(error: &FolderError) -> Option<Worded> {
    use FolderError::*;
    let is_usage = matches!(error, HoldsRun { .. } | IsFile(_) | Foreign { .. } | OtherData { .. });
    let words = match error {
        IsFile(_) | Foreign { .. } | OtherData { .. } => format!("--out {error}"),
        HoldsRun(path) => format!(
            "{} holds a run already; continue it with `ember-train resume {}`, or choose another --out",
            path.display(),
            typed(path)
        ),
        Create { path, .. } => format!("cannot create the run folder {}; choose another --out", path.display()),
        NoRun(path) => {
            format!("{} is not a run folder (it has no config.toml); name the folder that `run` made", path.display())
        }
        LostConfig(path) => format!("{error}, in another folder, with --init {}", typed(path)),
        InUse(path) => {
            format!("{} is in use by another ember-train; wait for it to end, or stop it first", path.display())
        }
        Gone(path) => format!(
            "{} was moved or removed while it trained; put it back and continue with `ember-train resume {}`",
            path.display(),
            typed(path)
        ),
        Missing(path) => format!("there is no run {}; `ember-train runs` lists those in runs/", path.display()),
        File(error) if is_locked_out(error) => format!("{error} (make its folder writable, or use another)"),
        _ => return None,
    };
    Some(if is_usage { Worded::Usage(words) } else { Worded::Failure(words) })
}

/// Whether the lock of a run could not be written because nothing may be written in its folder.
fn is_locked_out(error: &FileError) -> bool {
    let is_refused = matches!(error.source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem);
    is_refused && error.path.ends_with(".lock")
}

fn of_checkpoint(error: &CheckpointError) -> Option<String> {
    match error {
        CheckpointError::Save { step, run, latest: None, is_full, .. } => Some(format!(
            "could not save step {step} ({} and continue with `ember-train resume {}`)",
            remedy(*is_full),
            typed(run)
        )),
        CheckpointError::OtherText { run, .. } => {
            Some(format!("{error}, or begin a new run with --init {}", typed(run)))
        }
        CheckpointError::OtherVersion { checkpoint, .. } => Some(format!(
            "{} was saved by another version of ember-train; resume with that one, or begin a new run with --init {}",
            checkpoint.display(),
            typed(checkpoint)
        )),
        _ => None,
    }
}

fn of_guard(error: &GuardError) -> Option<String> {
    match error {
        GuardError::SkippedTooMany { .. } => Some(format!("{error} (--set max_skipped_batches=N)")),
        GuardError::DamagedWeights { parameter, place, saved: Some(saved) } => Some(format!(
            "{parameter} {place:?} is no longer finite, though every gradient was; these weights are not saved: {} is intact, \
             and `ember-train resume` continues from it",
            saved.display()
        )),
        _ => None,
    }
}

fn of_init(error: &InitError) -> Option<String> {
    match error {
        InitError::NoTokenizer(folder) => run_folder::without_tokenizer(folder),
        InitError::OtherTokenizer { folder, .. } => {
            Some(format!("{error}; prepare the text again with --tokenizer {}", typed(folder)))
        }
        _ => None,
    }
}

fn of_processes(error: &GroupError) -> Option<String> {
    match error {
        GroupError::NoMpi(processes) => Some(format!(
            "mpirun started {processes} processes of an ember-train that was built without MPI, and they would write into one \
             folder; build it with `cargo build --release -p ember-train --features mpi`, or start it without mpirun"
        )),
        GroupError::UnequalShares { .. } | GroupError::Unknown => Some(error.to_string()),
        _ => None,
    }
}

fn of_device(error: &Error) -> Option<String> {
    let Error::Device(problem) = error else { return None };
    Some(failure::of_device(problem))
}

/// A missing tokenizer, in the library's words: no command here takes token ids instead of a text.
fn of_tokenizer(cause: &(dyn StdError + 'static)) -> Option<String> {
    let error = match downcast::<prepare::Error>(cause) {
        Some(prepare::Error::Tokenizer(error)) => error,
        _ => downcast::<tokenizer::Error>(cause)?,
    };
    let tokenizer::Error::Missing(folder) = error else { return None };
    Some(run_folder::without_tokenizer(folder).unwrap_or_else(|| error.to_string()))
}

fn of_study(error: &StudyError) -> Option<String> {
    match error {
        StudyError::TooLong(_) => Some(format!("{error} with --corpus")),
        StudyError::NoAxis(axis) => Some(format!("no loss can be drawn over {axis}; try another --by")),
        StudyError::NoLogarithm => {
            Some("no loss is above 0, so none can be drawn on a logarithmic scale; leave out --log".to_owned())
        }
        StudyError::Silent => Some("the device does not report its memory use; use --device cpu".to_owned()),
        StudyError::Device(problem) => Some(failure::of_device(problem)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_named_wherever_the_error_stands_in_the_chain() {
        let unknown = ConfigError::UnknownKey { name: "zzzz".to_owned(), nearest: None };
        let in_file = ConfigError::InFile { path: "a.toml".into(), source: unknown.into() };
        let error = Error::from(in_file);
        assert_eq!(exit_code(&error), 2);
        let expected = "a.toml: there is no key \"zzzz\"; `ember-train run --help-config` lists them all";
        assert_eq!(reworded(error.into()).to_string(), expected);
    }

    #[test]
    fn a_device_that_fails_in_a_plan_is_gone_in_a_run() {
        let lost = "Read(\"The device is poisoned\\nCaused by:\\n  Unknown: Device is lost\\nBacktrace:\\n\")";
        let in_training = Error::Device(lost.to_owned());
        let in_a_plan = StudyError::from(in_training);
        let in_a_run = training_error(in_a_plan.into());
        assert!(reworded(in_a_run.into()).to_string().starts_with("the device was lost (Unknown: Device is lost), as"));
    }

    #[test]
    fn a_lost_configuration_is_told_by_what_the_command_wants_of_it() {
        let lost = || Error::Folder(FolderError::LostConfig("run".into()));
        assert!(reworded(lost().into()).to_string().ends_with("in another folder, with --init run"));
        let expected = "run has checkpoints but no config.toml, so its training text is unknown; restore that file";
        assert_eq!(text_unknown(lost()).to_string(), expected);
    }

    #[test]
    fn a_lock_that_may_not_be_written_says_what_to_do() {
        let source = ErrorKind::PermissionDenied.into();
        let error = FileError { doing: "cannot write", path: "run/.lock".into(), source };
        let line = reworded(Error::Folder(error.into()).into()).to_string();
        assert!(line.starts_with("cannot write run/.lock (make its folder writable, or use another): "), "{line}");
    }

    #[test]
    fn room_is_what_a_full_disk_wants_and_nothing_else() {
        let saved = |is_full| {
            let source = "why".into();
            Error::from(CheckpointError::Save { step: 8, run: "run".into(), latest: None, is_full, source })
        };
        let line = |is_full| reworded(saved(is_full).into()).to_string();
        let full = "could not save step 8 (free some space and continue with `ember-train resume run`)";
        assert!(line(true).starts_with(full));
        let kept_out =
            "could not save step 8 (check that the run folder may be written to, and continue with `ember-train";
        assert!(line(false).starts_with(kept_out));
    }

    #[test]
    fn a_command_that_cannot_change_the_precision_does_not_advise_it() {
        let problem = "does not compute in bfloat16".to_owned();
        let precision = |problem| ConfigError::Precision {
            precision: "bf16".to_owned(),
            device: "wgpu:0".to_owned(),
            name: "a GPU".to_owned(),
            problem,
        };
        let line = |error: Error| precision_kept(error, "use another --device").to_string();
        assert_eq!(
            line(precision(problem).into()),
            "precision = bf16: wgpu:0 (a GPU) does not compute in bfloat16; use another --device"
        );
        let other = ConfigError::UnknownKey { name: "zzzz".to_owned(), nearest: None };
        assert_eq!(line(other.into()), "there is no key \"zzzz\"");
    }

    #[test]
    fn a_missing_tokenizer_is_said_without_the_other_programs_flag() {
        let missing = || tokenizer::Error::Missing("a".into());
        for error in [Error::from(missing()), Error::from(prepare::Error::from(missing()))] {
            let line = reworded(error.into()).to_string();
            assert!(
                line.starts_with("a has no tokenizer.json") && line.ends_with("put the model's tokenizer there"),
                "{line}"
            );
        }
    }
}
