//! Texts that end in a loop: the same stretch repeated again and again, a known failure of greedy
//! decoding (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020, figure 4).

/// The loop at the end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Tokens before the looping stretch first occurs.
    pub onset: usize,
    /// Tokens in the stretch.
    pub period: usize,
}

/// The loop at the end of `ids`: the shortest stretch that is repeated at least `times` times (1 or
/// more) up to the last token (the last repetition may be cut short), over at least `min_tokens`
/// tokens.
pub fn ending_loop(ids: &[u32], times: usize, min_tokens: usize) -> Option<Loop> {
    (1..=ids.len() / times).find_map(|period| {
        let same = ids.iter().rev().zip(ids[..ids.len() - period].iter().rev()).take_while(|(a, b)| a == b).count();
        let covered = same + period;
        (covered >= min_tokens.max(times * period)).then(|| Loop { onset: ids.len() - covered, period })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples_by_hand() {
        let of = |ids: &[u32]| ending_loop(ids, 3, 16);
        let text = [&[9, 8, 7][..], &[1, 2, 3, 4, 5].repeat(4), &[1, 2]].concat();
        assert_eq!(of(&text), Some(Loop { onset: 3, period: 5 }));
        assert_eq!(of(&text[..text.len() - 8]), None, "17 tokens, less than three times");
        assert_eq!(of(&[7; 16]), Some(Loop { onset: 0, period: 1 }));
        assert_eq!(of(&[7; 15]), None);
        assert_eq!(of(&[&[1; 30][..], &[2]].concat()), None, "it ended");
        assert_eq!(of(&[]), None);
    }

    proptest! {
        #[test]
        fn a_loop_is_what_its_definition_says(
            before in prop::collection::vec(0..3_u32, 0..20),
            stretch in prop::collection::vec(0..3_u32, 1..8),
            tokens in 0..60_usize,
            times in 1..4_usize,
            min_tokens in 0..24_usize,
        ) {
            let text: Vec<u32> = before.iter().chain(stretch.iter().cycle().take(tokens)).copied().collect();
            let periodic = |onset: usize, period: usize| (onset + period..text.len()).all(|i| text[i] == text[i - period]);
            let mut expected = None;
            'all: for period in 1..=text.len() {
                for onset in 0..text.len() {
                    let covered = text.len() - onset;
                    if covered >= times * period && covered >= min_tokens && periodic(onset, period) {
                        expected = Some(Loop { onset, period });
                        break 'all;
                    }
                }
            }
            prop_assert_eq!(ending_loop(&text, times, min_tokens), expected);
        }
    }
}
