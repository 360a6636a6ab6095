//! The shape of a GPT. Its costs (parameters, FLOPs, memory) are counted from its
//! [operations](crate::operations).

use serde::{Deserialize, Serialize};

use ember_kernels::Heads;

/// The largest size that is accepted.
const LARGEST: usize = 1 << 28;

/// How a model encodes the position of a token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Positions {
    /// A learned vector for each position, added to the token's (GPT-2).
    Learned,
    /// Queries and keys rotated by an angle that grows with the position ([Su et al.
    /// 2021](https://arxiv.org/abs/2104.09864)), so that only distances matter.
    Rotary,
}

/// What normalises each position's vector before a branch reads it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormKind {
    /// Mean 0 and variance 1, then a scale and a shift ([Ba et al.
    /// 2016](https://arxiv.org/abs/1607.06450)).
    LayerNorm,
    /// Root mean square 1, then a scale ([Zhang and Sennrich
    /// 2019](https://arxiv.org/abs/1910.07467)).
    RmsNorm,
}

/// The non-linear function inside a block's MLP.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MlpKind {
    /// GPT-2's GELU, in the tanh approximation.
    Gelu,
    /// GELU by the error function, as in nanoGPT: up to 5e-4 from the tanh approximation.
    #[serde(rename = "exact-gelu")]
    ExactGelu,
    /// One half of the hidden layer, through SiLU, gates the other ([Shazeer
    /// 2020](https://arxiv.org/abs/2002.05202)).
    SwiGlu,
}

impl MlpKind {
    /// The names of all kinds.
    pub const NAMES: &'static [&'static str] = &[Self::Gelu.name(), Self::ExactGelu.name(), Self::SwiGlu.name()];

    /// Its name, in configurations too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gelu => "gelu",
            Self::ExactGelu => "exact-gelu",
            Self::SwiGlu => "swiglu",
        }
    }

    /// Whether the first layer also computes a gate, as wide as the hidden layer.
    pub fn is_gated(self) -> bool {
        match self {
            Self::Gelu | Self::ExactGelu => false,
            Self::SwiGlu => true,
        }
    }
}

/// The shape of a GPT; everything needed to build one, nothing about how it is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GptConfig {
    /// Number of token ids; the width of the logits.
    pub vocab_size: usize,
    /// Most tokens that the model can attend to.
    pub context_length: usize,
    /// Number of transformer blocks.
    pub n_layer: usize,
    /// Attention heads in each block.
    pub n_head: usize,
    /// Heads of keys and values; each serves `n_head / n_kv_head` heads of queries
    /// ([Ainslie et al. 2023](https://arxiv.org/abs/2305.13245)). `n_head` in GPT-2.
    pub n_kv_head: usize,
    /// Width of a head; `n_embd / n_head` in GPT-2.
    pub head_size: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Width of the MLP's hidden layer, after any gate; `4 n_embd` in GPT-2.
    pub n_inner: usize,
    /// How positions are encoded.
    pub positions: Positions,
    /// Base of the rotary angles; unused by learned positions.
    pub rope_theta: f64,
    /// The norm before each branch and before the head.
    pub norm: NormKind,
    /// Added to the variance, or to the mean square, in every norm.
    pub norm_epsilon: f64,
    /// The MLP's non-linear function.
    pub mlp: MlpKind,
    /// Whether every head's queries and keys are normalised too ([Henry et al.
    /// 2020](https://arxiv.org/abs/2010.04245)).
    pub qk_norm: bool,
    /// Whether linear layers add a bias.
    pub bias: bool,
    /// Whether the head is the token embedding itself (GPT-2) or has its own weights.
    pub tied_head: bool,
    /// Probability with which training drops an activation, where GPT-2 does: after the embeddings,
    /// on the attention weights, and on what each block adds to the residual stream.
    pub dropout: f64,
}

/// Why a shape is impossible: which value is at fault, and what it may be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct ShapeError(String);

impl GptConfig {
    /// GPT-2's defaults (no dropout, tied head) around the given sizes.
    pub fn new(vocab_size: usize, context_length: usize, n_layer: usize, n_head: usize, n_embd: usize) -> Self {
        Self {
            vocab_size,
            context_length,
            n_layer,
            n_head,
            n_kv_head: n_head,
            head_size: n_embd / n_head.max(1),
            n_embd,
            n_inner: 4 * n_embd,
            positions: Positions::Learned,
            rope_theta: 10_000.0,
            norm: NormKind::LayerNorm,
            norm_epsilon: 1e-5,
            mlp: MlpKind::Gelu,
            qk_norm: false,
            bias: true,
            tied_head: true,
            dropout: 0.0,
        }
    }

