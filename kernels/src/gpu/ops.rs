//! The operations on GPUs, by the kernels of this folder.

use burn::tensor::{Bytes, FloatDType};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::cast;
use burn_cubecl::tensor::CubeTensor;

#[cfg(feature = "autodiff")]
use crate::attention::gpu_backward as attention_backward;
#[cfg(feature = "autodiff")]
use crate::ops::{AttentionBackward, EmbeddingBackward, MatrixBackward, NormBackward, PointwiseBackward};
use crate::ops::{AttentionOps, CachedOps, ChoiceOps, EmbeddingOps, MatrixOps, NormOps, PointwiseOps};
use crate::{DropoutMask, Heads, Places};
use crate::{
    argmax::gpu as best,
    attention::gpu as attention,
    cached_attention::gpu as cached_attention,
    dropout::gpu as dropout,
    embedding::gpu as embedding,
    gelu::gpu as pointwise,
    linear::{gpu as matrix, gpu_gelu as linear_gelu},
    norm::gpu as norm,
    qk_norm::gpu as qk_norm,
    rotary::gpu as rotary,
};

impl MatrixOps for CubeBackend {
    fn fused_linear(x: CubeTensor, weight: CubeTensor, bias: CubeTensor) -> CubeTensor {
        matrix::linear(x, weight, Some(bias))
    }

    fn fused_linear_without_bias(x: CubeTensor, weight: CubeTensor) -> CubeTensor {
        matrix::linear(x, weight, None)
    }

    fn fused_linear_gelu(x: CubeTensor, weight: CubeTensor, bias: CubeTensor) -> (CubeTensor, CubeTensor) {
        linear_gelu::forward(x, weight, bias)
    }

    fn fused_linear_onto(
        residual: CubeTensor,
        x: CubeTensor,
        weight: CubeTensor,
        bias: CubeTensor,
        dropout: Option<DropoutMask>,
    ) -> CubeTensor {
        matrix::linear_onto(residual, x, weight, bias, dropout)
    }

    fn fused_unembed(x: CubeTensor, weight: CubeTensor) -> CubeTensor {
        matrix::unembed(x, weight)
    }
}

impl NormOps for CubeBackend {
    fn fused_layer_norm(
        x: CubeTensor,
        weight: CubeTensor,
        bias: CubeTensor,
        epsilon: f32,
        to: FloatDType,
    ) -> CubeTensor {
        norm::forward(x, weight, Some(bias), epsilon, to)
    }

    fn fused_rms_norm(x: CubeTensor, weight: CubeTensor, epsilon: f32, to: FloatDType) -> CubeTensor {
        norm::forward(x, weight, None, epsilon, to)
    }

    fn fused_qk_norm(qkv: CubeTensor, query: CubeTensor, key: CubeTensor, epsilon: f32, heads: Heads) -> CubeTensor {
        qk_norm::forward(qkv, query, key, epsilon, heads)
    }
}

impl PointwiseOps for CubeBackend {
    fn fused_rotate(qkv: CubeTensor, cos: CubeTensor, sin: CubeTensor, heads: Heads) -> CubeTensor {
        rotary::turn(qkv, cos, sin, heads, 1.0)
    }

    fn fused_gelu(x: CubeTensor) -> CubeTensor {
        pointwise::gelu_forward(x)
    }

    fn fused_swiglu(x: CubeTensor) -> CubeTensor {
        pointwise::swiglu_forward(x)
    }

    fn fused_dropout(x: CubeTensor, mask: DropoutMask) -> CubeTensor {
        dropout::apply(x, mask)
    }

    fn fused_cast(x: CubeTensor, to: FloatDType) -> CubeTensor {
        cast(x, to.into())
    }
}

impl EmbeddingOps for CubeBackend {
    fn fused_embed(weight: CubeTensor, ids: CubeTensor) -> CubeTensor {
        embedding::forward(weight, ids)
    }
}

impl ChoiceOps for CubeBackend {
    fn best(logits: CubeTensor) -> CubeTensor {
        best::best(logits)
    }

    fn overwrite(target: CubeTensor, values: Vec<i32>) -> CubeTensor {
        target.client.write(&target.handle, Bytes::from_elems(values));
        target
    }
}

