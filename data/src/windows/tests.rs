#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

const END: u32 = 0;

fn numbered(count: u32) -> TokenFile {
    TokenFile::from_ids(&(0..count).collect::<Vec<_>>(), 100_000).unwrap()
}

/// A stream of documents of the given lengths: [END, tokens..., END, tokens..., END].
fn documents(lengths: &[usize]) -> TokenFile {
    let mut ids = Vec::new();
    for (i, &length) in lengths.iter().enumerate() {
        ids.push(END);
        ids.extend(std::iter::repeat_n(i as u32 + 1, length));
    }
    ids.push(END);
    TokenFile::from_ids(&ids, 100_000).unwrap()
}

#[test]
fn targets_are_the_inputs_moved_on_by_one() {
    let windows = TrainWindows::new(&numbered(1000), 8, 1, WindowRule::Anywhere, None).unwrap();
    let batch = windows.batch(3, 2).unwrap();
    assert_eq!(batch.inputs.len(), 16);
    assert_eq!(u64::from(batch.inputs[8]), windows.window(4));
    assert!(batch.inputs.iter().zip(&batch.targets).all(|(input, target)| input + 1 == *target));
}

#[test]
fn passes_differ_in_order_and_offset() {
    let windows = TrainWindows::new(&numbered(1000), 10, 1, WindowRule::Anywhere, None).unwrap();
    let n = windows.windows_per_pass();
    let offsets: std::collections::BTreeSet<u64> = (0..100).map(|pass| windows.window(pass * n) % 10).collect();
    assert_eq!(offsets.len(), 10, "every offset occurs in 100 passes");
    let first: Vec<u64> = (0..n).map(|i| windows.window(i) / 10).collect();
    let second: Vec<u64> = (0..n).map(|i| windows.window(n + i) / 10).collect();
    assert_ne!(first, second);
}

#[test]
fn too_short_texts_are_told_what_would_fit() {
    let error = |tokens: &TokenFile, rule| TrainWindows::new(tokens, 64, 1, rule, Some(END)).err().unwrap().to_string();
    assert!(error(&numbered(50), WindowRule::Anywhere).contains("at most 49"));
    assert!(error(&documents(&[5, 6]), WindowRule::DocumentStart).contains("at most 13"));
    assert!(TrainWindows::new(&numbered(50), 49, 1, WindowRule::Anywhere, None).is_ok());
    assert!(TrainWindows::new(&documents(&[5, 6]), 13, 1, WindowRule::DocumentStart, Some(END)).is_ok());
    assert!(TrainWindows::new(&documents(&[5, 6]), 4, 1, WindowRule::DocumentStart, None).is_err());
}

#[test]
fn whole_documents_share_a_validation_window() {
    // Including their end tokens, the documents have 4, 5, 3 and 21 targets; 10 fit in a window.
    let windows = ValWindows::new(&documents(&[3, 4, 2, 20]), 10, WindowRule::DocumentStart, Some(END)).unwrap();
    let (batch, counted) = windows.batch(0..windows.len()).unwrap();
    assert_eq!(counted, [9, 3, 10, 10, 1]);
    assert_eq!(&batch.inputs[..10], [0, 1, 1, 1, 0, 2, 2, 2, 2, 0]);
    assert_eq!(&batch.targets[..10], [1, 1, 1, 0, 2, 2, 2, 2, 0, 0]);
    assert_eq!(&batch.inputs[10..13], [0, 3, 3]);
}

#[test]
fn a_subset_is_spread_over_the_whole() {
    let windows = ValWindows::new(&numbered(1001), 10, WindowRule::Anywhere, None).unwrap();
    let starts: Vec<u64> = windows.evenly_spaced(4).windows.iter().map(|window| window.start).collect();
    assert_eq!(starts, [0, 250, 500, 750]);
    assert_eq!(windows.evenly_spaced(1000).len(), 100);
}

proptest! {
    #[test]
    fn a_pass_visits_disjoint_windows_once(count in 20u32..500, context_length in 1usize..19, seed: u64, pass in 0u64..5) {
        let windows = TrainWindows::new(&numbered(count), context_length, seed, WindowRule::Anywhere, None).unwrap();
        let n = windows.windows_per_pass();
        let mut starts: Vec<u64> = (0..n).map(|i| windows.window(pass * n + i)).collect();
        starts.sort_unstable();
        prop_assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == context_length as u64));
        prop_assert!(starts[n as usize - 1] + (context_length as u64) < u64::from(count));
        // At most one window's worth of tokens is unused at either end of a pass.
        prop_assert!((n + 2) * context_length as u64 + 1 > u64::from(count));
    }

    #[test]
    fn a_pass_visits_every_document_once(lengths in proptest::collection::vec(0usize..8, 1..40), seed: u64) {
        let tokens = documents(&lengths);
        if let Ok(windows) = TrainWindows::new(&tokens, 8, seed, WindowRule::DocumentStart, Some(END)) {
            let mut starts: Vec<u64> = (0..windows.windows_per_pass()).map(|i| windows.window(i)).collect();
            starts.sort_unstable();
            let mut expected = tokens.positions(END).unwrap();
            expected.retain(|&start| start as usize + 8 < tokens.len());
            prop_assert_eq!(starts, expected);
        }
    }

    /// However long a document is; only the last one's end, too short for a window, may be unused.
    #[test]
    fn every_token_of_a_long_document_is_learned_in_each_pass(
        lengths in proptest::collection::vec(0usize..30, 1..40), context_length in 1usize..25, seed: u64,
    ) {
        let tokens = documents(&lengths);
        if let Ok(windows) = TrainWindows::new(&tokens, context_length, seed, WindowRule::DocumentStart, Some(END)) {
            let starts = (0..windows.windows_per_pass()).map(|i| windows.window(i));
            let learned: std::collections::BTreeSet<u64> =
                starts.flat_map(|start| start + 1..=start + context_length as u64).collect();
            let last = tokens.len() as u64 - 1;
            let left_out = (1..=last).find(|target| !learned.contains(target)).unwrap_or(last + 1);
            prop_assert!(left_out + context_length as u64 > last, "{left_out} of {last}");
        }
    }

    #[test]
    fn every_target_is_counted_once(lengths in proptest::collection::vec(0usize..30, 1..40), context_length in 1usize..25) {
        let tokens = documents(&lengths);
        for rule in [WindowRule::Anywhere, WindowRule::DocumentStart] {
            let windows = ValWindows::new(&tokens, context_length, rule, Some(END)).unwrap();
            let mut targets: Vec<u64> = windows.windows.iter()
                .flat_map(|window| window.start + 1..=window.end).collect();
            targets.sort_unstable();
            prop_assert!(targets.into_iter().eq(1..tokens.len() as u64));
            prop_assert_eq!(windows.targets(), tokens.len() as u64 - 1);
            let (batch, counted) = windows.batch(0..windows.len()).unwrap();
            for (row, &counted) in counted.iter().enumerate() {
                let at = row * context_length;
                prop_assert!(counted >= 1 && counted as usize <= context_length);
                prop_assert_eq!(&batch.inputs[at + 1..at + counted as usize], &batch.targets[at..at + counted as usize - 1]);
                let short = lengths.iter().all(|&length| length < context_length);
                if rule == WindowRule::DocumentStart && short {
                    prop_assert_eq!(batch.inputs[at], END);
                    prop_assert_eq!(batch.targets[at + counted as usize - 1], END);
                }
            }
        }
    }
}
