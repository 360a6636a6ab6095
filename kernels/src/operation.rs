//! How to declare an operation with a gradient: a type that holds the arguments that are not
//! tensors (`QkNorm { epsilon, heads }`), with an implementation of [`Operation`] for each kind of
//! device. [`apply`] finds the device and, where gradients are wanted, records the call.

use std::fmt::Debug;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind, Flex};
use burn::tensor::Tensor;
#[cfg(feature = "gpu")]
use burn_cubecl::CubeBackend;

// Without GPUs, both bounds ask for the CPU's implementation.
#[cfg(not(feature = "gpu"))]
use Flex as CubeBackend;

/// An operation with `N` inputs and `M` outputs on backend `B`. Only the first output has a
/// gradient.
pub trait Operation<B: Backend, const N: usize, const M: usize = 1>: Clone + Debug + Send + 'static {
    /// What the forward keeps for the backward.
    type Kept: Clone + Debug + Send + 'static;

    /// The outputs, and what is kept for the backward.
    fn forward(&self, inputs: [FloatTensor<B>; N]) -> ([FloatTensor<B>; M], Self::Kept);

    /// The gradient of each input, given that of the first output.
    fn backward(&self, kept: Self::Kept, dy: FloatTensor<B>) -> [FloatTensor<B>; N];

    /// Whether a residual branch begins here: the first input also skips the branch, and the
    /// branch's result is added to it later. So when the backward runs, the first input already has
    /// the gradient from that addition.
    fn begins_branch(&self) -> bool {
        false
    }

    /// As [`Self::backward`], with each gradient added to the input's `existing` one.
    fn backward_onto(
        &self,
        kept: Self::Kept,
        dy: FloatTensor<B>,
        existing: [Option<FloatTensor<B>>; N],
    ) -> [FloatTensor<B>; N] {
        let mut existing = existing.into_iter();
        self.backward(kept, dy).map(|gradient| match existing.next().flatten() {
            Some(existing) => B::float_add(gradient, existing),
            None => gradient,
        })
    }

    /// [`Self::forward`] where no gradient is wanted.
    fn infer(&self, inputs: [FloatTensor<B>; N]) -> [FloatTensor<B>; M] {
        self.forward(inputs).0
    }
}

/// Runs an operation with one output on `inputs`, which are all on one device.
pub fn apply<O, const N: usize, const D: usize>(operation: O, inputs: [DispatchTensor; N]) -> Tensor<D>
where
    O: Operation<Flex, N> + Operation<CubeBackend, N>,
{
    let [y] = outputs_of(operation, inputs);
    Tensor::from_dispatch(y)
}

/// As [`apply`], returning all outputs.
pub fn outputs_of<O, const N: usize, const M: usize>(operation: O, inputs: [DispatchTensor; N]) -> [DispatchTensor; M]
where
    O: Operation<Flex, N, M> + Operation<CubeBackend, N, M>,
{
    let autodiff = inputs.iter().fold(DispatchAutodiffContext::Disabled, |all, input| all.merge(input.autodiff));
    let inputs = inputs.map(|input| without_autodiff(input.kind));
    #[cfg(feature = "gpu")]
    if matches!(inputs[0], DispatchTensorKind::Cube(_)) {
        return dispatched(apply_on(operation, on_gpu(inputs)), DispatchTensorKind::Cube, autodiff);
    }
    dispatched(apply_on(operation, on_cpu(inputs)), DispatchTensorKind::Flex, autodiff)
}

fn apply_on<B: Backend, O: Operation<B, N, M>, const N: usize, const M: usize>(
    operation: O,
    inputs: [BackendTensor<B>; N],
) -> [BackendTensor<B>; M] {
    #[cfg(feature = "autodiff")]
    if inputs.iter().any(|input| matches!(input, BackendTensor::Autodiff(_))) {
        return autodiff::record(operation, inputs).map(BackendTensor::Autodiff);
    }
    operation.infer(inputs.map(BackendTensor::float)).map(BackendTensor::Float)
}

// These functions do not depend on the operation, so each is compiled once for a number of tensors
// and not once for every operation.

#[cfg(feature = "gpu")]
fn on_gpu<const N: usize>(inputs: [DispatchTensorKind; N]) -> [BackendTensor<CubeBackend>; N] {
    inputs.map(|input| match input {
        DispatchTensorKind::Cube(input) => input,
        _ => panic!("inputs on a GPU and on another device"),
    })
}

