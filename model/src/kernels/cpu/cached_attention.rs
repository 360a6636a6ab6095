//! Attention of new positions to the cache. One new position a row is what decoding is: it reads every key and value once,
//! so the memory's bandwidth is the limit. Many are a prefill: matrix products, as in training.

use rayon::prelude::*;

use super::super::{CachedRows, simd};
use super::attention::{Shared, blocks, softmax, softmax_rows};
use super::linear::{View, product};
use super::tensor::unfilled;
use crate::simd_versions;

/// From so many new positions in a row on, matrix products beat one query after another.
const MANY: usize = 8;

/// Below this many multiplications all is done on one thread: waking the others costs more.
const WORTH_SHARING: usize = 1 << 18;

/// Most tasks that a batch falls into.
const MOST_TASKS: usize = 16;

/// Writes the keys and values of the new positions `qkv` `[new positions, 3 n_embd]` to their slots of `keys` and `values`
/// `[slots, n_embd]`, and returns what they see, `[new positions, n_embd]`.
pub fn attend(
    qkv: &[f32],
    keys: &mut [f32],
    values: &mut [f32],
    [n_head, head_size]: [usize; 2],
    rows: &CachedRows,
) -> Vec<f32> {
    let n_embd = n_head * head_size;
    for (i, qkv) in qkv.chunks_exact(3 * n_embd).enumerate() {
        let slot = (rows.first_new + i) * n_embd..(rows.first_new + i + 1) * n_embd;
        keys[slot.clone()].copy_from_slice(&qkv[n_embd..2 * n_embd]);
        values[slot].copy_from_slice(&qkv[2 * n_embd..]);
    }
    let (keys, values) = (&*keys, &*values);

    let mut y = unfilled(qkv.len() / 3);
    let output = Shared(y.as_mut_ptr());
    // A task is some heads of one row; no sum spans two heads, so the numbers do not depend on how they are grouped.
    let group = n_head.div_ceil((MOST_TASKS / rows.slots.len()).clamp(1, n_head));
    let mut tasks = Vec::new();
    let (mut first, mut work) = (0, 0);
    for (slots, &new) in rows.slots.iter().zip(rows.new.iter()) {
        let heads = (0..n_head).step_by(group);
        tasks.extend(heads.map(|head| Task { slots, first, new, head, heads: group.min(n_head - head) }));
        first += new;
        work += slots.len() * new * n_embd;
    }
    let at_once = if work < WORTH_SHARING { usize::MAX } else { 1 };
    tasks.par_iter().with_min_len(at_once).for_each_init(Scratch::default, |scratch, task| {
        let cache = Cache { keys, values, n_embd, head_size };
        if task.new < MANY {
            one_after_another(qkv, &cache, task, scratch, output);
        } else {
            all_at_once(qkv, &cache, task, scratch, output);
        }
    });
    y
}

/// Some heads of one row.
struct Task<'a> {
    slots: &'a [u32],
    /// The row's first new position among all new ones, and how many are its.
    first: usize,
    new: usize,
    head: usize,
    heads: usize,
}

#[derive(Clone, Copy)]
struct Cache<'a> {
    keys: &'a [f32],
    values: &'a [f32],
    n_embd: usize,
    head_size: usize,
}

impl Cache<'_> {
    fn scale(&self) -> f32 {
        1.0 / (self.head_size as f32).sqrt()
    }
}

#[derive(Default)]
struct Scratch {
    scores: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

fn one_after_another(qkv: &[f32], cache: &Cache, task: &Task, scratch: &mut Scratch, output: Shared) {
    let Cache { keys, values, n_embd, head_size } = *cache;
    let (from, width) = (task.head * head_size, task.heads * head_size);
    let before = task.slots.len() - task.new;
    for i in 0..task.new {
        let position = task.first + i;
        let slots = &task.slots[..before + i + 1];
        scratch.scores.resize(task.heads * slots.len(), 0.0);
        let q = &qkv[position * 3 * n_embd + from..][..width];
        // SAFETY: this position's and these heads' part of the output, which no other task writes.
        let y = unsafe { std::slice::from_raw_parts_mut(output.get().add(position * n_embd + from), width) };
        attend_one(q, keys, values, slots, [n_embd, from, head_size], &mut scratch.scores, y, cache.scale());
    }
}

fn all_at_once(qkv: &[f32], cache: &Cache, task: &Task, scratch: &mut Scratch, output: Shared) {
    let Cache { n_embd, head_size, .. } = *cache;
    let before = task.slots.len() - task.new;
    let Scratch { scores, keys, values } = scratch;
    for head in task.head..task.head + task.heads {
        let from = head * head_size;
        gather(cache.keys, task.slots, n_embd, from..from + head_size, keys);
        gather(cache.values, task.slots, n_embd, from..from + head_size, values);
        let q = View { start: qkv[task.first * 3 * n_embd + from..].as_ptr(), row: 3 * n_embd, column: 1 };
        // SAFETY: inside the output, whose size is [new positions, n_embd].
        let y = View { start: unsafe { output.get().add(task.first * n_embd + from) }, row: n_embd, column: 1 };
        for (first, rows, _) in blocks(task.new) {
            let seen = before + first + rows;
            scores.resize(rows * seen, 0.0);
            let one = gemm::Parallelism::None;
            // SAFETY: views inside the slices and the output, whose sizes are as stated.
            unsafe {
                let k = View::transposed(keys, head_size);
                product([rows, seen, head_size], View::rows(scores, seen), false, q.skip_rows(first), k, one);
                softmax_rows(scores, seen, before + first, cache.scale());
                let v = View::rows(values, head_size);
                product([rows, head_size, seen], y.skip_rows(first), false, View::rows(scores, seen), v, one);
            }
        }
    }
}

/// One head's part of the slots, side by side.
fn gather(cache: &[f32], slots: &[u32], n_embd: usize, head: std::ops::Range<usize>, into: &mut Vec<f32>) {
    into.clear();
    for &slot in slots {
        into.extend_from_slice(&cache[slot as usize * n_embd..][head.clone()]);
    }
}

simd_versions! {
    // One query of some neighbouring heads, `[heads * head_size]`, against the positions in `slots`. `layout` is n_embd, where
    // the heads begin in it, and head_size; `scores` has room for `[heads, slots]`.
    fn attend_one(
        q: &[f32], keys: &[f32], values: &[f32], slots: &[u32], layout: [usize; 3], scores: &mut [f32], y: &mut [f32],
        scale: f32,
    ) {
        let [n_embd, from, n] = layout;
        let seen = slots.len();
        for (t, &slot) in slots.iter().enumerate() {
            let key = &keys[slot as usize * n_embd + from..][..q.len()];
            for (head, (q, key)) in q.chunks_exact(n).zip(key.chunks_exact(n)).enumerate() {
                scores[head * seen + t] = simd::sum(n, |i| q[i] * key[i]);
            }
        }
        for scores in scores.chunks_exact_mut(seen) {
            softmax(scores, scale);
        }
        y.fill(0.0);
        for (t, &slot) in slots.iter().enumerate() {
            let value = &values[slot as usize * n_embd + from..][..y.len()];
            for (head, (y, value)) in y.chunks_exact_mut(n).zip(value.chunks_exact(n)).enumerate() {
                let weight = scores[head * seen + t];
                for (y, value) in y.iter_mut().zip(value) {
                    *y = weight.mul_add(*value, *y);
                }
            }
        }
    }
}
