//! Dropout whose mask is a function of (key, index): the same hash as on the CPU, so that the masks
//! agree; the backward recomputes it.

use super::mask::DropoutMask;
use crate::gpu::prelude::*;

impl Operation<CubeBackend, 1> for DropoutMask {
    type Kept = ();

    fn forward(&self, [x]: [CubeTensor; 1]) -> ([CubeTensor; 1], ()) {
        ([apply(x, *self)], ())
    }

    fn backward(&self, (): (), dy: CubeTensor) -> [CubeTensor; 1] {
        [apply(dy, *self)]
    }
}

/// A mask as a kernel argument.
#[derive(CubeLaunch, CubeType, Clone, Copy)]
pub struct Mask {
    /// The two halves of the key.
    low: u32,
    high: u32,
    /// A value is dropped if its hash is below this.
    threshold: u32,
    /// Factor of the other values.
    scale: f32,
}

/// The mask as a kernel argument; without a mask the kernel never reads it.
pub fn mask_launch(mask: Option<DropoutMask>) -> MaskLaunch {
    let mask = mask.unwrap_or(DropoutMask { probability: 0.0, key: 0 });
    MaskLaunch::new(mask.key as u32, (mask.key >> 32) as u32, mask.threshold(), mask.scale())
}

/// An integer hash ("lowbias32", from C. Wellons' search for low bias).
#[cube]
fn mix<N: Size>(x: Vector<u32, N>) -> Vector<u32, N> {
    let x = (x ^ (x >> Vector::new(16u32))) * Vector::new(0x7feb_352du32);
    let x = (x ^ (x >> Vector::new(15u32))) * Vector::new(0x846c_a68bu32);
    x ^ (x >> Vector::new(16u32))
}

/// [`mix`] of one word.
#[cube]
fn mix_word(x: u32) -> u32 {
    let x = (x ^ (x >> 16u32)) * 0x7feb_352du32;
    let x = (x ^ (x >> 15u32)) * 0x846c_a68bu32;
    x ^ (x >> 16u32)
}

#[cube]
impl Mask {
    /// 0 or the scale: the factor of the attention weight in `column` of `row`, of the weights
    /// `[batch * n_head * time, time]`.
    pub fn of_weight(&self, row: u32, column: u32, time: u32) -> f32 {
        // The index `row * time + column` has 64 bits, which not every device supports.
        let low = row * time;
        let place = low + column;
        let mut high = row.mul_hi(time);
        if place < low {
            high += 1u32;
        }
        let hash = mix_word(mix_word(place ^ self.low) + (high ^ self.high) * 0x9e37_79b9u32);
        let mut factor = self.scale;
        if hash < self.threshold {
            factor = 0.0;
        }
        factor
    }
}

/// Dropout of `x`, vector number `place` of its tensor; tensors have fewer than 2^32 values.
#[cube]
pub fn dropped<N: Size>(x: Vector<f32, N>, place: usize, mask: &Mask) -> Vector<f32, N> {
    let mut index = Vector::<u32, N>::new(place as u32 * N::value() as u32);
    #[unroll]
    for i in 0..N::value() {
        index.insert(i, index.extract(i) + comptime!(i as u32));
    }
    let hash = mix(mix(index ^ Vector::new(mask.low)) + Vector::new(mask.high * 0x9e37_79b9u32));
    let kept = x * Vector::new(mask.scale);
    select_many(hash.less_than(&Vector::new(mask.threshold)), Vector::new(f32::new(0.0)), kept)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn dropout_kernel<T: Float, N: Size>(
    x: &[Vector<T, N>],
    y: &mut [Vector<T, N>],
    length: usize,
    mask: Mask,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS < length {
        let kept = dropped::<N>(Vector::cast_from(x[ABSOLUTE_POS]), ABSOLUTE_POS, &mask);
        y[ABSOLUTE_POS] = Vector::cast_from(kept);
    }
}

/// `x` with masked values set to 0 and the others scaled up. Applied to the gradient, this is also
/// the backward.
pub fn apply(x: CubeTensor, mask: DropoutMask) -> CubeTensor {
    let x = contiguous(x);
    let (y, (grid, vector, length), dtype) = (unfilled_like(&x), Grid::vectors(&x), elem(x.dtype));
    let mask = mask_launch(Some(mask));
    // SAFETY: the kernel checks every index against `length`.
    unsafe { launch!(dropout_kernel, grid, vector, [x, &y], length, mask, dtype) };
    y
}
