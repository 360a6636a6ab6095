//! The transformer: attention, the MLP, a block, the whole model. By default it is GPT-2 ([Radford
//! et al.
//! 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf);
//! the pre-norm transformer decoder of [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)). A
//! [`GptConfig`] can replace GPT-2's parts with newer ones, which makes the model a Llama or a
//! Qwen3. The layers are defined in `layers`, a GPU's recorded decoding step in
//! [`crate::recorded`], and a forward pass that keeps its intermediate results in `inspect`.
//!
//! Fields have the names of GPT-2's published weights, so the path to a parameter
//! (`h.0.attn.c_attn.weight`) is its name in a checkpoint. There is no training flag: on a device
//! with automatic differentiation, dropout is active and the graph is recorded; on any other device
//! neither happens.
//!
//! Precision: weights, residual stream, norms and the returned logits are float32. A norm returns
//! its branch's input in the compute type ([`Gpt::with_precision`]), a matrix product casts its
//! weights to the type of its input, and biases and the outputs of branches are added in float32.

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData, activation};

use crate::config::{MlpKind, Positions};
use crate::layers::{Embedding, Linear, Norm};
use crate::{GptConfig, KvCache, WeightType};
use ember_kernels::{self as kernels, CachedAttention, DropoutMask, Rotary, cast};

/// What the layers of one forward pass need in addition to their input.
pub(crate) struct Pass<'a> {
    config: &'a GptConfig,
    /// The compute type: the type of matrix products and attention.
    precision: FloatDType,
    /// Rotary angles of the positions in this pass; `None` if positions are learned.
    rotary: Option<Rotary>,
}

impl Pass<'_> {
    /// The normalised copy of the residual stream that a branch reads, in the compute type.
    fn norm(&self, norm: &Norm, x: Tensor<3>) -> Tensor<3> {
        norm.forward_branch(x, self.config, self.precision)
    }
}

/// Causal self-attention: the only place where positions exchange information.
#[derive(Module, Debug)]
pub struct Attention {
    /// Queries, keys and values in one product, `[n_embd, (n_head + 2 n_kv_head) head_size]`.
    pub c_attn: Linear,
    /// Mixes the heads' outputs, `[n_head head_size, n_embd]`.
    pub c_proj: Linear,
    /// With QK-norm: normalises each head's query, `[head_size]`.
    pub q_norm: Option<Norm>,
    /// With QK-norm: normalises each head's key, `[head_size]`.
    pub k_norm: Option<Norm>,
}

impl Attention {
    /// `residual` plus the output of attention over `x`, the normalised copy of the residual
    /// stream; both `[batch, time, n_embd]`.
    ///
    /// `attend` takes queries, keys and values `[batch, time, (n_head + 2 n_kv_head) head_size]`
    /// and returns, for each position, every head's weighted sum of the values at that position and
    /// those before it, `[batch, time, n_head head_size]`.
    fn forward_onto(
        &self,
        residual: Tensor<3>,
        x: Tensor<3>,
        pass: &Pass,
        attend: impl FnOnce(Tensor<3>) -> Tensor<3>,
    ) -> Tensor<3> {
        let heads = pass.config.heads();
        let mut qkv = self.c_attn.forward(x); // [batch, time, (n_head + 2 n_kv_head) head_size]
        if let (Some(q_norm), Some(k_norm)) = (&self.q_norm, &self.k_norm) {
            qkv = kernels::qk_norm(qkv, q_norm.weight.val(), k_norm.weight.val(), pass.config.norm_epsilon, heads);
        }
        if let Some(rotary) = &pass.rotary {
            qkv = kernels::rotate(qkv, rotary, heads);
        }
        self.c_proj.forward_onto(residual, attend(qkv), pass.config.dropout) // [batch, time, n_embd]
    }
}

/// Two linear layers with a non-linear function between them, applied to each position by itself.
#[derive(Module, Debug)]
pub struct Mlp {
    /// `[n_embd, n_inner]`; in SwiGLU `[n_embd, 2 n_inner]`, the gate first.
    pub c_fc: Linear,
    /// `[n_inner, n_embd]`
    pub c_proj: Linear,
}

