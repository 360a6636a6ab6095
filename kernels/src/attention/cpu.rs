//! Causal attention in blocks of scores, of which nothing is kept but one number a row ([Dao et al.
//! 2022](https://arxiv.org/abs/2205.14135), algorithms 1 and 4): memory is linear in the context.
//!
//! A block is some rows of queries against some keys: its scores stay in the cache of the core that
//! computes them. Blocks that lie in the future are never touched, which is nearly half of the
//! work. The forward keeps the logarithm of each row's softmax denominator, from which the backward
//! computes the weights again, block by block.

use burn::tensor::{DType, bf16};

use super::CausalAttention;
use crate::gemm::{Element, Matrix, MatrixMut, Threads, product};
use crate::{DropoutMask, Heads, halves::narrow_bf16, halves::widened};
use crate::{cpu::prelude::*, cpu::shared::Shared, dropout::mask::mask_in_place};

impl Operation<Flex, 1> for CausalAttention {
    /// `qkv`, the output, and the logarithms of the softmax's denominators.
    type Kept = [FlexTensor; 3];

    fn forward(&self, [qkv]: [FlexTensor; 1]) -> ([FlexTensor; 1], Self::Kept) {
        let layout = Layout::new(&qkv, self);
        let (y, denominators) = if is_bf16(&qkv) {
            forward::<bf16>(values(&contiguous(qkv.clone())), layout)
        } else {
            forward::<f32>(values(&float32(qkv.clone())), layout)
        };
        let y = stored(y, with_width(&qkv, self.heads.query_width()), qkv.dtype());
        let denominators = new(denominators, [layout.batch * self.heads.n_head, layout.time]);
        ([y.clone()], [qkv, y, denominators])
    }

    fn backward(&self, [qkv, y, denominators]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 1] {
        let (dtype, shape, layout) = (qkv.dtype(), qkv.layout().shape().clone(), Layout::new(&qkv, self));
        let (given, denominators) = ([qkv, y, dy], values(&denominators));
        let dqkv = if dtype == DType::BF16 {
            backward::<bf16>(given.map(bfloat16).each_ref().map(values), denominators, layout)
        } else {
            backward::<f32>(given.map(float32).each_ref().map(values), denominators, layout)
        };
        [stored(dqkv, shape, dtype)]
    }
}

/// Rows of queries in a block: few, since half of the last square of a block of rows lies in the
/// future.
pub const QUERIES: usize = 32;

/// Keys in a block: with the rows above, 64 KiB of scores.
const KEYS: usize = 512;

/// Where the heads of one attention lie, and what drops their weights. A task is a head of queries
/// of one row of the batch.
#[derive(Clone, Copy)]
struct Layout {
    /// Rows of the batch.
    batch: usize,
    /// Positions.
    time: usize,
    /// How the width is divided.
    heads: Heads,
    /// What drops weights, where anything does.
    dropout: Option<DropoutMask>,
}

impl Layout {
    fn new(qkv: &FlexTensor, CausalAttention { heads, dropout }: &CausalAttention) -> Self {
        let [batch, time, _] = dims(qkv);
        Self { batch, time, heads: *heads, dropout: *dropout }
    }

    /// Where the task's queries, keys and values begin inside `qkv` `[batch, time, (n_head + 2
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

    /// Where the task's head begins inside a tensor `[batch, time, n_head head_size]`.
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

    /// Drops from the weights of a task's block, or their gradients, where there is dropout. The
    /// mask goes by the place among all weights of all tasks.
    fn apply_dropout(&self, weights: &mut [f32], block: Block, task: usize) {
        let Some(mask) = self.dropout else { return };
        for (row, weights) in weights.chunks_exact_mut(block.keys).enumerate() {
            let place = (task * self.time + block.first + row) * self.time + block.first_key;
            mask_in_place(weights, mask, place as u64);
        }
    }
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

    /// Keys that the block's row `row` sees: those up to its own position.
    fn seen(self, row: usize) -> usize {
        self.keys.min(self.first + row + 1 - self.first_key)
    }
}

/// What the rows of a block have seen so far: the largest score, and the sum of the exponentials of
/// all, less that one.
struct Running {
    largest: [f32; QUERIES],
    total: [f32; QUERIES],
    /// What the last block of keys made of the sums before it.
    shrunk: [f32; QUERIES],
}

/// The first `n` values of a buffer that is as long as the largest block so far: what stood there
/// is of no use to anyone.
fn room<T: Clone + Default>(buffer: &mut Vec<T>, n: usize) -> &mut [T] {
    if buffer.len() < n {
        buffer.resize(n, T::default());
    }
    &mut buffer[..n]
}

/// Output `[batch, time, n_head head_size]`, and the logarithm of the softmax's denominator of each
/// row of scores, `[batch * n_head, time]`.
fn forward<T: Factor>(qkv: &[T], layout: Layout) -> (Vec<f32>, Vec<f32>) {
    let Layout { batch, time, heads, .. } = layout;
    let mut y = unfilled(batch * time * heads.query_width());
    let mut denominators = unfilled(batch * heads.n_head * time);
    let output = Shared::new(&mut y);
    denominators
        .par_chunks_mut(time)
        .enumerate()
        .flat_map(|(task, rows)| {
            rows.par_chunks_mut(QUERIES).enumerate().map(move |(block, rows)| (task, block * QUERIES, rows))
        })
        .for_each_init(Default::default, |scratch, (task, first, denominators)| {
            let (at, width) = (layout.head_at(task) + first * heads.query_width(), heads.query_width());
            // SAFETY: these rows of this head are this task's.
            let y = unsafe { output.matrix(at, [denominators.len(), heads.head_size], width) };
            forward_rows(layout.parts(qkv, task), y, task, first, denominators, layout, scratch);
        });
    (y, denominators)
}

