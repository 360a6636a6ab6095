//! How fast this machine reads memory, measured.

use std::{hint::black_box, time::Instant};

use burn::tensor::{Device, Tensor};
use ember_kernels::arena::{Memory, Part};
use ember_kernels::is_cpu;
use rayon::prelude::*;

use crate::error::{Error, Result};

/// Values that one task reads at a time.
const PIECE: usize = 1 << 16;

/// Something as large as what a step reads.
pub enum Ceiling {
    /// Read by all threads and summed; memory of the kind that holds the weights.
    Cpu(Part),
    /// Copied on the device, half as large: a copy reads and writes.
    Device(Box<Tensor<1>>),
}

impl Ceiling {
    /// For reads of `bytes`.
    pub fn new(bytes: usize, device: &Device) -> Result<Self> {
        if is_cpu(device) {
            let memory = Memory::new([bytes.next_multiple_of(size_of::<f32>())]);
            let mut memory = memory.map_err(|error| Error::Memory(error.into()))?.take();
            // Not zeros: pages that were never written to share one page of memory.
            memory.values_mut::<f32>().par_iter_mut().enumerate().for_each(|(i, value)| *value = i as f32);
            return Ok(Self::Cpu(memory));
        }
        let tensor = Tensor::ones([bytes / 8], device);
        device.sync().map_err(Error::device)?;
        Ok(Self::Device(Box::new(tensor)))
    }

    /// Seconds that reading all of it takes now.
    pub fn read_s(&mut self) -> Result<f64> {
        let began = Instant::now();
        match self {
            Self::Cpu(values) => {
                black_box(values.values::<f32>().par_chunks(PIECE).map(sum).reduce(|| 0, u32::wrapping_add));
            }
            Self::Device(tensor) => {
                let device = tensor.device();
                black_box(*tensor.clone() + 1.0);
                device.sync().map_err(Error::device)?;
            }
        }
        Ok(began.elapsed().as_secs_f64())
    }
}

/// A sum of the bits: whole numbers may be added in any order, so the compiler is free to read as fast as memory allows.
fn sum(values: &[f32]) -> u32 {
    values.iter().fold(0, |sum: u32, value| sum.wrapping_add(value.to_bits()))
}
