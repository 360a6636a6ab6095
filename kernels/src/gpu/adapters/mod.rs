//! The GPUs behind each interface, and what they report about themselves.

#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "wgpu")]
pub mod wgpu;

use serde::Serialize;

/// What an adapter reports about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Adapter {
    /// Its name.
    #[serde(skip)] // already the device's name
    pub name: String,
    /// Whether it is hardware, not a software implementation.
    #[serde(skip)] // already reported with the device
    pub is_card: bool,
    /// Its interface: Vulkan, Dx12, Metal or CUDA.
    pub interface: String,
    /// The driver's name and version, where it reports them.
    pub driver: String,
    /// Bytes of its largest own memory heap, or of the memory that it shares with the processor if
    /// it has none; `None` where its interface does not report it.
    pub memory_bytes: Option<u64>,
    /// Smallest and largest size of its subgroups, where kernels can use them.
    pub subgroups: Option<[u32; 2]>,
    /// Whether kernels can compute in float16.
    pub float16: bool,
}
