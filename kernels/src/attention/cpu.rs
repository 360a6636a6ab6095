//! Causal attention in blocks of scores, after FlashAttention ([Dao et al.
//! 2022](https://arxiv.org/abs/2205.14135), algorithms 1 and 4): only one number per row of scores
//! is kept, so memory is linear in the context.
//!
//! A block is some rows of queries by some keys: its scores stay in the cache of the core that
//! computes them. Blocks in the future are skipped, nearly half of the work. The forward keeps the
//! log-sum-exp of each row (the logarithm of the softmax's denominator), from which the backward
//! recomputes the weights, block by block.

use burn::tensor::{DType, bf16};

use super::CausalAttention;
use crate::gemm::{Element, Matrix, MatrixMut, Threads, product};
use crate::{DropoutMask, Heads, halves::narrow_bf16, halves::widened};
use crate::{cpu::prelude::*, cpu::shared::Shared, dropout::mask::mask_in_place};

impl Operation<Flex, 1> for CausalAttention {
    /// `qkv`, the output, and the log-sum-exp of each row of scores.
    type Kept = [FlexTensor; 3];

    fn forward(&self, [qkv]: [FlexTensor; 1]) -> ([FlexTensor; 1], Self::Kept) {
        let layout = Layout::new(&qkv, self);
        let (y, log_sums) = if is_bf16(&qkv) {
            forward::<bf16>(values(&contiguous(qkv.clone())), layout)
        } else {
            forward::<f32>(values(&float32(qkv.clone())), layout)
        };
        let y = tensor_of_type(y, with_width(&qkv, self.heads.query_width()), qkv.dtype());
        let log_sums = tensor_of(log_sums, [layout.batch * self.heads.n_head, layout.time]);
        ([y.clone()], [qkv, y, log_sums])
    }

    fn backward(&self, [qkv, y, log_sums]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 1] {
        let (dtype, shape, layout) = (qkv.dtype(), qkv.layout().shape().clone(), Layout::new(&qkv, self));
        let (given, log_sums) = ([qkv, y, dy], values(&log_sums));
        let dqkv = if dtype == DType::BF16 {
            backward::<bf16>(given.map(bfloat16).each_ref().map(values), log_sums, layout)
        } else {
            backward::<f32>(given.map(float32).each_ref().map(values), log_sums, layout)
        };
        [tensor_of_type(dqkv, shape, dtype)]
    }
}

/// Rows of queries in a block: few, because half of the square on the diagonal lies in the future.
pub const QUERIES: usize = 32;

/// Keys in a block: with [`QUERIES`] rows, 64 KiB of scores.
const KEYS: usize = 512;

/// Layout of the heads of one attention, and its dropout. A task is one query head of one row of
/// the batch.
#[derive(Clone, Copy)]
struct Layout {
    /// Rows of the batch.
    batch: usize,
    /// Positions.
    time: usize,
    /// How the width is divided into heads.
    heads: Heads,
    /// Dropout of the weights, if any.
    dropout: Option<DropoutMask>,
}

impl Layout {
    fn new(qkv: &FlexTensor, CausalAttention { heads, dropout }: &CausalAttention) -> Self {
        let [batch, time, _] = dims(qkv);
        Self { batch, time, heads: *heads, dropout: *dropout }
    }

    /// Offsets of the task's queries, keys and values in `qkv` `[batch, time, (n_head + 2
    /// n_kv_head) head_size]`.
    fn parts_at(&self, task: usize) -> [usize; 3] {
        let heads = self.heads;
        let (row, head) = (task / heads.n_head, task % heads.n_head);
        let key = heads.query_width() + heads.serving(head) * heads.head_size;
        let first = row * self.time * heads.width();
        [head * heads.head_size, key, key + heads.kv_width()].map(|place| first + place)
    }

