//! GPUs, by what they are reached by, and what they say of themselves.

#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "wgpu")]
pub mod wgpu;

use serde::Serialize;

/// What an adapter says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Adapter {
    /// What it calls itself.
    #[serde(skip)] // the device's name already
    pub name: String,
    /// Whether it is a card, rather than software.
    #[serde(skip)] // the same
    pub is_card: bool,
    /// What it is reached by: Vulkan, Dx12, Metal, CUDA.
    pub interface: String,
    /// Its driver and that one's version, where it names them.
    pub driver: String,
    /// Bytes of the largest memory that is its own, or that it shares with the processor where it
    /// has none; where its interface says so.
    pub memory_bytes: Option<u64>,
    /// Sizes of its subgroups, the least and the most, where kernels can use them.
    pub subgroups: Option<[u32; 2]>,
    /// Whether kernels can compute in float16.
    pub float16: bool,
}
