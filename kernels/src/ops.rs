//! The operations that we have kernels for, as burn backend extensions: which backends have one, and which have a backward.
//!
//! A trait's forward is implemented for each backend by its kernels, and for `Autodiff<B>` in `autodiff.rs`, which records the
//! operation and calls the backend's own backward.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, backend_extension};
use burn::tensor::FloatDType;

use super::{DropoutMask, Heads, Places};
use crate::packed::Packed;

/// Products with weights.
#[cfg_attr(feature = "autodiff", backend_extension(Flex, Cube, Autodiff))]
#[cfg_attr(not(feature = "autodiff"), backend_extension(Flex, Cube))]
pub trait MatrixOps: Backend {
    /// `x W + b`, `[batch, time, n_out]`.
    fn fused_linear(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self>;
    /// `x W`, `[batch, time, n_out]`.
    fn fused_linear_without_bias(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;
    /// `gelu(x W + b)`, `[batch, time, n_out]`, and what the backend's own backward wants kept.
    fn fused_linear_gelu(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
    /// `residual + dropout(x W + b)` in float32, `[batch, time, n_out]`: how a branch comes back into the residual stream.
    fn fused_linear_onto(
        residual: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        dropout: Option<DropoutMask>,
    ) -> FloatTensor<Self>;
    /// `x Wᵀ`, `[batch, time, vocab]`: in float32 on the CPU, in the type of `x` elsewhere.
    fn fused_unembed(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// The gradients of [`MatrixOps`].
#[cfg(feature = "autodiff")]
pub trait MatrixBackward: Backend {
    /// Gradients of `x`, `weight` and `bias`.
    fn fused_linear_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dy: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 3];
    /// Gradients of `x` and `weight`.
    fn fused_linear_without_bias_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dy: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 2];
    /// Gradients of `x`, `weight` and `bias`, the `inputs`, given what the forward `kept`.
    fn fused_linear_gelu_backward(
        inputs: [FloatTensor<Self>; 3],
        kept: FloatTensor<Self>,
        dy: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 3];
    /// Gradients of `x`, `weight` and `bias`; that of `residual` is `dy` itself.
    fn fused_linear_onto_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        dropout: Option<DropoutMask>,
    ) -> [FloatTensor<Self>; 3];
    /// Gradients of `x` and `weight`.
    fn fused_unembed_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dy: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 2];
}

/// Norms over the last dimension.
#[cfg_attr(feature = "autodiff", backend_extension(Flex, Cube, Autodiff))]
#[cfg_attr(not(feature = "autodiff"), backend_extension(Flex, Cube))]
pub trait NormOps: Backend {
    /// LayerNorm over the last dimension of a float32 `x`, put out as `to`.
    fn fused_layer_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        epsilon: f32,
        to: FloatDType,
    ) -> FloatTensor<Self>;
    /// RMSNorm over the last dimension of a float32 `x`, put out as `to`.
    fn fused_rms_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        epsilon: f32,
        to: FloatDType,
    ) -> FloatTensor<Self>;
    /// RMSNorm of every head's query and key inside `qkv`.
    fn fused_qk_norm(
        qkv: FloatTensor<Self>,
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        epsilon: f32,
        heads: Heads,
    ) -> FloatTensor<Self>;
}

/// The gradients of [`NormOps`].
#[cfg(feature = "autodiff")]
pub trait NormBackward: Backend {
    /// Gradients of `x`, `weight` and `bias`.
    fn fused_layer_norm_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        epsilon: f32,
    ) -> [FloatTensor<Self>; 3];
    /// Gradients of `x` and `weight`.
    fn fused_rms_norm_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        epsilon: f32,
    ) -> [FloatTensor<Self>; 2];
    /// Gradients of `qkv`, `query` and `key`.
    fn fused_qk_norm_backward(
        inputs: [FloatTensor<Self>; 3],
        dy: FloatTensor<Self>,
        epsilon: f32,
        heads: Heads,
    ) -> [FloatTensor<Self>; 3];
}

