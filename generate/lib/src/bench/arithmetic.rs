//! Measures how fast this machine multiplies and copies: the limits for a training step.

use std::{hint::black_box, time::Instant};

use burn::tensor::{Device, Distribution, FloatDType, Tensor};
use ember_kernels::{is_cpu, linear};
use ember_model::device::Selected;
use rayon::prelude::*;

use crate::error::{Error, Result};

/// Tries per measurement; the fastest counts.
const TRIES: usize = 3;

/// A matrix product large enough to be limited by arithmetic only.
pub struct Product {
    size: usize,
    factors: [Tensor<2>; 2],
    /// Whether the model's own kernel is faster here than burn's.
    own: bool,
}

impl Product {
    /// The product of two square matrices in `dtype`, with a size that suits the device's speed:
    /// 4096 on a GPU, 1024 on a CPU. It uses burn's kernel or the model's own, whichever is faster.
    ///
    /// # Errors
    /// If the device fails.
    pub fn new(dtype: FloatDType, selected: &Selected) -> Result<Self> {
        let size = match (selected.gpu, is_cpu(&selected.device)) {
            (true, _) => 4096,
            (_, true) => 1024,
            // A GPU backend that runs on the CPU.
            _ => 256,
        };
        let factor =
            || Tensor::<2>::random([size, size], Distribution::Uniform(-1.0, 1.0), &selected.device).cast(dtype);
        let mut product = Self { size, factors: [factor(), factor()], own: false };
        // The first run of each lets the backend compile and tune its kernels.
        let mut seconds = [0.0; 2];
        for own in [false, true] {
            product.own = own;
            product.seconds()?;
            seconds[usize::from(own)] = product.seconds()?;
        }
        product.own = seconds[1] < seconds[0];
        Ok(product)
    }

    /// Rows, columns and depth.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Measures floating-point operations per second; a multiply-add counts as two.
    ///
    /// # Errors
    /// If the device fails.
    pub fn flops_per_s(&self) -> Result<f64> {
        Ok(2.0 * (self.size as f64).powi(3) / self.seconds()?)
    }

    fn seconds(&self) -> Result<f64> {
        let [a, b] = &self.factors;
        fastest(&a.device(), || {
            if self.own {
                black_box(linear(a.clone().unsqueeze(), b.clone(), None));
            } else {
                black_box(a.clone().matmul(b.clone()));
            }
        })
    }
}

/// A copy that is larger than any cache.
pub enum Copy {
    /// By all threads, from the first vector to the second.
    Cpu(Vec<f32>, Vec<f32>),
    /// On the device.
    Device(Box<Tensor<1>>),
}

/// Values that one task copies at a time.
const PIECE: usize = 1 << 16;

impl Copy {
    /// A copy of 64 MiB on a CPU, of 512 MiB on a GPU.
    ///
    /// # Errors
    /// If the device fails.
    pub fn new(selected: &Selected) -> Result<Self> {
        let values: usize = if selected.gpu { 128 << 20 } else { 16 << 20 };
        let device = &selected.device;
        if is_cpu(device) {
            // Not zeros: untouched zero pages share one page of memory.
            return Ok(Self::Cpu(vec![1.0; values], vec![2.0; values]));
        }
        let tensor = Tensor::ones([values], device);
        device.sync().map_err(Error::device)?;
        Ok(Self::Device(Box::new(tensor)))
    }

    /// Measures bytes read plus bytes written per second.
    ///
    /// # Errors
    /// If the device fails.
    pub fn bytes_per_s(&mut self) -> Result<f64> {
        let (bytes, seconds) = match self {
            Self::Cpu(from, to) => {
                let copy = || {
                    let pieces = to.par_chunks_mut(PIECE).zip(from.par_chunks(PIECE));
                    pieces.for_each(|(to, from)| to.copy_from_slice(from));
                    black_box(&to);
                };
                (8 * from.len(), fastest(&Device::flex(), copy)?)
            }
            Self::Device(tensor) => {
                let copy = || {
                    // Adding a number forces a real copy.
                    black_box(*tensor.clone() + 1.0);
                };
                (8 * tensor.dims()[0], fastest(&tensor.device(), copy)?)
            }
        };
        Ok(bytes as f64 / seconds)
    }
}

/// Seconds of the fastest of [`TRIES`] runs, the device's work included.
fn fastest(device: &Device, mut run: impl FnMut()) -> Result<f64> {
    let mut fastest = f64::INFINITY;
    for _ in 0..TRIES {
        device.sync().map_err(Error::device)?;
        let began = Instant::now();
        run();
        device.sync().map_err(Error::device)?;
        fastest = fastest.min(began.elapsed().as_secs_f64());
    }
    Ok(fastest)
}
