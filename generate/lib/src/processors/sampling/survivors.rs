//! Shared by the truncating processors: the tokens not yet removed, and ways to find a cut-off
//! without sorting all of them.

use std::cmp::Ordering;

use crate::softmax::{highest, softmax, sum};

/// The tokens that are not removed yet, by ascending id. After a top-k of 40, later processors work
/// on 40 tokens only.
pub(super) struct Survivors {
    ids: Vec<u32>,
    /// Their logits, all finite, `[survivors]`.
    pub(super) logits: Vec<f32>,
}

impl Survivors {
    /// The survivors among `logits`, `[vocab]`.
    pub(super) fn of(logits: &[f32]) -> Self {
        const CHUNK: usize = 32;
        let mut survivors = Self { ids: Vec::with_capacity(logits.len()), logits: Vec::with_capacity(logits.len()) };
        for (chunk, start) in logits.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
            let any_left = chunk.iter().fold(false, |any, &logit| any | (logit > f32::NEG_INFINITY));
            if !any_left {
                continue; // makes the pass cheap if almost all tokens are removed
            }
            // Branch-free: always write, but advance `count` only for survivors.
            let (mut ids, mut left, mut count) = ([0; CHUNK], [0.0; CHUNK], 0);
            for (id, &logit) in (start..).zip(chunk) {
                (ids[count], left[count]) = (id, logit);
                count += usize::from(logit > f32::NEG_INFINITY);
            }
            survivors.ids.extend_from_slice(&ids[..count]);
            survivors.logits.extend_from_slice(&left[..count]);
        }
        survivors
    }

    /// The survivors, if there are more than the `keep` that always stay.
    pub(super) fn more_than(keep: usize, logits: &[f32]) -> Option<Self> {
        Some(Self::of(logits)).filter(|left| left.ids.len() > keep)
    }

    /// The survivors' probabilities, `[survivors]`.
    pub(super) fn probabilities(&self) -> Vec<f32> {
        softmax(&self.logits)
    }

    /// The negative logarithm of each probability in nats, `[survivors]`.
    pub(super) fn surprises(&self, probabilities: &[f32]) -> Vec<f32> {
        let highest_logit = highest(&self.logits);
        let least_surprise = -highest(probabilities).ln();
        self.logits.iter().map(|logit| (highest_logit - logit) + least_surprise).collect()
    }

    /// As [`Self::remove`], but also keeps the first `keep` by `compare` if fewer would stay.
    pub(super) fn remove_keeping(
        &self,
        keep: usize,
        mut removed: Vec<bool>,
        compare: impl Fn(usize, usize) -> Ordering,
        logits: &mut [f32],
    ) {
        if removed.iter().filter(|&&removed| !removed).count() < keep {
            for index in first(keep, removed.len(), compare) {
                removed[index] = false;
            }
        }
        self.remove(&removed, logits);
    }

    /// Removes the survivors marked in `removed`, `[survivors]`, from `logits`, `[vocab]`.
    pub(super) fn remove(&self, removed: &[bool], logits: &mut [f32]) {
        for (&id, &removed) in self.ids.iter().zip(removed) {
            if removed {
                logits[id as usize] = f32::NEG_INFINITY;
            }
        }
    }
}

/// The expected surprise in nats.
pub(super) fn entropy(probabilities: &[f32], surprises: &[f32]) -> f32 {
    let terms: Vec<f32> = probabilities.iter().zip(surprises).map(|(p, surprise)| p * surprise).collect();
    sum(&terms) as f32
}

/// Total order of numbers in which 0 and -0 are equal.
pub(super) fn order(a: f32, b: f32) -> Ordering {
    (a + 0.0).total_cmp(&(b + 0.0))
}

/// The k-th highest logit, k at least 1; minus infinity if fewer are finite.
///
/// One pass: it collects only logits above the k-th highest so far, which soon are very few.
///
/// 0 and -0 tie, unlike in [`top_k`](crate::logprobs::top_k), and either may be returned for the
/// other: callers only compare with it.
pub(super) fn kth_highest(logits: &[f32], k: usize) -> f32 {
    let mut bound = f32::NEG_INFINITY;
    let mut best = Vec::with_capacity(2 * k.min(logits.len()));
    for &logit in logits {
        if logit > bound {
            best.push(logit);
            if best.len() == 2 * k {
                bound = *best.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1;
                best.truncate(k);
            }
        }
    }
    if best.len() < k {
        return f32::NEG_INFINITY;
    }
    *best.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
}

