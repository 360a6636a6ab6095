//! Builds a model: gets every parameter from a source by name, and puts it into the modules.

use std::sync::Arc;

use burn::module::{Param, ParamId};
use burn::tensor::{Device, FloatDType, Tensor, TensorData};

use crate::gpt::{Attention, Block, Gpt, Mlp};
use crate::init::{Init, ParameterSource, Random};
use crate::layers::{Embedding, Linear, Matrix, Norm, PackedMatrix};
use crate::{GptConfig, ParameterMapper, WeightType, device::multiplies, operations::Operation};
use crate::{error::Error, error::Result};
use ember_kernels::{arena::Memory, is_cpu, limits::Use, limits::check, packed::Packed, packed::Source};

/// Standard deviation of GPT-2's initial weights.
const STANDARD_DEVIATION: f64 = 0.02;

impl Gpt {
    /// A model with GPT-2's initial weights: normal with standard deviation 0.02, multiplied by `1
    /// / sqrt(2 n_layer)` in the projections back into the residual stream; biases 0 and scales 1.
    /// Each tensor is drawn from (seed, its name).
    ///
    /// # Errors
    /// When the shape is impossible ([`GptConfig::validate`]).
    pub fn new(config: &GptConfig, seed: u64, device: &Device) -> Result<Self> {
        Self::build(config, &Random { seed }, device)
    }

    /// A model whose weights come from `source`, by name.
    ///
    /// # Errors
    /// When the shape is impossible, on this device or on any, or the source lacks a tensor.
    pub fn build(config: &GptConfig, source: &dyn ParameterSource, device: &Device) -> Result<Self> {
        config.validate()?;
        check(config.demand(Use::Inference), device)?;
        Builder { source, config, device: device.clone(), packing: None }.model()
    }

    /// As [`Self::build`] for inference, with the matrices stored as `weights`. On the CPU they are
    /// packed, and products are computed in float32; on other devices products with bfloat16 are
    /// computed in bfloat16.
    ///
    /// # Errors
    /// As [`Self::build`], and when the device does not support the type, or has not enough memory.
    pub fn for_inference(
        config: &GptConfig,
        source: &dyn ParameterSource,
        weights: WeightType,
        device: &Device,
    ) -> Result<Self> {
        if is_cpu(device) {
            config.validate()?;
            let memory = Packed::room(weights, matrices(config))?;
            return Builder { source, config, device: Device::flex(), packing: Some((weights, memory)) }.model();
        }
        let gpt = Self::build(config, source, device)?;
        match weights {
            WeightType::F32 => Ok(gpt),
            WeightType::Bf16 => match multiplies(device, FloatDType::BF16) {
                Ok(()) => Ok(gpt.map_parameters(&mut ToBf16).with_precision(FloatDType::BF16)),
                Err(problem) => Err(Error::Weights { weights, problem: format!("the device {problem}") }),
            },
            WeightType::Int8 => Err(Error::Weights { weights, problem: "only the CPU computes with them".to_owned() }),
        }
    }
}

/// Sizes `[n_in, n_out]` of the matrices that a token is multiplied with, in the order in which
/// they are built: that of the forward pass, except that a tied head comes first, as the token
/// embedding.
fn matrices(config: &GptConfig) -> impl Iterator<Item = [usize; 2]> {
    let operations = config.operations();
    let block: Vec<_> = operations.matrices_of_a_block().collect();
    let head = operations.head.iter().filter_map(Operation::matrix).collect();
    let (before, after) = if config.tied_head { (head, Vec::new()) } else { (Vec::new(), head) };
    before.into_iter().chain((0..config.n_layer).flat_map(move |_| block.clone())).chain(after)
}

/// Casts the matrices to bfloat16. Biases, norms and position embeddings stay float32: kernels add
/// in float32, and a cast for each product of each token would cost a GPU more than the bytes it
/// saves.
struct ToBf16;

impl ParameterMapper for ToBf16 {
    fn map<const D: usize>(&mut self, name: &str, _id: ParamId, tensor: Tensor<D>) -> Tensor<D> {
        if D == 2 && name != "wpe.weight" { tensor.cast(FloatDType::BF16) } else { tensor }
    }
}

/// Builds modules from a source's tensors.
struct Builder<'a> {
    source: &'a dyn ParameterSource,
    config: &'a GptConfig,
    device: Device,
    packing: Option<(WeightType, Arc<Memory>)>,
}

