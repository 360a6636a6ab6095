//! How the files of a class of transformers store our tensors.

/// How a file stores one of our tensors.
#[derive(Debug)]
pub struct TensorLayout {
    /// Names without prefix, and shapes; matrices that lie side by side in our tensor are separate
    /// parts here.
    pub parts: Vec<(String, Vec<usize>)>,
    /// Whether the parts are `[out, in]` where ours is `[in, out]`.
    pub transposed: bool,
}

impl TensorLayout {
    /// A tensor that a file stores unchanged, under this name.
    pub fn whole(name: impl Into<String>, shape: Vec<usize>) -> Self {
        Self { parts: vec![(name.into(), shape)], transposed: false }
    }
}
