//! Why there is no plan.

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No size is left to choose.
    #[error("there is nothing to plan")]
    Nothing,
    /// A step failed before, and took the model with it.
    #[error("the model is gone")]
    NoModel,
    /// The measured runs that are kept in the program are broken.
    #[error("study/src/plan/points.json")]
    Points(#[source] serde_json::Error),
}