/// One block of rows of one task, from its `first` row on, written to `y`.
fn forward_rows<T: Factor>(
    [q, k, v]: [Matrix<T>; 3],
    mut y: MatrixMut,
    task: usize,
    first: usize,
    denominators: &mut [f32],
    layout: Layout,
    (scores, factors): &mut (Vec<f32>, Vec<T>),
) {
    let one = Threads::One;
    let rows = denominators.len();
    let q = q.rows(first, rows);
    let mut running = Running { largest: [f32::NEG_INFINITY; QUERIES], total: [0.0; QUERIES], shrunk: [0.0; QUERIES] };
    for block in Block::of_rows(first, rows) {
        let scores = room(scores, rows * block.keys);
        let [k, v] = [k, v].map(|x| x.rows(block.first_key, block.keys));
        product(MatrixMut::new(scores, block.keys), false, q, k.transposed(), one);
        exponentials(scores, block, layout.heads.scale(), &mut running);
        layout.apply_dropout(scores, block, task);
        let adds = block.first_key > 0;
        if adds {
            (0..rows).for_each(|row| multiply(y.row(row), running.shrunk[row]));
        }
        product(y.rows(0, rows), adds, Matrix::new(T::of(scores, factors), block.keys), v, one);
    }
    for (row, denominator) in denominators.iter_mut().enumerate() {
        let total = running.total[row];
        multiply(y.row(row), 1.0 / total);
        *denominator = running.largest[row] + total.ln();
    }
}

/// Gradient with respect to `qkv`, given it, the forward's output and its denominators, and the
/// gradient of the output.
///
/// A head of keys and values belongs to one thread, which takes the heads of queries that it serves
/// one after another: their gradients are then always added in the same order.
fn backward<T: Factor>([qkv, y, dy]: [&[T]; 3], denominators: &[f32], layout: Layout) -> Vec<f32> {
    let Layout { batch, time, heads, .. } = layout;
    let mut dqkv = unfilled(qkv.len());
    let output = Shared::new(&mut dqkv);
    (0..batch * heads.n_kv_head).into_par_iter().for_each_init(Scratch::default, |scratch, of_keys| {
        for served in 0..heads.served() {
            let number = of_keys * heads.served() + served;
            // SAFETY: the heads of keys and values are this thread's, and of queries the one that
            // is at hand.
            let gradients =
                layout.parts_at(number).map(|first| unsafe { output.matrix(first, layout.size(), heads.width()) });
            let (y, dy) = (layout.head(y, number), layout.head(dy, number));
            // The sum of P * dP over a row is dy . y, with dropout too: one number a row takes the
            // place of a pass over the scores.
            scratch.dots.clear();
            scratch.dots.extend((0..time).map(|row| T::dot(y.row(row), dy.row(row))));
            let denominators = &denominators[number * time..][..time];
            let mut task =
                Task { parts: layout.parts(qkv, number), gradients, dy, denominators, number, adds: served > 0 };
            for first_key in (0..time).step_by(KEYS) {
                for block in Block::of_keys(first_key, time) {
                    task.backward(block, layout, scratch);
                }
            }
        }
    });
    dqkv
}

/// What the backward of one task works on.
struct Task<'a, T> {
    parts: [Matrix<'a, T>; 3],
    gradients: [MatrixMut<'a>; 3],
    dy: Matrix<'a, T>,
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
    /// What one block of scores adds to the gradients.
    fn backward(&mut self, block: Block, layout: Layout, scratch: &mut Scratch<T>) {
        let Block { first, rows, first_key, keys } = block;
        let one = Threads::One;
        let [q, dy] = [self.parts[0], self.dy].map(|x| x.rows(first, rows));
        let [k, v] = [self.parts[1], self.parts[2]].map(|x| x.rows(first_key, keys));
        let [dq, dk, dv] = &mut self.gradients;
        let (dq, dk, dv) = (dq.rows(first, rows), dk.rows(first_key, keys), dv.rows(first_key, keys));
        let Scratch { weights, dropped, ds, dots, factors } = scratch;
        let (weights, ds) = (room(weights, rows * keys), room(ds, rows * keys));
        // The last rows come first and see every key: they write dk and dv, and the others add to
        // them.
        let adds = self.adds || first + rows < layout.time;

        product(MatrixMut::new(weights, keys), false, q, k.transposed(), one);
        weights_again(weights, block, layout.heads.scale(), &self.denominators[first..]);
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

/// A type of what attention multiplies: float32 or bfloat16. Scores, their softmax, all sums and
/// the gradients are float32 either way; what the softmax puts out is rounded before it is
/// multiplied again, as in FlashAttention.
trait Factor: Element + Default {
    /// `weights` as factors: in `room` where they must be rounded.
    fn of<'a>(weights: &'a [f32], room: &'a mut Vec<Self>) -> &'a [Self];

    /// The sum of products of two rows.
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
    fn of<'a>(weights: &'a [f32], room: &'a mut Vec<bf16>) -> &'a [bf16] {
        let rounded = self::room(room, weights.len());
        narrow_bf16(weights, rounded);
        rounded
    }

    fn dot(x: &[bf16], y: &[bf16]) -> f32 {
        dot_bf16(x, y)
    }
}

simd_versions! {
    // Scores become the exponentials of `scale * score` less the largest so far; the future becomes
    // 0.
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

    fn dot(x: &[f32], y: &[f32]) -> f32 {
        simd::sum([x, y], |[x, y]| x * y)
    }

    fn dot_bf16(x: &[bf16], y: &[bf16]) -> f32 {
        simd::sum([x, y], |[x, y]| widened(x) * widened(y))
    }
}
