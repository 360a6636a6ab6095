//! Why a folder is no run's, or not this process's.

use std::{io, path::PathBuf};

use ember_host::file_error::FileError;

/// Why a folder is no run's, or not this process's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// A new run is to be made in a folder where one is.
    #[error("{0} holds a run already; resume it, or choose another folder")]
    HoldsRun(PathBuf),
    /// A new run is to be made where this file is.
    #[error("{0} is a file; name a folder")]
    IsFile(PathBuf),
    /// A new run is to be made among somebody's files.
    #[error(
        "{path} holds other files, {name} among them, and they might be overwritten; name a folder that is new or empty"
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// One of the files.
        name: String,
    },
    /// A new folder cannot be made.
    #[error("cannot create the run folder {path}; choose another")]
    Create {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is no run in this folder.
    #[error("{0} is not a run folder (it has no config.toml); name the folder of a run")]
    NoRun(PathBuf),
    /// There is nothing of that name.
    #[error("there is no run {0}; name one that is there")]
    Missing(PathBuf),
    /// A folder that neither is a run nor holds one.
    #[error("{0} is no run and holds none; name a run, or a folder of runs")]
    NoRuns(PathBuf),
    /// A run is to be removed beside which something else lies.
    #[error("{path} holds what no run left there, {file} for one; move that elsewhere first")]
    NotOnlyRun {
        /// The run's folder.
        path: PathBuf,
        /// The first of the others, below the folder.
        file: PathBuf,
    },
    /// Another process trains the run in this folder.
    #[error("{0} is in use by another process; wait for it to end, or stop it first")]
    InUse(PathBuf),
    /// A pointer names what is not there.
    #[error("{pointer} names {folder}, which is not there; write the name of a folder in checkpoints/ into it")]
    DanglingPointer {
        /// The pointer's file.
        pointer: PathBuf,
        /// What it names.
        folder: PathBuf,
    },
    /// A file in it cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}
