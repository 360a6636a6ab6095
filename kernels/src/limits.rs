//! What a model requires of a GPU. It is checked against the device's limits alone, so a model that
//! the GPU cannot compute is refused with one line before anything runs.

use burn::tensor::{Device, FloatDType};
use serde::Serialize;
use thiserror::Error;

/// What a model is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Scoring or generation.
    Inference,
    /// Training with products in this type, with evaluation in between.
    Training(FloatDType),
}

/// What a model requires of a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Width of a head.
    pub head_size: usize,
    /// Whether the width is a folder's `head_dim` instead of `n_embd / n_head`.
    pub has_head_dim: bool,
    /// What the model is used for.
    pub used: Use,
    /// Number of values in the largest parameter.
    pub largest: usize,
}

/// A GPU's limits that kernels may exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Bytes of shared memory in a cube.
    pub shared_memory: usize,
    /// Maximum number of units in a cube.
    pub units: usize,
    /// Maximum number of buffers that a kernel can bind.
    pub buffers: usize,
    /// Maximum number of bytes of a buffer that a kernel can bind (on CUDA the runtime's own limit, a
    /// quarter of the memory).
    pub buffer_bytes: u64,
    /// Whether the device reports tensor cores.
    pub tensor_cores: bool,
}

/// The limit that a model exceeds.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are named in the messages
pub enum LimitError {
    /// A cube's shared memory is too small for heads of this width.
    #[error(
        "attention with heads of {head_size} ({}) needs more shared memory than the {} KiB of this GPU{}",
        if *has_head_dim { "head_dim" } else { "n_embd / n_head" },
        shared_memory >> 10,
        widest.map_or_else(String::new, |widest| format!(", which suffice for heads of {widest}"))
    )]
    HeadsTooWide { head_size: usize, has_head_dim: bool, shared_memory: usize, widest: Option<usize> },
    /// A parameter has more bytes than a kernel can bind of a buffer.
    #[error(
        "the model's largest matrix takes {} MiB, but this GPU's kernels can use only {} MiB of a buffer",
        bytes.div_ceil(1 << 20),
        most >> 20
    )]
    TooLarge { bytes: u64, most: u64 },
    /// Kernels on the device can have fewer units or buffers than ours need.
    #[error("kernels on this GPU can have {has} {what}, but Ember's need {needs}")]
    Small { what: &'static str, has: usize, needs: usize },
}

/// Refuses a model that `device` cannot compute. The CPU computes any model.
///
/// # Errors
/// The limit that is exceeded.
pub fn check(demand: Demand, device: &Device) -> Result<(), LimitError> {
    Limits::of(device).map_or(Ok(()), |limits| limits.check(demand))
}

/// Maximum number of values that a kernel on `device` can have in one tensor, where memory allows
/// `most`.
pub fn values_at_once(most: usize, device: &Device) -> usize {
    let at_once = |limits: Limits| (limits.buffer_bytes / size_of::<f32>() as u64) as usize;
    Limits::of(device).map_or(most, |limits| most.min(at_once(limits)))
}

/// A build without GPUs has no limits.
#[cfg(not(feature = "gpu"))]
impl Limits {
    /// The limits of a GPU.
    pub fn of(_device: &Device) -> Option<Self> {
        None
    }

    /// Refuses a model that exceeds these limits.
    ///
    /// # Errors
    /// Never.
    pub fn check(&self, _demand: Demand) -> Result<(), LimitError> {
        Ok(())
    }

    /// Refuses limits that are too small for any model.
    ///
    /// # Errors
    /// Never.
    pub fn suffice(&self) -> Result<(), LimitError> {
        Ok(())
    }
}

#[cfg(feature = "gpu")]
mod on_gpus {
    use burn::tensor::DType;

    use super::*;
    use crate::gpu::{engine::Engine, launch::UNITS, tensor_cores::has_tensor_cores, tile::Footprint};
    use crate::{attention::gpu::KERNELS, attention::gpu_forward::FORWARD, cached_attention};

    /// Buffers of the kernel that binds the most, including the runtime's own: as many as WebGPU
    /// guarantees.
    const BUFFERS: usize = 8;

