//! The GPT: attention, the MLP, a block, the model. As it stands it is GPT-2 ([Radford et al.
//! 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf);
//! the pre-norm transformer decoder of [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)); a
//! [`GptConfig`] can put newer parts in the place of GPT-2's, which makes it a Llama or a Qwen3.
//! Below it lie the `layers`; beside it a GPU's recorded step ([`crate::recorded`]) and a look
//! inside (`inspect`).
//!
//! Field names are those of GPT-2's published weights, so that the path to a parameter
//! (`h.0.attn.c_attn.weight`) is its name in a checkpoint. There is no mode: on a device with
//! automatic differentiation dropout acts and the graph is recorded, on any other device neither
//! happens.
//!
//! Precision: weights, residual stream and norms are float32, and logits are handed out so. A norm
//! hands its branch a copy in the type that the model computes in ([`Gpt::with_precision`]), a
//! product takes its weights in the type of what it multiplies, a bias is added in float32, and
//! what a branch brings back is added in float32.

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData, activation};

use crate::config::{MlpKind, Positions};
use crate::layers::{Embedding, Linear, Norm};
use crate::{GptConfig, KvCache, WeightType};
use ember_kernels::{self as kernels, CachedAttention, DropoutMask, Rotary, cast};

/// What the layers of one forward pass need to know beside their input.
pub(crate) struct Pass<'a> {
    config: &'a GptConfig,
    /// What the matrix products are computed in.
    precision: FloatDType,
    /// The angles of the positions that the pass is made of, where positions are rotary.
    rotary: Option<Rotary>,
}

impl Pass<'_> {
    /// The normalised copy of the residual stream that a branch reads, in the type that it computes
    /// in.
    fn norm(&self, norm: &Norm, x: Tensor<3>) -> Tensor<3> {
        norm.forward_branch(x, self.config, self.precision)
    }
}

/// Causal self-attention: the only place where positions exchange anything.
#[derive(Module, Debug)]
pub struct Attention {
    /// Queries, keys and values in one product, `[n_embd, (n_head + 2 n_kv_head) head_size]`.
    pub c_attn: Linear,
    /// Mixes the heads' results, `[n_head head_size, n_embd]`.
    pub c_proj: Linear,
    /// Over each head's query, `[head_size]`, with QK-norm.
    pub q_norm: Option<Norm>,
    /// Over each head's key, `[head_size]`, with QK-norm.
    pub k_norm: Option<Norm>,
}

impl Attention {
    /// The residual stream with what attention to `x`, its normalised copy, adds to it; both
    /// `[batch, time, n_embd]`.
    ///
    /// `attend` takes queries, keys and values `[batch, time, (n_head + 2 n_kv_head) head_size]`
    /// and returns what each position took from itself and those before it,
    /// `[batch, time, n_head head_size]`.
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

/// Two layers with a non-linear function between them, applied to every position by itself.
#[derive(Module, Debug)]
pub struct Mlp {
    /// `[n_embd, n_inner]`; in SwiGLU `[n_embd, 2 n_inner]`, the gate first.
    pub c_fc: Linear,
    /// `[n_inner, n_embd]`
    pub c_proj: Linear,
}

impl Mlp {
    /// The residual stream with what the two layers make of `x`, its normalised copy; both
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
    /// Before attention.
    pub ln_1: Norm,
    /// What each position takes from those before it.
    pub attn: Attention,
    /// Before the MLP.
    pub ln_2: Norm,
    /// What each position makes of it, by itself.
    pub mlp: Mlp,
}

impl Block {
    /// The residual stream `x` `[batch, time, n_embd]` after the block; `attend` as in attention.
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
    /// Position embeddings, `[context_length, n_embd]`, where positions are learned.
    pub wpe: Option<Embedding>,
    /// The blocks, first to last.
    pub h: Vec<Block>,
    /// After the last block.
    pub ln_f: Norm,
    /// The head, `[vocab_size, n_embd]`, where it is not the token embedding itself.
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

