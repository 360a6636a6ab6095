//! Devices: which ones this build and this machine offer, and which of them really work.

mod details;

use std::{fmt, str::FromStr};

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use serde::Serialize;

use crate::tuning;
use ember_host::panics::{Panicked, quietly};
#[cfg(any(feature = "wgpu", feature = "cuda"))]
use ember_kernels::gpu::adapters::{self, Adapter};
use ember_kernels::{gpu::bandwidth::leave_unmeasured, is_cpu, limits::Limits, linear, unembed};

pub use details::{Described, Details, described};

/// Why a requested device cannot compute.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages name the fields
pub enum DeviceError {
    /// This build does not support devices of this kind.
    #[error("device {choice}: built without {kind}")]
    NotBuilt { choice: DeviceChoice, kind: &'static str },
    /// No device has this number.
    #[error("device {choice}: no such device ({})", count_in_words(*count))]
    Absent { choice: DeviceChoice, count: usize },
    /// It failed a small computation.
    #[error("device {choice} ({name}) {problem}")]
    Failed { choice: DeviceChoice, name: String, problem: String },
}

/// The number of devices, in words.
pub fn count_in_words(count: usize) -> String {
    if count == 0 { "none was found".to_owned() } else { format!("{count} found, numbered from 0") }
}

/// The user's choice of a device: `auto`, `cpu`, `wgpu`, `wgpu:1`, `cuda`, `cuda:0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first that works: CUDA, then a GPU through wgpu, then the CPU.
    #[default]
    Auto,
    /// The processor, through burn's flex and our kernels.
    Cpu,
    /// A graphics adapter by number, or the first.
    Wgpu(Option<usize>),
    /// An NVIDIA GPU by number, or the first.
    Cuda(Option<usize>),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, number) = match text.split_once(':') {
            None => (text, None),
            Some((kind, number)) => {
                let wrong = |_| format!("\"{number}\" is not a device number; write for example {kind}:0");
                (kind, Some(number.parse().map_err(wrong)?))
            }
        };
        match (kind, number) {
            ("auto", None) => Ok(Self::Auto),
            ("cpu", None) => Ok(Self::Cpu),
            ("wgpu", number) => Ok(Self::Wgpu(number)),
            ("cuda", number) => Ok(Self::Cuda(number)),
            _ => Err("write auto, cpu, wgpu, wgpu:N, cuda or cuda:N".to_owned()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Wgpu(None) => f.write_str("wgpu"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Wgpu(Some(n)) => write!(f, "wgpu:{n}"),
            Self::Cuda(Some(n)) => write!(f, "cuda:{n}"),
        }
    }
}

/// How the name of the processor begins; the number of its threads follows.
pub const PROCESSOR: &str = "the processor";

/// A device of this machine, as `devices` lists it; one that was selected has passed its test.
#[derive(Clone, Debug, Serialize)]
pub struct Selected {
    /// Its id, as [`DeviceChoice`] writes it.
    pub id: String,
    /// The name that it reports.
    pub name: String,
    /// Its driver and the driver's version, if it reports them.
    #[serde(skip)] // part of the adapter
    pub driver: String,
    /// Whether it is a real GPU, rather than the processor or a software adapter.
    pub gpu: bool,
    /// What a GPU reports about itself.
    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    #[serde(skip)] // part of the details
    pub(crate) adapter: Option<Adapter>,
    /// `None` if a small computation on it gave the right result, else what went wrong.
    pub problem: Option<String>,
    /// The device to create tensors on; without automatic differentiation.
    #[serde(skip)]
    pub device: Device,
    /// Why it was chosen, for the user.
    #[serde(skip)]
    pub reason: String,
}

/// All devices that this build can reach, tested with a small computation; the best first.
pub fn list() -> Vec<Selected> {
    cuda().into_iter().chain(wgpu()).chain([cpu(String::new())]).map(Selected::tested).collect()
}

/// The device that `choice` names.
///
/// # Errors
/// When it does not exist, is not compiled in, or fails its test; `auto` needs no GPU.
pub fn select(choice: DeviceChoice) -> Result<Selected, DeviceError> {
    match choice {
        DeviceChoice::Cpu => Ok(cpu("as requested".to_owned())),
        DeviceChoice::Auto => Ok(automatic()),
        DeviceChoice::Cuda(_) if !cfg!(feature = "cuda") => Err(DeviceError::NotBuilt { choice, kind: "CUDA" }),
        DeviceChoice::Wgpu(_) if !cfg!(feature = "wgpu") => Err(DeviceError::NotBuilt { choice, kind: "wgpu" }),
        DeviceChoice::Cuda(number) => numbered(choice, cuda(), number),
        DeviceChoice::Wgpu(number) => numbered(choice, wgpu(), number),
    }
}