    /// The task's queries, keys and values.
    fn parts<'a, T>(&self, qkv: &'a [T], task: usize) -> [Matrix<'a, T>; 3] {
        self.parts_at(task).map(|first| Matrix::strided(&qkv[first..], self.size(), self.heads.width()))
    }

    /// Offset of the task's head in a tensor `[batch, time, n_head head_size]`.
    fn head_at(&self, task: usize) -> usize {
        let (row, head) = (task / self.heads.n_head, task % self.heads.n_head);
        row * self.time * self.heads.query_width() + head * self.heads.head_size
    }

    /// The task's head.
    fn head<'a, T>(&self, y: &'a [T], task: usize) -> Matrix<'a, T> {
        Matrix::strided(&y[self.head_at(task)..], self.size(), self.heads.query_width())
    }

    /// Rows and columns of a head.
    fn size(&self) -> [usize; 2] {
        [self.time, self.heads.head_size]
    }

    /// Applies dropout, if any, to the weights of a task's block, or to their gradients. The mask
    /// depends on the index among all weights of all tasks.
    fn apply_dropout(&self, weights: &mut [f32], block: Block, task: usize) {
        let Some(mask) = self.dropout else { return };
        for (row, weights) in weights.chunks_exact_mut(block.keys).enumerate() {
            let place = (task * self.time + block.first + row) * self.time + block.first_key;
            mask_in_place(weights, mask, place as u64);
        }
    }
}

/// A block of scores: some rows of queries by some keys.
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
    /// The blocks of a range of rows, in the order of keys, up to the last key that any row sees.
    fn of_rows(first: usize, rows: usize) -> impl Iterator<Item = Self> {
        let seen = first + rows;
        (0..seen).step_by(KEYS).map(move |first_key| Self { first, rows, first_key, keys: KEYS.min(seen - first_key) })
    }

    /// The blocks of the keys from `first_key` on, last rows first: those see every key.
    fn of_keys(first_key: usize, time: usize) -> impl Iterator<Item = Self> {
        let end = time.min(first_key + KEYS);
        (first_key..time).step_by(QUERIES).rev().map(move |first| {
            let rows = QUERIES.min(time - first);
            Self { first, rows, first_key, keys: end.min(first + rows) - first_key }
        })
    }

    /// Keys that the block's row `row` sees: those up to its own position.
    fn seen(self, row: usize) -> usize {
        self.keys.min(self.first + row + 1 - self.first_key)
    }
}

/// Online softmax of a block's rows: the largest score so far, and the sum of the exponentials
/// relative to it.
struct Running {
    largest: [f32; QUERIES],
    total: [f32; QUERIES],
    /// Factor by which the last block of keys rescaled the earlier sums.
    rescale: [f32; QUERIES],
}

/// The first `n` values of a buffer, which grows to the largest block; their contents are
/// arbitrary.
fn first_n<T: Clone + Default>(buffer: &mut Vec<T>, n: usize) -> &mut [T] {
    if buffer.len() < n {
        buffer.resize(n, T::default());
    }
    &mut buffer[..n]
}

/// Output `[batch, time, n_head head_size]`, and the log-sum-exp of each row of scores, `[batch *
/// n_head, time]`.
fn forward<T: Factor>(qkv: &[T], layout: Layout) -> (Vec<f32>, Vec<f32>) {
    let Layout { batch, time, heads, .. } = layout;
    let mut y = unfilled(batch * time * heads.query_width());
    let mut log_sums = unfilled(batch * heads.n_head * time);
    let output = Shared::new(&mut y);
    log_sums
        .par_chunks_mut(time)
        .enumerate()
        .flat_map(|(task, rows)| {
            rows.par_chunks_mut(QUERIES).enumerate().map(move |(block, rows)| (task, block * QUERIES, rows))
        })
        .for_each_init(Default::default, |scratch, (task, first, log_sums)| {
            let (at, width) = (layout.head_at(task) + first * heads.query_width(), heads.query_width());
            // SAFETY: only this task accesses these rows of this head.
            let y = unsafe { output.matrix(at, [log_sums.len(), heads.head_size], width) };
            forward_rows(layout.parts(qkv, task), y, task, first, log_sums, layout, scratch);
        });
    (y, log_sums)
}