impl Builder<'_> {
    fn model(&self) -> Result<Gpt> {
        let config = self.config;
        let (vocab_size, has_table) = (config.vocab_size, config.position_table() > 0);
        Ok(Gpt {
            wte: if config.tied_head { self.head("wte")? } else { self.embedding("wte", vocab_size)? },
            wpe: has_table.then(|| self.embedding("wpe", config.context_length)).transpose()?,
            h: (0..config.n_layer).map(|i| self.block(i)).collect::<Result<_>>()?,
            ln_f: self.norm("ln_f", config.n_embd)?,
            lm_head: (!config.tied_head).then(|| self.head("lm_head")).transpose()?,
            config: config.clone(),
            precision: FloatDType::F32,
        })
    }

    fn block(&self, i: usize) -> Result<Block> {
        let config = self.config;
        let (n_embd, heads) = (config.n_embd, config.heads());
        let normal = Init::Normal(STANDARD_DEVIATION);
        // Each block adds to the residual stream twice; the smaller deviation keeps the sum from
        // growing with the number of blocks.
        let onto_residual = Init::Normal(STANDARD_DEVIATION / (2.0 * config.n_layer as f64).sqrt());
        Ok(Block {
            ln_1: self.norm(&format!("h.{i}.ln_1"), n_embd)?,
            attn: Attention {
                c_attn: self.linear(&format!("h.{i}.attn.c_attn"), n_embd, heads.width(), normal)?,
                c_proj: self.linear(&format!("h.{i}.attn.c_proj"), heads.query_width(), n_embd, onto_residual)?,
                q_norm: self.head_norm(&format!("h.{i}.attn.q_norm"))?,
                k_norm: self.head_norm(&format!("h.{i}.attn.k_norm"))?,
            },
            ln_2: self.norm(&format!("h.{i}.ln_2"), n_embd)?,
            mlp: Mlp {
                c_fc: self.linear(&format!("h.{i}.mlp.c_fc"), n_embd, config.mlp_width(), normal)?,
                c_proj: self.linear(&format!("h.{i}.mlp.c_proj"), config.n_inner, n_embd, onto_residual)?,
            },
        })
    }

    fn parameter<const D: usize>(&self, name: &str, shape: [usize; D], init: Init) -> Result<Param<Tensor<D>>> {
        let values = self.source.values(name, &shape, init)?.into_owned();
        Ok(Param::from_data(TensorData::new(values, shape), &self.device))
    }

    fn embedding(&self, name: &str, rows: usize) -> Result<Embedding> {
        let shape = [rows, self.config.n_embd];
        let weight = self.parameter(&format!("{name}.weight"), shape, Init::Normal(STANDARD_DEVIATION))?;
        Ok(Embedding { weight: Matrix::Values(weight) })
    }

    /// An embedding table that serves as the head.
    fn head(&self, name: &str) -> Result<Embedding> {
        let (n_embd, rows) = (self.config.n_embd, self.config.vocab_size);
        let Some((weights, memory)) = &self.packing else { return self.embedding(name, rows) };
        let values =
            self.source.values(&format!("{name}.weight"), &[rows, n_embd], Init::Normal(STANDARD_DEVIATION))?;
        let packed = Packed::new(memory, *weights, Source::Columns(&values), [n_embd, rows], None);
        Ok(Embedding { weight: Matrix::Packed(PackedMatrix { packed }) })
    }

    fn linear(&self, name: &str, n_in: usize, n_out: usize, init: Init) -> Result<Linear> {
        let (matrix, size) = (format!("{name}.weight"), [n_in, n_out]);
        let Some((weights, memory)) = &self.packing else {
            let weight = Matrix::Values(self.parameter(&matrix, size, init)?);
            return Ok(Linear { weight, bias: self.bias(name, n_out, self.config.bias)? });
        };
        let values = self.source.values(&matrix, &size, init)?;
        let bias = self.bias_values(name, n_out, self.config.bias)?;
        let packed = Packed::new(memory, *weights, Source::Rows(&values), size, bias.as_deref());
        Ok(Linear { weight: Matrix::Packed(PackedMatrix { packed }), bias: None })
    }

    fn norm(&self, name: &str, width: usize) -> Result<Norm> {
        Ok(Norm {
            weight: self.parameter(&format!("{name}.weight"), [width], Init::Constant(1.0))?,
            bias: self.bias(name, width, self.config.norm_has_shift())?,
        })
    }

    /// QK-norm over the values of one head, which only scales; `None` if the model has no QK-norm.
    fn head_norm(&self, name: &str) -> Result<Option<Norm>> {
        let weight = || self.parameter(&format!("{name}.weight"), [self.config.head_size], Init::Constant(1.0));
        let norm = self.config.qk_norm.then(|| Ok(Norm { weight: weight()?, bias: None }));
        norm.transpose()
    }

    fn bias(&self, name: &str, width: usize, wanted: bool) -> Result<Option<Param<Tensor<1>>>> {
        let values = self.bias_values(name, width, wanted)?;
        Ok(values.map(|values| Param::from_data(TensorData::new(values, [width]), &self.device)))
    }

    fn bias_values(&self, name: &str, width: usize, wanted: bool) -> Result<Option<Vec<f32>>> {
        let values = || self.source.values(&format!("{name}.bias"), &[width], Init::Constant(0.0));
        wanted.then(|| Ok(values()?.into_owned())).transpose()
    }
}