fn automatic() -> Selected {
    let mut passed_over = Vec::new();
    for found in cuda().into_iter().chain(wgpu()) {
        if !found.gpu {
            // Not worth testing: compiling its kernels takes seconds.
            passed_over.push(format!("{} ({}) is a software adapter", found.id, found.name));
            continue;
        }
        let found = found.tested();
        let Some(problem) = &found.problem else {
            return Selected { reason: "the first GPU that works".to_owned(), ..found };
        };
        passed_over.push(format!("{} ({}) {problem}", found.id, found.name));
    }
    let reason = if passed_over.is_empty() { "no GPU was found".to_owned() } else { passed_over.join("; ") };
    cpu(reason)
}

fn numbered(choice: DeviceChoice, found: Vec<Selected>, number: Option<usize>) -> Result<Selected, DeviceError> {
    let count = found.len();
    let device = found.into_iter().nth(number.unwrap_or(0)).ok_or(DeviceError::Absent { choice, count })?.tested();
    match device.problem {
        Some(problem) => Err(DeviceError::Failed { choice, name: device.name, problem }),
        None => Ok(Selected { reason: "as requested".to_owned(), ..device }),
    }
}

fn cpu(reason: String) -> Selected {
    let threads = rayon::current_num_threads();
    let name = format!("{PROCESSOR}, {threads} thread{}", if threads == 1 { "" } else { "s" });
    Selected {
        id: "cpu".to_owned(),
        name,
        driver: String::new(),
        gpu: false,
        #[cfg(any(feature = "wgpu", feature = "cuda"))]
        adapter: None,
        problem: None,
        device: Device::flex(),
        reason,
    }
}

/// The number of GPUs that CUDA sees, none of them tested; 0 in a build without CUDA.
pub fn cuda_count() -> usize {
    cuda().len()
}

fn cuda() -> Vec<Selected> {
    #[cfg(feature = "cuda")]
    return found("cuda", adapters::cuda::list);
    #[cfg(not(feature = "cuda"))]
    Vec::new()
}

/// The adapters that wgpu sees, GPUs before software adapters, none of them tested.
fn wgpu() -> Vec<Selected> {
    #[cfg(feature = "wgpu")]
    return found("wgpu", adapters::wgpu::list);
    #[cfg(not(feature = "wgpu"))]
    Vec::new()
}

impl Selected {
    /// Which device was chosen and why, in one line.
    pub fn line(&self) -> String {
        format!("device {}: {} ({})", self.id, self.name, self.reason)
    }

    /// Tests the device with a small computation, whose failure becomes its `problem`.
    fn tested(self) -> Self {
        if !is_cpu(&self.device) {
            tuning::keep_for(&self.device, &self.name, &self.driver);
            // If even this fails, the computation below reports it.
            let _ = quietly(|| leave_unmeasured(&self.device));
        }
        let works = multiplies(&self.device, FloatDType::F32).and_then(|()| suffices(&self.device));
        Self { problem: works.err(), ..self }
    }
}

/// The runtime's devices, not yet tested; a missing driver means there are none.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn found(kind: &str, list: fn() -> Vec<(Device, Adapter)>) -> Vec<Selected> {
    #[cfg(feature = "tuning-cache")]
    tuning::keep();
    #[cfg(not(feature = "tuning-cache"))]
    ember_kernels::gpu::compiling::configure();
    let selected = |(number, (device, adapter)): (usize, (Device, Adapter))| Selected {
        id: format!("{kind}:{number}"),
        name: adapter.name.clone(),
        driver: adapter.driver.clone(),
        gpu: adapter.is_card,
        adapter: Some(adapter),
        problem: None,
        device,
        reason: String::new(),
    };
    quietly(list).unwrap_or_default().into_iter().enumerate().map(selected).collect()
}

/// Whether the limits of `device` suffice for any model at all.
fn suffices(device: &Device) -> Result<(), String> {
    Limits::of(device)
        .map_or(Ok(()), |limits| limits.suffice())
        .map_err(|error| format!("is too small for any model: {error}"))
}

/// Tests whether `device` multiplies matrices of this type: small ones, every value of whose
/// products is checked. In a half type there are several, because tensor cores have kernels for few
/// rows, for tiles and for large tiles, and for factors of either layout.
///
/// # Errors
/// What went wrong, to follow the device's name: "does not compute in ...", "failed ...", "computed
/// ...".
pub fn multiplies(device: &Device, dtype: FloatDType) -> Result<(), String> {
    let name = type_name(dtype);
    let failed = |problem: Panicked| format!("failed a small computation in {name} ({problem})");
    if !quietly(|| device.supports_dtype(DType::from(dtype))).map_err(failed)? {
        return Err(format!("does not compute in {name}"));
    }
    let is_half = [FloatDType::F16, FloatDType::BF16].contains(&dtype);
    let products = if is_half { PRODUCTS } else { &PRODUCTS[..1] };
    for product in products {
        let numbers = quietly(|| product.on(device, dtype)).map_err(failed)?;
        if let Some((got, want)) = product.first_difference(&numbers) {
            return Err(format!("computed {got} in {name} instead of {want}"));
        }
    }
    Ok(())
}

