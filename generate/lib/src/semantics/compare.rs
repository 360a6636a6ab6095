//! Compares the stacks: the distribution of the next token under each one's rules.

use serde::Serialize;

use crate::config::{GenerationConfig, Semantics, Strategy};
use crate::processors::{Chain, History, Rules, SamplingKnob, Step};
use crate::softmax::{highest, softmax};
use crate::{named::Named, sampler::greedy};

/// How another stack's distribution of the next token differs under the same knobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The other stack.
    pub semantics: Semantics,
    /// Total variation distance: half the sum of the tokens' differences; 0 if the distributions
    /// are equal, 1 if they are disjoint.
    pub total_variation: f64,
    /// Number of tokens possible under the semantics chosen ("here").
    pub possible_here: usize,
    /// Number of tokens possible in the other stack ("there").
    pub possible_there: usize,
    /// Tokens possible only here, most probable first.
    pub only_here: Vec<u32>,
    /// Tokens possible only there, most probable first.
    pub only_there: Vec<u32>,
    /// The tokens whose probability differs, largest difference first; at most [`MAX_TOKENS`].
    pub tokens: Vec<TokenDifference>,
    /// The rules that cause the difference, largest effect first.
    pub causes: Vec<Cause>,
}

/// How many tokens a [`Difference`] lists.
pub const MAX_TOKENS: usize = 8;

/// A token's two probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TokenDifference {
    /// Its id.
    pub id: u32,
    /// Its probability under the semantics chosen.
    pub here: f64,
    /// Its probability in the other stack.
    pub there: f64,
}

/// A rule of the other stack that by itself changes the distribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// The two rules, in words.
    pub rule: String,
    /// The total variation distance that this rule causes by itself.
    pub total_variation: f64,
    /// Number of tokens possible with only this rule changed.
    pub possible: usize,
}

/// Differences in probability below this are rounding errors.
pub(super) const ROUNDING: f64 = 1e-6;

/// Compares the distribution of the next token under `config`, its semantics included, with those
/// of the two other stacks under the same knobs. `logits` are the model's, `[vocab]`, possibly
/// masked by a constraint. If the knobs leave no token, every probability is 0.
pub fn compare(logits: &[f32], step: &Step, config: &GenerationConfig) -> Vec<Difference> {
    let distribution = |rules: &Rules| {
        let mut logits = logits.to_vec();
        Chain::with_rules(config, rules, None).process(step, &mut logits);
        let mut probabilities = vec![0.0; logits.len()];
        if highest(&logits) == f32::NEG_INFINITY {
            return probabilities;
        }
        if config.strategy == Strategy::Greedy {
            probabilities[greedy(&logits) as usize] = 1.0;
            return probabilities;
        }
        softmax(&logits).into_iter().map(f64::from).collect()
    };
    let our_rules = Rules::of(config.semantics);
    let here = distribution(&our_rules);
    let others = Semantics::ALL.iter().copied().filter(|&semantics| semantics != config.semantics);
    others
        .map(|semantics| {
            let their_rules = Rules::of(semantics);
            let mut causes: Vec<Cause> = single_changes(&our_rules, &their_rules, config)
                .into_iter()
                .map(|(rule, changed)| {
                    let there = distribution(&changed);
                    Cause { rule, total_variation: total_variation(&here, &there), possible: possible(&there) }
                })
                .filter(|cause| cause.total_variation > ROUNDING)
                .collect();
            causes.sort_by(|a, b| b.total_variation.total_cmp(&a.total_variation));
            difference(semantics, &here, &distribution(&their_rules), causes)
        })
        .collect()
}

fn difference(semantics: Semantics, here: &[f64], there: &[f64], causes: Vec<Cause>) -> Difference {
    let width = |token: &TokenDifference| (token.here - token.there).abs();
    let both = (0..).zip(here.iter().zip(there)).map(|(id, (&here, &there))| TokenDifference { id, here, there });
    let mut tokens: Vec<TokenDifference> = both.filter(|token| width(token) > ROUNDING).collect();
    tokens.sort_by(|a, b| width(b).total_cmp(&width(a)));
    tokens.truncate(MAX_TOKENS);
    Difference {
        semantics,
        total_variation: total_variation(here, there),
        possible_here: possible(here),
        possible_there: possible(there),
        only_here: only(here, there),
        only_there: only(there, here),
        tokens,
        causes,
    }
}

/// The tokens possible only `inside`, most probable first.
fn only(inside: &[f64], outside: &[f64]) -> Vec<u32> {
    let possible_inside = |id: &u32| inside[*id as usize] > 0.0 && outside[*id as usize] == 0.0;
    let mut ids: Vec<u32> = (0..inside.len() as u32).filter(possible_inside).collect();
    ids.sort_by(|&a, &b| inside[b as usize].total_cmp(&inside[a as usize]));
    ids
}

fn total_variation(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0
}

fn possible(probabilities: &[f64]) -> usize {
    probabilities.iter().filter(|&&p| p > 0.0).count()
}

