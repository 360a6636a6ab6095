//! The numbers of a step, and of the iteration that orthogonalises: the same for the kernels and for
//! the formulas.

use burn::tensor::FloatDType;

/// The numbers of one step of AdamW for one parameter.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the denominator.
    pub epsilon: f32,
    /// Learning rate over the first moment's bias correction.
    pub step_size: f32,
    /// Root of the second moment's bias correction.
    pub root_correction: f32,
    /// What weight decay leaves of the parameter.
    pub keep: f32,
    /// What clipping leaves of the gradient.
    pub scale: f32,
}

/// The numbers of one step of Muon.
#[derive(Clone, Copy, Debug)]
pub struct MuonUpdate {
    /// Decay of the momentum.
    pub momentum: f32,
    /// Muon's own learning rate.
    pub learning_rate: f32,
    /// What weight decay leaves of the matrix.
    pub keep: f32,
    /// What clipping leaves of the gradient.
    pub scale: f32,
    /// What the products of the orthogonalisation multiply, bfloat16 or else float32: they are
    /// summed in float32. On a GPU the matrices are kept in it from round to round.
    pub precision: FloatDType,
}

impl MuonUpdate {
    /// What a part `[n_in, n_out]` moves by.
    pub(super) fn step_size(&self, n_in: usize, n_out: usize) -> f32 {
        self.learning_rate * (n_out as f32 / n_in as f32).max(1.0).sqrt()
    }
}

/// Rounds of Newton and Schulz's iteration.
pub const STEPS: usize = 5;
/// The coefficients of `x`, `x³` and `x⁵` in the polynomial of a round.
pub const X: f32 = 3.4445;
/// See [`X`].
pub const X3: f32 = -4.7750;
/// See [`X`].
pub const X5: f32 = 2.0315;
/// What the norm is taken for where it is smaller: the orthogonalisation of nothing is nothing.
pub const SMALLEST_NORM: f32 = 1e-7;