/// What happens to each value, or pair of values, by itself.
#[cfg_attr(feature = "autodiff", backend_extension(Flex, Cube, Autodiff))]
#[cfg_attr(not(feature = "autodiff"), backend_extension(Flex, Cube))]
pub trait PointwiseOps: Backend {
    /// Queries and keys inside `qkv` turned by angles whose `cos` and `sin` are `[time, head_size / 2]`, in place where nothing
    /// else holds them.
    fn fused_rotate(
        qkv: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        heads: Heads,
    ) -> FloatTensor<Self>;
    /// GELU, element by element.
    fn fused_gelu(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// SwiGLU of the two halves of the last dimension.
    fn fused_swiglu(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Dropout by the mask that `mask` names.
    fn fused_dropout(x: FloatTensor<Self>, mask: DropoutMask) -> FloatTensor<Self>;
    /// The values in another type.
    fn fused_cast(x: FloatTensor<Self>, to: FloatDType) -> FloatTensor<Self>;
}

/// The gradients of [`PointwiseOps`]; those of dropout and casts are dropout and casts.
#[cfg(feature = "autodiff")]
pub trait PointwiseBackward: Backend {
    /// Gradient of `qkv`.
    fn fused_rotate_backward(
        dy: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        heads: Heads,
    ) -> FloatTensor<Self>;
    /// Gradient of `x`.
    fn fused_gelu_backward(x: FloatTensor<Self>, dy: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Gradient of `x`.
    fn fused_swiglu_backward(x: FloatTensor<Self>, dy: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// Rows of a table by their numbers.
#[cfg_attr(feature = "autodiff", backend_extension(Flex, Cube, Autodiff))]
#[cfg_attr(not(feature = "autodiff"), backend_extension(Flex, Cube))]
pub trait EmbeddingOps: Backend {
    /// Rows of `weight` `[rows, n_embd]` for `ids` `[batch, time]`: `[batch, time, n_embd]`.
    fn fused_embed(weight: FloatTensor<Self>, ids: IntTensor<Self>) -> FloatTensor<Self>;
}

/// The gradient of [`EmbeddingOps`].
#[cfg(feature = "autodiff")]
pub trait EmbeddingBackward: Backend {
    /// Gradient of a table with so many `rows`: each row's is the sum of `dy` where its number stands in `ids`.
    fn fused_embed_backward(ids: IntTensor<Self>, dy: FloatTensor<Self>, rows: usize) -> FloatTensor<Self>;
}

/// Attention within a window.
#[cfg_attr(feature = "autodiff", backend_extension(Flex, Cube, Autodiff))]
#[cfg_attr(not(feature = "autodiff"), backend_extension(Flex, Cube))]
pub trait AttentionOps: Backend {
    /// Causal attention: its output `[batch, time, n_head head_size]`, and what the backend's own backward wants kept.
    fn fused_causal_attention(
        qkv: FloatTensor<Self>,
        heads: Heads,
        dropout: Option<DropoutMask>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

/// The gradient of [`AttentionOps`].
#[cfg(feature = "autodiff")]
pub trait AttentionBackward: Backend {
    /// Gradient of `qkv`, given the forward's output `y` and what it `kept`.
    fn fused_causal_attention_backward(
        qkv: FloatTensor<Self>,
        y: FloatTensor<Self>,
        kept: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        heads: Heads,
        dropout: Option<DropoutMask>,
    ) -> FloatTensor<Self>;
}

/// Products with packed weights, of inference on the CPU: no backward.
#[backend_extension(Flex)]
pub trait PackedOps: Backend {
    /// `x W + b`, `[batch, time, n_out]`.
    fn packed_linear(x: FloatTensor<Self>, weight: Packed) -> FloatTensor<Self>;
    /// `residual + x W + b`, `[batch, time, n_out]`.
    fn packed_linear_onto(residual: FloatTensor<Self>, x: FloatTensor<Self>, weight: Packed) -> FloatTensor<Self>;
}

/// What only inference needs: it has no backward.
#[backend_extension(Flex, Cube)]
pub trait CachedOps: Backend {
    /// Attention of new positions to the cache; see [`super::CachedAttention::attend`]. `table` is [`super::CachedRows`]'s on the device;
    /// the CPU reads `places` itself.
    fn cached_attention(
        qkv: FloatTensor<Self>,
        keys: FloatTensor<Self>,
        values: FloatTensor<Self>,
        table: IntTensor<Self>,
        heads: Heads,
        places: Places,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

/// What only decoding on a GPU needs: the CPU has the logits at hand.
#[backend_extension(Cube)]
pub trait ChoiceOps: Backend {
    /// See [`super::best`].
    fn best(logits: FloatTensor<Self>) -> FloatTensor<Self>;
    /// See [`super::overwrite`]; gives the tensor back.
    fn overwrite(target: IntTensor<Self>, values: Vec<i32>) -> IntTensor<Self>;
}
