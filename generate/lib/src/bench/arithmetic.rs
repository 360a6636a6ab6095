//! How fast this machine multiplies and copies, measured: what a training step is judged by.

use std::{hint::black_box, time::Instant};

use burn::tensor::{Device, Distribution, FloatDType, Tensor};
use ember_kernels::{is_cpu, linear};
use ember_model::device::Selected;
use rayon::prelude::*;

use crate::error::{Error, Result};

/// How often a ceiling is tried at once; the fastest counts.
const TRIES: usize = 3;

/// A matrix product large enough to be limited by arithmetic alone.
pub struct Product {
    size: usize,
    factors: [Tensor<2>; 2],
    /// Whether the model's own kernel is faster here than burn's.
    own: bool,
}

impl Product {
    /// Of two square matrices in `dtype`, as large as the device is fast: 4096 on a GPU, 1024 on a
    /// processor. Of the product that burn computes and the one that the model computes, the faster
    /// is taken.
    ///
    /// # Errors
    /// When the device fails.
    pub fn new(dtype: FloatDType, selected: &Selected) -> Result<Self> {
        let size = match (selected.gpu, is_cpu(&selected.device)) {
            (true, _) => 4096,
            (_, true) => 1024,
            // The processor in a GPU's clothes.
            _ => 256,
        };
        let factor =
            || Tensor::<2>::random([size, size], Distribution::Uniform(-1.0, 1.0), &selected.device).cast(dtype);
        let mut product = Self { size, factors: [factor(), factor()], own: false };
        // Once each for kernels to be compiled and chosen.
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

    /// Floating-point operations a second now; a multiply-add counts as two.
    ///
    /// # Errors
    /// When the device fails.
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

/// A copy of something larger than any cache.
pub enum Copy {
    /// By all threads, from the one to the other.
    Cpu(Vec<f32>, Vec<f32>),
    /// On the device.
    Device(Box<Tensor<1>>),
}

/// Values that one task copies at a time.
const PIECE: usize = 1 << 16;

impl Copy {
    /// Of 64 MiB on a processor, of 512 MiB on a GPU.
    ///
    /// # Errors
    /// When the device fails.
    pub fn new(selected: &Selected) -> Result<Self> {
        let values: usize = if selected.gpu { 128 << 20 } else { 16 << 20 };
        let device = &selected.device;
        if is_cpu(device) {
            // Not zeros: pages that were never written to share one page of memory.
            return Ok(Self::Cpu(vec![1.0; values], vec![2.0; values]));
        }
        let tensor = Tensor::ones([values], device);
        device.sync().map_err(Error::device)?;
        Ok(Self::Device(Box::new(tensor)))
    }

    /// Bytes read and written a second now, the two together.
    ///
    /// # Errors
    /// When the device fails.
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
                    // What is added keeps it from being the same tensor again.
                    black_box(*tensor.clone() + 1.0);
                };
                (8 * tensor.dims()[0], fastest(&tensor.device(), copy)?)
            }
        };
        Ok(bytes as f64 / seconds)
    }
}

/// Seconds of the fastest of a few tries, the device's work included.
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
