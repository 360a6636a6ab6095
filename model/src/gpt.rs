//! GPT-2, leaf to root: the layers, a block, the model ([Radford et al. 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf);
//! the pre-LayerNorm transformer decoder of [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)).
//!
//! Field names are those of GPT-2's published weights, so that the path to a parameter (`h.0.attn.c_attn.weight`) is its name
//! in a checkpoint. There is no mode: on a device with automatic differentiation dropout acts and the graph is recorded, on
//! any other device neither happens.

use anyhow::Result;
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::init::{Init, ParameterSource, Random};
use crate::kernels::{self, CachedAttention, DropoutMask};
use crate::{GptConfig, KvCache};

/// A table of vectors, one for each id.
#[derive(Module, Debug)]
pub struct Embedding {
    /// `[ids, n_embd]`
    pub weight: Param<Tensor<2>>,
}

/// `y = x W + b`; GPT-2 stores W as `[n_in, n_out]` and calls it Conv1D.
#[derive(Module, Debug)]
pub struct Linear {
    /// `[n_in, n_out]`
    pub weight: Param<Tensor<2>>,
    /// `[n_out]`
    pub bias: Param<Tensor<1>>,
}

impl Linear {
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        kernels::linear(x, self.weight.val(), self.bias.val()) // [batch, time, n_out]
    }
}

/// Normalises each position's vector, then scales and shifts it.
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// Scale, `[n_embd]`.
    pub weight: Param<Tensor<1>>,
    /// Shift, `[n_embd]`.
    pub bias: Param<Tensor<1>>,
}

impl LayerNorm {
    pub(crate) fn forward(&self, x: Tensor<3>, config: &GptConfig) -> Tensor<3> {
        kernels::layer_norm(x, self.weight.val(), self.bias.val(), config.layer_norm_epsilon)
    }
}

/// Causal self-attention: the only place where positions exchange anything.
#[derive(Module, Debug)]
pub struct Attention {
    /// Queries, keys and values in one product, `[n_embd, 3 n_embd]`.
    pub c_attn: Linear,
    /// Mixes the heads' results, `[n_embd, n_embd]`.
    pub c_proj: Linear,
}

impl Attention {
    fn forward(&self, x: Tensor<3>, config: &GptConfig) -> Tensor<3> {
        let mask = DropoutMask::draw(config.dropout, &x.device());
        let qkv = self.c_attn.forward(x); // [batch, time, 3 n_embd]
        self.c_proj.forward(kernels::causal_attention(qkv, config.n_head, mask)) // [batch, time, n_embd]
    }

    /// As [`Self::forward`] in inference, with the weights by which positions looked back, `[batch, n_head, time, time]`.
    fn forward_and_weights(&self, x: Tensor<3>, config: &GptConfig) -> (Tensor<3>, Tensor<4>) {
        let qkv = self.c_attn.forward(x); // [batch, time, 3 n_embd]
        let (y, weights) = kernels::causal_attention_and_weights(qkv, config.n_head);
        (self.c_proj.forward(y), weights)
    }

    /// As [`Self::forward`] for positions that come after what `cache` holds.
    fn forward_cached(&self, x: Tensor<3>, layer: usize, cache: &mut KvCache, rows: &CachedAttention) -> Tensor<3> {
        let qkv = self.c_attn.forward(x); // [1, new positions, 3 n_embd]
        self.c_proj.forward(cache.attend(layer, qkv, rows)) // [1, new positions, n_embd]
    }
}

/// Two layers with a GELU between them, applied to every position by itself.
#[derive(Module, Debug)]
pub struct Mlp {
    /// `[n_embd, 4 n_embd]`
    pub c_fc: Linear,
    /// `[4 n_embd, n_embd]`
    pub c_proj: Linear,
}

impl Mlp {
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let hidden = kernels::gelu(self.c_fc.forward(x)); // [batch, time, 4 n_embd]
        self.c_proj.forward(hidden) // [batch, time, n_embd]
    }
}

/// One transformer block: attention and an MLP, each reading a normalised copy of the residual stream and adding to it.
#[derive(Module, Debug)]
pub struct Block {
    /// Before attention.
    pub ln_1: LayerNorm,
    /// Looks back.
    pub attn: Attention,
    /// Before the MLP.
    pub ln_2: LayerNorm,
    /// Thinks about what was seen.
    pub mlp: Mlp,
}

impl Block {
    fn forward(&self, x: Tensor<3>, config: &GptConfig) -> Tensor<3> {
        let attended = self.attn.forward(self.ln_1.forward(x.clone(), config), config);
        let x = x + dropout(attended, config); // [batch, time, n_embd]
        let thought = self.mlp.forward(self.ln_2.forward(x.clone(), config));
        x + dropout(thought, config) // [batch, time, n_embd]
    }

