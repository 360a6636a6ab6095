//! Notes to the user about a run, one line each.

use std::{fmt, path::PathBuf};

use crate::error::Error;

/// A note to the user, in one line. The variants let a program with flags add which flag helps.
#[derive(Debug)]
#[non_exhaustive]
#[allow(missing_docs)] // the line names each field
pub enum Note {
    /// A complete line.
    Line(String),
    /// The run's length was chosen to take a reasonable time: a longer run would learn more.
    Length(String),
    /// After its schedule ends, the run goes on at the lowest rate.
    RateEnds { step: u64, rate: f64 },
    /// The first step on a GPU takes far longer than the others.
    FirstStep { seconds: f64, kept: Option<PathBuf> },
    /// Autotuning begins: the next step times several kernels for each matrix product.
    Tuning,
    /// Something could not be written because the disk was full; the next attempt is when it is due
    /// again.
    DiskFull(Error),
    /// A checkpoint is damaged.
    Damaged { error: Error, aside: PathBuf },
    /// The disk has no room for TensorBoard's event file; the run does not depend on it.
    NoEvents(Error),
    /// Sampling text failed; the run does not depend on it.
    NoSample { step: u64, error: Error },
}

impl<T: Into<String>> From<T> for Note {
    fn from(line: T) -> Self {
        Self::Line(line.into())
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_errors_as(line))
    }
}

impl Note {
    /// The note as a line, with its error formatted by `line`.
    pub fn with_errors_as(&self, line: fn(&Error) -> String) -> String {
        match self {
            Self::Line(line) | Self::Length(line) => line.clone(),
            Self::RateEnds { step, rate } => format!("from step {step} on the learning rate stays at {rate}"),
            Self::FirstStep { seconds, kept } => {
                let kept = kept.as_ref().map(|file| format!("kept in {} for the next run", file.display()));
                let kept = kept.unwrap_or_else(|| "and its driver may keep some for the next run".to_owned());
                format!("the first step took {seconds:.1} s: the GPU's kernels were compiled, {kept}")
            }
            Self::Tuning => "the next step takes longer: it times several kernels for each matrix product, to use the \
                             fastest for the rest of the run"
                .to_owned(),
            Self::DiskFull(error) => format!("{}; the run continues and tries again later", line(error)),
            Self::NoEvents(error) => format!("{}; TensorBoard gets nothing of this session", line(error)),
            Self::Damaged { error, aside } => format!("{} (set aside as {})", line(error), aside.display()),
            Self::NoSample { step, error } => format!("step {step}: no sample ({}); the run continues", line(error)),
        }
    }
}

/// An error and its causes in one line.
pub fn line(error: &Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
