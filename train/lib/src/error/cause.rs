//! What an error of this crate holds of another's.

/// An error of what this crate stands on, or of a caller's own closure.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;
