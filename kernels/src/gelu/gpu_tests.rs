//! GELU and SwiGLU on a GPU.
#![allow(clippy::unwrap_used)]

use proptest::{prelude::*, test_runner::TestRunner};

use crate::gpu::testing::{Inputs, device, same};
use crate::{self as kernels, plain};

#[test]
fn activations_are_their_formulas() {
    let Some(device) = device() else { return };
    let sizes = (1usize..3, 1usize..150, prop_oneof![1usize..30, (1usize..30).prop_map(|n| 4 * n)], 0.1f64..8.0);
    let mut runner = TestRunner::new(ProptestConfig { cases: 10, failure_persistence: None, ..Default::default() });
    runner
        .run(&sizes, |(batch, time, n, scale)| {
            let inputs = Inputs::new([batch, time, 2 * n], [1; 3], [1, 1], [1, 1], &device);
            let x = |i: &Inputs| i.x.clone() * scale;
            same("gelu", 2e-5, &inputs, |i| kernels::gelu(x(i)), |i| plain::gelu(x(i)));
            same("swiglu", 2e-5, &inputs, |i| kernels::swiglu(x(i)), |i| plain::swiglu(x(i)));
            Ok(())
        })
        .unwrap();
}
