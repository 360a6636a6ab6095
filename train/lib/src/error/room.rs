//! Too little memory, and too little room on the disk.

use crate::units::bytes;

/// A run whose smallest pass needs more memory than there is.
#[derive(Clone, Debug, thiserror::Error)]
#[error("training does not fit into memory: {} about {} (weights {}, gradients {}, moments {}, activations {}, logits {}), and \
     {why_not}; make n_layer, n_embd, context_length or the vocabulary smaller", match windows {
        1 => "one window at a time needs".to_owned(),
        windows => format!("{windows} windows at a time need"),
    }, bytes(*peak_bytes), bytes(*weights_bytes), bytes(*gradients_bytes), bytes(*moments_bytes), bytes(*activations_bytes), bytes(*logits_bytes))]
pub struct DoesNotFit {
    /// Windows of its pass.
    pub windows: usize,
    /// Bytes that it needs at its worst moment.
    pub peak_bytes: u64,
    /// Of them the parameters,
    pub weights_bytes: u64,
    /// their gradients,
    pub gradients_bytes: u64,
    /// what the optimizer remembers,
    pub moments_bytes: u64,
    /// what the graph keeps,
    pub activations_bytes: u64,
    /// and the logits, each part at its largest.
    pub logits_bytes: u64,
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