    /// As [`Self::forward`] in inference, with attention's weights, `[batch, n_head, time, time]`.
    pub(crate) fn forward_and_weights(&self, x: Tensor<3>, config: &GptConfig) -> (Tensor<3>, Tensor<4>) {
        let (attended, weights) = self.attn.forward_and_weights(self.ln_1.forward(x.clone(), config), config);
        let x = x + attended; // [batch, time, n_embd]
        let thought = self.mlp.forward(self.ln_2.forward(x.clone(), config));
        (x + thought, weights)
    }

    fn forward_cached(
        &self,
        x: Tensor<3>,
        config: &GptConfig,
        layer: usize,
        cache: &mut KvCache,
        rows: &CachedAttention,
    ) -> Tensor<3> {
        let attended = self.attn.forward_cached(self.ln_1.forward(x.clone(), config), layer, cache, rows);
        let x = x + attended; // [1, new positions, n_embd]
        let thought = self.mlp.forward(self.ln_2.forward(x.clone(), config));
        x + thought // [1, new positions, n_embd]
    }
}

/// Dropout with a mask of its own; the identity in inference.
fn dropout(x: Tensor<3>, config: &GptConfig) -> Tensor<3> {
    let mask = DropoutMask::draw(config.dropout, &x.device());
    kernels::dropout(x, mask)
}

/// The model: token ids in, logits over the next token out.
#[derive(Module, Debug)]
pub struct Gpt {
    /// Token embeddings, `[vocab_size, n_embd]`.
    pub wte: Embedding,
    /// Position embeddings, `[context_length, n_embd]`.
    pub wpe: Embedding,
    /// The blocks, first to last.
    pub h: Vec<Block>,
    /// After the last block.
    pub ln_f: LayerNorm,
    /// The head, `[vocab_size, n_embd]`, where it is not the token embedding itself.
    pub lm_head: Option<Embedding>,
    #[module(skip)]
    config: GptConfig,
}

impl Gpt {
    /// A model with GPT-2's initial weights: normal with standard deviation 0.02, the projections back into the residual
    /// stream `1 / sqrt(2 n_layer)` of that, biases 0 and LayerNorm scales 1. Each tensor is drawn from (seed, its name).
    ///
    /// # Errors
    /// When the shape is impossible ([`GptConfig::validate`]).
    pub fn new(config: &GptConfig, seed: u64, device: &Device) -> Result<Self> {
        Self::build(config, &mut Random { seed }, device)
    }

