//! Why a run cannot go on: its folder, checkpoints, logs, processes or gradients.
#![allow(missing_docs)] // the message names each field

use std::io;
use std::path::{Path, PathBuf};

use ember_host::file_error::FileError;

use super::begin::Cause;
use crate::units::bytes_beside;

/// Why a folder cannot be used as a run's folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The folder for a new run already holds a run.
    #[error("{0} holds a run already; resume it, or choose another folder")]
    HoldsRun(PathBuf),
    /// The folder for a new run is a file.
    #[error("{0} is a file; name a folder")]
    IsFile(PathBuf),
    /// The folder for a new run holds other files.
    #[error(
        "{path} holds other files, {name} among them, and they might be overwritten; name a folder that is new or empty"
    )]
    Foreign { path: PathBuf, name: String },
    /// The folder for a new run on a prepared text holds another prepared text.
    #[error(
        "{path} holds another prepared text, which would be taken for this run's; move {data} away, or choose another folder"
    )]
    OtherData { path: PathBuf, data: PathBuf },
    /// The folder for a new run cannot be created.
    #[error("cannot create the run folder {path}; choose another")]
    Create { path: PathBuf, source: io::Error },
    /// There is no run in this folder.
    #[error("{0} is not a run folder (it has no config.toml); name the folder of a run")]
    NoRun(PathBuf),
    /// A run in this folder ended before its configuration was written.
    #[error("the run in {0} ended before it started (it has no config.toml); start it again with the same command")]
    NotBegun(PathBuf),
    /// The run in this folder has checkpoints, but its configuration is gone.
    #[error(
        "{0} has checkpoints but no config.toml, so it cannot be resumed; restore that file, or begin a new run from its \
         checkpoint"
    )]
    LostConfig(PathBuf),
    /// There is no run in this folder, but one of the same name elsewhere.
    #[error("{path} is not a run folder (it has no config.toml); did you mean {run}?")]
    DidYouMean { path: PathBuf, run: PathBuf },
    /// The path does not exist.
    #[error("there is no run {0}; name an existing run")]
    Missing(PathBuf),
    /// A folder that is no run and holds none.
    #[error("{0} is not a run and contains none; name a run, or a folder of runs")]
    NoRuns(PathBuf),
    /// A run cannot be removed because its folder holds other files too.
    #[error("{path} holds files that no run wrote, such as {file}; move them elsewhere first")]
    NotOnlyRun { path: PathBuf, file: PathBuf },
    /// Another process trains the run in this folder.
    #[error("{0} is in use by another process; wait for it to end, or stop it first")]
    InUse(PathBuf),
    /// The disk has no file locks, so a second process could not be kept out of this folder.
    #[error("the disk of {0} has no file locks, which keep a second process out of a run; put it on another disk")]
    NoLocks(PathBuf),
    /// The folder of the run was moved or removed while this process trained it.
    #[error("{0} was moved or removed while it trained; put it back and resume")]
    Gone(PathBuf),
    /// A pointer names a folder that does not exist.
    #[error("{pointer} names {folder}, which does not exist; write the name of a folder in checkpoints/ into it")]
    DanglingPointer { pointer: PathBuf, folder: PathBuf },
    /// A file in it cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a checkpoint cannot be saved or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It cannot be written; earlier checkpoints are still there.
    #[error("could not save step {step} ({}{} and resume)", whole(latest.as_deref()), remedy(*is_full))]
    Save { step: u64, run: PathBuf, latest: Option<PathBuf>, is_full: bool, source: Cause },
    /// The run in this folder has no checkpoint.
    #[error("{0} holds no checkpoint")]
    None(PathBuf),
    /// This file, the list of a checkpoint's files and checksums, is missing.
    #[error("{0} is missing from its checkpoint; use another one")]
    NoChecksums(PathBuf),
    /// A file of this checkpoint cannot be read, so nobody knows whether it is damaged.
    #[error(
        "cannot tell whether {checkpoint} is damaged; make it readable, or move it away to resume from an older one"
    )]
    Unreadable { checkpoint: PathBuf, source: Cause },
    /// This folder holds only the part of a checkpoint that inference needs.
    #[error("{0} holds no training state, only a model to generate with; resume a run folder instead")]
    NoState(PathBuf),
    /// The checkpoint's state has another version's format.
    #[error("{checkpoint} was saved by another version; resume with that one, or begin a new run from the checkpoint")]
    OtherVersion { checkpoint: PathBuf, source: serde_json::Error },
    /// The state in this file is impossible.
    #[error("{0} is damaged: fewer windows than steps")]
    ImpossibleState(PathBuf),
    /// The optimizer cannot restore its moments.
    #[error("{file}")]
    Moments { file: PathBuf, source: OptimizerError },
    /// The average of the weights is missing from this folder.
    #[error("{0} is missing, so ema_decay was 0 when it was saved; set it to 0 in config.toml")]
    NoAverage(PathBuf),
    /// The run has learned from another text.
    #[error("{data} has a different {what} than {run} was trained on; put the folder back as it was")]
    OtherText { data: PathBuf, what: &'static str, run: PathBuf },
    /// The configuration or the text in this run's folder no longer match the checkpoint's model.
    #[error("{0}: its config.toml or data no longer describe the model in its checkpoint; put back what was changed")]
    OtherModel(PathBuf),
}

