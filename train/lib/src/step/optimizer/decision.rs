//! What a GPU computes from a gradient and decides without the host: the norm, the clipping factor,
//! and whether the step is taken.
//!
//! A step whose loss or norm is not finite is not taken, nor is any later step until the host calls
//! [`Halt::release`]. So the host can enqueue the next steps before it knows this one's outcome,
//! and after a failed step the weights are still those from before it. The decision is copied to
//! the host while the device goes on.

use std::pin::Pin;

use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::{bytes::Bytes, client::Client, future::reader::read_sync, prelude::CubeElement, server::ServerError};
use ember_kernels::gpu::tensor::{cube, float32, from_cube};
use ember_kernels::optimizer::gpu::{LOSS, NORM, SCALE, TAKEN, VALUES, decide, sums_of_squares};
use ember_model::Gpt;

use crate::error::{Error, Result};

/// The runtime's future of a copy from device to host.
type Copied = Pin<Box<dyn Future<Output = Result<Vec<Bytes>, ServerError>> + Send>>;

/// The decision on one step: its values on the device and, if the device made it, their copy on the
/// way to the host.
pub struct Decision {
    pub(super) values: Tensor<1>,
    copied: Option<Copied>,
}

/// A decision as the host reads it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decided {
    /// Mean loss of the step's passes.
    pub loss: f64,
    /// Global norm of the gradient before clipping.
    pub grad_norm: f64,
    /// The clipping factor of the gradient.
    pub scale: f64,
    /// Whether the step was taken; if not, this step or an earlier one was not finite.
    pub taken: bool,
}

impl Decision {
    /// The host's decision to take a step along the gradient times `scale`.
    pub(super) fn take(scale: f64, device: &Device) -> Self {
        let mut numbers = [0.0; VALUES];
        (numbers[SCALE], numbers[TAKEN]) = (scale as f32, 1.0);
        Self { values: Tensor::from_floats(numbers, &device.clone().inner()), copied: None }
    }

    /// Waits for the decision, and so for the gradient of its step.
    ///
    /// # Errors
    /// When the device fails.
    pub fn wait(mut self) -> Result<Decided> {
        let read = self.copied.take().map(read_sync).transpose();
        let read = read.map_err(|error| Error::Device(format!("{error:?}")))?.unwrap_or_default();
        let values: Vec<f64> = read.iter().flat_map(|bytes| f32::from_bytes(bytes)).map(|x| f64::from(*x)).collect();
        if values.len() != VALUES {
            return Err(Error::Device(format!("it gave {} numbers of a step instead of {VALUES}", values.len())));
        }
        let (loss, grad_norm, scale) = (values[LOSS], values[NORM], values[SCALE]);
        Ok(Decided { loss, grad_norm, scale, taken: values[TAKEN] == 1.0 })
    }
}

impl Drop for Decision {
    /// Waits for a copy in progress even if its values are not needed: otherwise wgpu's runtime
    /// would reuse the buffer while it is still mapped.
    fn drop(&mut self) {
        if let Some(copied) = self.copied.take() {
            drop(read_sync(copied));
        }
    }
}

/// Lets a device decide on the steps of one model, and halts it at the first step not taken.
pub struct Halt {
    /// 1 from the first step on that was not taken, else 0.
    halted: Tensor<1>,
    /// Leaked, because the future of a copy borrows it.
    client: &'static Client,
}

impl Halt {
    /// For models on `device`, a GPU.
    pub fn new(device: &Device) -> Self {
        let halted = Tensor::zeros([1], &device.clone().inner());
        let client = Box::leak(Box::new(cube(halted.clone()).client));
        Self { halted, client }
    }

    /// Allows the device to take steps again.
    pub fn release(&mut self) {
        self.halted = Tensor::zeros([1], &self.halted.device());
    }

    /// Decides on the step along `gradients`. `losses` holds one value for each pass; `grad_clip`
    /// limits the norm, unless it is 0.
    pub fn decide(&self, gpt: &Gpt, gradients: &GradientsParams, losses: Vec<Tensor<1>>, grad_clip: f64) -> Decision {
        let values = decide_along(gpt, gradients, losses, grad_clip, &self.halted);
        let copied = self.client.read_async(vec![values.handle.clone()]);
        Decision { values: from_cube(values), copied: Some(Box::pin(copied)) }
    }
}

/// The global norm of gradients on a GPU, read by the host.
pub(super) fn norm(gpt: &Gpt, gradients: &GradientsParams) -> f64 {
    let device = gpt.device().inner();
    let zero = || Tensor::zeros([1], &device);
    let values = decide_along(gpt, gradients, vec![zero()], 0.0, &zero());
    let values = from_cube::<1>(values).into_data();
    values.iter::<f32>().nth(NORM).map_or(0.0, f64::from)
}

/// The decision of [`decide`] on the step along `gradients`: [`VALUES`] numbers on the device.
fn decide_along(
    gpt: &Gpt,
    gradients: &GradientsParams,
    losses: Vec<Tensor<1>>,
    grad_clip: f64,
    halted: &Tensor<1>,
) -> CubeTensor {
    let losses = cube(if losses.len() == 1 { losses[0].clone().inner() } else { Tensor::cat(losses, 0).inner() });
    let gradients = gpt.parameters().into_iter().filter_map(|parameter| {
        Some(float32(match parameter.shape.len() {
            1 => cube(gradients.get::<1>(parameter.id)?),
            _ => cube(gradients.get::<2>(parameter.id)?),
        }))
    });
    // A model without gradients has a norm of 0.
    let sums = sums_of_squares(gradients.collect()).unwrap_or_else(|| cube(Tensor::<1>::zeros([1], &halted.device())));
    decide(losses, sums, cube(halted.clone()), grad_clip as f32)
}