/// Computes one block of rows of a task, from row `first` on, into `y`.
fn forward_rows<T: Factor>(
    [q, k, v]: [Matrix<T>; 3],
    mut y: MatrixMut,
    task: usize,
    first: usize,
    log_sums: &mut [f32],
    layout: Layout,
    (scores, factors): &mut (Vec<f32>, Vec<T>),
) {
    let one = Threads::One;
    let rows = log_sums.len();
    let q = q.rows(first, rows);
    let mut running = Running { largest: [f32::NEG_INFINITY; QUERIES], total: [0.0; QUERIES], rescale: [0.0; QUERIES] };
    for block in Block::of_rows(first, rows) {
        let scores = first_n(scores, rows * block.keys);
        let [k, v] = [k, v].map(|x| x.rows(block.first_key, block.keys));
        product(MatrixMut::new(scores, block.keys), false, q, k.transposed(), one);
        exponentials(scores, block, layout.heads.scale(), &mut running);
        layout.apply_dropout(scores, block, task);
        let adds = block.first_key > 0;
        if adds {
            (0..rows).for_each(|row| multiply(y.row(row), running.rescale[row]));
        }
        product(y.rows(0, rows), adds, Matrix::new(T::of(scores, factors), block.keys), v, one);
    }
    for (row, log_sum) in log_sums.iter_mut().enumerate() {
        let total = running.total[row];
        multiply(y.row(row), 1.0 / total);
        *log_sum = running.largest[row] + total.ln();
    }
}

/// Gradient with respect to `qkv`, given `qkv`, the forward's output and log-sum-exps, and the
/// gradient of the output.
///
/// Each key/value head belongs to one thread, which takes the query heads that it serves one after
/// another, so that their gradients are always added in the same order.
fn backward<T: Factor>([qkv, y, dy]: [&[T]; 3], log_sums: &[f32], layout: Layout) -> Vec<f32> {
    let Layout { batch, time, heads, .. } = layout;
    let mut dqkv = unfilled(qkv.len());
    let output = Shared::new(&mut dqkv);
    (0..batch * heads.n_kv_head).into_par_iter().for_each_init(Scratch::default, |scratch, of_keys| {
        for served in 0..heads.served() {
            let number = of_keys * heads.served() + served;
            // SAFETY: the key/value head is this thread's, and so are the query heads that it
            // serves.
            let gradients =
                layout.parts_at(number).map(|first| unsafe { output.matrix(first, layout.size(), heads.width()) });
            let (y, dy) = (layout.head(y, number), layout.head(dy, number));
            // The sum of P * dP over a row is dy . y, with dropout too: one number per row replaces
            // a pass over the scores.
            scratch.dots.clear();
            scratch.dots.extend((0..time).map(|row| T::dot(y.row(row), dy.row(row))));
            let log_sums = &log_sums[number * time..][..time];
            let mut task = Task { parts: layout.parts(qkv, number), gradients, dy, log_sums, number, adds: served > 0 };
            for first_key in (0..time).step_by(KEYS) {
                for block in Block::of_keys(first_key, time) {
                    task.backward(block, layout, scratch);
                }
            }
        }
    });
    dqkv
}

