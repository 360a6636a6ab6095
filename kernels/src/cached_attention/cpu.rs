//! Attention of new positions to the cache. In decoding, each row has one new position: every key
//! and value is read once, so memory bandwidth is the limit. Several new positions are a prefill,
//! computed by matrix products, as in training.

use burn::tensor::Tensor;

use super::rows::{CachedRows, Places};
use crate::gemm::{Matrix, MatrixMut, Threads, product};
use crate::{
    Heads, attention::cpu::QUERIES, cpu::prelude::*, cpu::shared::Shared, gemm::instructions::InstructionSet,
    simd::prefetch,
};

/// As [`super::CachedAttention::attend`].
pub fn attend(qkv: Tensor<3>, cache: [Tensor<3>; 2], heads: Heads, places: &Places) -> (Tensor<3>, [Tensor<3>; 2]) {
    let Places::Listed(rows) = places else { unreachable!("steps are recorded on GPUs alone") };
    let qkv = flex(qkv);
    let dtype = qkv.dtype();
    let (qkv, [mut all_keys, mut all_values]) = (float32(qkv), cache.map(|tensor| contiguous(flex(tensor))));
    let y = attend_rows(values(&qkv), values_mut(&mut all_keys), values_mut(&mut all_values), heads, rows);
    let y = tensor_of_type(y, with_width(&qkv, heads.query_width()), dtype);
    (from_flex(y), [all_keys, all_values].map(from_flex))
}

/// As [`super::move_to_front`].
pub fn move_to_front(cache: Tensor<3>, slots: &[u32]) -> Tensor<3> {
    let [n_kv_head, all, n] = cache.dims();
    assert!(slots.iter().all(|&slot| (slot as usize) < all), "a slot that the cache does not have");
    let mut cache = contiguous(flex(cache));
    let heads = values_mut(&mut cache).par_chunks_exact_mut(all * n);
    heads.with_max_len(n_kv_head.div_ceil(MAX_TASKS)).for_each_init(Vec::new, |buffer, head| {
        buffer.clear();
        slots.iter().for_each(|&slot| buffer.extend_from_slice(&head[slot as usize * n..][..n]));
        head[..buffer.len()].copy_from_slice(buffer);
    });
    from_flex(cache)
}

/// Below this many multiplications one thread does everything: waking the others costs more.
const WORTH_SHARING: usize = 1 << 16;

/// Prefetch distance, in positions.
const AHEAD: usize = 8;

/// Maximum number of tasks of a batch.
const MAX_TASKS: usize = 16;

/// Writes the keys and values of the new positions `qkv` `[new positions, (n_head + 2 n_kv_head)
/// head_size]` to their slots of `keys` and `values` `[n_kv_head, slots, head_size]`, and returns
/// the attention output `[new positions, n_head head_size]`.
fn attend_rows(qkv: &[f32], keys: &mut [f32], values: &mut [f32], heads: Heads, rows: &CachedRows) -> Vec<f32> {
    let (positions, out_width) = (qkv.len() / heads.width(), heads.query_width());
    let slots = keys.len().min(values.len()) / heads.kv_width();
    write_new(qkv, keys, values, heads, slots, rows.first_new);
    assert!(rows.slots.iter().flatten().all(|&slot| (slot as usize) < slots), "a slot that the cache does not have");
    let cache = Cache { keys, values, heads, slots };

    let mut y = unfilled(positions * out_width);
    let output = Shared::new(&mut y);
    let (tasks, work) = plan_tasks(rows, heads.n_head);
    let at_once = if work * out_width < WORTH_SHARING { usize::MAX } else { 1 };
    tasks.par_iter().with_min_len(at_once).for_each_init(Scratch::default, |scratch, task| {
        // A row with two or more new positions uses matrix products: results are then the same for
        // prefills in pieces of any size but one.
        if task.new == 1 {
            one_position(qkv, &cache, task, scratch, output);
        } else {
            many_positions(qkv, &cache, task, scratch, output);
        }
    });
    y
}

/// Writes the keys and values of the new positions to their slots, of which `first_new` is the
/// first; the cache has `slots` in all.
fn write_new(qkv: &[f32], keys: &mut [f32], values: &mut [f32], heads: Heads, slots: usize, first_new: usize) {
    let n = heads.head_size;
    for (i, qkv) in qkv.chunks_exact(heads.width()).enumerate() {
        let (new_keys, new_values) = qkv[heads.query_width()..].split_at(heads.kv_width());
        for (head, (key, value)) in new_keys.chunks_exact(n).zip(new_values.chunks_exact(n)).enumerate() {
            let place = (head * slots + first_new + i) * n;
            keys[place..][..n].copy_from_slice(key);
            values[place..][..n].copy_from_slice(value);
        }
    }
}