    /// The residual stream after `ln_f`, `[batch, time, n_embd]`, of `tokens` `[batch, time]`.
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

    /// What the embeddings put into the residual stream, `[batch, time, n_embd]`, for `tokens`
    /// `[batch, time]` at positions 0 and on; rotary ones may go past the context.
    ///
    /// # Panics
    /// Where positions are learned, when `time` is 0 or above `context_length`. On the CPU, when an
    /// id is outside the vocabulary; a GPU does not look, and reads another place of the table.
    pub fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let time = tokens.dims()[1];
        let mut x = self.wte.forward(tokens);
        if let Some(table) = self.wpe.as_ref().and_then(|wpe| wpe.weight.values()) {
            x = x + table.narrow(0, 0, time).unsqueeze::<3>(); // [1, time, n_embd]
        }
        let mask = DropoutMask::draw(self.config.dropout, &x.device());
        kernels::dropout(x, mask)
    }

    /// The residual stream `x` `[batch, time, n_embd]` after block `i`, for positions 0 and on.
    pub fn block(&self, i: usize, x: Tensor<3>) -> Tensor<3> {
        let pass = self.pass_from_0(&x);
        self.through(&self.h[i], x, &pass)
    }

    fn through(&self, block: &Block, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let mask = DropoutMask::draw(self.config.dropout, &x.device());
        block.forward(x, pass, |qkv| kernels::causal_attention(qkv, self.config.heads(), mask))
    }

    /// The residual stream `x` `[batch, time, n_embd]` as the head reads it.
    pub fn final_norm(&self, x: Tensor<3>) -> Tensor<3> {
        self.ln_f.forward(x, &self.config, FloatDType::F32)
    }

    /// Logits `[batch, time, vocab_size]` of a residual stream `[batch, time, n_embd]` after
    /// `ln_f`, in float32.
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        cast(self.logits_as_computed(hidden), FloatDType::F32)
    }

    /// As [`Self::logits`], in the type that the model computes in: for a loss that reads it and
    /// sums in float32, so that no copy of them is made.
    pub fn logits_as_computed(&self, hidden: Tensor<3>) -> Tensor<3> {
        self.head().unembed(hidden, self.precision)
    }

    /// What [`Self::logits_as_computed`] multiplies, `hidden` `[batch, time, n_embd]` and the head
    /// `[vocab_size, n_embd]`, both in the type that the model computes in: for a loss that makes the
    /// logits itself. `None` where the weights are packed.
    pub fn factors_of_logits(&self, hidden: Tensor<3>) -> Option<(Tensor<3>, Tensor<2>)> {
        let table = self.head().weight.values()?;
        Some((cast(hidden, self.precision), cast(table, self.precision)))
    }

    fn head(&self) -> &Embedding {
        self.lm_head.as_ref().unwrap_or(&self.wte)
    }

    /// A pass over positions 0 and on, as many as `x` `[batch, time, n_embd]` has.
    pub(crate) fn pass_from_0(&self, x: &Tensor<3>) -> Pass<'_> {
        self.pass(self.rotary(0..x.dims()[1], &x.device()))
    }

    pub(crate) fn pass(&self, rotary: Option<Rotary>) -> Pass<'_> {
        Pass { config: &self.config, precision: self.precision, rotary }
    }

    /// The angles of these positions, where positions are rotary.
    pub(crate) fn rotary(&self, positions: impl Iterator<Item = usize>, device: &Device) -> Option<Rotary> {
        let is_rotary = self.config.positions == Positions::Rotary;
        is_rotary.then(|| Rotary::new(positions, self.config.head_size, self.config.rope_theta, device))
    }

    /// The same model with its matrix products, and attention's, computed in `precision`; the
    /// weights stay float32.
    pub fn with_precision(self, precision: FloatDType) -> Self {
        Self { precision, ..self }
    }

    /// What the matrix products are computed in.
    pub fn precision(&self) -> FloatDType {
        self.precision
    }

    /// What the matrices are stored as; float32 or bfloat16 where they are not packed.
    pub fn weight_type(&self) -> WeightType {
        self.head().weight.weight_type()
    }

    /// The model's shape.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// As many tokens as can go through the blocks together on the model's device, `most` at most:
    /// a kernel must see the widest of what is made of them. 0 where not even one can.
    pub fn tokens_at_once(&self, most: usize) -> usize {
        let width = self.config.operations().widest().max(1);
        kernels::limits::values_at_once(most.saturating_mul(width), &self.device()) / width
    }

    /// The device that holds the weights.
    pub fn device(&self) -> Device {
        self.wte.weight.device()
    }
}

