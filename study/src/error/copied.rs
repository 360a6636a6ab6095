//! Why a text cannot be searched.

/// Why a text cannot be searched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopiedError {
    /// It is too long.
    #[error("the training text has {:.1} GB, of which at most 2.1 can be searched at once; name a part of it", *bytes as f64 / 1e9)]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}
