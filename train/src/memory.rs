//! How much memory a run takes, for the log.

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