/// Tasks of some heads of one row each, fewer for a row with more work; and the work of all, in
/// pairs of a new position and one of its row's slots. No sum spans two heads, so results do not
/// depend on the grouping.
fn plan_tasks(rows: &CachedRows, n_head: usize) -> (Vec<Task<'_>>, usize) {
    let work = || rows.slots.iter().zip(rows.new.iter()).map(|(slots, new)| slots.len() * new);
    let whole: usize = work().sum();
    let mut tasks = Vec::new();
    let mut first = 0;
    for ((slots, &new), work) in rows.slots.iter().zip(rows.new.iter()).zip(work()) {
        let group = n_head.div_ceil((MAX_TASKS * work / whole).clamp(1, n_head));
        let groups = (0..n_head).step_by(group);
        tasks.extend(groups.map(|head| Task { slots, first, new, head, heads: group.min(n_head - head) }));
        first += new;
    }
    (tasks, whole)
}

/// Some heads of one row.
struct Task<'a> {
    slots: &'a [u32],
    /// Index of the row's first new position among all new ones, and the number of its new
    /// positions.
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
    slots: usize,
}

impl<'a> Cache<'a> {
    /// A head's keys and values, slot after slot.
    fn of(&self, head: usize) -> [&'a [f32]; 2] {
        let length = self.slots * self.heads.head_size;
        let start = self.heads.serving(head) * length;
        [self.keys, self.values].map(|all| &all[start..][..length])
    }
}

#[derive(Default)]
struct Scratch {
    scores: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Attention of the task's single new position, which sees its whole row.
fn one_position(qkv: &[f32], cache: &Cache, task: &Task, scratch: &mut Scratch, output: Shared) {
    let (heads, slots) = (cache.heads, task.slots);
    let head_size = heads.head_size;
    scratch.scores.resize(slots.len(), 0.0);
    for head in task.head..task.head + task.heads {
        let [keys, values] = cache.of(head);
        let seen = Seen { keys, values, slots, head_size };
        let q = &qkv[task.first * heads.width() + head * head_size..][..head_size];
        // SAFETY: this position's and this head's part of the output, which no other task writes;
        // the slots are inside the cache.
        unsafe {
            let y = output.piece(task.first * heads.query_width() + head * head_size, head_size);
            one_query(q, seen, &mut scratch.scores, heads.scale(), y);
        }
    }
}

/// Attention of the task's new positions, some at a time: each sees its row up to itself.
fn many_positions(qkv: &[f32], cache: &Cache, task: &Task, scratch: &mut Scratch, output: Shared) {
    let heads = cache.heads;
    let (head_size, [width, query_width]) = (heads.head_size, [heads.width(), heads.query_width()]);
    let before = task.slots.len() - task.new;
    let Scratch { scores, keys, values } = scratch;
    for head in task.head..task.head + task.heads {
        let from = head * head_size;
        let [all_keys, all_values] = cache.of(head);
        let keys = gathered(all_keys, task.slots, head_size, keys);
        let values = gathered(all_values, task.slots, head_size, values);
        let size = [task.new, head_size];
        let q = Matrix::strided(&qkv[task.first * width + from..], size, width);
        // SAFETY: this row's and this head's part of the output, which no other task writes.
        let mut y = unsafe { output.matrix(task.first * query_width + from, size, query_width) };
        for first in (0..task.new).step_by(QUERIES) {
            let rows = QUERIES.min(task.new - first);
            let seen = before + first + rows;
            scores.resize(rows * seen, 0.0);
            let one = Threads::One;
            let [k, v] = [keys, values].map(|x| Matrix::new(x, head_size).rows(0, seen));
            let q = q.rows(first, rows);
            product(MatrixMut::new(scores, seen), false, q, k.transposed(), one);
            softmax_rows(scores, seen, before + first, heads.scale());
            product(y.rows(first, rows), false, Matrix::new(scores, seen), v, one);
        }
    }
}

simd_versions! {
    // Softmax of `scale * row` for rows of `width` scores; row r sees the first `first + r + 1`,
    // and the rest becomes 0.
    fn softmax_rows(scores: &mut [f32], width: usize, first: usize, scale: f32) {
        for (r, row) in scores.chunks_exact_mut(width).enumerate() {
            let (seen, future) = row.split_at_mut(first + r + 1);
            softmax(seen, scale);
            future.fill(0.0);
        }
    }
}

/// Softmax of `scale * row`, in place.
#[inline(always)]
fn softmax(row: &mut [f32], scale: f32) {
    let largest = simd::max(row);
    for x in row.iter_mut() {
        *x = simd::exp((*x - largest) * scale);
    }
    let total = simd::sum([row], |[x]| x);
    for x in row.iter_mut() {
        *x /= total;
    }
}

/// A head's keys or values in the order of `slots`: a slice of the cache if they are adjacent,
/// otherwise a copy in `buffer`.
fn gathered<'a>(head: &'a [f32], slots: &[u32], head_size: usize, buffer: &'a mut Vec<f32>) -> &'a [f32] {
    let first = slots[0] as usize;
    if slots.iter().enumerate().all(|(i, &slot)| slot as usize == first + i) {
        return &head[first * head_size..][..slots.len() * head_size];
    }
    buffer.clear();
    for &slot in slots {
        buffer.extend_from_slice(&head[slot as usize * head_size..][..head_size]);
    }
    buffer
}

/// The keys and values that one query attends to: one head of the positions in `slots`.
#[derive(Clone, Copy)]
struct Seen<'a> {
    /// This head's keys and values, `[slots, head_size]`.
    keys: &'a [f32],
    values: &'a [f32],
    slots: &'a [u32],
    head_size: usize,
}