    /// A model whose weights come from `source`, by name.
    ///
    /// # Errors
    /// When the shape is impossible, or the source has no such tensor.
    pub fn build(config: &GptConfig, source: &mut dyn ParameterSource, device: &Device) -> Result<Self> {
        config.validate()?;
        let mut builder = Builder { source, device };
        let c = config.n_embd;
        let back = Init::Normal(0.02 / (2.0 * config.n_layer as f64).sqrt());
        let h = (0..config.n_layer).map(|i| {
            Ok(Block {
                ln_1: builder.layer_norm(&format!("h.{i}.ln_1"), c)?,
                attn: Attention {
                    c_attn: builder.linear(&format!("h.{i}.attn.c_attn"), c, 3 * c, Init::Normal(0.02))?,
                    c_proj: builder.linear(&format!("h.{i}.attn.c_proj"), c, c, back)?,
                },
                ln_2: builder.layer_norm(&format!("h.{i}.ln_2"), c)?,
                mlp: Mlp {
                    c_fc: builder.linear(&format!("h.{i}.mlp.c_fc"), c, 4 * c, Init::Normal(0.02))?,
                    c_proj: builder.linear(&format!("h.{i}.mlp.c_proj"), 4 * c, c, back)?,
                },
            })
        });
        let h = h.collect::<Result<_>>()?;
        Ok(Self {
            wte: builder.embedding("wte", config.vocab_size, c)?,
            wpe: builder.embedding("wpe", config.context_length, c)?,
            h,
            ln_f: builder.layer_norm("ln_f", c)?,
            lm_head: if config.tied_head { None } else { Some(builder.embedding("lm_head", config.vocab_size, c)?) },
            config: config.clone(),
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// The device that holds the weights.
    pub fn device(&self) -> Device {
        self.wte.weight.val().device()
    }

    /// The residual stream after `ln_f`, `[batch, time, n_embd]`, of `tokens` `[batch, time]`.
    pub fn hidden(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let mut x = dropout(self.embed(tokens), &self.config);
        for block in &self.h {
            x = block.forward(x, &self.config);
        }
        self.ln_f.forward(x, &self.config)
    }

    /// Logits `[batch, time, vocab_size]` at every position of `tokens` `[batch, time]`.
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        self.logits(self.hidden(tokens))
    }

    /// Logits `[new positions, vocab_size]` of tokens that come after what `cache` holds, `tokens[row]` after its row; adds
    /// them to it. Rows may have any number of new tokens, none included; the positions come out row after row.
    pub fn forward_cached(&self, tokens: &[&[u32]], cache: &mut KvCache) -> Tensor<2> {
        self.head(self.hidden_cached(tokens, cache))
    }

    /// As [`Self::forward_cached`], but only for the last `counts[row]` of each row's new tokens, `[sum of counts, vocab_size]`:
    /// generation needs no others.
    pub fn forward_cached_last(&self, tokens: &[&[u32]], counts: &[usize], cache: &mut KvCache) -> Tensor<2> {
        let hidden = self.hidden_cached(tokens, cache); // [1, new positions, n_embd]
        if tokens.iter().zip(counts).all(|(new, &count)| new.len() == count) {
            return self.head(hidden);
        }
        let mut last = Vec::new();
        let mut end = 0;
        for (new, &count) in tokens.iter().zip(counts) {
            end += new.len();
            last.extend((end - count) as i32..end as i32);
        }
        let last = to_tensor(last, &hidden.device());
        self.head(hidden.select(1, last))
    }

    /// Logits `[batch, time, vocab_size]` of a residual stream `[batch, time, n_embd]` after `ln_f`.
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        kernels::unembed(hidden, self.head_weight())
    }

    /// The head's weight `[vocab_size, n_embd]`: the token embedding's own where the head is tied.
    pub fn head_weight(&self) -> Tensor<2> {
        self.lm_head.as_ref().unwrap_or(&self.wte).weight.val()
    }

    /// The residual stream `[1, new positions, n_embd]`. New positions of all rows stand side by side, whatever their number
    /// in each: all but attention treats every position by itself.
    fn hidden_cached(&self, tokens: &[&[u32]], cache: &mut KvCache) -> Tensor<3> {
        let device = self.device();
        let ids = tokens.iter().flat_map(|new| new.iter().map(|&id| id as i32)).collect();
        let places = tokens.iter().enumerate().flat_map(|(row, new)| (0..new.len()).map(move |i| (row, i)));
        let positions = places.map(|(row, i)| (cache.len(row) + i) as i32).collect();
        let embed = |table: &Embedding, ids: Vec<i32>| {
            kernels::plain::embed(table.weight.val(), to_tensor(ids, &device).unsqueeze::<2>())
        };
        let mut x = embed(&self.wte, ids) + embed(&self.wpe, positions); // [1, new positions, n_embd]
        let counts: Vec<usize> = tokens.iter().map(|new| new.len()).collect();
        let rows = CachedAttention::new(cache.reserve(&counts), &device);
        for (layer, block) in self.h.iter().enumerate() {
            x = block.forward_cached(x, &self.config, layer, cache, &rows);
        }
        self.ln_f.forward(x, &self.config)
    }

    /// Logits `[positions, vocab_size]` of `hidden` `[1, positions, n_embd]`.
    fn head(&self, hidden: Tensor<3>) -> Tensor<2> {
        let positions = hidden.dims()[1];
        self.logits(hidden).reshape([positions, self.config.vocab_size])
    }

    /// Token plus position embeddings `[batch, time, n_embd]` for `tokens` at positions 0 and on.
    pub(crate) fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let time = tokens.dims()[1];
        let positions = self.wpe.weight.val().narrow(0, 0, time).unsqueeze::<3>(); // [1, time, n_embd]
        kernels::plain::embed(self.wte.weight.val(), tokens) + positions
    }
}

fn to_tensor(ids: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    let length = ids.len();
    Tensor::from_data(TensorData::new(ids, [length]), device)
}

/// Makes modules out of the tensors that a source has under their names.
struct Builder<'a> {
    source: &'a mut dyn ParameterSource,
    device: &'a Device,
}

impl Builder<'_> {
    fn parameter<const D: usize>(&mut self, name: &str, shape: [usize; D], init: Init) -> Result<Param<Tensor<D>>> {
        let values = self.source.values(name, &shape, init)?;
        Ok(Param::from_data(TensorData::new(values, shape), self.device))
    }

    fn embedding(&mut self, name: &str, rows: usize, n_embd: usize) -> Result<Embedding> {
        Ok(Embedding { weight: self.parameter(&format!("{name}.weight"), [rows, n_embd], Init::Normal(0.02))? })
    }

    fn linear(&mut self, name: &str, n_in: usize, n_out: usize, init: Init) -> Result<Linear> {
        Ok(Linear {
            weight: self.parameter(&format!("{name}.weight"), [n_in, n_out], init)?,
            bias: self.parameter(&format!("{name}.bias"), [n_out], Init::Constant(0.0))?,
        })
    }

    fn layer_norm(&mut self, name: &str, n_embd: usize) -> Result<LayerNorm> {
        Ok(LayerNorm {
            weight: self.parameter(&format!("{name}.weight"), [n_embd], Init::Constant(1.0))?,
            bias: self.parameter(&format!("{name}.bias"), [n_embd], Init::Constant(0.0))?,
        })
    }
}