    /// Shared memory of most GPUs, which gives attention its usual tiles.
    const USUAL: usize = 48 << 10;

    impl Limits {
        /// The limits of `device`; `None` for the CPU.
        pub fn of(device: &Device) -> Option<Self> {
            if crate::is_cpu(device) {
                return None;
            }
            let tensor = crate::gpu::tensor::cube(burn::tensor::Tensor::<1>::zeros([1], &device.clone().inner()));
            let properties = tensor.client.properties();
            let hardware = &properties.hardware;
            Some(Self {
                shared_memory: hardware.max_shared_memory_size,
                units: hardware.max_units_per_cube as usize,
                // wgpu reserves one on some devices and reports the rest.
                buffers: hardware.max_bindings.saturating_add(1) as usize,
                buffer_bytes: properties.memory.max_page_size,
                tensor_cores: has_tensor_cores(&tensor.client),
            })
        }

        /// Refuses a model that exceeds these limits.
        ///
        /// # Errors
        /// The limit that is exceeded.
        pub fn check(&self, demand: Demand) -> Result<(), LimitError> {
            self.suffice()?;
            let bytes = (demand.largest * size_of::<f32>()) as u64;
            if bytes > self.buffer_bytes {
                return Err(LimitError::TooLarge { bytes, most: self.buffer_bytes });
            }
            self.check_heads(demand)
        }

        /// Refuses limits that are too small for any model.
        ///
        /// # Errors
        /// The limit that is exceeded.
        pub fn suffice(&self) -> Result<(), LimitError> {
            for (what, has, needs) in [("units", self.units, UNITS as usize), ("buffers", self.buffers, BUFFERS)] {
                if has < needs {
                    return Err(LimitError::Small { what, has, needs });
                }
            }
            Ok(())
        }

        fn check_heads(&self, demand: Demand) -> Result<(), LimitError> {
            let Demand { head_size, has_head_dim, used, .. } = demand;
            if self.fits(head_size, used) {
                return Ok(());
            }
            let widest = (1..head_size).rev().find(|size| size.is_multiple_of(8) && self.fits(*size, used));
            let shared_memory = self.shared_memory;
            Err(LimitError::HeadsTooWide { head_size, has_head_dim, shared_memory, widest })
        }

        /// Whether attention with heads of `head_size` fits into shared memory.
        fn fits(&self, head_size: usize, used: Use) -> bool {
            let tiled =
                |kernel: &Footprint, dtype| Engine::Units.tile(*kernel, head_size, dtype, self.shared_memory).is_some();
            let training_fits = match used {
                Use::Inference => true,
                Use::Training(dtype) => KERNELS.iter().all(|kernel| tiled(kernel, dtype.into())),
            };
            cached_attention::shared_memory(head_size) <= self.shared_memory
                && training_fits
                && tiled(&FORWARD, DType::F32)
        }

        /// Why attention in training is slower than with the shared memory of most GPUs: its tiles
        /// beside the usual ones. Used only by the test of ember-training that writes
        /// docs/adapters.md.
        pub fn small_tiles(&self, head_size: usize) -> Option<String> {
            let tile = |shared_memory| {
                let hungriest = KERNELS.last()?;
                let tile = Engine::Units.tile(*hungriest, head_size, DType::F32, shared_memory)?;
                Some([tile.rows, tile.columns])
            };
            let ([rows, columns], usual) = (tile(self.shared_memory)?, tile(USUAL)?);
            let smaller = rows * columns < usual[0] * usual[1];
            smaller.then(|| format!("attention in tiles of {rows} x {columns}, not {} x {}", usual[0], usual[1]))
        }
    }

    #[cfg(test)]
    mod tests {
        #![allow(clippy::unwrap_used)]
        use super::*;

        const KIB: usize = 1 << 10;
        const TRAINING: Use = Use::Training(FloatDType::F32);
        const DEMAND: Demand = Demand { head_size: 64, has_head_dim: false, used: TRAINING, largest: 1 << 20 };

