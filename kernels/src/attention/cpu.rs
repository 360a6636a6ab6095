//! Causal attention in blocks of scores, of which nothing is kept but one number a row
//! ([Dao et al. 2022](https://arxiv.org/abs/2205.14135), algorithms 1 and 4): memory is linear in the context.
//!
//! A block is some rows of queries against some keys: its scores stay in the cache of the core that computes them. Blocks that
//! lie in the future are never touched, which is nearly half of the work. The forward keeps the logarithm of each row's softmax
//! denominator, from which the backward computes the weights again, block by block.

use super::CausalAttention;
use crate::cpu::tensor::{bfloat16, contiguous, dims, float32, is_bf16, new, stored, values, values_bf16, with_width};
use crate::operation::Operation;
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::factor::Factor;
use crate::cpu::tensor::unfilled;
use crate::dropout::cpu::apply_in_place;
use crate::gemm::{Threads, View, product};
use crate::simd_versions;
use crate::{DropoutMask, Heads, simd};

impl Operation<Flex, 1> for CausalAttention {
    /// `qkv`, the output, and the logarithms of the softmax's denominators.
    type Kept = [FlexTensor; 3];

    fn forward(&self, [qkv]: [FlexTensor; 1]) -> ([FlexTensor; 1], Self::Kept) {
        let (kept, dtype) = (qkv.clone(), qkv.dtype());
        let sizes = Sizes::new(&qkv, self.heads);
        let shape = with_width(&qkv, self.heads.query_width());
        let (y, denominators) = if is_bf16(&qkv) {
            forward(values_bf16(&contiguous(qkv)), sizes, self.dropout)
        } else {
            forward(values(&float32(qkv)), sizes, self.dropout)
        };
        let y = stored(y, shape, dtype);
        let denominators = new(denominators, [sizes.batch * self.heads.n_head, sizes.time]);
        ([y.clone()], [kept, y, denominators])
    }

    fn backward(&self, [qkv, y, denominators]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 1] {
        let (dtype, shape) = (qkv.dtype(), qkv.layout().shape().clone());
        let (sizes, denominators) = (Sizes::new(&qkv, self.heads), values(&denominators));
        let dqkv = if is_bf16(&qkv) {
            let [qkv, y, dy] = [qkv, y, dy].map(bfloat16);
            let [qkv, y, dy] = [&qkv, &y, &dy].map(values_bf16);
            backward(Given { qkv, y, denominators, dy }, sizes, self.dropout)
        } else {
            let [qkv, y, dy] = [qkv, y, dy].map(float32);
            let [qkv, y, dy] = [&qkv, &y, &dy].map(values);
            backward(Given { qkv, y, denominators, dy }, sizes, self.dropout)
        };
        [stored(dqkv, shape, dtype)]
    }
}

/// Rows of queries in a block: few, since half of the last square of a block of rows lies in the future.
const QUERIES: usize = 32;

/// Keys in a block: with the rows above, 64 KiB of scores.
const KEYS: usize = 512;

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
    fn new(qkv: &FlexTensor, heads: Heads) -> Self {
        let [batch, time, _] = dims(qkv);
        Self { batch, time, heads }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.heads.head_size as f32).sqrt()
    }

    /// The task's queries, keys and values inside `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]`.
    fn parts<T>(&self, qkv: *const T, task: usize) -> [View<T>; 3] {
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
    fn head<T>(&self, y: *const T, task: usize) -> View<T> {
        let (row, head) = (task / self.heads.n_head, task % self.heads.n_head);
        let width = self.heads.query_width();
        // SAFETY: inside the tensor by construction.
        let start = unsafe { y.add(row * self.time * width + head * self.heads.head_size) };
        View { start, row: width, column: 1 }
    }
}

impl<T> View<T> {
    /// Rows and columns exchanged.
    pub fn transpose(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    /// The matrix without its first `rows` rows.
    pub fn skip_rows(self, rows: usize) -> Self {
        // SAFETY: callers stay inside the matrix.
        Self { start: unsafe { self.start.add(rows * self.row) }, ..self }
    }

    /// The first `n` values of row `row`, which stand side by side.
    ///
    /// # Safety
    /// The row must lie inside the matrix, and nobody may be writing it.
    unsafe fn row<'a>(self, row: usize, n: usize) -> &'a [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(row * self.row), n) }
    }

    /// As [`Self::row`], to write.
    ///
    /// # Safety
    /// The row must lie inside a matrix that may be written, and nobody else may be reading or writing it.
    unsafe fn row_mut<'a>(self, row: usize, n: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast_mut().add(row * self.row), n) }
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
    (0..time.div_ceil(QUERIES)).map(move |block| {
        let first = block * QUERIES;
        let rows = QUERIES.min(time - first);
        (first, rows, first + rows)
    })
}

