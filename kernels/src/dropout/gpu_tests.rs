//! Dropout on a GPU.
#![allow(clippy::unwrap_used)]

use burn::tensor::{Device, Tensor};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::gpu::testing::{Inputs, device, same};
use crate::{self as kernels, DropoutMask, plain};

/// The same bits on every device, so that the seed alone determines a run's dropout.
#[test]
fn dropout_is_the_cpus() {
    let Some(device) = device() else { return };
    let sizes = (1usize..3, 1usize..200, prop_oneof![1usize..30, Just(64)], 0.0f32..0.95, any::<u64>());
    let mut runner = TestRunner::new(ProptestConfig { cases: 10, failure_persistence: None, ..Default::default() });
    runner
        .run(&sizes, |(batch, time, n, probability, key)| {
            let mask = Some(DropoutMask { probability, key });
            let inputs = Inputs::new([batch, time, n], [1; 3], [1, 1], [1, 1], &device);
            same(
                "dropout",
                1e-6,
                &inputs,
                |i| kernels::dropout(i.x.clone(), mask),
                |i| plain::dropout(i.x.clone(), mask),
            );
            let there = kernels::dropout(inputs.x.clone().detach(), mask).into_data();
            let here = Tensor::from_data(inputs.x.to_data(), &Device::flex());
            let here = kernels::dropout(here, mask).into_data();
            prop_assert_eq!(there.try_into_vec::<f32>().unwrap(), here.try_into_vec::<f32>().unwrap());
            Ok(())
        })
        .unwrap();
}