/// The first `count` of the indices 0 to `len` by `compare`; ties go to the lower index. Meant for
/// a small count.
fn first(count: usize, len: usize, compare: impl Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut first: Vec<usize> = Vec::new();
    for index in 0..len {
        let place = first.partition_point(|&better| compare(better, index) != Ordering::Greater);
        if place < count {
            first.insert(place, index);
            first.truncate(count);
        }
    }
    first
}

/// The result of a [`walk`].
pub(super) struct Walk {
    /// Which tokens it passed, `[survivors]`.
    pub(super) passed: Vec<bool>,
    /// The first token whose mass did not fit.
    pub(super) stopped_at: Option<usize>,
}

impl Walk {
    /// Marks all tokens after `stopped_at`.
    pub(super) fn rest(self) -> Vec<bool> {
        let mut rest: Vec<bool> = self.passed.iter().map(|&passed| !passed).collect();
        if let Some(crossing) = self.stopped_at {
            rest[crossing] = false;
        }
        rest
    }
}

const SLICES: u16 = 2048;

/// Divides distances, which are at least 0, into narrow slices; all far distances share the last.
pub(super) struct Slices {
    per_nat: f32,
}

impl Slices {
    /// Slices for distances in nats up to `furthest`.
    pub(super) fn up_to(furthest: f32) -> Self {
        const MAX_NATS: f32 = 32.0;
        Self { per_nat: f32::from(SLICES) / furthest.clamp(1e-3, MAX_NATS) }
    }

    /// The slice of a distance when walking away from 0.
    pub(super) fn outward(&self, distance: f32) -> u16 {
        ((distance * self.per_nat) as i32).min(i32::from(SLICES - 1)) as u16
    }

    /// The slice of a distance when walking towards 0.
    pub(super) fn inward(&self, distance: f32) -> u16 {
        SLICES - 1 - self.outward(distance)
    }
}

/// Passes tokens one after another, in the order of `compare` with ties by index, while their total
/// mass, summed in float64 and including the token's own, `fits`.
///
/// Sorting 50,257 numbers takes milliseconds, so only those near the end of the walk are sorted.
/// `slice_of` assigns the tokens to slices whose order agrees with `compare`. Whole slices are
/// passed while they fit; the slice in which the mass stops fitting is walked token by token.
pub(super) fn walk(
    masses: &[f32],
    slice_of: impl Fn(usize) -> u16,
    compare: impl Fn(usize, usize) -> Ordering,
    fits: impl Fn(f64) -> bool,
) -> Walk {
    let slices: Vec<u16> = (0..masses.len()).map(slice_of).collect();
    let mut slice_masses = [0.0_f64; SLICES as usize];
    for (&slice, &mass) in slices.iter().zip(masses) {
        slice_masses[usize::from(slice)] += f64::from(mass);
    }
    let mut gone = 0.0;
    for (slice, mass) in (0_u16..).zip(slice_masses) {
        if fits(gone + mass) {
            gone += mass;
            continue;
        }
        let mut members: Vec<usize> = (0..slices.len()).filter(|&index| slices[index] == slice).collect();
        members.sort_by(|&a, &b| compare(a, b));
        for (rank, &index) in members.iter().enumerate() {
            gone += f64::from(masses[index]);
            if !fits(gone) {
                let mut passed: Vec<bool> = slices.iter().map(|&other| other < slice).collect();
                for &member in &members[..rank] {
                    passed[member] = true;
                }
                return Walk { passed, stopped_at: Some(index) };
            }
        }
    }
    Walk { passed: vec![true; masses.len()], stopped_at: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{Just, Strategy, prop, prop_assert_eq, proptest};

    fn numbers() -> impl Strategy<Value = Vec<f32>> {
        let number = proptest::prop_oneof![4 => (-20_i8..20).prop_map(f32::from), 1 => Just(f32::NEG_INFINITY)];
        prop::collection::vec(number, 1..200)
    }

    proptest! {
        #[test]
        fn survivors_are_what_is_not_minus_infinity(logits in numbers()) {
            let survivors = Survivors::of(&logits);
            let expected: Vec<(u32, f32)> = (0..).zip(logits).filter(|(_, logit)| logit.is_finite()).collect();
            let found: Vec<(u32, f32)> = survivors.ids.into_iter().zip(survivors.logits).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn selecting_equals_sorting(numbers in numbers(), k in 1..250_usize) {
            let mut sorted: Vec<usize> = (0..numbers.len()).collect();
            sorted.sort_by(|&a, &b| order(numbers[b], numbers[a]));
            let kth = sorted.get(k - 1).map_or(f32::NEG_INFINITY, |&index| numbers[index]);
            prop_assert_eq!(kth_highest(&numbers, k), kth);
            sorted.truncate(k);
            prop_assert_eq!(first(k, numbers.len(), |a, b| order(numbers[b], numbers[a])), sorted);
        }
    }
}