/// Inputs and outputs of one task's backward.
struct Task<'a, T> {
    parts: [Matrix<'a, T>; 3],
    gradients: [MatrixMut<'a>; 3],
    dy: Matrix<'a, T>,
    log_sums: &'a [f32],
    number: usize,
    /// Whether the gradients of keys and values already include those of other query heads.
    adds: bool,
}

/// Scratch buffers.
#[derive(Default)]
struct Scratch<T> {
    weights: Vec<f32>,
    dropped: Vec<f32>,
    ds: Vec<f32>,
    dots: Vec<f32>,
    factors: Vec<T>,
}

impl<T: Factor> Task<'_, T> {
    /// Adds the contribution of one block of scores to the gradients.
    fn backward(&mut self, block: Block, layout: Layout, scratch: &mut Scratch<T>) {
        let Block { first, rows, first_key, keys } = block;
        let one = Threads::One;
        let [q, dy] = [self.parts[0], self.dy].map(|x| x.rows(first, rows));
        let [k, v] = [self.parts[1], self.parts[2]].map(|x| x.rows(first_key, keys));
        let [dq, dk, dv] = &mut self.gradients;
        let (dq, dk, dv) = (dq.rows(first, rows), dk.rows(first_key, keys), dv.rows(first_key, keys));
        let Scratch { weights, dropped, ds, dots, factors } = scratch;
        let (weights, ds) = (first_n(weights, rows * keys), first_n(ds, rows * keys));
        // The last rows come first and see every key: they write dk and dv, and the others add to
        // them.
        let adds = self.adds || first + rows < layout.time;

        product(MatrixMut::new(weights, keys), false, q, k.transposed(), one);
        recompute_weights(weights, block, layout.heads.scale(), &self.log_sums[first..]);
        let used: &[f32] = if layout.dropout.is_some() {
            dropped.clear();
            dropped.extend_from_slice(weights);
            layout.apply_dropout(dropped, block, self.number);
            dropped
        } else {
            weights
        };
        // dV = Pᵀ dY and dP = dY Vᵀ
        product(dv, adds, Matrix::new(T::of(used, factors), keys).transposed(), dy, one);
        product(MatrixMut::new(ds, keys), false, dy, v.transposed(), one);
        layout.apply_dropout(ds, block, self.number);
        scores_backward(weights, ds, block, layout.heads.scale(), &dots[first..]);
        // dQ = dS K and dK = dSᵀ Q
        let ds = Matrix::new(T::of(ds, factors), keys);
        product(dq, first_key > 0, ds, k, one);
        product(dk, adds, ds.transposed(), q, one);
    }
}

/// The type of attention's factors: float32 or bfloat16. Scores, softmax, sums and gradients are
/// float32 either way; the softmax's output is rounded before the next product, as in
/// FlashAttention.
trait Factor: Element + Default {
    /// `weights` as factors, rounded into `buffer` if necessary.
    fn of<'a>(weights: &'a [f32], buffer: &'a mut Vec<Self>) -> &'a [Self];

    /// Dot product of two rows.
    fn dot(x: &[Self], y: &[Self]) -> f32;
}

impl Factor for f32 {
    fn of<'a>(weights: &'a [f32], _room: &'a mut Vec<f32>) -> &'a [f32] {
        weights
    }

    fn dot(x: &[f32], y: &[f32]) -> f32 {
        dot(x, y)
    }
}

impl Factor for bf16 {
    fn of<'a>(weights: &'a [f32], buffer: &'a mut Vec<bf16>) -> &'a [bf16] {
        let rounded = first_n(buffer, weights.len());
        narrow_bf16(weights, rounded);
        rounded
    }

    fn dot(x: &[bf16], y: &[bf16]) -> f32 {
        dot_bf16(x, y)
    }
}

simd_versions! {
    // Replaces scores by `exp(scale * score - largest so far)`, and the future by 0.
    fn exponentials(scores: &mut [f32], block: Block, scale: f32, running: &mut Running) {
        for (r, row) in scores.chunks_exact_mut(block.keys).enumerate() {
            let (seen, future) = row.split_at_mut(block.seen(r));
            let before = running.largest[r];
            let largest = before.max(simd::max(seen) * scale);
            for x in seen.iter_mut() {
                *x = simd::exp(x.mul_add(scale, -largest));
            }
            let rescale = simd::exp(before - largest);
            running.total[r] = running.total[r] * rescale + simd::sum([seen], |[x]| x);
            (running.largest[r], running.rescale[r]) = (largest, rescale);
            future.fill(0.0);
        }
    }

    // Replaces scores by the softmax's weights, and the future by 0.
    fn recompute_weights(scores: &mut [f32], block: Block, scale: f32, log_sums: &[f32]) {
        for (r, (row, log_sum)) in scores.chunks_exact_mut(block.keys).zip(log_sums).enumerate() {
            let (seen, future) = row.split_at_mut(block.seen(r));
            for x in seen.iter_mut() {
                *x = simd::exp(x.mul_add(scale, -log_sum));
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

    fn dot(x: &[f32], y: &[f32]) -> f32 {
        simd::sum([x, y], |[x, y]| x * y)
    }

    fn dot_bf16(x: &[bf16], y: &[bf16]) -> f32 {
        simd::sum([x, y], |[x, y]| widened(x) * widened(y))
    }
}
