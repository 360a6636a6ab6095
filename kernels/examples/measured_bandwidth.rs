//! The smallest program that shows what `gpu::bandwidth` is there for, by burn alone: products that
//! are tuned, one of them while it is recorded, for which the runtime times copies. It panics where an
//! adapter lacks the memory, in the midst of what was asked for. Here the sums come out right all the
//! same; in a recorded step of a whole model, whose cache is written meanwhile, no number was finite.
//!
//! ```sh
//! cargo run --release -p ember-kernels --example measured_bandwidth          # as burn does it
//! cargo run --release -p ember-kernels --example measured_bandwidth -- told  # as our programs do it
//! ```
//!
//! `VK_DRIVER_FILES` says which Vulkan is taken. It is seen with SwiftShader, and with lavapipe under
//! `PRETEND=memory=200000000` (tools/pretend).

#![allow(unsafe_code)] // a recording runs again

use burn::tensor::{DType, Int, Tensor, capture};
use ember_host::panics::quietly;
use ember_kernels::gpu::{adapters, bandwidth::leave_unmeasured, tensor::overwrite};

fn main() {
    let Some((device, adapter)) = adapters::list().into_iter().next() else {
        return println!("no adapter of wgpu");
    };
    println!("{}", adapter.name);
    if std::env::args().nth(1).as_deref() == Some("told") {
        leave_unmeasured(&device);
    }
    let ones = Tensor::<2>::ones([64, 64], &device);
    let sum = |tensor: Tensor<2>| quietly(|| tensor.sum().into_scalar::<f32>());
    println!("the sum of a product: {:?}, 262144 is right", sum(ones.clone().matmul(ones.clone())));
    let ids = Tensor::<1, Int>::zeros([4], (&device, DType::I32));
    let read = ids.clone();
    let mut graph = capture(&device, move || {
        let rows = ones.clone().cumsum(0).select(0, read.clone());
        rows.clone().matmul(ones.clone()) / 64.0 + rows
    });
    overwrite(&ids, vec![0, 1, 2, 3]);
    println!("recorded: {}", graph.is_hardware());
    // SAFETY: the closure owns what it reads, and this is the only thread.
    unsafe { graph.replay() };
    println!("the sum of what is replayed: {:?}, 1280 is right", sum(graph.output().clone()));
}