impl Mlp {
    /// `residual` plus the MLP's output for `x`, the normalised copy of the residual stream; both
    /// `[batch, time, n_embd]`.
    fn forward_onto(&self, residual: Tensor<3>, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let hidden = match pass.config.mlp {
            MlpKind::Gelu => self.c_fc.forward_gelu(x),
            MlpKind::ExactGelu => activation::gelu(self.c_fc.forward(x)),
            MlpKind::SwiGlu => kernels::swiglu(self.c_fc.forward(x)),
        }; // [batch, time, n_inner]
        self.c_proj.forward_onto(residual, hidden, pass.config.dropout) // [batch, time, n_embd]
    }
}

/// One transformer block: attention and an MLP, each reading a normalised copy of the residual
/// stream and adding to it.
#[derive(Module, Debug)]
pub struct Block {
    /// The norm before attention.
    pub ln_1: Norm,
    /// Lets each position read from those before it.
    pub attn: Attention,
    /// The norm before the MLP.
    pub ln_2: Norm,
    /// Transforms each position independently.
    pub mlp: Mlp,
}

impl Block {
    /// The residual stream after the block, given `x` `[batch, time, n_embd]` before it; `attend`
    /// as in `Attention::forward_onto`.
    pub(crate) fn forward(&self, x: Tensor<3>, pass: &Pass, attend: impl FnOnce(Tensor<3>) -> Tensor<3>) -> Tensor<3> {
        let x = self.attn.forward_onto(x.clone(), pass.norm(&self.ln_1, x), pass, attend); // [batch, time, n_embd]
        self.mlp.forward_onto(x.clone(), pass.norm(&self.ln_2, x), pass) // [batch, time, n_embd]
    }
}

/// The model: token ids in, logits over the next token out.
#[derive(Module, Debug)]
pub struct Gpt {
    /// Token embeddings, `[vocab_size, n_embd]`.
    pub wte: Embedding,
    /// Position embeddings, `[context_length, n_embd]`, if positions are learned.
    pub wpe: Option<Embedding>,
    /// The blocks, first to last.
    pub h: Vec<Block>,
    /// The norm after the last block.
    pub ln_f: Norm,
    /// The head, `[vocab_size, n_embd]`, unless it is tied to the token embedding.
    pub lm_head: Option<Embedding>,
    #[module(skip)]
    pub(crate) config: GptConfig,
    #[module(skip)]
    pub(crate) precision: FloatDType,
}