/// New tokens after what a cache holds.
impl Gpt {
    /// Logits `[new positions, vocab_size]` of tokens that come after what `cache` holds,
    /// `tokens[row]` after its row; adds them to it. Rows may have any number of new tokens, none
    /// included; the positions come out row after row. The cache grows where it has no room left,
    /// and rotary positions may go past the context. For inference: no gradient goes back through
    /// the cache.
    ///
    /// # Panics
    /// When there are tokens for a row that the cache does not have. On the CPU, when no row has
    /// any, when an id is outside the vocabulary, or where positions are learned, when a row grows
    /// past `context_length`; a GPU does not look, and reads another place of the table.
    pub fn forward_cached(&self, tokens: &[&[u32]], cache: &mut KvCache) -> Tensor<2> {
        kernels::decoding_step(&self.device(), || self.rows_of_logits(self.hidden_cached(tokens, cache)))
    }

    /// As [`Self::forward_cached`], but only for the last `counts[row]` of each row's new tokens,
    /// `[sum of counts, vocab_size]`: generation needs no others.
    ///
    /// # Panics
    /// As [`Self::forward_cached`], and when there is not one count for each of `tokens`, or one is
    /// above the row's new tokens.
    pub fn forward_cached_last(&self, tokens: &[&[u32]], counts: &[usize], cache: &mut KvCache) -> Tensor<2> {
        let are_there = tokens.iter().zip(counts).all(|(new, &count)| count <= new.len());
        assert!(are_there && tokens.len() == counts.len(), "counts {counts:?} do not fit the rows' new tokens");
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

    /// The residual stream `[1, new positions, n_embd]`. New positions of all rows stand side by
    /// side, whatever their number in each: all but attention treats every position by itself.
    fn hidden_cached(&self, tokens: &[&[u32]], cache: &mut KvCache) -> Tensor<3> {
        let device = self.device();
        let places = tokens.iter().enumerate().flat_map(|(row, new)| (0..new.len()).map(move |i| (row, i)));
        let positions: Vec<usize> = places.map(|(row, i)| cache.len(row) + i).collect();
        let mut x = self.wte.forward(row(tokens.concat(), &device)); // [1, new positions, n_embd]
        if let Some(wpe) = &self.wpe {
            x = x + wpe.forward(row(positions.iter().map(|&position| position as u32), &device));
        }
        let pass = self.pass(self.rotary(positions.into_iter(), &device));
        let counts: Vec<usize> = tokens.iter().map(|new| new.len()).collect();
        let rows = CachedAttention::new(cache.reserve(&counts), &device);
        for (layer, block) in self.h.iter().enumerate() {
            x = block.forward(x, &pass, |qkv| cache.attend(layer, qkv, &rows));
        }
        self.final_norm(x)
    }

    /// Logits `[positions, vocab_size]` of `hidden` `[1, positions, n_embd]`.
    pub(crate) fn rows_of_logits(&self, hidden: Tensor<3>) -> Tensor<2> {
        let positions = hidden.dims()[1];
        self.logits(hidden).reshape([positions, self.config.vocab_size])
    }
}

/// Ids or positions of one row, `[1, numbers]`.
fn row(numbers: impl IntoIterator<Item = u32>, device: &Device) -> Tensor<2, Int> {
    let numbers: Vec<i32> = numbers.into_iter().map(|number| number as i32).collect();
    let count = numbers.len();
    Tensor::from_data(TensorData::new(numbers, [1, count]), device)
}
