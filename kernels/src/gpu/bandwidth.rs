//! Room for what the runtime measures of a GPU. Before it times products it times copies between
//! two buffers of up to 1 GiB each. Where they do not fit, that panics in the middle of whatever
//! was computed, and leaves the thread in a mode in which each tensor gets memory of its own: then
//! no step can be recorded. So the buffers are tried out beforehand, and where they do not fit the
//! runtime is told that the speed is unknown; it does without.

use burn::tensor::{Device, Tensor};
use cubecl::throughput::{DEFAULT_WORKING_SET_BYTES, MemoryAccess, MemorySpec, ThroughputKey};
use cubecl::throughput::{ThroughputMode, ThroughputValue, working_set_sweep};
use cubecl::{MemoryAllocationMode, client::Client};
use ember_host::panics::{Panicked, quietly};

use super::tensor::cube;

/// The runtime's buffers hold what is copied at once this many times.
const WINDOWS: u64 = 2;

/// Sees to it that the runtime measures nothing that does not fit into `device`, a GPU. To be
/// called before a product is timed there.
pub fn measure_within_memory(device: &Device) {
    let client = cube(Tensor::<1>::zeros([1], device)).client;
    let window = DEFAULT_WORKING_SET_BYTES.min(client.properties().memory.max_page_size / WINDOWS);
    if fit(&client, [(window * WINDOWS) as usize; 2]) {
        return;
    }
    for bytes in working_set_sweep(window * MemoryAccess::Copy.buffers()) {
        let mode = ThroughputMode::Memory(MemorySpec::new(MemoryAccess::Copy, bytes));
        // It gives back what it has just been told.
        let _ = client.measure_throughput(ThroughputKey { mode }, || Ok(ThroughputValue::ZERO));
    }
}

/// Whether the device has room for buffers of so many bytes, which are given back at once.
fn fit<const N: usize>(client: &Client, bytes: [usize; N]) -> bool {
    let take = || client.check(&bytes.map(|bytes| client.empty(bytes))).is_ok();
    in_memory_of_its_own(client, take) == Ok(true)
}

/// What `f` gives, whose tensors get memory of their own; or the message that it panicked with.
fn in_memory_of_its_own(client: &Client, f: impl FnOnce() -> bool + Send) -> Result<bool, Panicked> {
    let result = quietly(|| client.memory_dedicated_allocation((), |()| f()));
    if result.is_err() {
        // SAFETY: it is this thread's mode alone, which the panic kept from being set back, and
        // nothing was allocated in it.
        unsafe { client.allocation_mode(MemoryAllocationMode::Auto) };
    }
    result
}

#[cfg(all(test, feature = "autodiff"))]
mod tests {
    use cubecl::MemoryScope;

    use super::*;
    use crate::gpu::testing;

    /// What stays in memory of its own after a refusal is never held for a recording.
    #[test]
    fn after_a_refusal_memory_comes_from_what_is_held() {
        let Some(device) = testing::gpu() else { return };
        let client = cube(Tensor::<1>::zeros([1], &device)).client;
        let of_their_own = || {
            let _taken = client.empty(1 << 10);
            let report = client.memory_report(MemoryScope::CurrentStream);
            report.streams.iter().map(|stream| stream.pools.dedicated.pages).sum::<u64>()
        };
        assert!(fit(&client, [1 << 10; 2]));
        assert!(!fit(&client, [1 << 50]));
        assert!(in_memory_of_its_own(&client, || of_their_own() == 1 && panic!("out of memory")).is_err());
        assert_eq!(of_their_own(), 0);
    }
}
