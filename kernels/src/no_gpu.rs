//! Stub of `gpu` for a build without GPUs: the functions that other crates call on a GPU, which are
//! then never reached.

use burn::tensor::Tensor;

/// As in a build with GPUs.
pub fn argmax(_logits: Tensor<2>) -> Tensor<2> {
    unreachable!("a GPU in a build without any")
}

/// As in a build with GPUs.
pub mod tensor {
    use burn::tensor::{Int, Tensor};

    /// As in a build with GPUs.
    pub fn overwrite<const D: usize>(_target: &Tensor<D, Int>, _values: Vec<i32>) {
        unreachable!("a GPU in a build without any")
    }
}

/// As in a build with GPUs.
pub mod bandwidth {
    use burn::tensor::Device;

    /// As in a build with GPUs.
    pub fn leave_unmeasured(_device: &Device) {}
}

/// As in a build with GPUs.
pub mod products {
    use burn::tensor::Device;
    use std::path::Path;

    /// As in a build with GPUs.
    pub fn keep_in(_device: &Device, _file: &Path) {}

    /// As in a build with GPUs.
    pub fn tune(_device: &Device) -> bool {
        false
    }
}

/// As in a build with GPUs.
pub mod compiling {
    /// As in a build with GPUs.
    pub fn count() {}

    /// As in a build with GPUs.
    pub fn counted() -> usize {
        0
    }
}