fn on_cpu<const N: usize>(inputs: [DispatchTensorKind; N]) -> [BackendTensor<Flex>; N] {
    inputs.map(|input| match input {
        DispatchTensorKind::Flex(input) => input,
        #[allow(unreachable_patterns)]
        _ => panic!("inputs on the CPU and on another device"),
    })
}

fn dispatched<B: Backend, const M: usize>(
    outputs: [BackendTensor<B>; M],
    kind: fn(BackendTensor<B>) -> DispatchTensorKind,
    autodiff: DispatchAutodiffContext,
) -> [DispatchTensor; M] {
    outputs.map(|output| DispatchTensor { kind: with_autodiff(output, kind), autodiff })
}

/// Removes the wrapper of automatic differentiation, where there is one.
fn without_autodiff(kind: DispatchTensorKind) -> DispatchTensorKind {
    match kind {
        #[cfg(feature = "autodiff")]
        DispatchTensorKind::Autodiff(kind) => *kind,
        kind => kind,
    }
}

/// The inverse of [`without_autodiff`].
fn with_autodiff<B: Backend>(
    tensor: BackendTensor<B>,
    kind: fn(BackendTensor<B>) -> DispatchTensorKind,
) -> DispatchTensorKind {
    match tensor {
        #[cfg(feature = "autodiff")]
        BackendTensor::Autodiff(_) => DispatchTensorKind::Autodiff(Box::new(kind(tensor))),
        tensor => kind(tensor),
    }
}

#[cfg(feature = "autodiff")]
mod autodiff {
    use std::marker::PhantomData;

    use burn::backend::autodiff::checkpoint::base::Checkpointer;
    use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
    use burn::backend::{Autodiff, AutodiffBackend};
    use burn::{backend::autodiff::checkpoint::strategy::NoCheckpointing, backend::autodiff::grads::Gradients};

    use super::*;

    /// The backward of an operation, in burn's terms.
    #[derive(Debug)]
    struct Recorded<O, const M: usize>(PhantomData<fn() -> O>);

    impl<B: Backend, O: Operation<B, N, M>, const N: usize, const M: usize> Backward<B, N> for Recorded<O, M> {
        type State = (O, O::Kept);

        fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
            let dy = gradients.consume::<B>(&ops.node);
            let (operation, kept) = ops.state;
            // A leaf's gradient stays in place, because the caller may ask for it.
            let stream = ops.parents[0].as_ref().filter(|x| operation.begins_branch() && !x.parents.is_empty());
            let mut existing = [const { None }; N];
            existing[0] = stream.map(|x| gradients.consume::<B>(x));
            let new = operation.backward_onto(kept, dy, existing);
            for (parent, gradient) in ops.parents.into_iter().zip(new) {
                if let Some(parent) = parent {
                    gradients.register::<B>(parent.id, gradient);
                }
            }
        }
    }

    pub(super) fn record<B: Backend, O: Operation<B, N, M>, const N: usize, const M: usize>(
        operation: O,
        inputs: [BackendTensor<B>; N],
    ) -> [FloatTensor<Autodiff<B>>; M] {
        let inputs = recorded(inputs);
        let nodes = inputs.each_ref().map(<FloatTensor<Autodiff<B>>>::node);
        let inputs = inputs.map(<FloatTensor<Autodiff<B>>>::into_primitive);
        match Recorded::<O, M>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (outputs, kept) = operation.forward(inputs);
                first_and_others(outputs, Box::new(|y| prepared.finish((operation, kept), y)))
            }
            OpsKind::UnTracked(prepared) => first_and_others(operation.infer(inputs), Box::new(|y| prepared.finish(y))),
        }
    }

    /// The inputs as tensors of the recording; constants are wrapped.
    fn recorded<B: Backend, const N: usize>(inputs: [BackendTensor<B>; N]) -> [FloatTensor<Autodiff<B>>; N] {
        inputs.map(|input| match input {
            BackendTensor::Autodiff(input) => input,
            constant => Autodiff::<B>::from_inner(constant.float()),
        })
    }

    /// Wraps the first output by `first`, and the others as constants.
    fn first_and_others<B: Backend, const M: usize>(
        outputs: [FloatTensor<B>; M],
        first: Box<dyn FnOnce(FloatTensor<B>) -> FloatTensor<Autodiff<B>> + '_>,
    ) -> [FloatTensor<Autodiff<B>>; M] {
        let mut first = Some(first);
        outputs.map(|output| match first.take() {
            Some(first) => first(output),
            None => Autodiff::<B>::from_inner(output),
        })
    }
}
