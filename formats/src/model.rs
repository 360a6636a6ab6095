//! A model as plain data: what all formats say of it, each in its own words.

use std::{borrow::Cow, fmt};

use serde_json::{Map, Value};

use crate::error::{Cause, FormatError, Result};
use crate::{NumberType, Tokenizer};

/// The classes of transformers whose models are known here.
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
    /// What `config.json` and GGUF call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::Llama => "llama",
            Self::Qwen3 => "qwen3",
        }
    }
}

/// The sizes of a model, and the choices that its class leaves open.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Its class.
    pub architecture: Architecture,
    /// Rows of the token embedding.
    pub vocab_size: usize,
    /// Most tokens it can look back on.
    pub context_length: usize,
    /// Blocks.
    pub n_layer: usize,
    /// Heads of queries.
    pub n_head: usize,
    /// Heads of keys and values.
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
    /// Whether linear layers add a bias; GPT-2's always have one, perhaps of zeros.
    pub bias: bool,
    /// Whether the head is the token embedding.
    pub tied_head: bool,
    /// Whether GPT-2's GELU is the exact one, by the error function, and not its tanh form.
    pub exact_gelu: bool,
}

impl Shape {
    /// The largest size that is taken for one: what is multiplied by another stays far from
    /// overflowing.
    const LARGEST: usize = 1 << 28;

    /// Most blocks that a model can have, so that the names of its tensors stay few.
    const MOST_BLOCKS: usize = 1 << 10;

    /// Refuses sizes that no model can have.
    ///
    /// # Errors
    /// What is wrong, in a few words.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, size) in [
            ("rows", self.vocab_size),
            ("positions", self.context_length),
            ("heads", self.n_head),
            ("heads of keys", self.n_kv_head),
            ("values a head", self.head_size),
            ("values a position", self.n_embd),
            ("values inside the MLP", self.n_inner),
        ] {
            if size == 0 || size > Self::LARGEST {
                return Err(format!("it says that the model has {size} {name}, which none has"));
            }
        }
        if !(1..=Self::MOST_BLOCKS).contains(&self.n_layer) {
            return Err(format!("it says that the model has {} blocks, which none has", self.n_layer));
        }
        let wide = self.n_head.saturating_mul(self.head_size);
        let rotary = self.architecture != Architecture::Gpt2;
        let fits = if rotary { self.head_size.is_multiple_of(2) } else { wide == self.n_embd };
        if wide > Self::LARGEST || !self.n_head.is_multiple_of(self.n_kv_head) || !fits {
            let Self { n_head, n_kv_head, head_size, n_embd, .. } = self;
            return Err(format!(
                "it says {n_head} heads, {n_kv_head} of keys, {head_size} wide, for {n_embd} values a position, which no model has"
            ));
        }
        let Self { norm_epsilon, rope_theta, .. } = self;
        if !(*norm_epsilon > 0.0 && *norm_epsilon < 1.0) {
            return Err(format!("it says that norms add {norm_epsilon}, which none does: usual is 1e-5"));
        }
        if rotary && !(*rope_theta > 1.0 && *rope_theta <= 1e12) {
            return Err(format!(
                "it says that the base of the rotary angles is {rope_theta}; it is above 1 and at most 1e12, usually 10000"
            ));
        }
        Ok(())
    }

    /// Width of all heads of queries together.
    pub fn query_width(&self) -> usize {
        self.n_head * self.head_size
    }

    /// Width of all heads of keys together, and of values.
    pub fn kv_width(&self) -> usize {
        self.n_kv_head * self.head_size
    }
}

/// A tensor by Hugging Face's name and in its layout, whose values are made when their turn comes.
pub struct Tensor<'a> {
    /// With the class's prefix, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Sizes from the outermost dimension to the innermost.
    pub shape: Vec<usize>,
    /// What its numbers are stored as where they come from.
    pub stored: NumberType,
    values: Box<dyn Fn() -> Result<Cow<'a, [f32]>, Cause> + 'a>,
}

impl<'a> Tensor<'a> {
    /// A tensor whose `values` come in row-major order, as many as `shape` says.
    pub fn new(
        name: impl Into<String>,
        shape: Vec<usize>,
        stored: NumberType,
        values: impl Fn() -> Result<Cow<'a, [f32]>, Cause> + 'a,
    ) -> Self {
        Self { name: name.into(), shape, stored, values: Box::new(values) }
    }

    /// The same, whose values can be had as long as `may` has nothing against it.
    pub fn while_allowed(self, may: impl Fn() -> Result<(), Cause> + 'a) -> Self {
        let Self { name, shape, stored, values } = self;
        Self { name, shape, stored, values: Box::new(move || may().and_then(|()| values())) }
    }

    /// The values in row-major order.
    ///
    /// # Errors
    /// When they cannot be had, or are not as many as the shape says.
    pub fn values(&self) -> Result<Cow<'a, [f32]>> {
        let fails = |source| FormatError::Values { name: self.name.clone(), source };
        let values = (self.values)().map_err(fails)?;
        let count: usize = self.shape.iter().product();
        if values.len() != count {
            return Err(fails(format!("it has {} values, and its shape says {count}", values.len()).into()));
        }
        Ok(values)
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.shape)
    }
}

/// A model as all formats can be made from it.
#[derive(Debug)]
pub struct Model<'a> {
    /// Its sizes.
    pub shape: Shape,
    /// All of its tensors, in the order of its class; the head only where it is not tied.
    pub tensors: Vec<Tensor<'a>>,
    /// How text becomes its ids, where that is known.
    pub tokenizer: Option<Tokenizer>,
    /// How texts are drawn with it, where that is said: the keys of a `generation_config.json`.
    pub generation: Map<String, Value>,
}
