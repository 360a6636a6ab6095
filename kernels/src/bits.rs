//! Types whose every bit pattern is a value: what memory may hold before it is filled.

use burn::tensor::{bf16, f16};

/// Values whose every bit pattern is valid and which need no alignment beyond a cache line's.
///
/// # Safety
/// As said.
pub unsafe trait Bits: Copy + Send + Sync + 'static {}

// SAFETY: numbers.
unsafe impl Bits for u8 {}
// SAFETY: as above.
unsafe impl Bits for f32 {}
// SAFETY: as above.
unsafe impl Bits for bf16 {}
// SAFETY: as above.
unsafe impl Bits for f16 {}
// SAFETY: nothing but such values, and no padding between them.
unsafe impl<T: Bits, const N: usize> Bits for [T; N] {}

/// A vector of `length` values for a kernel to fill: every caller writes each value before anything
/// reads it.
pub fn unfilled<T: Bits>(length: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(length);
    // SAFETY: any bits are such a value, and the callers overwrite all of them; saves one pass over
    // the memory.
    #[allow(clippy::uninit_vec)]
    unsafe {
        values.set_len(length)
    };
    values
}
