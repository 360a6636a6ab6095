//! What a GPU finds of a gradient and decides, without the host: its norm, what clipping leaves of it, and whether a step is taken.
//!
//! A step whose loss or norm is not finite is not taken, and none after it either until the host has looked ([`Judge::resume`]): so
//! the host may hand over the next steps before it has heard of this one, and still finds the weights as they were when a step
//! fails. What was found travels to the host while the device goes on.

use std::pin::Pin;

use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::bytes::Bytes;
use cubecl::client::Client;
use cubecl::future::reader::read_sync;
use cubecl::prelude::CubeElement;
use cubecl::server::ServerError;
use ember_kernels::gpu::tensor::{cube, float32, from_cube};
use ember_kernels::optimizer::gpu::{NORM, VALUES, judge, sums_of_squares};
use ember_model::Gpt;

use crate::error::{Error, Result};

/// What was decided of one step, on the device.
#[derive(Clone, Debug)]
pub struct Verdict(Tensor<1>);

impl Verdict {
    /// A step that the host has decided on, along the gradient times `scale`.
    pub(super) fn take(scale: f64, device: &Device) -> Self {
        Self(Tensor::from_floats([0.0, 0.0, scale as f32, 1.0], &device.clone().inner()))
    }

    pub(super) fn values(&self) -> Tensor<1> {
        self.0.clone()
    }
}

/// What the host hears of a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Mean loss of the step's passes.
    pub loss: f64,
    /// Global norm of the gradient before clipping.
    pub grad_norm: f64,
    /// What clipping multiplies it by.
    pub scale: f64,
    /// Whether the step was taken; if not, it or one before it was not finite.
    pub taken: bool,
}

/// A verdict on its way to the host.
pub struct Coming(Option<Copied>);

/// What the runtime hands out for a copy that it has begun.
type Copied = Pin<Box<dyn Future<Output = Result<Vec<Bytes>, ServerError>> + Send>>;

impl Coming {
    /// Waits for it, and so for the step that it is about.
    ///
    /// # Errors
    /// When the device failed.
    pub fn wait(mut self) -> Result<Found> {
        let read = self.0.take().map(read_sync).transpose();
        let read = read.map_err(|error| Error::Device(format!("{error:?}")))?.unwrap_or_default();
        let values: Vec<f64> = read.iter().flat_map(|bytes| f32::from_bytes(bytes)).map(|x| f64::from(*x)).collect();
        let [loss, grad_norm, scale, taken] = values[..] else {
            return Err(Error::Device(format!("it gave {} numbers of a step instead of {VALUES}", values.len())));
        };
        Ok(Found { loss, grad_norm, scale, taken: taken == 1.0 })
    }
}

impl Drop for Coming {
    /// Nobody wants it, and yet it is waited for: wgpu's runtime would use the copy's buffer again while it is mapped for us.
    fn drop(&mut self) {
        if let Some(copied) = self.0.take() {
            drop(read_sync(copied));
        }
    }
}

/// Judges the steps of one model on its device.
pub struct Judge {
    /// 1 from the first step that was not taken on.
    halted: Tensor<1>,
    /// Lives as long as the program: a copy on its way borrows it.
    client: &'static Client,
}

impl Judge {
    /// For models on `device`, a GPU.
    pub fn new(device: &Device) -> Self {
        let halted = Tensor::zeros([1], &device.clone().inner());
        let client = Box::leak(Box::new(cube(halted.clone()).client));
        Self { halted, client }
    }

    /// Lets the device take steps again.
    pub fn resume(&mut self) {
        self.halted = Tensor::zeros([1], &self.halted.device());
    }

    /// Judges the step along `gradients`, whose passes had `losses`, each one value; `grad_clip` limits the norm, 0 does not.
    pub fn judge(
        &self,
        gpt: &Gpt,
        gradients: &GradientsParams,
        losses: Vec<Tensor<1>>,
        grad_clip: f64,
    ) -> (Verdict, Coming) {
        let verdict = judged(gpt, gradients, losses, grad_clip, &self.halted);
        let sent = self.client.read_async(vec![verdict.handle.clone()]);
        (Verdict(from_cube(verdict)), Coming(Some(Box::pin(sent))))
    }
}

/// The global norm of gradients on a GPU, read back.
pub(super) fn norm(gpt: &Gpt, gradients: &GradientsParams) -> f64 {
    let device = gpt.device().inner();
    let zero = || Tensor::zeros([1], &device);
    let verdict = judged(gpt, gradients, vec![zero()], 0.0, &zero());
    let values = from_cube::<1>(verdict).into_data();
    values.iter::<f32>().nth(NORM).map_or(0.0, f64::from)
}

fn judged(
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
    judge(losses, sums, cube(halted.clone()), grad_clip as f32)
}
