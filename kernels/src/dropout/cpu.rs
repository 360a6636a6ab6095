//! Dropout on the CPU.

use super::mask::{DropoutMask, mask_in_place};
use crate::cpu::prelude::*;

/// Dropout by this mask.
impl Operation<Flex, 1> for DropoutMask {
    type Kept = ();

    fn forward(&self, [x]: [FlexTensor; 1]) -> ([FlexTensor; 1], ()) {
        ([dropped(x, *self)], ())
    }

    fn backward(&self, (): (), dy: FlexTensor) -> [FlexTensor; 1] {
        [dropped(dy, *self)]
    }
}

/// `x` with masked values set to 0 and the others scaled up. Applied to the gradient, this is also
/// the backward.
pub fn dropped(x: FlexTensor, mask: DropoutMask) -> FlexTensor {
    let x = contiguous(x);
    tensor_of(masked(values(&x), mask), x.layout().shape().clone())
}

/// Values per task.
const CHUNK: usize = 8192;

/// `x` with masked values set to 0 and the others scaled up.
pub fn masked(x: &[f32], mask: DropoutMask) -> Vec<f32> {
    let mut y = unfilled(x.len());
    y.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).enumerate().for_each(|(chunk, (y, x))| {
        y.copy_from_slice(x);
        mask_in_place(y, mask, (chunk * CHUNK) as u64);
    });
    y
}

#[cfg(test)]
mod tests {
    use itertools::Itertools;

    use super::*;

    #[test]
    fn drops_its_share_scales_the_rest_and_repeats_itself() {
        let ones = vec![1.0; 200_000];
        let mask = DropoutMask { probability: 0.2, key: 0x1234_5678_9abc };
        let y = masked(&ones, mask);
        let dropped = y.iter().filter(|y| **y == 0.0).count() as f64 / y.len() as f64;
        assert!((dropped - 0.2).abs() < 0.005, "{dropped}"); // five standard deviations
        assert!(y.iter().all(|y| *y == 0.0 || *y == 1.25));
        assert_eq!(y, masked(&ones, mask));
        let other = masked(&ones, DropoutMask { key: mask.key + 1, ..mask });
        let both = y.iter().zip_eq(&other).filter(|(a, b)| **a == 0.0 && **b == 0.0).count() as f64 / y.len() as f64;
        assert!((both - 0.04).abs() < 0.003, "masks of neighbouring keys are not independent: {both}");
        // Neighbours within a mask are independent as well.
        let pairs = y.windows(2).filter(|w| w[0] == 0.0 && w[1] == 0.0).count() as f64 / y.len() as f64;
        assert!((pairs - 0.04).abs() < 0.003, "{pairs}");
    }
}
