//! Why there is no picture.

use std::path::PathBuf;

use ember_host::output;

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// Nothing is logged yet.
    #[error("there is no loss to plot yet; train for at least one logged step")]
    NoLoss,
    /// No run has what the curves are to be drawn over.
    #[error("no loss can be drawn over {axis}; try another")]
    NoAxis {
        /// What that is.
        axis: &'static str,
    },
    /// The drawing library fails.
    #[error("the plot cannot be drawn: {0}")]
    Drawing(String),
    /// The same of the fit's picture.
    #[error("the fit cannot be drawn: {0}")]
    Fit(String),
    /// The file cannot be written.
    #[error("{path}: cannot write the plot; is the disk full?")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: output::Error,
    },
    /// The same of another picture.
    #[error("{path}: cannot write the picture; is the disk full?")]
    WritePicture {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: output::Error,
    },
}
