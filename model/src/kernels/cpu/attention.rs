//! Causal attention, one task for each head of each row of the batch.
//!
//! Scores are computed in blocks of query rows, and only up to the block's last row: what lies in the future of a whole
//! block is never touched, which is nearly half of the work. The weights are kept for the backward.

use rayon::prelude::*;

use super::super::{DropoutMask, Heads, simd};
use super::dropout::apply_in_place;
use super::product::{Threads, View, product};
use super::tensor::unfilled;
use crate::simd_versions;

/// Query rows in a block.
const BLOCK: usize = 64;

/// Sizes of one attention. A task is a head of queries of one row of the batch.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Rows of the batch.
    pub batch: usize,
    /// Positions.
    pub time: usize,
    /// How the width is divided.
    pub heads: Heads,
}

impl Sizes {
    fn scale(&self) -> f32 {
        1.0 / (self.heads.head_size as f32).sqrt()
    }

    /// The task's queries, keys and values inside `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]`.
    fn parts(&self, qkv: *const f32, task: usize) -> [View; 3] {
        let heads = self.heads;
        let (row, head) = (task / heads.n_head, task % heads.n_head);
        let key = heads.query_width() + heads.serving(head) * heads.head_size;
        let first = row * self.time * heads.width();
        // SAFETY: queries, keys and values of a position follow one another inside the tensor.
        [head * heads.head_size, key, key + heads.kv_width()].map(|place| View {
            start: unsafe { qkv.add(first + place) },
            row: heads.width(),
            column: 1,
        })
    }

    /// The task's part of a tensor `[batch, time, n_head head_size]`.
    fn head(&self, y: *const f32, task: usize) -> View {
        let (row, head) = (task / self.heads.n_head, task % self.heads.n_head);
        let width = self.heads.query_width();
        // SAFETY: inside the tensor by construction.
        let start = unsafe { y.add(row * self.time * width + head * self.heads.head_size) };
        View { start, row: width, column: 1 }
    }
}

impl View {
    fn transpose(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    /// The matrix without its first `rows` rows.
    pub fn skip_rows(self, rows: usize) -> Self {
        // SAFETY: callers stay inside the matrix.
        Self { start: unsafe { self.start.add(rows * self.row) }, ..self }
    }
}

/// A pointer that tasks share; each writes a part of its own.
#[derive(Clone, Copy)]
pub struct Shared(pub *mut f32);
// SAFETY: the tasks write disjoint heads, as `Sizes::parts` and `Sizes::head` lay them out.
unsafe impl Send for Shared {}
unsafe impl Sync for Shared {}
impl Shared {
    /// The pointer.
    pub fn get(self) -> *mut f32 {
        self.0
    }
}

/// Blocks of query rows: (first row, rows, columns that the last of them sees).
pub fn blocks(time: usize) -> impl DoubleEndedIterator<Item = (usize, usize, usize)> {
    (0..time.div_ceil(BLOCK)).map(move |block| {
        let first = block * BLOCK;
        let rows = BLOCK.min(time - first);
        (first, rows, first + rows)
    })
}

/// Output `[batch, time, n_head head_size]` and weights `[batch * n_head, time, time]` (after softmax, before dropout; 0 in the future).
pub fn forward(qkv: &[f32], sizes: Sizes, mask: Option<DropoutMask>) -> (Vec<f32>, Vec<f32>) {
    let Sizes { batch, time, heads: Heads { n_head, head_size, .. } } = sizes;
    let mut y = unfilled(batch * time * n_head * head_size);
    let mut weights = unfilled(batch * n_head * time * time);
    let output = Shared(y.as_mut_ptr());
    weights.par_chunks_mut(time * time).enumerate().for_each_init(Vec::new, |dropped, (task, weights)| {
        let [q, k, v] = sizes.parts(qkv.as_ptr(), task);
        let y = sizes.head(output.get(), task);
        for (first, rows, seen) in blocks(time) {
            let block = &mut weights[first * time..(first + rows) * time];
            let scores = View::rows(block, time);
            // SAFETY: views inside the tensors whose sizes `sizes` states.
            unsafe { product([rows, seen, head_size], scores, false, q.skip_rows(first), k.transpose(), Threads::One) };
            softmax_rows(block, time, first, sizes.scale());
            let used = with_dropout(block, dropped, mask, task, first, time);
            // SAFETY: as above.
            unsafe {
                product([rows, head_size, seen], y.skip_rows(first), false, View::rows(used, time), v, Threads::One)
            };
        }
    });
    (y, weights)
}

/// Gradient with respect to `qkv`, given the forward's weights and the gradient of its output.
///
/// A head of keys and values belongs to one thread, which takes the heads of queries that it serves one after another: their
/// gradients are then always added in the same order.
pub fn backward(qkv: &[f32], weights: &[f32], dy: &[f32], sizes: Sizes, mask: Option<DropoutMask>) -> Vec<f32> {
    let Sizes { batch, time, heads } = sizes;
    let mut dqkv = unfilled(qkv.len());
    let output = Shared(dqkv.as_mut_ptr());
    (0..batch * heads.n_kv_head).into_par_iter().for_each_init(Scratch::default, |scratch, of_keys| {
        for served in 0..heads.served() {
            let task = of_keys * heads.served() + served;
            let step = Task {
                parts: sizes.parts(qkv.as_ptr(), task),
                gradients: sizes.parts(output.get(), task),
                dy: sizes.head(dy.as_ptr(), task),
                weights: &weights[task * time * time..][..time * time],
                number: task,
                adds: served > 0,
            };
            step.backward(sizes, mask, scratch);
        }
    });
    dqkv
}

/// What the backward of one task works on.
struct Task<'a> {
    parts: [View; 3],
    gradients: [View; 3],
    dy: View,
    weights: &'a [f32],
    number: usize,
    /// Whether the gradients of keys and values hold those of other heads of queries already.
    adds: bool,
}