/// Rows of queries against some keys.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The first row.
    first: usize,
    rows: usize,
    /// The first key, at or before the first row.
    first_key: usize,
    keys: usize,
}

impl Block {
    /// The blocks of a range of rows, key after key, up to the last key that any of them sees.
    fn of_rows(first: usize, rows: usize) -> impl Iterator<Item = Self> {
        let seen = first + rows;
        (0..seen).step_by(KEYS).map(move |first_key| Self { first, rows, first_key, keys: KEYS.min(seen - first_key) })
    }

    /// The blocks of the keys from `first_key` on, the last rows first: those see every key.
    fn of_keys(first_key: usize, time: usize) -> impl Iterator<Item = Self> {
        let end = time.min(first_key + KEYS);
        (first_key..time).step_by(QUERIES).rev().map(move |first| {
            let rows = QUERIES.min(time - first);
            Self { first, rows, first_key, keys: end.min(first + rows) - first_key }
        })
    }

    fn scores(self) -> usize {
        self.rows * self.keys
    }

    /// Keys that the block's row `row` sees: those up to its own position.
    fn seen(self, row: usize) -> usize {
        self.keys.min(self.first + row + 1 - self.first_key)
    }

    /// Drops from the block's weights, or their gradients. The mask goes by the place among all weights of all tasks.
    fn drop(self, weights: &mut [f32], mask: DropoutMask, task: usize, time: usize) {
        for (row, weights) in weights.chunks_exact_mut(self.keys).enumerate() {
            let place = (task * time + self.first + row) * time + self.first_key;
            apply_in_place(weights, mask, place as u64);
        }
    }
}

/// What the rows of a block have seen so far: the largest score, and the sum of the exponentials of all, less that one.
struct Running {
    largest: [f32; QUERIES],
    total: [f32; QUERIES],
    /// What the last block of keys made of the sums before it.
    shrunk: [f32; QUERIES],
}

/// The first `n` values of a buffer that is as long as the largest block so far: what stood there is of no use to anyone.
fn room(buffer: &mut Vec<f32>, n: usize) -> &mut [f32] {
    if buffer.len() < n {
        buffer.resize(n, 0.0);
    }
    &mut buffer[..n]
}

/// Output `[batch, time, n_head head_size]`, and the logarithm of the softmax's denominator of each row of scores,
/// `[batch * n_head, time]`.
fn forward<T: Factor>(qkv: &[T], sizes: Sizes, mask: Option<DropoutMask>) -> (Vec<f32>, Vec<f32>) {
    let Sizes { batch, time, heads } = sizes;
    let mut y = unfilled(batch * time * heads.query_width());
    let mut denominators = unfilled(batch * heads.n_head * time);
    let output = Shared(y.as_mut_ptr());
    denominators
        .par_chunks_mut(time)
        .enumerate()
        .flat_map(|(task, rows)| {
            rows.par_chunks_mut(QUERIES).enumerate().map(move |(block, rows)| (task, block * QUERIES, rows))
        })
        .for_each_init(Default::default, |scratch, (task, first, denominators)| {
            let parts = sizes.parts(qkv.as_ptr(), task);
            let y = sizes.head(output.get(), task).skip_rows(first);
            forward_rows(parts, y, task, first, denominators, sizes, mask, scratch);
        });
    (y, denominators)
}

