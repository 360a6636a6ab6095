//! Output buffers that kernels fill.

use bytemuck::Pod;
use rayon::prelude::*;

/// A vector of `length` values for a kernel to fill: every caller writes each value before anything
/// reads it.
pub fn unfilled<T: Pod>(length: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(length);
    // SAFETY: any bits are a valid value, and the callers overwrite all of them. This saves one
    // pass over the memory.
    #[allow(clippy::uninit_vec)]
    unsafe {
        values.set_len(length)
    };
    values
}

/// Computes `width` values for each row of the inputs `of`, which are given with their own row
/// widths. Each task calls `f` on up to `at_once` rows of every input and the same rows of the
/// result, which it fills.
pub fn by_rows<A: Sync, B: Pod + Send, const N: usize>(
    at_once: usize,
    of: [(&[A], usize); N],
    width: usize,
    f: impl Fn([&[A]; N], &mut [B]) + Sync,
) -> Vec<B> {
    let mut y = unfilled(of[0].0.len() / of[0].1 * width);
    y.par_chunks_mut(at_once * width).enumerate().for_each(|(task, y)| {
        let first = task * at_once;
        f(of.map(|(x, each)| &x[first * each..][..y.len() / width * each]), y);
    });
    y
}
