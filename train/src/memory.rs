//! How much memory a run takes: what it has in use, for the log; what it will need, by part, before it begins; and, on the CPU,
//! what it did need at its worst moment.

pub mod counting;
pub mod fit;
pub mod prediction;

use burn::tensor::Device;
use ember_model::kernels::is_cpu;

/// Bytes in use: on the CPU what the process has resident, on a GPU what the pool of the device holds; `None` where the
/// system does not say.
pub fn in_use(device: &Device) -> Option<u64> {
    if is_cpu(device) {
        return memory_stats::memory_stats().map(|stats| stats.physical_mem as u64);
    }
    device.memory_pool_usage().map(|usage| usage.bytes_in_use)
}