fn whole(latest: Option<&Path>) -> String {
    latest.map_or_else(String::new, |latest| format!("{} is intact; ", latest.display()))
}

/// Why an optimizer cannot be restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptimizerError {
    /// Another kind of optimizer was stored.
    #[error(
        "these are the moments of optimizer = \"{was}\", not of \"{is}\"; write optimizer = \"{was}\" into config.toml"
    )]
    OtherKind { was: &'static str, is: &'static str },
    /// A parameter's moment is missing, or has another size.
    #[error("the stored optimizer has no {kind} moment of size {size} for {parameter}")]
    NoMoment { kind: &'static str, size: usize, parameter: String },
}

/// Why the guard ends a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// Too many batches were skipped.
    #[error(
        "more than max_skipped_batches = {most} batches had a loss or gradient that is not finite; step {step} is saved: look at \
         reports/, lower learning_rate in a new run, or resume with a larger limit"
    )]
    SkippedTooMany { most: u64, step: u64 },
    /// A weight is no longer finite.
    #[error("{parameter} {place:?} is no longer finite, though every gradient was; these weights are not saved: {}", match saved {
            Some(saved) => format!("{} is intact, and a resume continues from it", saved.display()),
            None => "no checkpoint was saved yet; begin again with a lower learning_rate".to_owned(),
        })]
    DamagedWeights { parameter: String, place: Vec<usize>, saved: Option<PathBuf> },
}

/// Why processes cannot train together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A launcher started this many processes of a program that was built without MPI.
    #[error("{0} processes of a program that was built without MPI were started, and they would write into one folder")]
    NoMpi(usize),
    /// A launcher started this process, and the number of processes is unknown.
    #[error(
        "a PMIx launcher started this process without the number of processes; start it with mpirun, or unset \
         PMIX_RANK if it is the only one"
    )]
    Unknown,
    /// The launcher's MPI is not the one that the program was built with.
    #[error(
        "the launcher started {launched} processes, but MPI sees {seen}; start them with the mpirun of the MPI that this program \
         was built with"
    )]
    OtherMpi { launched: usize, seen: usize },
    /// MPI was already initialised.
    #[error("MPI was initialized twice in one process")]
    BegunTwice,
    /// The windows of a step do not divide evenly among the processes.
    #[error(
        "the {windows} windows of a step (batch_size times grad_accum_steps) do not divide among {processes} processes; start a \
         number of processes that divides {windows}, or choose another batch_size"
    )]
    UnequalShares { windows: usize, processes: usize },
    /// A process reads another text; holds the part that differs.
    #[error("it reads a different {0} than rank 0; give all processes the same folder")]
    OtherText(&'static str),
    /// The weights of the process with this rank differ from those of rank 0.
    #[error(
        "the weights of rank {0} differ from those of rank 0, as happens between devices or processors of different kinds; \
         they are not saved: resume with processes of one kind, or with EMBER_SIMD=avx2 for all if only the \
         processors differ"
    )]
    OtherWeights(usize),
    /// The error of a process other than rank 0, which reports it itself.
    #[error("the process of rank {rank}")]
    OfRank { rank: usize, source: Cause },
    /// Another process failed and reports why; holds the exit code for its error.
    #[error("another process says why (exit code {0})")]
    ReportedElsewhere(u8),
}

/// Why a log cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The log cannot be opened or read.
    #[error("{path}: {problem}")]
    Io { path: PathBuf, problem: &'static str, source: io::Error },
    /// The log is a folder, a pipe or a device.
    #[error("{0} is not a regular file; move it away, or put the log back")]
    Irregular(PathBuf),
    /// The log cannot be appended to.
    #[error("{path}: cannot append; {}", look_for(source))]
    Append { path: PathBuf, source: io::Error },
    /// The log cannot be truncated.
    #[error("{path}: cannot truncate the log; {}", look_for(&source.source))]
    CutBack { path: PathBuf, source: FileError },
    /// A line before the last is no row of this log.
    #[error("{path}: line {line} is not a row of this log ({reason}); remove that line")]
    Row { path: PathBuf, line: usize, reason: serde_json::Error },
    /// The content is no JSON object.
    #[error("{path} is damaged")]
    Damaged { path: PathBuf, source: serde_json::Error },
    /// Another file cannot be created, read or removed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A row that JSON cannot represent.
    #[error(transparent)]
    Unwritable(#[from] serde_json::Error),
}

/// Whether a write failed for lack of space: a full disk, an exhausted quota, a limit on a file's
/// size.
pub fn wants_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// What to check when a log cannot be written.
fn look_for(error: &io::Error) -> &'static str {
    if wants_room(error) { "is the disk full?" } else { "check that the run folder may be written to" }
}

/// What to do when a checkpoint cannot be written: words before "and resume".
pub fn remedy(is_full: bool) -> &'static str {
    if is_full { "free some space" } else { "check that the run folder may be written to," }
}

/// The disk has no space for a checkpoint.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the disk is full: {} are needed and {} are free", bytes_beside(*needed, *free), bytes_beside(*free, *needed))]
pub struct DiskFull {
    /// Bytes needed.
    pub needed: u64,
    /// Bytes free.
    pub free: u64,
}