        /// The limits that WebGPU guarantees, except for the shared memory.
        fn limits(shared_memory: usize) -> Limits {
            Limits {
                shared_memory: shared_memory * KIB,
                units: 256,
                buffers: 8,
                buffer_bytes: 128 << 20,
                tensor_cores: false,
            }
        }

        fn widest(used: Use, limits: Limits) -> usize {
            (8..2048).step_by(8).filter(|size| limits.fits(*size, used)).max().unwrap_or(0)
        }

        /// 16 KiB is Vulkan's minimum, 32 what many GPUs and software Vulkan have, 48 CUDA's
        /// default.
        #[test]
        fn heads_of_every_usual_width_are_borne_and_wider_ones_refused() {
            for (shared_memory, training, inference) in [(16, 320, 368), (32, 664, 880), (48, 1008, 1392)] {
                for size in (1..=256).chain([320]) {
                    assert!(limits(shared_memory).fits(size, TRAINING), "{size} in {shared_memory} KiB");
                }
                let found = [TRAINING, Use::Inference].map(|used| widest(used, limits(shared_memory)));
                assert_eq!(found, [training, inference], "{shared_memory} KiB");
                let demand = Demand { head_size: training + 8, ..DEMAND };
                let line = limits(shared_memory).check(demand).err().map(|error| error.to_string()).unwrap_or_default();
                assert!(
                    line.contains(&format!("the {shared_memory} KiB of this GPU")) && !line.contains('\n'),
                    "{line}"
                );
                assert!(line.contains(&format!("heads of {training}")), "{line}");
            }
        }

        #[test]
        fn a_width_that_is_too_large_is_called_what_its_key_is_called() {
            let line = |has_head_dim| {
                limits(16).check(Demand { head_size: 512, has_head_dim, ..DEMAND }).unwrap_err().to_string()
            };
            assert!(line(false).starts_with("attention with heads of 512 (n_embd / n_head) needs more shared memory"));
            assert!(line(true).starts_with("attention with heads of 512 (head_dim) needs more shared memory"));
            let line = limits(0).check(DEMAND).unwrap_err().to_string();
            assert!(line.ends_with("needs more shared memory than the 0 KiB of this GPU"), "{line}");
        }

        #[test]
        fn what_webgpu_guarantees_is_enough_and_less_is_said() {
            let demand = Demand { largest: 1 << 25, ..DEMAND };
            assert_eq!(limits(16).check(demand), Ok(()));
            let line = |limits: Limits, demand| limits.check(demand).unwrap_err().to_string();
            let less = Limits { buffers: 7, ..limits(16) };
            assert_eq!(line(less, demand), "kernels on this GPU can have 7 buffers, but Ember's need 8");
            let less = Limits { units: 128, ..limits(16) };
            assert_eq!(line(less, demand), "kernels on this GPU can have 128 units, but Ember's need 256");
            let large = Demand { largest: (1 << 25) + 1, ..demand };
            let want =
                "the model's largest matrix takes 129 MiB, but this GPU's kernels can use only 128 MiB of a buffer";
            assert_eq!(line(limits(16), large), want);
        }

        #[test]
        fn small_tiles_are_told_apart() {
            let slower = limits(16).small_tiles(128);
            assert_eq!(slower.as_deref(), Some("attention in tiles of 8 x 4, not 16 x 16"));
            assert_eq!(limits(48).small_tiles(128), None);
        }

        /// The chosen tile fits the shared memory, and choices from before small tiles existed are
        /// unchanged.
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
                    for footprint in KERNELS {
                        let tile = Engine::Units.tile(*footprint, head_size, DType::F32, shared_memory * KIB);
                        let bytes = tile.map(|tile| footprint.bytes(tile, 4, 4));
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
    fn nothing_is_too_large_for_a_cpu() {
        let used = Use::Training(FloatDType::F32);
        let demand = Demand { head_size: 1 << 20, has_head_dim: false, used, largest: 1 << 40 };
        assert_eq!(check(demand, &Device::flex()), Ok(()));
        assert_eq!(values_at_once(1 << 40, &Device::flex()), 1 << 40);
    }
}
