//! Why an optimizer cannot take up what was stored.

/// Why an optimizer cannot take up what was stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptimizerError {
    /// Another kind was stored.
    #[error(
        "these are the moments of optimizer = \"{was}\", not of \"{is}\"; write optimizer = \"{was}\" into config.toml"
    )]
    OtherKind {
        /// What was stored.
        was: &'static str,
        /// What this is.
        is: &'static str,
    },
    /// A parameter's moment is missing, or has another size.
    #[error("the stored optimizer has no {kind} moment of size {size} for {parameter}")]
    NoMoment {
        /// Which moment.
        kind: &'static str,
        /// Values that the parameter has.
        size: usize,
        /// Its name.
        parameter: String,
    },
}