/// Our rules with a single rule replaced by theirs, for each rule that differs and concerns an
/// active knob; each with the change in words.
fn single_changes(ours: &Rules, theirs: &Rules, config: &GenerationConfig) -> Vec<(String, Rules)> {
    let samples = config.strategy.samples();
    let order = |rules: &Rules| {
        let order = SamplingKnob::order(rules.order, config);
        order.into_iter().map(SamplingKnob::name).collect::<Vec<_>>().join(", ")
    };
    let ties = |survive: bool| if survive { "kept" } else { "removed" };
    let end = |from_the_top: bool| if from_the_top { "the best token down" } else { "the worst token up" };
    let mut changes = Vec::new();
    // Adds a change if it concerns an active knob and the rules differ.
    let mut add = |concerns: bool, changed: Rules, rule: String| {
        if concerns && changed != *ours {
            changes.push((rule, changed));
        }
    };
    let both = [ours, theirs];
    let [here, there] = both.map(order);
    add(
        samples && here != there,
        Rules { order: theirs.order, ..*ours },
        format!("the order is {here} here and {there} there"),
    );

    let [here, there] = both.map(|rules| words(rules.repetition_history));
    add(
        config.repetition_penalty != 1.0,
        Rules { repetition_history: theirs.repetition_history, ..*ours },
        format!("repetition-penalty looks at {here} here and at {there} there"),
    );

    let [here, there] = both.map(|rules| words(rules.count_history));
    add(
        config.presence_penalty != 0.0 || config.frequency_penalty != 0.0,
        Rules { count_history: theirs.count_history, ..*ours },
        format!("presence-penalty and frequency-penalty count {here} here and {there} there"),
    );

    let [here, there] = both.map(|rules| ties(rules.ties_survive_top_k));
    add(
        samples && SamplingKnob::TopK.is_on(config),
        Rules { ties_survive_top_k: theirs.ties_survive_top_k, ..*ours },
        format!("tokens that tie with the last one of top-k are {here} here and {there} there"),
    );

    let [here, there] = both.map(|rules| ties(rules.ties_survive_typical_p));
    add(
        samples && SamplingKnob::TypicalP.is_on(config),
        Rules { ties_survive_typical_p: theirs.ties_survive_typical_p, ..*ours },
        format!("tokens that tie with the last one of typical-p are {here} here and {there} there"),
    );

    let [here, there] = both.map(|rules| end(rules.top_p_from_the_top));
    add(
        samples && SamplingKnob::TopP.is_on(config),
        Rules { top_p_from_the_top: theirs.top_p_from_the_top, ..*ours },
        format!("top-p sums from {here} here and from {there} there, which matters for ties and at the edge"),
    );
    changes
}