impl Gpt {
    /// Logits `[batch, time, vocab_size]` at every position of `tokens` `[batch, time]`.
    ///
    /// # Panics
    /// As [`Self::embed`].
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        self.logits(self.hidden(tokens))
    }

    /// The residual stream after `ln_f`, `[batch, time, n_embd]`, for `tokens` `[batch, time]`.
    ///
    /// # Panics
    /// As [`Self::embed`].
    pub fn hidden(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let mut x = self.embed(tokens);
        let pass = self.pass_from_0(&x);
        for block in &self.h {
            x = self.through(block, x, &pass);
        }
        self.final_norm(x)
    }

    /// The residual stream before the first block, `[batch, time, n_embd]`: the embeddings of
    /// `tokens` `[batch, time]` at positions from 0 on. Rotary positions may exceed the context.
    ///
    /// # Panics
    /// When there are no tokens; with learned positions, when `time` is above `context_length`. On
    /// the CPU, when an id is outside the vocabulary; a GPU does not check, and reads another place
    /// of the table.
    pub fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let [batch, time] = tokens.dims();
        assert!(batch * time > 0, "{NO_TOKENS}");
        let mut x = self.wte.forward(tokens);
        if let Some(table) = self.wpe.as_ref().and_then(|wpe| wpe.weight.values()) {
            x = x + table.narrow(0, 0, time).unsqueeze::<3>(); // [1, time, n_embd]
        }
        let mask = DropoutMask::draw(self.config.dropout, &x.device());
        kernels::dropout(x, mask)
    }

    /// The residual stream after block `i`, given `x` `[batch, time, n_embd]` before it, at
    /// positions from 0 on.
    pub fn block(&self, i: usize, x: Tensor<3>) -> Tensor<3> {
        let pass = self.pass_from_0(&x);
        self.through(&self.h[i], x, &pass)
    }

    /// One block in a pass without a cache: each position attends to its own window.
    fn through(&self, block: &Block, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let mask = DropoutMask::draw(self.config.dropout, &x.device());
        block.forward(x, pass, |qkv| kernels::causal_attention(qkv, self.config.heads(), mask))
    }

    /// The residual stream `x` `[batch, time, n_embd]` after `ln_f`, as the head reads it.
    pub fn final_norm(&self, x: Tensor<3>) -> Tensor<3> {
        self.ln_f.forward(x, &self.config, FloatDType::F32)
    }

    /// Float32 logits `[batch, time, vocab_size]` of `hidden` `[batch, time, n_embd]`, the residual
    /// stream after `ln_f`.
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        cast(self.logits_as_computed(hidden), FloatDType::F32)
    }

    /// As [`Self::logits`], but in the compute type: for a loss that reads them and sums in
    /// float32, so that no float32 copy is made.
    pub fn logits_as_computed(&self, hidden: Tensor<3>) -> Tensor<3> {
        self.head().unembed(hidden, self.precision)
    }

    /// The two factors of [`Self::logits_as_computed`], `hidden` `[batch, time, n_embd]` and the
    /// head `[vocab_size, n_embd]`, both in the compute type: for a loss that computes the logits
    /// itself. `None` if the weights are packed.
    pub fn factors_of_logits(&self, hidden: Tensor<3>) -> Option<(Tensor<3>, Tensor<2>)> {
        let table = self.head().weight.values()?;
        Some((cast(hidden, self.precision), cast(table, self.precision)))
    }

    fn head(&self) -> &Embedding {
        self.lm_head.as_ref().unwrap_or(&self.wte)
    }

    /// A pass over positions from 0 on, as many as `x` `[batch, time, n_embd]` has.
    pub(crate) fn pass_from_0(&self, x: &Tensor<3>) -> Pass<'_> {
        self.pass(self.rotary(0..x.dims()[1], &x.device()))
    }

    pub(crate) fn pass(&self, rotary: Option<Rotary>) -> Pass<'_> {
        Pass { config: &self.config, precision: self.precision, rotary }
    }

    /// The rotary angles of these positions; `None` if positions are learned.
    pub(crate) fn rotary(&self, positions: impl Iterator<Item = usize>, device: &Device) -> Option<Rotary> {
        let is_rotary = self.config.positions == Positions::Rotary;
        is_rotary.then(|| Rotary::new(positions, self.config.head_size, self.config.rope_theta, device))
    }

    /// The same model with its matrix products and attention computed in `precision`; the weights
    /// stay float32.
    pub fn with_precision(self, precision: FloatDType) -> Self {
        Self { precision, ..self }
    }

    /// The compute type: the type of matrix products and attention.
    pub fn precision(&self) -> FloatDType {
        self.precision
    }

    /// How the matrices are stored; float32 or bfloat16 if they are not packed.
    pub fn weight_type(&self) -> WeightType {
        self.head().weight.weight_type()
    }

    /// The model's shape.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// How many tokens can go through the blocks together on the model's device, at most `most`:
    /// the widest activation must fit into the largest tensor that a kernel can read. 0 if not even
    /// one token fits.
    pub fn tokens_at_once(&self, most: usize) -> usize {
        let width = self.config.operations().widest().max(1);
        kernels::limits::values_at_once(most.saturating_mul(width), &self.device()) / width
    }

    /// The device that holds the weights.
    pub fn device(&self) -> Device {
        self.wte.weight.device()
    }
}

