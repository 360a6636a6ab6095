//! Devices: which ones this build and this machine offer, and which of them really work.

mod details;

use std::{fmt, str::FromStr};

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use serde::Serialize;

use crate::tuning;
use ember_host::panics::quietly;
#[cfg(any(feature = "wgpu", feature = "cuda"))]
use ember_kernels::gpu::adapters::{self, Adapter};
use ember_kernels::{gpu::bandwidth::leave_unmeasured, is_cpu, limits::Limits, linear};

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
            tuning::keep_for(&self.name, &self.driver);
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

/// Tests whether `device` multiplies matrices of this type: two small ones, every value of whose
/// product is checked.
///
/// # Errors
/// What went wrong, to follow the device's name: "does not compute in ...", "failed ...", "computed
/// ...".
pub fn multiplies(device: &Device, dtype: FloatDType) -> Result<(), String> {
    const N: usize = 16;
    // Small integers, and sums below 256: exact in every type, whatever type accumulates them.
    let numbers: Vec<f32> = (0..N * N).map(|i| (i % 5) as f32).collect();
    let product = quietly(|| {
        if !device.supports_dtype(DType::from(dtype)) {
            return None;
        }
        let a = Tensor::<2>::from_data(TensorData::new(numbers.clone(), [N, N]), device).cast(dtype);
        Some(linear(a.clone().unsqueeze(), a, None).cast(FloatDType::F32).into_data().iter::<f32>().collect::<Vec<_>>())
    })
    .map_err(|problem| format!("failed a small computation in {} ({problem})", type_name(dtype)))?;
    let Some(product) = product else { return Err(format!("does not compute in {}", type_name(dtype))) };
    for (i, got) in product.iter().enumerate() {
        let want: f32 = (0..N).map(|k| numbers[i / N * N + k] * numbers[k * N + i % N]).sum();
        if *got != want {
            return Err(format!("computed {got} in {} instead of {want}", type_name(dtype)));
        }
    }
    Ok(())
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
    fn the_cpu_passes_its_test() {
        for dtype in [FloatDType::F32, FloatDType::BF16, FloatDType::F16] {
            assert_eq!(multiplies(&Device::flex(), dtype), Ok(()));
        }
        let chosen = select(DeviceChoice::Cpu).unwrap();
        assert_eq!(chosen.line(), format!("device cpu: {} (as requested)", chosen.name));
    }
}
