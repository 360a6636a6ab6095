//! The layers of a GPT, as in PyTorch's `torch.nn`: an embedding, a linear layer and a norm. Also
//! the matrix type of the first two, which is packed for inference on the CPU
//! ([`ember_kernels::packed`]).

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};

use crate::{GptConfig, WeightType, config::NormKind};
use ember_kernels::packed::Packed;
use ember_kernels::{self as kernels, DropoutMask, cast};

/// A weight matrix, in one of two forms.
#[derive(Module, Debug)]
pub enum Matrix {
    /// A tensor: for training, and for GPUs.
    Values(Param<Tensor<2>>),
    /// For inference on the CPU: stored in the layout that products read, together with its bias.
    Packed(PackedMatrix),
}

/// A matrix and its bias in the layout that products on the CPU read.
#[derive(Module, Debug)]
pub struct PackedMatrix {
    #[module(skip)]
    pub(crate) packed: Packed,
}

impl Matrix {
    /// The values `[rows, columns]`; a packed matrix has none.
    pub fn values(&self) -> Option<Tensor<2>> {
        match self {
            Self::Values(values) => Some(values.val()),
            Self::Packed(_) => None,
        }
    }

    pub(crate) fn device(&self) -> Device {
        self.values().map_or_else(Device::flex, |values| values.device())
    }

    pub(crate) fn weight_type(&self) -> WeightType {
        match self {
            Self::Packed(PackedMatrix { packed }) => packed.weight_type(),
            Self::Values(values) if values.val().dtype() == DType::BF16 => WeightType::Bf16,
            Self::Values(_) => WeightType::F32,
        }
    }
}

/// A table of vectors, one for each id.
#[derive(Module, Debug)]
pub struct Embedding {
    /// `[ids, n_embd]`.
    pub weight: Matrix,
}

impl Embedding {
    /// The vectors of `ids` `[batch, time]`, `[batch, time, n_embd]`, in float32.
    pub(crate) fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        match &self.weight {
            Matrix::Values(values) => cast(kernels::embed(values.val(), ids), FloatDType::F32),
            Matrix::Packed(PackedMatrix { packed }) => {
                let ([batch, time], [n_embd, _], device) = (ids.dims(), packed.size(), ids.device());
                let ids: Vec<u32> = ids.into_data().iter::<u32>().collect();
                Tensor::from_data(TensorData::new(packed.columns(&ids), [batch, time, n_embd]), &device)
            }
        }
    }

    /// The table as a head: the dot products of `x` `[batch, time, n_embd]` with each of its
    /// vectors, `[batch, time, ids]`, computed in `precision` unless the table is packed.
    pub(crate) fn unembed(&self, x: Tensor<3>, precision: FloatDType) -> Tensor<3> {
        match &self.weight {
            Matrix::Values(values) => kernels::unembed(cast(x, precision), cast(values.val(), precision)),
            Matrix::Packed(PackedMatrix { packed }) => kernels::packed_linear(x, packed),
        }
    }
}

/// `y = x W + b`; GPT-2 stores W as `[n_in, n_out]`, a Conv1D. W is cast to the type of `x`.
#[derive(Module, Debug)]
pub struct Linear {
    /// `[n_in, n_out]`.
    pub weight: Matrix,
    /// `[n_out]`, if the model has biases.
    pub bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    fn bias(&self) -> Option<Tensor<1>> {
        self.bias.as_ref().map(Param::val)
    }

    /// `[batch, time, n_in]` to `[batch, time, n_out]`.
    pub(crate) fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let to = x.dtype().into();
        match &self.weight {
            Matrix::Values(values) => kernels::linear(x, cast(values.val(), to), self.bias()),
            Matrix::Packed(PackedMatrix { packed }) => kernels::packed_linear(x, packed),
        }
    }

    /// `gelu(forward(x))`, in one operation.
    pub(crate) fn forward_gelu(&self, x: Tensor<3>) -> Tensor<3> {
        let to = x.dtype().into();
        match &self.weight {
            Matrix::Values(values) => kernels::linear_gelu(x, cast(values.val(), to), self.bias()),
            Matrix::Packed(_) => kernels::gelu(self.forward(x)),
        }
    }

    /// `residual + dropout(forward(x))` in float32: adds a branch's output to the residual stream
    /// `[batch, time, n_embd]`.
    pub(crate) fn forward_onto(&self, residual: Tensor<3>, x: Tensor<3>, dropout: f64) -> Tensor<3> {
        match &self.weight {
            Matrix::Values(values) => {
                let weight = cast(values.val(), x.dtype().into());
                let mask = DropoutMask::draw(dropout, &x.device());
                kernels::linear_onto(residual, x, weight, self.bias(), mask)
            }
            Matrix::Packed(PackedMatrix { packed }) => kernels::packed_linear_onto(residual, x, packed),
        }
    }
}

/// Scales each position's vector to root mean square 1, then multiplies it by learned weights. A
/// LayerNorm subtracts the mean first, and adds a learned shift at the end.
#[derive(Module, Debug)]
pub struct Norm {
    /// Scale, `[width]`.
    pub weight: Param<Tensor<1>>,
    /// Shift, `[width]`, in a LayerNorm.
    pub bias: Option<Param<Tensor<1>>>,
}

impl Norm {
    /// The normalised copy of a float32 `x` `[batch, time, n_embd]`, of type `to`.
    pub(crate) fn forward(&self, x: Tensor<3>, config: &GptConfig, to: FloatDType) -> Tensor<3> {
        self.normalised(x, config.norm, kernels::Norm::new(config.norm_epsilon, to))
    }

    /// As [`Self::forward`], for a branch whose output is added back to `x`.
    pub(crate) fn forward_branch(&self, x: Tensor<3>, config: &GptConfig, to: FloatDType) -> Tensor<3> {
        self.normalised(x, config.norm, kernels::Norm::new(config.norm_epsilon, to).of_branch())
    }

    fn normalised(&self, x: Tensor<3>, kind: NormKind, norm: kernels::Norm) -> Tensor<3> {
        let weight = self.weight.val();
        match kind {
            NormKind::LayerNorm => kernels::layer_norm(x, weight, self.bias.as_ref().map(Param::val), norm),
            NormKind::RmsNorm => kernels::rms_norm(x, weight, norm),
        }
    }
}
