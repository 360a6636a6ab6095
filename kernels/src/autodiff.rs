//! The backward of our fused operations: what each keeps from the forward, and which gradients it hands on.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, AutodiffBackend, Backend, TensorMetadata};
use burn::tensor::FloatDType;

use super::ops::{
    AttentionBackward, AttentionOps, EmbeddingBackward, EmbeddingOps, MatrixBackward, MatrixOps, NormBackward, NormOps,
    PointwiseBackward, PointwiseOps,
};
use super::{DropoutMask, Heads};

/// Registers each gradient with its parent, where the parent is tracked.
fn register<B: Backend, const N: usize>(
    grads: &mut Gradients,
    parents: [Option<NodeId>; N],
    gradients: [B::FloatTensorPrimitive; N],
) {
    for (parent, gradient) in parents.into_iter().zip(gradients) {
        if let Some(parent) = parent {
            grads.register::<B>(parent, gradient);
        }
    }
}

#[derive(Debug)]
struct Linear;
impl<B: MatrixBackward> Backward<B, 3> for Linear {
    type State = [NodeId; 2];
    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let [x, weight] = ops.state.map(|id| kept.retrieve_node_output::<B::FloatTensorPrimitive>(id));
        register::<B, 3>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            B::fused_linear_backward(x, weight, dy),
        );
    }
}

#[derive(Debug)]
struct LinearWithoutBias;
impl<B: MatrixBackward> Backward<B, 2> for LinearWithoutBias {
    type State = [NodeId; 2];
    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let [x, weight] = ops.state.map(|id| kept.retrieve_node_output::<B::FloatTensorPrimitive>(id));
        register::<B, 2>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            B::fused_linear_without_bias_backward(x, weight, dy),
        );
    }
}

#[derive(Debug)]
struct LinearGelu;
impl<B: MatrixBackward> Backward<B, 3> for LinearGelu {
    type State = ([NodeId; 3], B::FloatTensorPrimitive);
    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (ids, kept_by_forward) = ops.state;
        let inputs = ids.map(|id| kept.retrieve_node_output::<B::FloatTensorPrimitive>(id));
        register::<B, 3>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            B::fused_linear_gelu_backward(inputs, kept_by_forward, dy),
        );
    }
}

#[derive(Debug)]
struct LinearOnto;
impl<B: MatrixBackward> Backward<B, 4> for LinearOnto {
    type State = ([NodeId; 2], Option<DropoutMask>);
    fn backward(self, ops: Ops<Self::State, 4>, grads: &mut Gradients, kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (ids, dropout) = ops.state;
        let [x, weight] = ids.map(|id| kept.retrieve_node_output::<B::FloatTensorPrimitive>(id));
        let [dx, dweight, dbias] = B::fused_linear_onto_backward(x, weight, dy.clone(), dropout);
        register::<B, 4>(grads, ops.parents.map(|parent| parent.map(|node| node.id)), [dy, dx, dweight, dbias]);
    }
}

#[derive(Debug)]
struct Unembed;
impl<B: MatrixBackward> Backward<B, 2> for Unembed {
    type State = [NodeId; 2];
    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let [x, weight] = ops.state.map(|id| kept.retrieve_node_output::<B::FloatTensorPrimitive>(id));
        register::<B, 2>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            B::fused_unembed_backward(x, weight, dy),
        );
    }
}

#[derive(Debug)]
struct LayerNorm;
impl<B: NormBackward> Backward<B, 3> for LayerNorm {
    type State = ([NodeId; 2], f32);
    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (ids, epsilon) = ops.state;
        let [x, weight] = ids.map(|id| kept.retrieve_node_output::<B::FloatTensorPrimitive>(id));
        register::<B, 3>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            B::fused_layer_norm_backward(x, weight, dy, epsilon),
        );
    }
}

#[derive(Debug)]
struct RmsNorm;
impl<B: NormBackward> Backward<B, 2> for RmsNorm {
    type State = ([NodeId; 2], f32);
    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (ids, epsilon) = ops.state;
        let [x, weight] = ids.map(|id| kept.retrieve_node_output::<B::FloatTensorPrimitive>(id));
        register::<B, 2>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            B::fused_rms_norm_backward(x, weight, dy, epsilon),
        );
    }
}

#[derive(Debug)]
struct QkNorm;
impl<B: NormBackward> Backward<B, 3> for QkNorm {
    type State = ([NodeId; 3], f32, Heads);
    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (ids, epsilon, heads) = ops.state;
        let inputs = ids.map(|id| kept.retrieve_node_output::<B::FloatTensorPrimitive>(id));
        register::<B, 3>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            B::fused_qk_norm_backward(inputs, dy, epsilon, heads),
        );
    }
}

#[derive(Debug)]
struct Rotate;
impl<B: PointwiseBackward> Backward<B, 1> for Rotate {
    type State = ([B::FloatTensorPrimitive; 2], Heads);
    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let ([cos, sin], heads) = ops.state;
        register::<B, 1>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            [B::fused_rotate_backward(dy, cos, sin, heads)],
        );
    }
}