#[cfg(feature = "autodiff")]
impl MatrixBackward for CubeBackend {
    fn fused_linear_backward(x: CubeTensor, weight: CubeTensor, dy: CubeTensor) -> [CubeTensor; 3] {
        matrix::linear_with_bias_backward(x, weight, dy)
    }

    fn fused_linear_without_bias_backward(x: CubeTensor, weight: CubeTensor, dy: CubeTensor) -> [CubeTensor; 2] {
        matrix::linear_backward(x, weight, dy)
    }

    fn fused_linear_gelu_backward(inputs: [CubeTensor; 3], kept: CubeTensor, dy: CubeTensor) -> [CubeTensor; 3] {
        linear_gelu::backward(inputs, kept, dy)
    }

    fn fused_linear_onto_backward(
        x: CubeTensor,
        weight: CubeTensor,
        dy: CubeTensor,
        dropout: Option<DropoutMask>,
    ) -> [CubeTensor; 3] {
        matrix::linear_onto_backward(x, weight, dy, dropout)
    }

    fn fused_unembed_backward(x: CubeTensor, weight: CubeTensor, dy: CubeTensor) -> [CubeTensor; 2] {
        matrix::unembed_backward(x, weight, dy)
    }
}

#[cfg(feature = "autodiff")]
impl NormBackward for CubeBackend {
    fn fused_layer_norm_backward(x: CubeTensor, weight: CubeTensor, dy: CubeTensor, epsilon: f32) -> [CubeTensor; 3] {
        norm::layer_norm_backward(x, weight, dy, epsilon)
    }

    fn fused_rms_norm_backward(x: CubeTensor, weight: CubeTensor, dy: CubeTensor, epsilon: f32) -> [CubeTensor; 2] {
        norm::rms_norm_backward(x, weight, dy, epsilon)
    }

    fn fused_qk_norm_backward(inputs: [CubeTensor; 3], dy: CubeTensor, epsilon: f32, heads: Heads) -> [CubeTensor; 3] {
        qk_norm::backward(inputs, dy, epsilon, heads)
    }
}

#[cfg(feature = "autodiff")]
impl PointwiseBackward for CubeBackend {
    fn fused_rotate_backward(dy: CubeTensor, cos: CubeTensor, sin: CubeTensor, heads: Heads) -> CubeTensor {
        rotary::turn(dy, cos, sin, heads, -1.0)
    }

    fn fused_gelu_backward(x: CubeTensor, dy: CubeTensor) -> CubeTensor {
        pointwise::gelu_backward(x, dy)
    }

    fn fused_swiglu_backward(x: CubeTensor, dy: CubeTensor) -> CubeTensor {
        pointwise::swiglu_backward(x, dy)
    }
}

#[cfg(feature = "autodiff")]
impl EmbeddingBackward for CubeBackend {
    fn fused_embed_backward(ids: CubeTensor, dy: CubeTensor, rows: usize) -> CubeTensor {
        embedding::backward(ids, dy, rows)
    }
}

impl AttentionOps for CubeBackend {
    fn fused_causal_attention(qkv: CubeTensor, heads: Heads, dropout: Option<DropoutMask>) -> (CubeTensor, CubeTensor) {
        attention::attend(qkv, heads, dropout)
    }
}

#[cfg(feature = "autodiff")]
impl AttentionBackward for CubeBackend {
    fn fused_causal_attention_backward(
        qkv: CubeTensor,
        y: CubeTensor,
        log_sums: CubeTensor,
        dy: CubeTensor,
        heads: Heads,
        dropout: Option<DropoutMask>,
    ) -> CubeTensor {
        attention_backward::backward(qkv, y, log_sums, dy, heads, dropout)
    }
}

impl CachedOps for CubeBackend {
    fn cached_attention(
        qkv: CubeTensor,
        keys: CubeTensor,
        values: CubeTensor,
        table: CubeTensor,
        heads: Heads,
        places: Places,
    ) -> (CubeTensor, CubeTensor, CubeTensor) {
        cached_attention::attend(qkv, keys, values, table, heads, &places)
    }
}