/// The products by which devices are tested, the first in every type.
const PRODUCTS: &[SmallProduct] = &[
    SmallProduct { rows: 16, depth: 16, columns: 16, is_transposed: false },
    SmallProduct { rows: 8, depth: 64, columns: 64, is_transposed: false },
    SmallProduct { rows: 8, depth: 64, columns: 64, is_transposed: true },
    SmallProduct { rows: 64, depth: 64, columns: 64, is_transposed: false },
    SmallProduct { rows: 64, depth: 64, columns: 64, is_transposed: true },
    SmallProduct { rows: 128, depth: 64, columns: 128, is_transposed: false },
    SmallProduct { rows: 128, depth: 64, columns: 128, is_transposed: true },
];

/// A product of two matrices of small whole numbers, `[rows, depth]` and `[depth, columns]`.
struct SmallProduct {
    rows: usize,
    depth: usize,
    columns: usize,
    /// Whether the second is stored as `[columns, depth]`, as an embedding table is.
    is_transposed: bool,
}

impl SmallProduct {
    /// The numbers of both factors. No sum exceeds 256, so it is exact in every type, whatever type
    /// accumulates it and in whatever order.
    fn factors(&self) -> [Vec<f32>; 2] {
        let most = (256 / self.depth).isqrt() as u32;
        // Spread, so that no two rows are equal.
        let number = |i: usize| ((i as u32).wrapping_mul(0x9e37_79b9) >> 16) % (most + 1);
        [self.rows, self.columns].map(|n| (0..n * self.depth).map(|i| number(i) as f32).collect())
    }

    /// The product as `device` computes it from factors of type `dtype`.
    fn on(&self, device: &Device, dtype: FloatDType) -> Vec<f32> {
        let tensor = |numbers: Vec<f32>, size: [usize; 2]| {
            Tensor::<2>::from_data(TensorData::new(numbers, size), device).cast(dtype)
        };
        let [a, b] = self.factors();
        let a = tensor(a, [self.rows, self.depth]).unsqueeze::<3>();
        let product = if self.is_transposed {
            unembed(a, tensor(b, [self.columns, self.depth]))
        } else {
            linear(a, tensor(b, [self.depth, self.columns]), None)
        };
        product.cast(FloatDType::F32).into_data().iter::<f32>().collect()
    }

    /// The first number that is not the product's, and the product's.
    fn first_difference(&self, numbers: &[f32]) -> Option<(f32, f32)> {
        let [a, b] = self.factors();
        // Distances in `b` of neighbours along the depth, and along the columns.
        let [down, across] = if self.is_transposed { [1, self.depth] } else { [self.columns, 1] };
        let wanted = (0..self.rows * self.columns).map(|i| {
            let (row, column) = (i / self.columns, i % self.columns);
            (0..self.depth).map(|k| a[row * self.depth + k] * b[k * down + column * across]).sum::<f32>()
        });
        numbers.iter().copied().zip(wanted).find(|(got, want)| got != want)
    }
}

/// The type in words.
pub const fn type_name(dtype: FloatDType) -> &'static str {
    match dtype {
        FloatDType::F64 => "float64",
        FloatDType::F32 | FloatDType::Flex32 => "float32",
        FloatDType::F16 => "float16",
        FloatDType::BF16 => "bfloat16",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn choices_read_and_write_alike() {
        for text in ["auto", "cpu", "wgpu", "wgpu:2", "cuda", "cuda:0"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        for text in ["gpu", "cpu:0", "wgpu:x", "", "cuda:-1", "auto:1"] {
            assert!(text.parse::<DeviceChoice>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_number_of_a_product_counts() {
        for product in PRODUCTS {
            let right = product.on(&Device::flex(), FloatDType::F32);
            assert_eq!(right.len(), product.rows * product.columns);
            assert!(right.iter().all(|number| *number <= 256.0) && product.first_difference(&right).is_none());
            for place in [0, right.len() / 2, right.len() - 1] {
                for wrong in [right[place] + 1.0, f32::NAN] {
                    let mut numbers = right.clone();
                    numbers[place] = wrong;
                    let found = product.first_difference(&numbers);
                    assert!(found.is_some_and(|(_, want)| want == right[place]), "{found:?}");
                }
            }
        }
    }

    #[test]
    fn the_cpu_passes_its_test() {
        for dtype in [FloatDType::F32, FloatDType::BF16, FloatDType::F16] {
            assert_eq!(multiplies(&Device::flex(), dtype), Ok(()));
        }
        let chosen = select(DeviceChoice::Cpu).unwrap();
        assert_eq!(chosen.line(), format!("device cpu: {} (as requested)", chosen.name));
    }
}
