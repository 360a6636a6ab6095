//! The parameters of a step, and of the orthogonalisation, shared by the kernels and the formulas.

use burn::tensor::FloatDType;

/// The parameters of one step of AdamW, for one tensor.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the denominator.
    pub epsilon: f32,
    /// Learning rate divided by the first moment's bias correction.
    pub step_size: f32,
    /// Square root of the second moment's bias correction.
    pub root_correction: f32,
    /// Factor of weight decay for the parameter.
    pub keep: f32,
    /// Clipping factor of the gradient.
    pub scale: f32,
}

/// The parameters of one step of Muon.
#[derive(Clone, Copy, Debug)]
pub struct MuonUpdate {
    /// Decay of the momentum.
    pub momentum: f32,
    /// Muon's own learning rate.
    pub learning_rate: f32,
    /// Factor of weight decay for the matrix.
    pub keep: f32,
    /// Clipping factor of the gradient.
    pub scale: f32,
    /// Type of the factors in the orthogonalisation's products, bfloat16 or float32; sums are
    /// float32. On a GPU the matrices also have this type between rounds.
    pub precision: FloatDType,
}

impl MuonUpdate {
    /// Step size of a part `[n_in, n_out]`.
    pub(super) fn step_size(&self, n_in: usize, n_out: usize) -> f32 {
        self.learning_rate * (n_out as f32 / n_in as f32).max(1.0).sqrt()
    }
}

/// Rounds of the Newton-Schulz iteration.
pub const STEPS: usize = 5;
/// The coefficient of `x` in the polynomial of a round.
pub const X: f32 = 3.4445;
/// The coefficient of `x³` in it.
pub const X3: f32 = -4.7750;
/// The coefficient of `x⁵` in it.
pub const X5: f32 = 2.0315;
/// Lower bound of the norm that a matrix is divided by, so that zeros stay zeros.
pub const SMALLEST_NORM: f32 = 1e-7;
