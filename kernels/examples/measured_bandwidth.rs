//! The smallest program that shows, with burn alone, what `gpu::bandwidth` is for. It records a
//! step that adds to a total, as a decoding step adds keys and values to its cache. The step
//! contains a sum; before the runtime autotunes it, it measures the speed of copies, and panics if
//! the adapter lacks the memory for their buffers. That leaves the stream in a mode without memory
//! allocation: the recording fails to allocate, and its outputs, including the total, count as
//! never computed. In generated texts this made the cache non-finite.
//!
//! ```sh
//! cargo run --release -p ember-kernels --example measured_bandwidth          # as burn does it
//! cargo run --release -p ember-kernels --example measured_bandwidth -- told  # as our programs do it
//! ```
//!
//! `VK_DRIVER_FILES` selects the Vulkan driver. The fault occurs with SwiftShader, and with
//! lavapipe under `PRETEND=memory=200000000` (tools/pretend).

#![allow(unsafe_code)] // replays a recording

use burn::tensor::{Tensor, capture};
use ember_host::panics::quietly;
use ember_kernels::gpu::{adapters, bandwidth::leave_unmeasured};

fn main() {
    let Some((device, adapter)) = adapters::wgpu::list().into_iter().next() else {
        return println!("no adapter of wgpu");
    };
    println!("{}", adapter.name);
    if std::env::args().nth(1).as_deref() == Some("told") {
        leave_unmeasured(&device);
    }
    let mut total = Tensor::<1>::zeros([1], &device);
    let ones = Tensor::<2>::ones([64, 4096], &device);
    let mut step = capture(&device, move || {
        total = total.clone() + 1.0;
        [total.clone(), (ones.clone() * 2.0).sum()]
    });
    println!("recorded: {}", step.is_hardware());
    // SAFETY: the closure owns its inputs, and this is the only thread.
    unsafe { step.replay() };
    let value = |tensor: &Tensor<1>| quietly(|| tensor.clone().into_scalar::<f32>());
    let [total, sum] = step.output();
    println!("the total after three steps to try it out and one that is replayed: {:?}, 4 is right", value(total));
    println!("the sum: {:?}, 524288 is right", value(sum));
}
