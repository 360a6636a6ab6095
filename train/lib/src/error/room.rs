//! Too little memory, and too little room on the disk.

use crate::units::bytes;

/// A run whose smallest pass needs more memory than there is.
#[derive(Clone, Debug, thiserror::Error)]
#[error("training does not fit into memory: {} about {} ({}), and {why_not}; make n_layer, n_embd, context_length or the vocabulary \
     smaller", match windows {
        1 => "one window at a time needs".to_owned(),
        windows => format!("{windows} windows at a time need"),
    }, bytes(*peak_bytes), parts.iter().map(|(part, size)| format!("{part} {}", bytes(*size))).collect::<Vec<_>>().join(", "))]
pub struct DoesNotFit {
    /// Windows of its pass.
    pub windows: usize,
    /// Bytes that it needs at its worst moment.
    pub peak_bytes: u64,
    /// Of them each part at its largest, by what it is for.
    pub parts: Vec<(&'static str, u64)>,
    /// What there is, in one clause.
    pub why_not: String,
}

/// A save that the disk has no room for.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the disk is full: {} are needed and {} are free", bytes(*needed), bytes(*free))]
pub struct DiskFull {
    /// Bytes that it takes.
    pub needed: u64,
    /// Bytes that there are.
    pub free: u64,
}
