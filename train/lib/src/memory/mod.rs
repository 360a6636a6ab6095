//! How much memory a run takes: what it has in use, for the log; what it will need, by part, before
//! it begins; and, on the CPU, what it did need at its worst moment.

pub mod counting;
pub mod fit;
pub mod keeping;
pub mod prediction;

use burn::tensor::Device;
use ember_host::memory::available_bytes;
use ember_kernels::is_cpu;
use ember_model::device::Selected;

use crate::distributed::Launch;

/// What the program comes to take once it trains, beside what is predicted of training and the
/// tenth of it that is left free: its threads' stacks and heaps, what the products pack, windows,
/// samples, records. Up to 11 MB were seen on two threads.
const BESIDE_TRAINING: u64 = 24_000_000;

/// Bytes that training may take in this process, where that is known: `limit`, where somebody set
/// one; else what the CPU has available, shared among the processes that were started together on
/// this machine, less what each takes beside training. Of a GPU's memory nobody can be asked.
pub fn available(limit: Option<u64>, selected: &Selected) -> Option<u64> {
    let processes = Launch::of_this_process().map_or(1, |launch| launch.local_size);
    let of_system = || ((available_bytes() / processes) as u64).saturating_sub(BESIDE_TRAINING);
    limit.or_else(|| is_cpu(&selected.device).then(of_system))
}

/// Bytes in use: on the CPU what the process has resident, on a GPU what the pool of the device
/// holds; `None` where the system does not say.
pub fn in_use(device: &Device) -> Option<u64> {
    if is_cpu(device) {
        return memory_stats::memory_stats().map(|stats| stats.physical_mem as u64);
    }
    device.memory_pool_usage().map(|usage| usage.bytes_in_use)
}
