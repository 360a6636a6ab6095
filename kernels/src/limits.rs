//! What a device cannot compute, found out before anything runs.

use burn::tensor::{Device, FloatDType};
use thiserror::Error;

/// What attention is to be computed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Scored, or written with.
    Inference,
    /// Trained, its products in this type, and looked at in between.
    Training(FloatDType),
}

/// Why a device cannot compute attention.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Its cubes' shared memory does not bear heads as wide.
    #[error(
        "attention with heads of {head_size} (n_embd / n_head) needs more shared memory than the {} KiB of this GPU, which \
         suffice for heads of {widest}",
        shared_memory >> 10
    )]
    HeadsTooWide {
        /// Their width.
        head_size: usize,
        /// Bytes.
        shared_memory: usize,
        /// The widest that it bears.
        widest: usize,
    },
}

/// Refuses heads that `device` cannot compute attention with, which no CPU does.
///
/// # Errors
/// Which heads, and which it can.
pub fn check_heads(head_size: usize, used: Use, device: &Device) -> Result<(), LimitError> {
    #[cfg(feature = "gpu")]
    if !crate::is_cpu(device) {
        return crate::gpu::widest_heads::check(head_size, used, device);
    }
    let _ = (head_size, used, device);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_head_is_too_wide_for_a_cpu() {
        assert_eq!(check_heads(1 << 20, Use::Training(FloatDType::F32), &Device::flex()), Ok(()));
    }
}