#[derive(Debug)]
struct Gelu;
impl<B: PointwiseBackward> Backward<B, 1> for Gelu {
    type State = NodeId;
    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let x = kept.retrieve_node_output::<B::FloatTensorPrimitive>(ops.state);
        register::<B, 1>(grads, ops.parents.map(|parent| parent.map(|node| node.id)), [B::fused_gelu_backward(x, dy)]);
    }
}

#[derive(Debug)]
struct SwiGlu;
impl<B: PointwiseBackward> Backward<B, 1> for SwiGlu {
    type State = NodeId;
    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let x = kept.retrieve_node_output::<B::FloatTensorPrimitive>(ops.state);
        register::<B, 1>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            [B::fused_swiglu_backward(x, dy)],
        );
    }
}

#[derive(Debug)]
struct Embed;
impl<B: EmbeddingBackward> Backward<B, 1> for Embed {
    type State = (B::IntTensorPrimitive, usize);
    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (ids, rows) = ops.state;
        register::<B, 1>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            [B::fused_embed_backward(ids, dy, rows)],
        );
    }
}

#[derive(Debug)]
struct CausalAttention;
impl<B: AttentionBackward> Backward<B, 1> for CausalAttention {
    type State = (NodeId, [B::FloatTensorPrimitive; 2], Heads, Option<DropoutMask>);
    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (id, [y, kept_by_forward], heads, dropout) = ops.state;
        let qkv = kept.retrieve_node_output::<B::FloatTensorPrimitive>(id);
        register::<B, 1>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            [B::fused_causal_attention_backward(qkv, y, kept_by_forward, dy, heads, dropout)],
        );
    }
}

#[derive(Debug)]
struct Dropout;
impl<B: PointwiseOps> Backward<B, 1> for Dropout {
    type State = DropoutMask;
    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        register::<B, 1>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            [B::fused_dropout(dy, ops.state)],
        );
    }
}

#[derive(Debug)]
struct Cast;
impl<B: PointwiseOps> Backward<B, 1> for Cast {
    type State = FloatDType;
    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        register::<B, 1>(grads, ops.parents.map(|parent| parent.map(|node| node.id)), [B::fused_cast(dy, ops.state)]);
    }
}

impl<B: MatrixOps + MatrixBackward, C: CheckpointStrategy> MatrixOps for Autodiff<B, C> {
    fn fused_linear(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        match Linear.prepare::<C>([x.node(), weight.node(), bias.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = [prep.checkpoint(&x), prep.checkpoint(&weight)];
                prep.finish(state, B::fused_linear(x.into_primitive(), weight.into_primitive(), bias.into_primitive()))
            }
            OpsKind::UnTracked(prep) => {
                prep.finish(B::fused_linear(x.into_primitive(), weight.into_primitive(), bias.into_primitive()))
            }
        }
    }

    fn fused_linear_without_bias(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        match LinearWithoutBias.prepare::<C>([x.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = [prep.checkpoint(&x), prep.checkpoint(&weight)];
                prep.finish(state, B::fused_linear_without_bias(x.into_primitive(), weight.into_primitive()))
            }
            OpsKind::UnTracked(prep) => {
                prep.finish(B::fused_linear_without_bias(x.into_primitive(), weight.into_primitive()))
            }
        }
    }

    fn fused_linear_gelu(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let compute = |inputs: [FloatTensor<Self>; 3]| {
            let [x, weight, bias] = inputs.map(|input| input.into_primitive());
            B::fused_linear_gelu(x, weight, bias)
        };
        match LinearGelu.prepare::<C>([x.node(), weight.node(), bias.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let ids = [prep.checkpoint(&x), prep.checkpoint(&weight), prep.checkpoint(&bias)];
                let (y, kept) = compute([x, weight, bias]);
                (prep.finish((ids, kept.clone()), y), Self::from_inner(kept))
            }
            OpsKind::UnTracked(prep) => {
                let (y, kept) = compute([x, weight, bias]);
                (prep.finish(y), Self::from_inner(kept))
            }
        }
    }

    fn fused_linear_onto(
        residual: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        dropout: Option<DropoutMask>,
    ) -> FloatTensor<Self> {
        let nodes = [residual.node(), x.node(), weight.node(), bias.node()];
        let compute = |inputs: [FloatTensor<Self>; 4]| {
            let [residual, x, weight, bias] = inputs.map(|input| input.into_primitive());
            B::fused_linear_onto(residual, x, weight, bias, dropout)
        };
        match LinearOnto.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let ids = [prep.checkpoint(&x), prep.checkpoint(&weight)];
                prep.finish((ids, dropout), compute([residual, x, weight, bias]))
            }
            OpsKind::UnTracked(prep) => prep.finish(compute([residual, x, weight, bias])),
        }
    }

    fn fused_unembed(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        match Unembed.prepare::<C>([x.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = [prep.checkpoint(&x), prep.checkpoint(&weight)];
                prep.finish(state, B::fused_unembed(x.into_primitive(), weight.into_primitive()))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::fused_unembed(x.into_primitive(), weight.into_primitive())),
        }
    }
}

