//! Shared code of the GPU kernels' tests: the devices, and the comparison of an operation with its
//! plain formula on the same device, by value and by the gradient of every input.
#![allow(clippy::unwrap_used)]

use super::adapters::{self, Adapter};
use super::bandwidth::leave_unmeasured;
use burn::tensor::{DType, Device, Distribution, Gradients, Tensor};
use ember_host::panics::quietly;

pub use crate::testing::largest_difference;

/// The first GPU found, if it multiplies correctly; otherwise prints a line and returns `None`, or
/// fails if `REQUIRE_WGPU` is set and wgpu was asked.
fn find(name: &str, list: fn() -> Vec<(Device, Adapter)>) -> Option<Device> {
    let first = quietly(list).unwrap_or_default().into_iter().map(|(device, _)| device).next();
    let multiplies = |device: &Device| {
        let ones = || Tensor::<2>::ones([4, 4], device);
        let _ = quietly(|| leave_unmeasured(device));
        quietly(|| ones().matmul(ones()).sum().into_scalar::<f32>()) == Ok(64.0)
    };
    let found = first.filter(multiplies);
    if found.is_none() {
        let is_required = name == "wgpu" && std::env::var_os("REQUIRE_WGPU").is_some();
        assert!(!is_required, "REQUIRE_WGPU is set, and no adapter of wgpu computes rightly");
        println!("SKIPPED: no {name}");
    }
    found
}

/// The adapter of wgpu, software Vulkan included.
pub fn gpu() -> Option<Device> {
    find("wgpu", adapters::wgpu::list)
}

/// One GPU of every kind available.
pub fn gpus() -> Vec<Device> {
    #[cfg(feature = "cuda")]
    let cuda = find("CUDA", adapters::cuda::list);
    #[cfg(not(feature = "cuda"))]
    let cuda = None;
    gpu().into_iter().chain(cuda).collect()
}

/// The device with automatic differentiation.
pub fn device() -> Option<Device> {
    gpu().map(Device::autodiff)
}

/// A tensor's values as float32.
pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Normally distributed values. The seed is global to the process: a test in another thread may
/// change them.
pub fn random<const D: usize>(shape: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
    Device::flex().seed(seed);
    let values = Tensor::<D>::random(shape, Distribution::Normal(0.0, 1.0), &Device::flex());
    Tensor::from_data(values.into_data(), device)
}

/// The inputs of an operation: `x`, another like it, and parameters.
pub struct Inputs {
    pub x: Tensor<3>,
    pub y: Tensor<3>,
    pub matrix: Tensor<2>,
    pub vectors: [Tensor<1>; 2],
}

impl Inputs {
    pub fn new(x: [usize; 3], y: [usize; 3], matrix: [usize; 2], vectors: [usize; 2], device: &Device) -> Self {
        let [first, second] = vectors;
        Self {
            x: random(x, 1, device).require_grad(),
            y: random(y, 2, device).require_grad(),
            matrix: random(matrix, 3, device).require_grad(),
            vectors: [random([first], 4, device).require_grad(), random([second], 5, device).require_grad()],
        }
    }

    fn gradients(&self, gradients: &Gradients) -> Vec<Tensor<1>> {
        let flat = |x: Tensor<3>| x.flatten::<1>(0, 2);
        let [x, y] = [&self.x, &self.y].map(|x| x.grad(gradients).map(flat));
        let matrix = self.matrix.grad(gradients).map(|matrix| matrix.flatten::<1>(0, 1));
        let vectors = self.vectors.iter().map(|vector| vector.grad(gradients));
        [x, y, matrix].into_iter().chain(vectors).flatten().collect()
    }
}

/// The largest difference, relative to the largest value (at least 1).
fn difference<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
    let [a, b] = [a, b].map(|x| x.cast(DType::F32).into_data().try_into_vec::<f32>().unwrap());
    let scale = b.iter().fold(1.0f32, |most, b| most.max(b.abs()));
    largest_difference(&a, &b) / scale
}

/// Fails if the kernel's value, or a gradient, differs from the plain formula's by more than
/// `tolerance` times the largest.
pub fn same(
    name: &str,
    tolerance: f32,
    inputs: &Inputs,
    kernel: impl Fn(&Inputs) -> Tensor<3>,
    plain: impl Fn(&Inputs) -> Tensor<3>,
) {
    let (fused, reference) = (kernel(inputs).cast(DType::F32), plain(inputs).cast(DType::F32));
    let error = difference(fused.clone(), reference.clone());
    assert!(error < tolerance, "{name}: the value of {:?} differs by {error}", inputs.x.dims());
    let weights = random(fused.dims(), 6, &fused.device());
    let a = inputs.gradients(&(fused * weights.clone()).sum().backward());
    let b = inputs.gradients(&(reference * weights).sum().backward());
    assert!(!a.is_empty() && a.len() == b.len(), "{name}: {} gradients and {}", a.len(), b.len());
    for (number, (a, b)) in a.into_iter().zip(b).enumerate() {
        let error = difference(a, b);
        assert!(error < tolerance, "{name}: gradient {number} of {:?} differs by {error}", inputs.x.dims());
    }
}
