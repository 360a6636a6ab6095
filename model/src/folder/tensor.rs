//! A tensor between disk and model, and how a file holds one of ours.

/// A tensor on its way between disk and model: its values in row-major order, always float32 in
/// memory.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// GPT-2's name without prefix, such as `h.0.attn.c_attn.weight`.
    pub name: String,
    /// Sizes from the outermost dimension to the innermost; matrices are `[in, out]`, as GPT-2's
    /// are.
    pub shape: Vec<usize>,
    /// The product of `shape` many values.
    pub values: Vec<f32>,
}

/// One of our tensors as a file holds it.
#[derive(Debug)]
pub struct Stored {
    /// Names without prefix, and shapes; what stands side by side in our tensor is several here.
    pub parts: Vec<(String, Vec<usize>)>,
    /// Whether the parts are `[out, in]`, ours being `[in, out]`.
    pub transposed: bool,
}

impl Stored {
    /// A tensor that a file holds as it is, under this name.
    pub fn whole(name: impl Into<String>, shape: Vec<usize>) -> Self {
        Self { parts: vec![(name.into(), shape)], transposed: false }
    }
}