/// One block of rows of one task, from its `first` row on; `y` begins with that row.
#[allow(clippy::too_many_arguments)]
fn forward_rows<T: Factor>(
    [q, k, v]: [View<T>; 3],
    y: View,
    task: usize,
    first: usize,
    denominators: &mut [f32],
    sizes: Sizes,
    mask: Option<DropoutMask>,
    (scores, factors): &mut (Vec<f32>, Vec<T>),
) {
    let (head_size, one) = (sizes.heads.head_size, Threads::One);
    let rows = denominators.len();
    let mut running = Running { largest: [f32::NEG_INFINITY; QUERIES], total: [0.0; QUERIES], shrunk: [0.0; QUERIES] };
    for block in Block::of_rows(first, rows) {
        let scores = room(scores, block.scores());
        let view = View::rows(scores, block.keys);
        let (k, v) = (k.skip_rows(block.first_key), v.skip_rows(block.first_key));
        // SAFETY: views inside the tensors whose sizes `sizes` states.
        unsafe { product([rows, block.keys, head_size], view, false, q.skip_rows(first), k.transpose(), one) };
        exponentials(scores, block, sizes.scale(), &mut running);
        if let Some(mask) = mask {
            block.drop(scores, mask, task, sizes.time);
        }
        let adds = block.first_key > 0;
        if adds {
            // SAFETY: as above; the rows of this block are this thread's.
            (0..rows).for_each(|row| multiply(unsafe { y.row_mut(row, head_size) }, running.shrunk[row]));
        }
        // SAFETY: as above.
        let weights = View::rows(T::of(scores, factors), block.keys);
        unsafe { product([rows, head_size, block.keys], y, adds, weights, v, one) };
    }
    for (row, denominator) in denominators.iter_mut().enumerate() {
        let total = running.total[row];
        // SAFETY: as above.
        multiply(unsafe { y.row_mut(row, head_size) }, 1.0 / total);
        *denominator = running.largest[row] + total.ln();
    }
}

/// What the backward is given beside the sizes: the forward's input, its output and its denominators, and the gradient of the
/// output.
#[derive(Clone, Copy)]
pub struct Given<'a, T> {
    /// `[batch, time, (n_head + 2 n_kv_head) head_size]`.
    pub qkv: &'a [T],
    /// `[batch, time, n_head head_size]`.
    pub y: &'a [T],
    /// `[batch * n_head, time]`.
    pub denominators: &'a [f32],
    /// As `y`.
    pub dy: &'a [T],
}

/// Gradient with respect to `qkv`.
///
/// A head of keys and values belongs to one thread, which takes the heads of queries that it serves one after another: their
/// gradients are then always added in the same order.
fn backward<T: Factor>(given: Given<T>, sizes: Sizes, mask: Option<DropoutMask>) -> Vec<f32> {
    let Sizes { batch, time, heads } = sizes;
    let mut dqkv = unfilled(given.qkv.len());
    let output = Shared(dqkv.as_mut_ptr());
    (0..batch * heads.n_kv_head).into_par_iter().for_each_init(Default::default, |scratch, of_keys| {
        for served in 0..heads.served() {
            let task = of_keys * heads.served() + served;
            let step = Task {
                parts: sizes.parts(given.qkv.as_ptr(), task),
                gradients: sizes.parts(output.get().cast_const(), task),
                y: sizes.head(given.y.as_ptr(), task),
                dy: sizes.head(given.dy.as_ptr(), task),
                denominators: &given.denominators[task * time..][..time],
                number: task,
                adds: served > 0,
            };
            step.backward(sizes, mask, scratch);
        }
    });
    dqkv
}

/// What the backward of one task works on.
struct Task<'a, T> {
    parts: [View<T>; 3],
    gradients: [View; 3],
    y: View<T>,
    dy: View<T>,
    denominators: &'a [f32],
    number: usize,
    /// Whether the gradients of keys and values hold those of other heads of queries already.
    adds: bool,
}

/// Room to work in.
#[derive(Default)]
struct Scratch<T> {
    weights: Vec<f32>,
    dropped: Vec<f32>,
    ds: Vec<f32>,
    dots: Vec<f32>,
    factors: Vec<T>,
}

