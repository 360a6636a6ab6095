//! A model as plain data, which every format is converted to and from.

use std::{borrow::Cow, fmt};

use serde_json::{Map, Value};

use crate::error::{Cause, FormatError, Result};
use crate::{NumberType, Tokenizer};

/// The supported model classes of transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// `GPT2LMHeadModel`.
    Gpt2,
    /// `LlamaForCausalLM`.
    Llama,
    /// `Qwen3ForCausalLM`.
    Qwen3,
}

impl Architecture {
    /// The name in `config.json` and GGUF.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::Llama => "llama",
            Self::Qwen3 => "qwen3",
        }
    }
}

/// The sizes of a model, and the options that its class leaves open.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Its class.
    pub architecture: Architecture,
    /// Rows of the token embedding.
    pub vocab_size: usize,
    /// Maximum context length in tokens.
    pub context_length: usize,
    /// Number of blocks.
    pub n_layer: usize,
    /// Number of query heads.
    pub n_head: usize,
    /// Number of key and value heads.
    pub n_kv_head: usize,
    /// Width of a head.
    pub head_size: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Width of the MLP's hidden layer.
    pub n_inner: usize,
    /// Added to the variance, or to the mean square, in every norm.
    pub norm_epsilon: f64,
    /// Base of the rotary angles; unused by GPT-2.
    pub rope_theta: f64,
    /// Whether linear layers add a bias. GPT-2's tensors always include biases: if this is false, they
    /// are zeros.
    pub bias: bool,
    /// Whether the head shares the token embedding.
    pub tied_head: bool,
    /// Whether GPT-2's GELU is exact, with the error function, instead of the tanh approximation.
    pub exact_gelu: bool,
}

impl Shape {
    /// The largest valid size: products of two sizes stay far from overflowing.
    const LARGEST: usize = 1 << 28;

    /// Maximum number of blocks, so that the list of tensor names stays short.
    const MAX_BLOCKS: usize = 1 << 10;

    /// Rejects sizes that no model can have.
    ///
    /// # Errors
    /// What is wrong, in a few words.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, size) in [
            ("rows", self.vocab_size),
            ("positions", self.context_length),
            ("heads", self.n_head),
            ("key-value heads", self.n_kv_head),
            ("values per head", self.head_size),
            ("values per position", self.n_embd),
            ("values inside the MLP", self.n_inner),
        ] {
            if size == 0 || size > Self::LARGEST {
                return Err(format!("it says that the model has {size} {name}, which is out of range"));
            }
        }
        if !(1..=Self::MAX_BLOCKS).contains(&self.n_layer) {
            return Err(format!("it says that the model has {} blocks, which is out of range", self.n_layer));
        }
        let wide = self.n_head.saturating_mul(self.head_size);
        let rotary = self.architecture != Architecture::Gpt2;
        let fits = if rotary { self.head_size.is_multiple_of(2) } else { wide == self.n_embd };
        if wide > Self::LARGEST || !self.n_head.is_multiple_of(self.n_kv_head) || !fits {
            let Self { n_head, n_kv_head, head_size, n_embd, .. } = self;
            return Err(format!(
                "it says {n_head} heads, {n_kv_head} for keys and values, {head_size} wide, for {n_embd} values per \
                 position: these do not fit together"
            ));
        }
        let Self { norm_epsilon, rope_theta, .. } = self;
        if !(*norm_epsilon > 0.0 && *norm_epsilon < 1.0) {
            return Err(format!(
                "it says that the norms' epsilon is {norm_epsilon}; it must be between 0 and 1, usually 1e-5"
            ));
        }
        if rotary && !(*rope_theta > 1.0 && *rope_theta <= 1e12) {
            return Err(format!(
                "it says that rope_theta is {rope_theta}; it must be above 1 and at most 1e12, usually 10000"
            ));
        }
        Ok(())
    }

    /// Total width of the query heads.
    pub fn query_width(&self) -> usize {
        self.n_head * self.head_size
    }

    /// Total width of the key heads, and of the value heads.
    pub fn kv_width(&self) -> usize {
        self.n_kv_head * self.head_size
    }
}

/// A tensor with Hugging Face's name and layout, whose values are made on demand.
pub struct Tensor<'a> {
    /// Including the class's prefix, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Sizes from the outermost dimension to the innermost.
    pub shape: Vec<usize>,
    /// The number type in the file it comes from.
    pub stored: NumberType,
    values: Box<dyn Fn() -> Result<Cow<'a, [f32]>, Cause> + 'a>,
}

impl<'a> Tensor<'a> {
    /// A tensor whose `values` are in row-major order, as many as `shape` requires.
    pub fn new(
        name: impl Into<String>,
        shape: Vec<usize>,
        stored: NumberType,
        values: impl Fn() -> Result<Cow<'a, [f32]>, Cause> + 'a,
    ) -> Self {
        Self { name: name.into(), shape, stored, values: Box::new(values) }
    }

    /// The same tensor, whose values are available only while `may` succeeds.
    pub fn while_allowed(self, may: impl Fn() -> Result<(), Cause> + 'a) -> Self {
        let Self { name, shape, stored, values } = self;
        Self { name, shape, stored, values: Box::new(move || may().and_then(|()| values())) }
    }

    /// The values in row-major order.
    ///
    /// # Errors
    /// When they cannot be read, or their number differs from the shape.
    pub fn values(&self) -> Result<Cow<'a, [f32]>> {
        let fails = |source| FormatError::Values { name: self.name.clone(), source };
        let values = (self.values)().map_err(fails)?;
        let count: usize = self.shape.iter().product();
        if values.len() != count {
            return Err(fails(format!("it has {} values, but its shape says {count}", values.len()).into()));
        }
        Ok(values)
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.shape)
    }
}

/// A model that can be written in any of the formats.
#[derive(Debug)]
pub struct Model<'a> {
    /// Its sizes.
    pub shape: Shape,
    /// All tensors, in the order of its class; the head only if it is not tied.
    pub tensors: Vec<Tensor<'a>>,
    /// The tokenizer, if known.
    pub tokenizer: Option<Tokenizer>,
    /// The sampling settings, if known: the keys of a `generation_config.json`.
    pub generation: Map<String, Value>,
}