impl<B: NormOps + NormBackward, C: CheckpointStrategy> NormOps for Autodiff<B, C> {
    fn fused_layer_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        epsilon: f32,
        to: FloatDType,
    ) -> FloatTensor<Self> {
        match LayerNorm.prepare::<C>([x.node(), weight.node(), bias.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = ([prep.checkpoint(&x), prep.checkpoint(&weight)], epsilon);
                let y = B::fused_layer_norm(
                    x.into_primitive(),
                    weight.into_primitive(),
                    bias.into_primitive(),
                    epsilon,
                    to,
                );
                prep.finish(state, y)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::fused_layer_norm(
                x.into_primitive(),
                weight.into_primitive(),
                bias.into_primitive(),
                epsilon,
                to,
            )),
        }
    }

    fn fused_rms_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        epsilon: f32,
        to: FloatDType,
    ) -> FloatTensor<Self> {
        match RmsNorm.prepare::<C>([x.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = ([prep.checkpoint(&x), prep.checkpoint(&weight)], epsilon);
                prep.finish(state, B::fused_rms_norm(x.into_primitive(), weight.into_primitive(), epsilon, to))
            }
            OpsKind::UnTracked(prep) => {
                prep.finish(B::fused_rms_norm(x.into_primitive(), weight.into_primitive(), epsilon, to))
            }
        }
    }

    fn fused_qk_norm(
        qkv: FloatTensor<Self>,
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        epsilon: f32,
        heads: Heads,
    ) -> FloatTensor<Self> {
        let nodes = [qkv.node(), query.node(), key.node()];
        let compute = |inputs: [FloatTensor<Self>; 3]| {
            let [qkv, query, key] = inputs.map(|input| input.into_primitive());
            B::fused_qk_norm(qkv, query, key, epsilon, heads)
        };
        match QkNorm.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let ids = [prep.checkpoint(&qkv), prep.checkpoint(&query), prep.checkpoint(&key)];
                prep.finish((ids, epsilon, heads), compute([qkv, query, key]))
            }
            OpsKind::UnTracked(prep) => prep.finish(compute([qkv, query, key])),
        }
    }
}

impl<B: PointwiseOps + PointwiseBackward, C: CheckpointStrategy> PointwiseOps for Autodiff<B, C> {
    fn fused_rotate(
        qkv: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        heads: Heads,
    ) -> FloatTensor<Self> {
        let (cos, sin) = (cos.into_primitive(), sin.into_primitive());
        match Rotate.prepare::<C>([qkv.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let y = B::fused_rotate(qkv.into_primitive(), cos.clone(), sin.clone(), heads);
                prep.finish(([cos, sin], heads), y)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::fused_rotate(qkv.into_primitive(), cos, sin, heads)),
        }
    }

    fn fused_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        match Gelu.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = prep.checkpoint(&x);
                prep.finish(state, B::fused_gelu(x.into_primitive()))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::fused_gelu(x.into_primitive())),
        }
    }

    fn fused_swiglu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        match SwiGlu.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = prep.checkpoint(&x);
                prep.finish(state, B::fused_swiglu(x.into_primitive()))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::fused_swiglu(x.into_primitive())),
        }
    }

    fn fused_dropout(x: FloatTensor<Self>, mask: DropoutMask) -> FloatTensor<Self> {
        match Dropout.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(mask, B::fused_dropout(x.into_primitive(), mask)),
            OpsKind::UnTracked(prep) => prep.finish(B::fused_dropout(x.into_primitive(), mask)),
        }
    }

    fn fused_cast(x: FloatTensor<Self>, to: FloatDType) -> FloatTensor<Self> {
        match Cast.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let from = x.primitive().dtype().into();
                prep.finish(from, B::fused_cast(x.into_primitive(), to))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::fused_cast(x.into_primitive(), to)),
        }
    }
}

impl<B: EmbeddingOps + EmbeddingBackward, C: CheckpointStrategy> EmbeddingOps for Autodiff<B, C> {
    fn fused_embed(weight: FloatTensor<Self>, ids: IntTensor<Self>) -> FloatTensor<Self> {
        match Embed.prepare::<C>([weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let rows = weight.primitive().shape()[0];
                prep.finish((ids.clone(), rows), B::fused_embed(weight.into_primitive(), ids))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::fused_embed(weight.into_primitive(), ids)),
        }
    }
}

impl<B: AttentionOps + AttentionBackward, C: CheckpointStrategy> AttentionOps for Autodiff<B, C> {
    fn fused_causal_attention(
        qkv: FloatTensor<Self>,
        heads: Heads,
        dropout: Option<DropoutMask>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        match CausalAttention.prepare::<C>([qkv.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let id = prep.checkpoint(&qkv);
                let (y, kept) = B::fused_causal_attention(qkv.into_primitive(), heads, dropout);
                let state = (id, [y.clone(), kept.clone()], heads, dropout);
                (prep.finish(state, y), Self::from_inner(kept))
            }
            OpsKind::UnTracked(prep) => {
                let (y, kept) = B::fused_causal_attention(qkv.into_primitive(), heads, dropout);
                (prep.finish(y), Self::from_inner(kept))
            }
        }
    }
}
