//! A tensor between disk and model.

/// A tensor on its way between disk and model: its values in row-major order, always float32 in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// GPT-2's name without prefix, such as `h.0.attn.c_attn.weight`.
    pub name: String,
    /// Sizes from the outermost dimension to the innermost; matrices are `[in, out]`, as GPT-2's are.
    pub shape: Vec<usize>,
    /// The product of `shape` many values.
    pub values: Vec<f32>,
}
