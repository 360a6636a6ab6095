//! A mask that is a function of (key, index): nothing is stored for the backward, and the same key
//! gives the same mask with any number of threads.

use std::cell::RefCell;

use burn::tensor::Device;
use rand_chacha::{ChaCha12Rng, rand_core::Rng, rand_core::SeedableRng};

use crate::simd_versions;

/// One dropout: the probability of dropping a value, and the key from which its mask is computed.
///
/// The mask is a hash of (key, index in the tensor), so that the backward can recompute it instead
/// of storing it.
#[derive(Clone, Copy, Debug)]
pub struct DropoutMask {
    /// Probability with which a value becomes 0; the others are divided by `1 - probability`.
    pub probability: f32,
    /// Identifies this draw.
    pub key: u64,
}

impl DropoutMask {
    /// Draws a key from this thread's generator, which training seeds with (seed, step,
    /// micro-batch). `None` if nothing is dropped: at probability 0, and on a device without
    /// automatic differentiation.
    pub fn draw(probability: f64, device: &Device) -> Option<Self> {
        if probability == 0.0 || !device.is_autodiff() {
            return None;
        }
        // Two halves of 24 bits, the lowest bit of each 0: kept for compatibility with all earlier
        // runs.
        let half = |keys: &mut ChaCha12Rng| u64::from(keys.next_u32() >> 9 << 1);
        let key = KEYS.with_borrow_mut(|keys| half(keys) << 24 | half(keys));
        Some(Self { probability: probability as f32, key })
    }

    /// A value is dropped if its hash, uniform over 32 bits, is below this.
    pub(super) fn threshold(self) -> u32 {
        (self.probability as f64 * (1u64 << 32) as f64) as u32
    }

    /// Factor of the values that stay.
    pub(super) fn scale(self) -> f32 {
        1.0 / (1.0 - self.probability)
    }

    /// Seeds the generator that [`Self::draw`] draws from in this thread.
    pub fn seed(seed: u64) {
        KEYS.set(ChaCha12Rng::seed_from_u64(seed));
    }
}

thread_local! {
    /// Draws keys. One per thread, so that two training runs in one process do not affect each
    /// other.
    static KEYS: RefCell<ChaCha12Rng> = RefCell::new(ChaCha12Rng::seed_from_u64(0));
}

simd_versions! {
    /// Applies dropout to `x`, whose first value is number `first` of the whole tensor.
    pub fn mask_in_place(x: &mut [f32], mask: DropoutMask, first: u64) {
        let (scale, threshold) = (mask.scale(), mask.threshold());
        let low = mask.key as u32;
        let high = (mask.key >> 32) as u32;
        // The upper 32 bits of the index change rarely, so the inner loop counts only the lower 32.
        let (mut x, mut first) = (x, first);
        while !x.is_empty() {
            let (upper, lower) = ((first >> 32) as u32, first as u32);
            let (part, rest) = x.split_at_mut(x.len().min(((u32::MAX - lower) as usize).saturating_add(1)));
            let spread = spread(upper ^ high);
            for (i, x) in part.iter_mut().enumerate() {
                let hash = hash(lower.wrapping_add(i as u32) ^ low, spread);
                *x = if hash < threshold { 0.0 } else { *x * scale };
            }
            (first, x) = (first + part.len() as u64, rest);
        }
    }
}

/// The upper word's contribution to [`hash`].
#[inline(always)]
fn spread(high: u32) -> u32 {
    high.wrapping_mul(0x9e37_79b9)
}

/// A 32-bit hash of two words, the upper one already [`spread`] (two rounds of the integer hash
/// "lowbias32", from C. Wellons' search for low bias).
#[inline(always)]
fn hash(low: u32, high: u32) -> u32 {
    let mix = |mut x: u32| {
        x ^= x >> 16;
        x = x.wrapping_mul(0x7feb_352d);
        x ^= x >> 15;
        x = x.wrapping_mul(0x846c_a68b);
        x ^ (x >> 16)
    };
    mix(mix(low).wrapping_add(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "autodiff")]
    #[test]
    fn keys_are_named_by_their_seed_whatever_other_threads_draw() {
        let device = Device::flex().autodiff();
        let draw = || DropoutMask::draw(0.5, &device).map(|mask| mask.key);
        DropoutMask::seed(7);
        let first = draw();
        std::thread::scope(|threads| threads.spawn(|| (DropoutMask::seed(8), draw())).join()).ok();
        assert_eq!([first, draw()], [Some(0x6aa8_fa07_c2e0), Some(0x247e_5e4e_9d34)]);
    }

    /// The mask depends on the position in the whole tensor, wherever the pieces begin, even if the
    /// index exceeds 32 bits.
    #[test]
    fn a_piece_drops_what_the_whole_drops() {
        let mask = DropoutMask { probability: 0.5, key: 77 << 31 };
        let start = (1u64 << 32) - 40;
        let from = |first: u64, n: usize| {
            let mut piece = vec![1.0; n];
            mask_in_place(&mut piece, mask, start + first);
            piece
        };
        let whole = from(0, 100);
        for (first, n) in [(0, 40), (1, 39), (17, 60), (39, 2), (40, 60), (99, 1)] {
            assert_eq!(whole[first..first + n], from(first as u64, n)[..]);
        }
        assert_ne!(whole[..40], whole[40..80]);
    }
}
