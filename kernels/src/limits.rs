//! The widest heads that a GPU's shared memory bears: decided from its size alone, so that heads
//! that are too wide are refused in a line before anything runs, on any machine.

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
#[allow(missing_docs)] // a field is what the message calls it
pub enum LimitError {
    /// Its cubes' shared memory does not bear heads as wide.
    #[error(
        "attention with heads of {head_size} (n_embd / n_head) needs more shared memory than the {} KiB of this GPU, which \
         suffice for heads of {widest}",
        shared_memory >> 10
    )]
    HeadsTooWide { head_size: usize, shared_memory: usize, widest: usize },
}

/// Refuses heads that `device` cannot compute attention with, which no CPU does.
///
/// # Errors
/// Which heads, and which it can.
pub fn check_heads(head_size: usize, used: Use, device: &Device) -> Result<(), LimitError> {
    #[cfg(feature = "gpu")]
    if !crate::is_cpu(device) {
        let tensor = crate::gpu::tensor::cube(burn::tensor::Tensor::<1>::zeros([1], &device.clone().inner()));
        return shared_memory::check(head_size, used, tensor.client.properties().hardware.max_shared_memory_size);
    }
    let _ = (head_size, used, device);
    Ok(())
}

/// What the kernels ask of shared memory.
#[cfg(feature = "gpu")]
mod shared_memory {
    use burn::tensor::DType;

    use super::*;
    use crate::gpu::{engine::Engine, tile::Holds};
    use crate::{attention::gpu::KERNELS, attention::gpu_forward::FORWARD, cached_attention};

    /// Whether a device whose cubes have `shared_memory` bytes together computes attention with
    /// heads of `head_size`.
    fn bears(head_size: usize, used: Use, shared_memory: usize) -> bool {
        let tiled = |holds: &Holds, dtype| Engine::Units.tile(*holds, head_size, dtype, shared_memory).is_some();
        let learned = match used {
            Use::Inference => true,
            Use::Training(dtype) => KERNELS.iter().all(|holds| tiled(holds, dtype.into())),
        };
        cached_attention::shared_memory(head_size) <= shared_memory && learned && tiled(&FORWARD, DType::F32)
    }

    /// Refuses heads that are too wide for cubes with `shared_memory` bytes.
    ///
    /// # Errors
    /// Which heads, the memory, and the widest that fit.
    pub fn check(head_size: usize, used: Use, shared_memory: usize) -> Result<(), LimitError> {
        if bears(head_size, used, shared_memory) {
            return Ok(());
        }
        let widest = (1..head_size).rev().find(|size| size.is_multiple_of(8) && bears(*size, used, shared_memory));
        Err(LimitError::HeadsTooWide { head_size, shared_memory, widest: widest.unwrap_or(0) })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        const KIB: usize = 1 << 10;
        const TRAINING: Use = Use::Training(FloatDType::F32);

        fn widest(used: Use, shared_memory: usize) -> usize {
            (8..2048).step_by(8).filter(|size| bears(*size, used, shared_memory)).max().unwrap_or(0)
        }

        /// 16 KiB is the least that Vulkan allows, 32 what many GPUs and software Vulkan have, 48
        /// what CUDA gives unasked.
        #[test]
        fn heads_of_every_usual_width_are_borne_and_wider_ones_refused() {
            for (shared_memory, training, inference) in [(16, 320, 368), (32, 664, 880), (48, 1008, 1392)] {
                for size in (1..=256).chain([320]) {
                    assert!(bears(size, TRAINING, shared_memory * KIB), "{size} in {shared_memory} KiB");
                }
                let found = [TRAINING, Use::Inference].map(|used| widest(used, shared_memory * KIB));
                assert_eq!(found, [training, inference], "{shared_memory} KiB");
                let line = check(training + 8, TRAINING, shared_memory * KIB)
                    .err()
                    .map(|error| error.to_string())
                    .unwrap_or_default();
                assert!(
                    line.contains(&format!("the {shared_memory} KiB of this GPU")) && !line.contains('\n'),
                    "{line}"
                );
                assert!(line.contains(&format!("heads of {training}")), "{line}");
            }
        }

        /// What is chosen takes no more than there is, and what was chosen before small tiles were
        /// there stays.
        #[test]
        fn a_tile_takes_what_there_is() {
            let size = |size, shared_memory| {
                let tile = Engine::Units.tile(KERNELS[KERNELS.len() - 1], size, DType::F32, shared_memory * KIB)?;
                Some((tile.rows, tile.columns))
            };
            assert_eq!(size(64, 227), Some((32, 32)));
            assert_eq!(size(768, 227), Some((8, 8)));
            for shared_memory in [16, 32, 48, 64, 100, 227] {
                for head_size in [8, 33, 64, 96, 128, 160, 256, 320] {
                    for holds in KERNELS {
                        let tile = Engine::Units.tile(*holds, head_size, DType::F32, shared_memory * KIB);
                        let bytes = tile.map(|tile| holds.bytes(tile, 4, 4));
                        assert!(
                            bytes.is_some_and(|bytes| bytes <= shared_memory * KIB),
                            "{head_size} in {shared_memory} KiB"
                        );
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_head_is_too_wide_for_a_cpu() {
        assert_eq!(check_heads(1 << 20, Use::Training(FloatDType::F32), &Device::flex()), Ok(()));
    }
}