impl<T: Factor> Task<'_, T> {
    fn backward(&self, sizes: Sizes, mask: Option<DropoutMask>, scratch: &mut Scratch<T>) {
        let Sizes { time, heads: Heads { head_size, .. }, .. } = sizes;
        // The sum of P * dP over a row is dy . y, with dropout too: one number a row takes the place of a pass over the scores.
        scratch.dots.clear();
        // SAFETY: rows of this task's heads inside `y` and `dy`.
        scratch
            .dots
            .extend((0..time).map(|row| unsafe { T::dot(self.y.row(row, head_size), self.dy.row(row, head_size)) }));
        for first_key in (0..time).step_by(KEYS) {
            for block in Block::of_keys(first_key, time) {
                self.block(block, sizes, mask, scratch);
            }
        }
    }

    /// What one block of scores adds to the gradients.
    fn block(&self, block: Block, sizes: Sizes, mask: Option<DropoutMask>, scratch: &mut Scratch<T>) {
        let Block { first, rows, first_key, keys } = block;
        let (size, one) = (sizes.heads.head_size, Threads::One);
        let [q, dy] = [self.parts[0], self.dy].map(|x| x.skip_rows(first));
        let [k, v] = [self.parts[1], self.parts[2]].map(|x| x.skip_rows(first_key));
        let dq = self.gradients[0].skip_rows(first);
        let [dk, dv] = [self.gradients[1], self.gradients[2]].map(|x| x.skip_rows(first_key));
        let Scratch { weights, dropped, ds, dots, factors } = scratch;
        let (weights, ds) = (room(weights, block.scores()), room(ds, block.scores()));
        // The last rows come first and see every key: they write dk and dv, and the others add to them.
        let adds = self.adds || first + rows < sizes.time;

        // SAFETY: views inside the tensors whose sizes `sizes` states.
        unsafe { product([rows, keys, size], View::rows(weights, keys), false, q, k.transpose(), one) };
        weights_again(weights, block, sizes.scale(), &self.denominators[first..]);
        let used = match mask {
            None => &*weights,
            Some(mask) => {
                dropped.clear();
                dropped.extend_from_slice(weights);
                block.drop(dropped, mask, self.number, sizes.time);
                dropped
            }
        };
        // SAFETY: as above.
        unsafe {
            // dV = Pᵀ dY and dP = dY Vᵀ
            product([keys, size, rows], dv, adds, View::rows(T::of(used, factors), keys).transpose(), dy, one);
            product([rows, keys, size], View::rows(ds, keys), false, dy, v.transpose(), one);
        }
        if let Some(mask) = mask {
            block.drop(ds, mask, self.number, sizes.time);
        }
        scores_backward(weights, ds, block, sizes.scale(), &dots[first..]);
        let ds = View::rows(T::of(ds, factors), keys);
        // SAFETY: as above.
        unsafe {
            // dQ = dS K and dK = dSᵀ Q
            product([rows, size, keys], dq, first_key > 0, ds, k, one);
            product([keys, size, rows], dk, adds, ds.transpose(), q, one);
        }
    }
}

simd_versions! {
    // Scores become the exponentials of `scale * score` less the largest so far; the future becomes 0.
    fn exponentials(scores: &mut [f32], block: Block, scale: f32, running: &mut Running) {
        for (r, row) in scores.chunks_exact_mut(block.keys).enumerate() {
            let (seen, future) = row.split_at_mut(block.seen(r));
            let before = running.largest[r];
            let largest = before.max(simd::max(seen) * scale);
            for x in seen.iter_mut() {
                *x = simd::exp(x.mul_add(scale, -largest));
            }
            let shrunk = simd::exp(before - largest);
            running.total[r] = running.total[r] * shrunk + simd::sum([seen], |[x]| x);
            (running.largest[r], running.shrunk[r]) = (largest, shrunk);
            future.fill(0.0);
        }
    }

    // Scores become the softmax's weights; the future becomes 0.
    fn weights_again(scores: &mut [f32], block: Block, scale: f32, denominators: &[f32]) {
        for (r, (row, denominator)) in scores.chunks_exact_mut(block.keys).zip(denominators).enumerate() {
            let (seen, future) = row.split_at_mut(block.seen(r));
            for x in seen.iter_mut() {
                *x = simd::exp(x.mul_add(scale, -denominator));
            }
            future.fill(0.0);
        }
    }

    // dS = scale * P * (dP - sum(P * dP)), in place of dP; the future becomes 0.
    fn scores_backward(weights: &[f32], dp: &mut [f32], block: Block, scale: f32, dots: &[f32]) {
        let rows = weights.chunks_exact(block.keys).zip(dp.chunks_exact_mut(block.keys)).zip(dots);
        for (r, ((p, dp), dot)) in rows.enumerate() {
            let (dp, future) = dp.split_at_mut(block.seen(r));
            for (dp, p) in dp.iter_mut().zip(p) {
                *dp = scale * p * (*dp - dot);
            }
            future.fill(0.0);
        }
    }

    fn multiply(row: &mut [f32], factor: f32) {
        for x in row {
            *x *= factor;
        }
    }

    // Softmax of `scale * row`, for rows of `width` scores of which row r sees the first `first + r + 1`; the rest becomes 0.
    pub fn softmax_rows(scores: &mut [f32], width: usize, first: usize, scale: f32) {
        for (r, row) in scores.chunks_exact_mut(width).enumerate() {
            let (seen, future) = row.split_at_mut(first + r + 1);
            softmax(seen, scale);
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
    let total = simd::sum([row], |[x]| x);
    for x in row.iter_mut() {
        *x /= total;
    }
}
