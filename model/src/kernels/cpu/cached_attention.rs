//! Attention of new positions to the cache. One new position a row is what decoding is: it reads every key and value once,
//! so the memory's bandwidth is the limit. Many are a prefill: matrix products, as in training.

use rayon::prelude::*;

use super::super::{CachedRows, Heads, simd};
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

/// Writes the keys and values of the new positions `qkv` `[new positions, (n_head + 2 n_kv_head) head_size]` to their slots
/// of `keys` and `values` `[slots, n_kv_head head_size]`, and returns what they see, `[new positions, n_head head_size]`.
pub fn attend(qkv: &[f32], keys: &mut [f32], values: &mut [f32], heads: Heads, rows: &CachedRows) -> Vec<f32> {
    let (n_head, queries, kept) = (heads.n_head, heads.query_width(), heads.kv_width());
    let new = qkv.len() / heads.width();
    for (i, qkv) in qkv.chunks_exact(heads.width()).enumerate() {
        let slot = (rows.first_new + i) * kept..(rows.first_new + i + 1) * kept;
        keys[slot.clone()].copy_from_slice(&qkv[queries..queries + kept]);
        values[slot].copy_from_slice(&qkv[queries + kept..]);
    }
    let (keys, values) = (&*keys, &*values);

    let mut y = unfilled(new * queries);
    let output = Shared(y.as_mut_ptr());
    // A task is some heads of one row; no sum spans two heads, so the numbers do not depend on how they are grouped.
    let group = n_head.div_ceil((MOST_TASKS / rows.slots.len()).clamp(1, n_head));
    let mut tasks = Vec::new();
    let (mut first, mut work) = (0, 0);
    for (slots, &new) in rows.slots.iter().zip(rows.new.iter()) {
        let groups = (0..n_head).step_by(group);
        tasks.extend(groups.map(|head| Task { slots, first, new, head, heads: group.min(n_head - head) }));
        first += new;
        work += slots.len() * new * queries;
    }
    let at_once = if work < WORTH_SHARING { usize::MAX } else { 1 };
    tasks.par_iter().with_min_len(at_once).for_each_init(Scratch::default, |scratch, task| {
        let cache = Cache { keys, values, heads };
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
    heads: Heads,
}

impl Cache<'_> {
    fn scale(&self) -> f32 {
        1.0 / (self.heads.head_size as f32).sqrt()
    }
}

#[derive(Default)]
struct Scratch {
    scores: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

fn one_after_another(qkv: &[f32], cache: &Cache, task: &Task, scratch: &mut Scratch, output: Shared) {
    let Cache { keys, values, heads } = *cache;
    let (from, width) = (task.head * heads.head_size, task.heads * heads.head_size);
    let before = task.slots.len() - task.new;
    for i in 0..task.new {
        let position = task.first + i;
        let slots = &task.slots[..before + i + 1];
        scratch.scores.resize(task.heads * slots.len(), 0.0);
        let q = &qkv[position * heads.width() + from..][..width];
        // SAFETY: this position's and these heads' part of the output, which no other task writes.
        let y =
            unsafe { std::slice::from_raw_parts_mut(output.get().add(position * heads.query_width() + from), width) };
        attend_one(q, keys, values, slots, heads, task.head, &mut scratch.scores, y, cache.scale());
    }
}

fn all_at_once(qkv: &[f32], cache: &Cache, task: &Task, scratch: &mut Scratch, output: Shared) {
    let heads = cache.heads;
    let (head_size, [width, query_width]) = (heads.head_size, [heads.width(), heads.query_width()]);
    let before = task.slots.len() - task.new;
    let Scratch { scores, keys, values } = scratch;
    for head in task.head..task.head + task.heads {
        let (from, kept) = (head * head_size, heads.serving(head) * head_size);
        gather(cache.keys, task.slots, heads.kv_width(), kept..kept + head_size, keys);
        gather(cache.values, task.slots, heads.kv_width(), kept..kept + head_size, values);
        let q = View { start: qkv[task.first * width + from..].as_ptr(), row: width, column: 1 };
        // SAFETY: inside the output, whose size is [new positions, n_head head_size].
        let y =
            View { start: unsafe { output.get().add(task.first * query_width + from) }, row: query_width, column: 1 };
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
fn gather(cache: &[f32], slots: &[u32], width: usize, head: std::ops::Range<usize>, into: &mut Vec<f32>) {
    into.clear();
    for &slot in slots {
        into.extend_from_slice(&cache[slot as usize * width..][head.clone()]);
    }
}

simd_versions! {
    // One query of some neighbouring heads, `[heads * head_size]`, of which `first` is the first, against the positions in
    // `slots`. `scores` has room for `[heads, slots]`.
    fn attend_one(
        q: &[f32], keys: &[f32], values: &[f32], slots: &[u32], heads: Heads, first: usize, scores: &mut [f32],
        y: &mut [f32], scale: f32,
    ) {
        let (n, width, served) = (heads.head_size, heads.kv_width(), heads.served());
        let seen = slots.len();
        for (t, &slot) in slots.iter().enumerate() {
            let keys = &keys[slot as usize * width..][..width];
            for (head, q) in q.chunks_exact(n).enumerate() {
                let key = &keys[(first + head) / served * n..][..n];
                scores[head * seen + t] = simd::sum([q, key], |[q, k]| q * k);
            }
        }
        for scores in scores.chunks_exact_mut(seen) {
            softmax(scores, scale);
        }
        y.fill(0.0);
        for (t, &slot) in slots.iter().enumerate() {
            let values = &values[slot as usize * width..][..width];
            for (head, y) in y.chunks_exact_mut(n).enumerate() {
                let weight = scores[head * seen + t];
                let value = &values[(first + head) / served * n..][..n];
                for (y, value) in y.iter_mut().zip(value) {
                    *y = weight.mul_add(*value, *y);
                }
            }
        }
    }
}
