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

/// Computes `out_width` values for each row of the inputs, which are given with their own row
/// widths. Each task calls `f` on up to `rows_per_task` rows of every input and the same rows of
/// the result, which it fills.
pub fn by_rows<A: Sync, B: Pod + Send, const N: usize>(
    rows_per_task: usize,
    inputs: [(&[A], usize); N],
    out_width: usize,
    f: impl Fn([&[A]; N], &mut [B]) + Sync,
) -> Vec<B> {
    let (first_input, first_width) = inputs[0];
    let mut out = unfilled(first_input.len() / first_width * out_width);
    out.par_chunks_mut(rows_per_task * out_width).enumerate().for_each(|(task, out)| {
        let (first_row, rows) = (task * rows_per_task, out.len() / out_width);
        f(inputs.map(|(values, width)| &values[first_row * width..][..rows * width]), out);
    });
    out
}
