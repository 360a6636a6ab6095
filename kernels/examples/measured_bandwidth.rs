//! The smallest program that shows what `gpu::bandwidth` is there for, by burn alone: a step is
//! recorded that adds to a total, as a decoding step adds keys and values to its cache. A sum in it is
//! timed first, for which the runtime times copies, and panics where the adapter lacks the memory for
//! their buffers. That leaves the stream in a mode in which no memory is held: the recording finds no
//! room, and what it was to write, the total too, counts as never computed from there on. In a text
//! the numbers of the cache were not finite.
//!
//! ```sh
//! cargo run --release -p ember-kernels --example measured_bandwidth          # as burn does it
//! cargo run --release -p ember-kernels --example measured_bandwidth -- told  # as our programs do it
//! ```
//!
//! `VK_DRIVER_FILES` says which Vulkan is taken. It is seen with SwiftShader, and with lavapipe under
//! `PRETEND=memory=200000000` (tools/pretend).

#![allow(unsafe_code)] // a recording runs again

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
    // SAFETY: the closure owns what it reads, and this is the only thread.
    unsafe { step.replay() };
    let value = |tensor: &Tensor<1>| quietly(|| tensor.clone().into_scalar::<f32>());
    let [total, sum] = step.output();
    println!("the total after three steps to try it out and one that is replayed: {:?}, 4 is right", value(total));
    println!("the sum: {:?}, 524288 is right", value(sum));
}
