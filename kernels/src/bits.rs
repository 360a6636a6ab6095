//! Memory that is about to be filled.

use bytemuck::Pod;

/// A vector of `length` values for a kernel to fill: every caller writes each value before anything
/// reads it.
pub fn unfilled<T: Pod>(length: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(length);
    // SAFETY: any bits are such a value, and the callers overwrite all of them; saves one pass over
    // the memory.
    #[allow(clippy::uninit_vec)]
    unsafe {
        values.set_len(length)
    };
    values
}
