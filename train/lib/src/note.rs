//! What a person should know of a run, a line each.

use std::{fmt, path::PathBuf};

use crate::error::Error;

/// Something a person should know, in one line. A program that has flags can say more of some of
/// them.
#[derive(Debug)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the line calls it
pub enum Note {
    /// A line that says all there is.
    Line(String),
    /// The run's length was chosen so that it takes an agreeable time: a longer one would learn
    /// more.
    Length(String),
    /// The run goes on at the lowest rate behind the end of its schedule.
    RateEnds { step: u64, rate: f64 },
    /// The first step on a GPU takes far longer than the others.
    FirstStep { seconds: f64, kept: Option<PathBuf> },
    /// From here on the GPU's products of matrices are timed.
    Tuning,
    /// The disk was too full to write something, which is tried again when it is due.
    DiskFull(Error),
    /// A checkpoint is damaged.
    Damaged { error: Error, aside: PathBuf },
    /// No text was sampled, which learning does not depend on.
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
    /// The line, in which an error is said by `line`.
    pub fn with_errors_as(&self, line: fn(&Error) -> String) -> String {
        match self {
            Self::Line(line) | Self::Length(line) => line.clone(),
            Self::RateEnds { step, rate } => format!("from step {step} on the learning rate stays at {rate}"),
            Self::FirstStep { seconds, kept } => {
                let kept = kept.as_ref().map(|file| format!("kept in {} for the next run", file.display()));
                let kept = kept.unwrap_or_else(|| "of which its driver may keep some for the next run".to_owned());
                format!("the first step took {seconds:.1} s: the GPU's kernels were compiled, {kept}")
            }
            Self::Tuning => "the next step takes longer: so much of the run is left that it pays to find out which of \
                             many kernels multiplies each pair of matrices fastest"
                .to_owned(),
            Self::DiskFull(error) => format!("{}; the run goes on and tries again when it is due", line(error)),
            Self::Damaged { error, aside } => format!("{} (it is put aside as {})", line(error), aside.display()),
            Self::NoSample { step, error } => format!("step {step}: no sample ({}); the run goes on", line(error)),
        }
    }
}

/// An error and its causes in one line.
pub fn line(error: &Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