fn words(history: History) -> String {
    match history {
        History::All => "the whole text".to_owned(),
        History::Generated => "the new tokens".to_owned(),
        History::Last(count) => format!("the last {count} tokens"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::{Strategy as _, prop, prop_assert, proptest};

    const START: Step = Step { prompt: &[], generated: &[] };

    fn sampling() -> GenerationConfig {
        GenerationConfig { strategy: Strategy::Sample, ..Default::default() }
    }

    fn logits(probabilities: &[f32]) -> Vec<f32> {
        probabilities.iter().map(|p| p.ln()).collect()
    }

    /// Compares with one other stack.
    fn against(semantics: Semantics, logits: &[f32], step: &Step, config: &GenerationConfig) -> Difference {
        let all = compare(logits, step, config);
        assert_eq!(all.len(), 2);
        all.into_iter().find(|difference| difference.semantics == semantics).unwrap()
    }

    /// Temperature 2 first makes 0.37, 0.26, 0.22, 0.15 of four tokens, and top-p 0.74 keeps three.
    /// With top-p first, it sees 0.50, 0.25, 0.17, 0.08 and keeps two, to which temperature gives
    /// 0.59 and 0.41.
    #[test]
    fn temperature_before_and_after_top_p_worked_by_hand() {
        let config = GenerationConfig { temperature: 2.0, top_p: 0.74, ..sampling() };
        let logits = logits(&[0.50, 0.25, 0.17, 0.08]);
        let difference = against(Semantics::Llamacpp, &logits, &START, &config);
        assert_eq!((difference.possible_here, difference.possible_there), (3, 2));
        assert_eq!((difference.only_here.as_slice(), difference.only_there.as_slice()), (&[2][..], &[][..]));
        let roots: Vec<f64> = [0.50_f64, 0.25, 0.17].iter().map(|p| p.sqrt()).collect();
        let third = roots[2] / roots.iter().sum::<f64>();
        assert!((difference.total_variation - third).abs() < 1e-5, "the third token's share moves");
        assert_eq!(difference.causes.len(), 1);
        assert_eq!(difference.causes[0].rule, "the order is temperature, top-p here and top-p, temperature there");
        assert_eq!(difference.causes[0].possible, 2);
    }

    #[test]
    fn each_rule_is_found_as_the_cause() {
        let cause = |semantics, logits: &[f32], step: &Step, config: &GenerationConfig| {
            let difference = against(semantics, logits, step, config);
            assert_eq!(difference.causes.len(), 1, "{difference:?}");
            assert!((difference.causes[0].total_variation - difference.total_variation).abs() < 1e-9);
            difference.causes[0].rule.clone()
        };
        // Token 0 is 70 tokens back, beyond llama.cpp's window; MLX's ends before the one 30 back,
        // too.
        let long: Vec<u32> = [0].into_iter().chain([2; 39]).chain([1]).chain([2; 29]).collect();
        let step = Step { prompt: &long, generated: &[] };
        let penalised = GenerationConfig { repetition_penalty: 1.5, ..sampling() };
        let rule = cause(Semantics::Llamacpp, &[1.0, 2.0, 3.0], &step, &penalised);
        assert_eq!(rule, "repetition-penalty looks at the whole text here and at the last 64 tokens there");
        assert!(cause(Semantics::Mlx, &[1.0, 2.0, 3.0], &step, &penalised).ends_with("the last 20 tokens there"));
        let present = GenerationConfig { presence_penalty: 0.5, ..sampling() };
        let rule = cause(Semantics::Llamacpp, &[1.0, 2.0, 3.0], &step, &present);
        assert!(rule.ends_with("count the new tokens here and the last 64 tokens there"), "{rule}");
        let two_of_a_tie = GenerationConfig { top_k: 2, ..sampling() };
        let rule = cause(Semantics::Mlx, &[1.0, 1.0, 1.0, 0.0], &START, &two_of_a_tie);
        assert_eq!(rule, "tokens that tie with the last one of top-k are kept here and removed there");
        let typical = GenerationConfig { typical_p: 0.5, ..sampling() };
        let rule = cause(Semantics::Llamacpp, &[1.0; 4], &START, &typical);
        assert_eq!(rule, "tokens that tie with the last one of typical-p are kept here and removed there");
        let half = GenerationConfig { top_p: 0.5, ..sampling() };
        let rule = cause(Semantics::Llamacpp, &[1.0; 4], &START, &half);
        assert!(
            rule.starts_with("top-p sums from the worst token up here and from the best token down there"),
            "{rule}"
        );
    }

    #[test]
    fn greedy_differs_only_where_the_best_token_does() {
        let prompt: Vec<u32> = [0].into_iter().chain([2; 100]).collect();
        let step = Step { prompt: &prompt, generated: &[] };
        let config = GenerationConfig { repetition_penalty: 1.5, ..Default::default() };
        let difference = against(Semantics::Llamacpp, &[3.0, 2.5, 0.0], &step, &config);
        assert_eq!((difference.total_variation, difference.only_here, difference.only_there), (1.0, vec![1], vec![0]));
        assert_eq!(against(Semantics::Llamacpp, &[5.0, 2.5, 0.0], &step, &config).total_variation, 0.0);
    }

    #[test]
    fn nothing_left_is_no_difference() {
        let config = GenerationConfig { suppress_tokens: vec![0, 1], ..sampling() };
        let difference = against(Semantics::Mlx, &[1.0, 2.0], &START, &config);
        assert_eq!((difference.total_variation, difference.possible_here, difference.possible_there), (0.0, 0, 0));
    }

    proptest! {
        /// With one knob other than a penalty, and no ties, the stacks agree. For any knobs the
        /// numbers are consistent.
        #[test]
        fn stacks_agree_on_single_knobs(steps in prop::collection::btree_set(0..4000_i32, 2..60), which in 0..5_usize) {
            let mut logits: Vec<f32> = steps.into_iter().map(|step| step as f32 / 400.0).collect();
            logits.reverse();
            let config = match which {
                0 => GenerationConfig { temperature: 0.7, ..sampling() },
                1 => GenerationConfig { top_k: 7, ..sampling() },
                2 => GenerationConfig { min_p: 0.031, ..sampling() },
                3 => GenerationConfig { epsilon_cutoff: 0.0123, ..sampling() },
                _ => GenerationConfig { logit_bias: vec![(vec![1], 2.0)], ..sampling() },
            };
            for difference in compare(&logits, &START, &config) {
                prop_assert!(difference.total_variation < 1e-6, "{difference:?}");
                prop_assert!(difference.causes.is_empty() && difference.tokens.is_empty());
            }
        }

        #[test]
        fn the_figures_fit_together(
            logits in prop::collection::vec((-20_i8..20).prop_map(|step| f32::from(step) / 4.0), 2..60),
            (temperature, top_k, top_p, typical_p) in (0.2..3.0_f32, 0..20_usize, 0.1..1.0_f64, 0.1..1.0_f64),
            semantics in prop::sample::select(Semantics::ALL),
        ) {
            let config = GenerationConfig { temperature, top_k, top_p, typical_p, semantics, ..sampling() };
            for difference in compare(&logits, &START, &config) {
                prop_assert!(difference.semantics != semantics);
                prop_assert!((0.0..=1.0 + 1e-6).contains(&difference.total_variation));
                let shared = difference.possible_here - difference.only_here.len();
                prop_assert!(shared == difference.possible_there - difference.only_there.len());
                prop_assert!(difference.causes.is_empty() || difference.causes[0].total_variation > 0.0);
            }
        }
    }
}
