//! Keeps the runtime from measuring a GPU's bandwidth. Before it tunes sums, the runtime times
//! copies between two buffers of up to 1 GiB each, to know the best possible time. On a small
//! adapter that takes longer than it saves. If the buffers do not fit, it panics in the middle of
//! the computation, and leaves the thread in a mode where each tensor gets its own memory: then no
//! step can be recorded. `examples/measured_bandwidth.rs` reproduces this.

use burn::tensor::{Device, Tensor};
use cubecl::client::Client;
use cubecl::throughput::{DEFAULT_WORKING_SET_BYTES, MemoryAccess, MemorySpec, ThroughputKey};
use cubecl::throughput::{ThroughputMode, ThroughputValue, working_set_sweep};

use super::tensor::cube;

/// Size of the runtime's buffers, in multiples of what one copy moves.
const WINDOWS: u64 = 2;

/// Tells the runtime that the speed of copies on `device`, a GPU, is unknown, so that it never
/// measures it; it then times every candidate kernel. Call this before computing anything on the
/// device.
pub fn leave_unmeasured(device: &Device) {
    let client = cube(Tensor::<1>::zeros([1], device)).client;
    for key in keys(&client) {
        // Returns the value that the closure gives.
        let _ = client.measure_throughput(key, || Ok(ThroughputValue::ZERO));
    }
}

/// The measurements that the runtime would make.
fn keys(client: &Client) -> impl Iterator<Item = ThroughputKey> {
    let window = DEFAULT_WORKING_SET_BYTES.min(client.properties().memory.max_page_size / WINDOWS);
    let sizes = working_set_sweep(window * MemoryAccess::Copy.buffers()).into_iter();
    sizes.map(|bytes| ThroughputKey { mode: ThroughputMode::Memory(MemorySpec::new(MemoryAccess::Copy, bytes)) })
}

#[cfg(all(test, feature = "autodiff"))]
mod tests {
    use super::*;
    use crate::gpu::testing;

    /// Timing a sum needs the copy speed, and measuring that takes more memory.
    #[test]
    fn the_speed_of_copies_is_not_measured() {
        let Some(device) = testing::gpu() else { return };
        let client = cube(Tensor::<1>::zeros([1], &device)).client;
        for key in keys(&client) {
            let known = client.measure_throughput(key, || panic!("measured"));
            assert_eq!(known.ok(), Some(ThroughputValue::ZERO));
        }
    }
}
