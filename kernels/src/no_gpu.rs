//! Stub of `gpu` for a build without GPUs: the functions that other crates call on a GPU, which are
//! then never reached.

use burn::tensor::Tensor;

/// See the build with GPUs.
pub fn argmax(_logits: Tensor<2>) -> Tensor<2> {
    unreachable!("a GPU in a build without any")
}

/// See the build with GPUs.
pub mod tensor {
    use burn::tensor::{Int, Tensor};

    /// See the build with GPUs.
    pub fn overwrite<const D: usize>(_target: &Tensor<D, Int>, _values: Vec<i32>) {
        unreachable!("a GPU in a build without any")
    }
}

/// See the build with GPUs.
pub mod bandwidth {
    use burn::tensor::Device;

    /// See the build with GPUs.
    pub fn leave_unmeasured(_device: &Device) {}
}

/// See the build with GPUs.
pub mod products {
    use burn::tensor::Device;
    use std::path::Path;

    /// See the build with GPUs.
    pub fn keep_in(_file: &Path) {}

    /// See the build with GPUs.
    pub fn tune(_device: &Device) -> bool {
        false
    }
}

/// See the build with GPUs.
pub mod compiling {
    /// See the build with GPUs.
    pub fn count() {}

    /// See the build with GPUs.
    pub fn counted() -> usize {
        0
    }
}
