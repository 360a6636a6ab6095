//! Details of a GPU: its interface, its limits, and the types that it computes in.

use burn::tensor::{Device, FloatDType};
#[cfg(any(feature = "wgpu", feature = "cuda"))]
use ember_kernels::gpu::adapters::Adapter;
use ember_kernels::limits::{Demand, Limits, Use};
use serde::Serialize;

use super::{Selected, multiplies};

/// A device with its details.
#[derive(Clone, Debug, Serialize)]
pub struct Described {
    /// The device, tested.
    #[serde(flatten)]
    pub device: Selected,
    /// `None` for a processor, and for a device that does not work.
    #[serde(flatten)]
    pub details: Option<Details>,
}

/// Details of a GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Details {
    /// What it reports about itself.
    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    pub adapter: Option<Adapter>,
    /// What its kernels may use.
    pub limits: Limits,
    /// The types that it multiplies in, of `f32`, `bf16` and `f16`.
    pub computes_in: Vec<&'static str>,
    /// Why its limits do not suffice for a model like GPT-2 of 124 million parameters, if they do
    /// not.
    pub too_small_for_gpt2: Option<String>,
}

/// GPT-2's head size and token table, in training.
const GPT2: Demand =
    Demand { head_size: 64, has_head_dim: false, used: Use::Training(FloatDType::F32), largest: 50257 * 768 };

/// As [`list`](super::list), with the details of each device.
pub fn described() -> Vec<Described> {
    let describe = |device: Selected| {
        let details = if device.problem.is_none() { details(&device) } else { None };
        Described { device, details }
    };
    super::list().into_iter().map(describe).collect()
}

fn details(selected: &Selected) -> Option<Details> {
    let limits = Limits::of(&selected.device)?;
    Some(Details {
        #[cfg(any(feature = "wgpu", feature = "cuda"))]
        adapter: selected.adapter.clone(),
        limits,
        computes_in: computes_in(&selected.device),
        too_small_for_gpt2: limits.check(GPT2).err().map(|error| error.to_string()),
    })
}

fn computes_in(device: &Device) -> Vec<&'static str> {
    let types = [("f32", FloatDType::F32), ("bf16", FloatDType::BF16), ("f16", FloatDType::F16)];
    types.into_iter().filter(|(_, dtype)| multiplies(device, *dtype).is_ok()).map(|(name, _)| name).collect()
}

impl Details {
    /// The details as lines of text.
    pub fn lines(&self) -> Vec<String> {
        let Limits { shared_memory, units, buffers, buffer_bytes, tensor_cores } = self.limits;
        let has = format!(
            "a kernel can have {} KiB of shared memory, {units} units, {buffers} buffers of at most {} MiB",
            shared_memory >> 10,
            buffer_bytes >> 20
        );
        let on = if tensor_cores { "half precision on tensor cores where the sizes fit" } else { "no tensor cores" };
        let computes = match &*self.computes_in.join(", ") {
            "" => "failed in a further test: try again".to_owned(),
            types => format!("computes in {types}; {on}"),
        };
        let too_small = self.too_small_for_gpt2.iter().map(|problem| format!("too small for GPT-2 (124M): {problem}"));
        self.interface().into_iter().chain([has, computes]).chain(too_small).collect()
    }

    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    fn interface(&self) -> Option<String> {
        let adapter = self.adapter.as_ref()?;
        let subgroups = match adapter.subgroups {
            Some([least, most]) if least == most => format!("subgroups of {least}"),
            Some([least, most]) => format!("subgroups of {least} to {most}"),
            None => "no subgroups".to_owned(),
        };
        let memory = adapter.memory_bytes.map(|bytes| format!("{} MiB of memory, ", bytes >> 20)).unwrap_or_default();
        Some(format!("{}, driver {}; {memory}{subgroups}", adapter.interface, adapter.driver))
    }

    #[cfg(not(any(feature = "wgpu", feature = "cuda")))]
    fn interface(&self) -> Option<String> {
        None
    }
}
