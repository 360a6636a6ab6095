//! Saving knobs to a file and loading them.

use ember_decoding::config::{EarlyStopping, Overflow, Strategy};
use ember_model::folder::read_end_tokens;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;

#[test]
fn the_file_says_what_transformers_would_otherwise_choose_itself() {
    let written = |flags: Knobs| resolve(flags, "{}").0.to_hugging_face();
    let greedy = serde_json::json!({"do_sample": false, "max_new_tokens": 256, "eos_token_id": null});
    assert_eq!(written(off()), greedy);
    assert_eq!(written(Knobs { temperature: Some(0.8), ..off() })["top_k"], 0);
    let one_beam = written(Knobs { strategy: Some(Strategy::Beam), num_beams: Some(1), ..off() });
    assert_eq!((&one_beam["strategy"], &one_beam["num_beams"]), (&"beam".into(), &1.into()));
    let exact = written(Knobs { strategy: Some(Strategy::Exact), num_return_sequences: Some(3), ..off() });
    assert_eq!((&exact["strategy"], &exact["num_beams"]), (&"exact".into(), &3.into()));
}

prop_compose! {
    fn numbers()(
        (temperature, repetition_penalty) in (1e-6_f32..10.0, 1e-3_f32..10.0),
        (presence_penalty, frequency_penalty) in (-2.0_f32..2.0, -2.0_f32..2.0),
        (length_penalty, diversity_penalty) in (-3.0_f32..3.0, 1e-3_f32..5.0),
        (top_p, min_p, typical_p) in (1e-6_f64..=1.0, 0.0_f64..=1.0, 1e-6_f64..=1.0),
        (epsilon_cutoff, eta_cutoff, max_time_s) in (0.0_f64..1.0, 0.0_f64..1.0, 1e-3_f64..1e6),
        (min_new_tokens, more, top_k, no_repeat_ngram_size) in (0_usize..20, 1_usize..500, 0_usize..100, 0_usize..5),
        (groups, group, share, max_nodes) in (2_usize..4, 1_usize..4, 1_usize..20, 1_usize..1_000_000),
    ) -> Knobs {
        Knobs {
            temperature: Some(temperature),
            repetition_penalty: Some(repetition_penalty),
            presence_penalty: Some(presence_penalty),
            frequency_penalty: Some(frequency_penalty),
            length_penalty: Some(length_penalty),
            diversity_penalty: Some(diversity_penalty),
            top_p: Some(top_p),
            min_p: Some(min_p),
            typical_p: Some(typical_p),
            epsilon_cutoff: Some(epsilon_cutoff),
            eta_cutoff: Some(eta_cutoff),
            max_time_s: Some(max_time_s),
            min_new_tokens: Some(min_new_tokens),
            max_new_tokens: Some(min_new_tokens + more),
            top_k: Some(top_k),
            no_repeat_ngram_size: Some(no_repeat_ngram_size),
            num_beams: Some(groups * group),
            num_beam_groups: Some(groups),
            num_return_sequences: Some(share.min(groups * group)),
            max_nodes: Some(max_nodes),
            ..Knobs::default()
        }
    }
}

prop_compose! {
    /// Knobs that are consistent, each on or off; `num_beams` and its like stay on, since other
    /// knobs depend on them.
    fn agreeable()(
        mut knobs in numbers(),
        bad_words in prop::collection::vec(prop::collection::vec(0_u32..100, 1..4), 0..3),
        suppress in prop::collection::vec(0_u32..100, 0..3),
        bias in prop::collection::btree_map(prop::collection::vec(0_u32..100, 1..4), -9.0_f32..9.0, 0..3),
        stops in prop::collection::vec("[a-z\"\\\\\n\u{e9}]{1,4}", 0..3),
        early_stopping in select(EarlyStopping::ALL),
        overflow in select(Overflow::ALL),
        semantics in select(Semantics::ALL),
        off in subsequence((0..KNOBS.len()).collect::<Vec<_>>(), 0..KNOBS.len()),
        unset in any::<[bool; 4]>(),
    ) -> Knobs {
        knobs.bad_words = Some(bad_words);
        knobs.suppress_tokens = Some(suppress);
        knobs.logit_bias = Some(bias.into_iter().collect());
        knobs.stop_strings = Some(stops);
        knobs.early_stopping = Some(early_stopping);
        knobs.overflow = Some(overflow);
        knobs.semantics = Some(semantics);
        let needed = ["num_beams", "num_beam_groups", "diversity_penalty", "min_new_tokens", "max_new_tokens", "max_time"];
        for knob in off.into_iter().map(|number| &KNOBS[number]).filter(|knob| !needed.contains(&knob.name)) {
            knob.read(&mut knobs, &knob.of(&GenerationConfig::default()).to_json()).unwrap();
        }
        // Off differs from unset if another stack has its own default.
        knobs.temperature = knobs.temperature.filter(|_| !unset[0]);
        knobs.top_k = knobs.top_k.filter(|_| !unset[1]);
        knobs.top_p = knobs.top_p.filter(|_| !unset[2]);
        knobs.min_p = knobs.min_p.filter(|_| !unset[3]);
        knobs
    }
}

proptest! {
    #[test]
    fn a_configuration_reads_back_as_it_was_written(
        strategy in select(Strategy::ALL),
        knobs in agreeable(),
        end_tokens in prop::collection::vec(0_u32..100, 0..3),
    ) {
        // Loaded as a folder's knobs: those that the strategy ignores give notes, not errors.
        let folder = FolderSettings { knobs, not_applied: Vec::new() };
        let flags = Knobs { strategy: Some(strategy), ..Knobs::default() };
        let (config, _) = GenerationConfig::resolve(&flags, &folder).unwrap();
        let config = GenerationConfig { end_tokens, ..config };

        let dir = tempfile::tempdir().unwrap();
        config.save(&dir.path().join("generation_config.json")).unwrap();
        let read = FolderSettings::read(dir.path()).unwrap();
        prop_assert!(read.not_applied.is_empty());
        let (again, _) = GenerationConfig::resolve(&Knobs::default(), &read).unwrap();
        let again = GenerationConfig { end_tokens: read_end_tokens(dir.path()).unwrap(), ..again };
        prop_assert_eq!(again, config);
    }

    #[test]
    fn a_configuration_survives_serde(knobs in agreeable()) {
        let folder = FolderSettings { knobs, not_applied: Vec::new() };
        let flags = Knobs { strategy: Some(Strategy::BeamSample), ..Knobs::default() };
        let (config, _) = GenerationConfig::resolve(&flags, &folder).unwrap();
        let json = serde_json::to_string(&config).unwrap();
        prop_assert_eq!(serde_json::from_str::<GenerationConfig>(&json).unwrap(), config);
    }
}