impl Seen<'_> {
    /// A position's head in `keys_or_values`, which are this head's.
    #[inline(always)]
    fn head(&self, keys_or_values: &[f32], position: usize) -> *const f32 {
        // `attend_rows` has checked every slot.
        keys_or_values.as_ptr().wrapping_add(self.slots[position] as usize * self.head_size)
    }

    /// Prefetches what is read [`AHEAD`] positions later; the values follow the keys. When several
    /// rows are generated together, one row's positions are too far apart for the hardware
    /// prefetcher.
    #[inline(always)]
    fn prefetch(&self, of_keys: bool, position: usize, n: usize) {
        let (later, seen) = (position + AHEAD, self.slots.len());
        let (keys_or_values, later) = match of_keys {
            true if later < seen => (self.keys, later),
            true => (self.values, later - seen),
            false => (self.values, later),
        };
        if later < seen {
            prefetch::<1, _>(self.head(keys_or_values, later), n * size_of::<f32>());
        }
    }
}

simd_versions! {
    // Attention of one query `q` `[head_size]` of one head, into `y` of the same size. `scores` has
    // one value per position.
    //
    // Safety: all slots must be inside the keys and the values, `head_size` numbers each.
    unsafe fn one_query<S: InstructionSet>(q: &[f32], seen: Seen, scores: &mut [f32], scale: f32, y: &mut [f32]) {
        let n = q.len();
        let whole = n - n % S::LANES;
        // SAFETY: whole vectors inside the query, the slots' heads and y; the last scores are
        // copied one by one.
        unsafe {
            for (block, scores) in scores.chunks_mut(S::LANES).enumerate() {
                let mut sums = [S::zero(); 16];
                let mut rest = [0f32; 16];
                for (i, sum) in sums.iter_mut().enumerate().take(scores.len()) {
                    let position = block * S::LANES + i;
                    seen.prefetch(true, position, n);
                    let key = seen.head(seen.keys, position);
                    for j in (0..whole).step_by(S::LANES) {
                        *sum = S::multiply_add(S::load(q.as_ptr().add(j)), S::load(key.add(j)), *sum);
                    }
                    rest[i] = (whole..n).map(|j| q[j] * *key.add(j)).sum();
                }
                // Each sum is spread across the lanes of a vector; transposed, each lane belongs to
                // one sum.
                S::transpose(&mut sums);
                for half in [8, 4, 2, 1].into_iter().filter(|half| *half < S::LANES) {
                    for i in 0..half {
                        sums[i] = S::add(sums[i], sums[i + half]);
                    }
                }
                let mut all = [0f32; 16];
                S::store(all.as_mut_ptr(), S::add(sums[0], S::load(rest.as_ptr())));
                scores.copy_from_slice(&all[..scores.len()]);
            }
            softmax(scores, scale);
            let mut from = 0;
            while from < whole {
                from += match (whole - from) / S::LANES {
                    4.. => weighted_sum::<S, 4>(scores, seen, from, n, y),
                    _ => weighted_sum::<S, 1>(scores, seen, from, n, y),
                };
            }
            for (j, y) in y.iter_mut().enumerate().skip(whole) {
                *y = scores.iter().enumerate().map(|(t, weight)| weight * *seen.head(seen.values, t).add(j)).sum();
            }
        }
    }
}

/// Writes the weighted sum of all positions' values to the `VECTORS` vectors of `y` from `from` on;
/// returns the number of values written.
///
/// # Safety
/// The processor must have the instructions of `S`, and the caller be compiled for them. These
/// vectors must lie inside `y` and inside the heads of all slots, `n` values each, which must
/// exist.
#[inline(always)]
unsafe fn weighted_sum<S: InstructionSet, const VECTORS: usize>(
    weights: &[f32],
    seen: Seen,
    from: usize,
    n: usize,
    y: &mut [f32],
) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [S::zero(); VECTORS];
        for (position, weight) in weights.iter().enumerate() {
            if from == 0 {
                seen.prefetch(false, position, n);
            }
            let weight = S::repeat(std::ptr::from_ref(weight).cast());
            let value = seen.head(seen.values, position).add(from);
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = S::multiply_add(weight, S::load(value.add(j * S::LANES)), *sum);
            }
        }
        for (j, sum) in sums.iter().enumerate() {
            S::store(y.as_mut_ptr().add(from + j * S::LANES), *sum);
        }
    }
    VECTORS * S::LANES
}