    /// The configuration's name for the architecture with these positions and QK-norm; the other
    /// parts may differ from that architecture's.
    pub fn architecture(&self) -> &'static str {
        match (self.positions, self.qk_norm) {
            (Positions::Learned, _) => "gpt2",
            (Positions::Rotary, false) => "llama",
            (Positions::Rotary, true) => "qwen3",
        }
    }

    /// The number and width of attention's heads.
    pub fn heads(&self) -> Heads {
        Heads { n_head: self.n_head, n_kv_head: self.n_kv_head, head_size: self.head_size }
    }

    /// Whether heads are not `n_embd / n_head` wide, but as wide as a folder's `head_dim` says.
    pub fn has_head_dim(&self) -> bool {
        self.head_size != self.n_embd / self.n_head.max(1)
    }

    /// Rejects a shape that no model can have, naming the value at fault.
    ///
    /// # Errors
    /// When a size is 0, sizes do not divide as they must, a probability is outside `[0, 1)`,
    /// another value is out of range, or the model would be too large for any machine.
    pub fn validate(&self) -> Result<(), ShapeError> {
        for (name, value) in [
            ("vocab_size", self.vocab_size),
            ("context_length", self.context_length),
            ("n_layer", self.n_layer),
            ("n_head", self.n_head),
            ("n_kv_head", self.n_kv_head),
            ("head_size", self.head_size),
            ("n_embd", self.n_embd),
            ("n_inner", self.n_inner),
        ] {
            if value == 0 {
                return Err(ShapeError(format!("{name} is 0; it must be at least 1")));
            }
            if value > LARGEST {
                let what = format!("{name} is {value}, which no machine can hold; choose a smaller one");
                return Err(ShapeError(what));
            }
        }
        let Self { n_embd, n_head, n_kv_head, head_size, rope_theta, dropout, norm_epsilon, .. } = *self;
        let rotary = self.positions == Positions::Rotary;
        let parameters = self.parameters_f64();
        let wrong = if !rotary && self.heads().query_width() != n_embd {
            format!("n_embd {n_embd} is not a multiple of n_head {n_head}; each head takes an equal share of the width")
        } else if !n_head.is_multiple_of(n_kv_head) {
            format!(
                "n_head {n_head} is not a multiple of n_kv_head {n_kv_head}; each key-value head serves the same number of \
                 query heads"
            )
        } else if rotary && !head_size.is_multiple_of(2) {
            let why = "rotary positions rotate pairs of values";
            if self.has_head_dim() {
                format!("head_dim is {head_size}; {why}, so only models where it is even are supported")
            } else {
                format!("a head is {head_size} wide; {why}, so choose an even n_embd / n_head")
            }
        } else if rotary && !(rope_theta > 1.0 && rope_theta <= 1e12) {
            format!("rope_theta is {rope_theta}; it must be above 1 and at most 1e12, usually 10000")
        } else if !(0.0..1.0).contains(&dropout) {
            format!("dropout is {dropout}; it must be at least 0 and below 1")
        } else if !(norm_epsilon > 0.0 && norm_epsilon < 1.0) {
            format!("the norms' epsilon is {norm_epsilon}; it must be between 0 and 1, usually 1e-5")
        } else if parameters >= 1e13 {
            format!("this shape has {parameters:.1e} parameters, which no machine can hold; choose smaller sizes")
        } else {
            return Ok(());
        };
        Err(ShapeError(wrong))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn impossible_shapes_name_what_is_wrong() {
        let word = |change: fn(&mut GptConfig)| {
            let mut config = GptConfig::new(65, 64, 4, 4, 128);
            change(&mut config);
            config.head_size = config.n_embd / config.n_head;
            config.validate().map_err(|e| e.to_string()).unwrap_err()
        };
        assert!(word(|c| c.n_head = 3).contains("n_head 3"));
        assert!(word(|c| c.n_layer = 0).contains("n_layer is 0"));
        assert!(word(|c| c.dropout = 1.0).contains("dropout is 1"));
        assert!(word(|c| c.n_embd = 1 << 27).contains("no machine"));
        let rotary = |rope_theta| {
            GptConfig { positions: Positions::Rotary, rope_theta, ..GptConfig::new(65, 64, 4, 4, 128) }.validate()
        };
        assert!(rotary(1e12).is_ok());
        assert!(rotary(1.1e12).unwrap_err().to_string().contains("at most 1e12"));
    }
}
