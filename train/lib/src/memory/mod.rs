//! The memory of a run: the memory in use, for the log; the predicted need, by part, before the run
//! begins; and, on the CPU, the measured peak.

pub mod counting;
pub mod fit;
pub mod keeping;
pub mod prediction;

use burn::tensor::Device;
use ember_host::memory::available_bytes;
use ember_kernels::is_cpu;
use ember_model::device::Selected;

use crate::distributed::Launch;

/// Memory that the program uses while training, beside the prediction and the tenth of it that is
/// left free: stacks and heaps of threads, packed matrices of products, windows, samples, records.
/// Up to 11 MB were measured on two threads.
const BESIDE_TRAINING: u64 = 24_000_000;

/// Bytes that training may use in this process, if known: `limit`, if the user set one; on a CPU
/// otherwise the available memory, divided among the processes that were started together on this
/// machine, minus `BESIDE_TRAINING` for each. A GPU does not tell its free memory.
pub fn available(limit: Option<u64>, selected: &Selected) -> Option<u64> {
    let processes = Launch::of_this_process().map_or(1, |launch| launch.local_size);
    let of_system = || ((available_bytes() / processes) as u64).saturating_sub(BESIDE_TRAINING);
    limit.or_else(|| is_cpu(&selected.device).then(of_system))
}

/// Bytes in use: on the CPU the process's resident memory, on a GPU the memory in use in the
/// device's pool; `None` if the system does not tell.
pub fn in_use(device: &Device) -> Option<u64> {
    if is_cpu(device) {
        return memory_stats::memory_stats().map(|stats| stats.physical_mem as u64);
    }
    device.memory_pool_usage().map(|usage| usage.bytes_in_use)
}