/// Room to work in, one for each thread.
#[derive(Default)]
struct Scratch {
    ds: Vec<f32>,
    dropped: Vec<f32>,
}

impl Task<'_> {
    fn backward(&self, sizes: Sizes, mask: Option<DropoutMask>, scratch: &mut Scratch) {
        let Sizes { time, heads: Heads { head_size, .. }, .. } = sizes;
        let ([q, k, v], [dq, dk, dv], dy) = (self.parts, self.gradients, self.dy);
        let Scratch { ds, dropped } = scratch;
        ds.resize(BLOCK.min(time) * time, 0.0);
        let one = Threads::One;
        // The last block sees every key: it writes dk and dv, and the others add to them.
        for (first, rows, seen) in blocks(time).rev() {
            let adds = self.adds || seen < time;
            let weights = &self.weights[first * time..][..rows * time];
            let used = with_dropout(weights, dropped, mask, self.number, first, time);
            let ds = &mut ds[..rows * time];
            let (ds_view, used) = (View::rows(ds, time), View::rows(used, time));
            // SAFETY: views inside the tensors whose sizes `sizes` states.
            unsafe {
                // dV = Pᵀ dY and dP = dY Vᵀ
                product([seen, head_size, rows], dv, adds, used.transpose(), dy.skip_rows(first), one);
                product([rows, seen, head_size], ds_view, false, dy.skip_rows(first), v.transpose(), one);
            }
            if let Some(mask) = mask {
                for (row, ds) in ds.chunks_exact_mut(time).enumerate() {
                    apply_in_place(ds, mask, place(self.number, first + row, time));
                }
            }
            softmax_backward_rows(weights, ds, time, first, sizes.scale());
            let ds = View::rows(ds, time);
            // SAFETY: as above.
            unsafe {
                // dQ = dS K and dK = dSᵀ Q
                product([rows, head_size, seen], dq.skip_rows(first), false, ds, k, one);
                product([seen, head_size, rows], dk, adds, ds.transpose(), q.skip_rows(first), one);
            }
        }
    }
}

/// Where a row of attention weights stands among all of them.
fn place(task: usize, row: usize, time: usize) -> u64 {
    ((task * time + row) * time) as u64
}

/// The block of weights after dropout, in `dropped`; the block itself where nothing is dropped.
fn with_dropout<'a>(
    block: &'a [f32],
    dropped: &'a mut Vec<f32>,
    mask: Option<DropoutMask>,
    task: usize,
    first: usize,
    time: usize,
) -> &'a [f32] {
    let Some(mask) = mask else { return block };
    dropped.clear();
    dropped.extend_from_slice(block);
    apply_in_place(dropped, mask, place(task, first, time));
    dropped
}

simd_versions! {
    // Softmax of `scale * row`, for rows of `width` scores of which row r sees the first `first + r + 1`; the rest becomes 0.
    pub fn softmax_rows(scores: &mut [f32], width: usize, first: usize, scale: f32) {
        for (r, row) in scores.chunks_exact_mut(width).enumerate() {
            let (seen, future) = row.split_at_mut(first + r + 1);
            softmax(seen, scale);
            future.fill(0.0);
        }
    }

    // dS = scale * P * (dP - sum(P * dP)), in place of dP; the future becomes 0.
    fn softmax_backward_rows(weights: &[f32], dp: &mut [f32], width: usize, first: usize, scale: f32) {
        for (r, (p, dp)) in weights.chunks_exact(width).zip(dp.chunks_exact_mut(width)).enumerate() {
            let (dp, future) = dp.split_at_mut(first + r + 1);
            let p = &p[..dp.len()];
            let dot = { let dp = &dp[..]; simd::sum(p.len(), |i| p[i] * dp[i]) };
            for (dp, p) in dp.iter_mut().zip(p) {
                *dp = scale * p * (*dp - dot);
            }
            future.fill(0.0);
        }
    }
}

/// Softmax of `scale * row`, in place.
#[inline(always)]
pub fn softmax(row: &mut [f32], scale: f32) {
    let largest = simd::max(row);
    for x in row.iter_mut() {
        *x = simd::exp((*x - largest) * scale);
    }
    let total = simd::sum(row.len(), |i| row[i]);
    for x in row.iter_mut() {
        *x /= total;
    }
}
