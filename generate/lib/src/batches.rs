//! Batching rows by length, and putting results back into order.

use std::{collections::BTreeMap, ops::Range};

/// Batches of similar length: the indices of `lengths`, longest first, in groups of at most
/// `batch_size(longest of the group)` (at least 1). Rows of a batch are padded to its longest, so
/// rows of similar length should share one. The batch that needs the most memory comes first, so
/// that a lack of memory shows at once.
pub fn by_length(lengths: &[usize], batch_size: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
    let mut numbers: Vec<usize> = (0..lengths.len()).collect();
    numbers.sort_by_key(|&number| std::cmp::Reverse(lengths[number])); // stable: ties stay in order
    let mut rest = numbers.as_slice();
    let mut batches = Vec::new();
    while let Some(&longest) = rest.first() {
        let (batch, others) = rest.split_at(batch_size(lengths[longest]).clamp(1, rest.len()));
        batches.push(batch.to_vec());
        rest = others;
    }
    batches
}

/// Splits `sizes` into consecutive groups whose sums are at most `most`, or that hold a single
/// larger size.
pub fn groups(sizes: &[usize], most: usize) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut held = 0;
    for (number, &size) in sizes.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if held + size <= most => {
                group.end = number + 1;
                held += size;
            }
            _ => {
                groups.push(number..number + 1);
                held = size;
            }
        }
    }
    groups
}

/// Reorder buffer: releases results in the order of their keys, each as soon as those of all smaller
/// keys have been released.
#[derive(Debug)]
pub struct InOrder<K, T> {
    /// Every key that is not released; `None` until its result is there.
    waiting: BTreeMap<K, Option<T>>,
}

impl<K: Ord, T> InOrder<K, T> {
    /// Expects one result for each of these keys, which may come in any order.
    pub fn new(keys: impl IntoIterator<Item = K>) -> Self {
        Self { waiting: keys.into_iter().map(|key| (key, None)).collect() }
    }

    /// Adds the result with this key, and returns those that are now due, in order.
    pub fn put(&mut self, key: K, result: T) -> Vec<T> {
        self.waiting.insert(key, Some(result));
        let mut due = Vec::new();
        while let Some(first) = self.waiting.first_entry()
            && first.get().is_some()
        {
            due.extend(first.remove());
        }
        due
    }

    /// The results still waiting for an earlier one, in order, for when the work is cut short.
    pub fn into_rest(self) -> impl Iterator<Item = T> {
        self.waiting.into_values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn alike_lengths_go_together_longest_first() {
        assert_eq!(by_length(&[3, 9, 4, 9, 1], |_| 2), [vec![1, 3], vec![2, 0], vec![4]]);
        // At most twelve positions per batch: one row of 9, then three of 4, 3 and 3, then the
        // rest.
        assert_eq!(by_length(&[3, 9, 4, 3, 1], |longest| 12 / longest), [vec![1], vec![2, 0, 3], vec![4]]);
        assert_eq!(by_length(&[5, 6], |_| 0), [vec![1], vec![0]]); // never an empty batch
        assert!(by_length(&[], |_| 4).is_empty());
    }

    #[test]
    fn groups_follow_one_another() {
        assert_eq!(groups(&[2, 3, 5, 1, 9, 1], 6), [0..2, 2..4, 4..5, 5..6]);
        assert!(groups(&[], 6).is_empty());
    }

    #[test]
    fn results_wait_for_those_before_them() {
        let mut results = InOrder::new(0..6);
        assert!(results.put(2, "c").is_empty());
        assert_eq!(results.put(0, "a"), ["a"]);
        assert_eq!(results.put(1, "b"), ["b", "c"]);
        assert!(results.put(5, "f").is_empty() && results.put(4, "e").is_empty());
        assert_eq!(results.into_rest().collect::<Vec<_>>(), ["e", "f"]);
    }

    #[test]
    fn keys_may_have_gaps() {
        let mut results = InOrder::new([(1, 0), (0, 64), (0, 0)]);
        assert!(results.put((0, 64), "b").is_empty());
        assert_eq!(results.put((0, 0), "a"), ["a", "b"]);
        assert_eq!(results.put((1, 0), "c"), ["c"]);
    }

    proptest! {
        #[test]
        fn every_row_is_in_one_batch_that_fits(lengths in prop::collection::vec(1..100_usize, 0..60), most in 1..400_usize) {
            let batches = by_length(&lengths, |longest| most / longest);
            let mut seen = batches.concat();
            let batched: Vec<usize> = seen.iter().map(|&number| lengths[number]).collect();
            prop_assert!(batched.is_sorted_by(|a, b| a >= b));
            for batch in &batches {
                prop_assert!(batch.len() == 1 || batch.len() * lengths[batch[0]] <= most);
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
        }

        #[test]
        fn groups_hold_everything_in_order(sizes in prop::collection::vec(0..50_usize, 0..60), most in 1..100_usize) {
            let groups = groups(&sizes, most);
            prop_assert_eq!(groups.iter().cloned().flatten().collect::<Vec<_>>(), (0..sizes.len()).collect::<Vec<_>>());
            for group in groups {
                prop_assert!(group.len() == 1 || sizes[group].iter().sum::<usize>() <= most);
            }
        }

        #[test]
        fn results_come_out_in_order_whatever_order_they_go_in(
            order in (0..40_usize).prop_flat_map(|len| Just((0..len).collect::<Vec<_>>()).prop_shuffle()),
        ) {
            let mut results = InOrder::new(0..order.len());
            let mut shown = Vec::new();
            for (done, &number) in order.iter().enumerate() {
                shown.extend(results.put(number, number));
                // Emitted as early as possible: everything below the first missing one is out.
                let missing = (0..).find(|n| !order[..=done].contains(n)).unwrap_or_default();
                prop_assert_eq!(shown.len(), missing);
            }
            prop_assert_eq!(shown, (0..order.len()).collect::<Vec<_>>());
        }
    }
}