/// Inference with a cache: new tokens that follow the cached ones.
impl Gpt {
    /// Logits `[new positions, vocab_size]` of new tokens: `tokens[row]` continues `row` of `cache`
    /// and is added to it. Rows may have different numbers of new tokens, or none; the logits come
    /// row after row. The cache grows when it is full, and rotary positions may exceed the context.
    /// For inference: no gradient flows back through the cache.
    ///
    /// # Panics
    /// When there are no tokens, or some for a row that the cache does not have. On the CPU, when an
    /// id is outside the vocabulary, or, with learned positions, when a row grows past
    /// `context_length`; a GPU does not check, and reads another place of the table. The cache must
    /// not be used after a panic: some layers may lack the new positions.
    pub fn forward_cached(&self, tokens: &[&[u32]], cache: &mut KvCache) -> Tensor<2> {
        kernels::decoding_step(&self.device(), || self.rows_of_logits(self.hidden_cached(tokens, cache)))
    }

    /// As [`Self::forward_cached`], but only for the last `counts[row]` new tokens of each row,
    /// `[sum of counts, vocab_size]`: generation needs no others.
    ///
    /// # Panics
    /// As [`Self::forward_cached`], and when `counts` and `tokens` differ in length, or a count
    /// exceeds the row's new tokens.
    pub fn forward_cached_last(&self, tokens: &[&[u32]], counts: &[usize], cache: &mut KvCache) -> Tensor<2> {
        let counts_fit = tokens.iter().zip(counts).all(|(new, &count)| count <= new.len());
        assert!(counts_fit && tokens.len() == counts.len(), "counts {counts:?} do not fit the rows' new tokens");
        kernels::decoding_step(&self.device(), || {
            let hidden = self.hidden_cached(tokens, cache);
            if counts.iter().all(|&count| count == 0) {
                return Tensor::zeros([0, self.config.vocab_size], &hidden.device());
            }
            if tokens.iter().zip(counts).all(|(new, &count)| new.len() == count) {
                return self.rows_of_logits(hidden);
            }
            let mut last = Vec::new();
            let mut end = 0;
            for (new, &count) in tokens.iter().zip(counts) {
                end += new.len();
                last.extend((end - count) as i32..end as i32);
            }
            let last = Tensor::from_data(TensorData::from(last.as_slice()), &hidden.device());
            self.rows_of_logits(hidden.select(1, last))
        })
    }

    /// The residual stream after `ln_f` of the new positions, `[1, new positions, n_embd]`. The new
    /// positions of all rows lie side by side, whatever their number in each: all but attention
    /// treats every position independently.
    fn hidden_cached(&self, tokens: &[&[u32]], cache: &mut KvCache) -> Tensor<3> {
        let device = self.device();
        let places = tokens.iter().enumerate().flat_map(|(row, new)| (0..new.len()).map(move |i| (row, i)));
        let positions: Vec<usize> = places.map(|(row, i)| cache.len(row) + i).collect();
        assert!(!positions.is_empty(), "{NO_TOKENS}");
        let mut x = self.wte.forward(one_row(tokens.concat(), &device)); // [1, new positions, n_embd]
        if let Some(wpe) = &self.wpe {
            x = x + wpe.forward(one_row(positions.iter().map(|&position| position as u32), &device));
        }
        let pass = self.pass(self.rotary(positions.into_iter(), &device));
        let counts: Vec<usize> = tokens.iter().map(|new| new.len()).collect();
        let attention = CachedAttention::new(cache.reserve(&counts), &device);
        for (layer, block) in self.h.iter().enumerate() {
            x = block.forward(x, &pass, |qkv| cache.attend(layer, qkv, &attention));
        }
        self.final_norm(x)
    }

    /// Logits `[positions, vocab_size]` of `hidden` `[1, positions, n_embd]`.
    pub(crate) fn rows_of_logits(&self, hidden: Tensor<3>) -> Tensor<2> {
        let positions = hidden.dims()[1];
        self.logits(hidden).reshape([positions, self.config.vocab_size])
    }
}

/// The message of a panic: a kernel's would not say what is wrong.
const NO_TOKENS: &str = "a pass without tokens";

/// A tensor of ids or positions with a single row, `[1, numbers]`.
fn one_row(numbers: impl IntoIterator<Item = u32>, device: &Device) -> Tensor<2, Int> {
    let numbers: Vec<i32> = numbers.into_iter().map(|number| number as i32).collect();
    let count = numbers.len();
    Tensor::from_data(TensorData::new(numbers, [1, count]), device)
}
