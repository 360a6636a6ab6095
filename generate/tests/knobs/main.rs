//! The knobs as a whole: precedence, ranges, saving and loading.

#![allow(clippy::unwrap_used)]

mod file;
mod refused;

use std::fs;

use ember_cli::wording::{Worded, decoding, line};
use ember_decoding::config::{FolderSettings, GenerationConfig, KNOBS, Knobs, Sampling, Semantics, Strategy};
use ember_decoding::named::Named;

fn folder(json: &str) -> anyhow::Result<FolderSettings> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("generation_config.json"), json).unwrap();
    Ok(FolderSettings::read(dir.path())?)
}

fn error_line(error: impl Into<anyhow::Error>) -> Worded {
    line(error.into().as_ref())
}

fn resolve(flags: Knobs, json: &str) -> (GenerationConfig, String) {
    let (config, notes) = GenerationConfig::resolve(&flags, &folder(json).unwrap()).unwrap();
    (config, notes.iter().map(decoding::note).collect::<Vec<_>>().join("\n"))
}

fn refused(flags: Knobs) -> String {
    refused_with(flags, "{}")
}

fn refused_with(flags: Knobs, json: &str) -> String {
    let line = error_line(GenerationConfig::resolve(&flags, &folder(json).unwrap()).unwrap_err());
    assert_eq!(line.exit_code(), 2, "{line:?}");
    line.words()
}

fn off() -> Knobs {
    Knobs::default()
}

#[test]
fn the_strategy_follows_the_knobs() {
    let strategy = |flags: Knobs| resolve(flags, "{}").0.strategy;
    assert_eq!(strategy(off()), Strategy::Greedy);
    assert_eq!(strategy(Knobs { top_k: Some(5), ..off() }), Strategy::Sample);
    assert_eq!(strategy(Knobs { eta_cutoff: Some(0.1), ..off() }), Strategy::Sample);
    assert_eq!(strategy(Knobs { temperature: Some(1.0), ..off() }), Strategy::Sample);
    assert_eq!(strategy(Knobs { temperature: Some(0.0), ..off() }), Strategy::Greedy);
    assert_eq!(strategy(Knobs { num_beams: Some(1), ..off() }), Strategy::Greedy);
    let beams = Knobs { num_beams: Some(4), ..off() };
    assert_eq!(strategy(beams.clone()), Strategy::Beam);
    assert_eq!(strategy(Knobs { min_p: Some(0.1), ..beams.clone() }), Strategy::BeamSample);
    assert_eq!(strategy(Knobs { temperature: Some(0.0), ..beams.clone() }), Strategy::Beam);
    let diverse = Knobs { num_beam_groups: Some(2), diversity_penalty: Some(0.5), ..beams };
    assert_eq!(strategy(diverse), Strategy::DiverseBeam);
    // A penalty is not a sampling knob.
    assert_eq!(strategy(Knobs { repetition_penalty: Some(1.2), ..off() }), Strategy::Greedy);
    let zero = Knobs { temperature: Some(0.0), ..off() };
    assert_eq!(strategy(Knobs { strategy: Some(Strategy::Sample), ..zero.clone() }), Strategy::Greedy);
    let beam_sample = Knobs { strategy: Some(Strategy::BeamSample), num_beams: Some(2), ..zero };
    assert_eq!(strategy(beam_sample), Strategy::Beam);
}

#[test]
fn a_sampling_knob_that_is_off_may_stand_beside_a_temperature_of_0() {
    let whole = Knobs { top_p: Some(1.0), typical_p: Some(1.0), ..off() };
    let nothing = Knobs { top_k: Some(0), min_p: Some(0.0), epsilon_cutoff: Some(0.0), eta_cutoff: Some(0.0), ..off() };
    for knobs in [whole.clone(), nothing] {
        let greedy = Knobs { temperature: Some(0.0), ..knobs };
        assert_eq!(resolve(greedy.clone(), "{}").0, GenerationConfig::default());
        let folder = r#"{"do_sample": true, "top_p": 0.9}"#;
        assert_eq!(resolve(greedy.clone(), folder).0.strategy, Strategy::Greedy);
        assert_eq!(resolve(Knobs { strategy: Some(Strategy::Sample), ..greedy }, "{}").0.strategy, Strategy::Greedy);
    }
    // By itself it still means sampling.
    assert_eq!(resolve(whole, "{}").0.strategy, Strategy::Sample);
}

#[test]
fn the_folder_chooses_the_strategy_where_no_flag_does() {
    let strategy = |flags: Knobs, json: &str| resolve(flags, json).0.strategy;
    let sampled = r#"{"do_sample": true, "num_beams": 4}"#;
    let diverse = r#"{"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0}"#;
    assert_eq!(strategy(off(), r#"{"do_sample": true}"#), Strategy::Sample);
    assert_eq!(strategy(off(), sampled), Strategy::BeamSample);
    assert_eq!(strategy(off(), diverse), Strategy::DiverseBeam);
    assert_eq!(strategy(off(), r#"{"strategy": "exact"}"#), Strategy::Exact);
    // A flag changes only its own subject.
    assert_eq!(strategy(Knobs { temperature: Some(0.0), ..off() }, sampled), Strategy::Beam);
    assert_eq!(strategy(Knobs { num_beams: Some(1), ..off() }, sampled), Strategy::Sample);
    assert_eq!(strategy(Knobs { num_beams: Some(4), ..off() }, r#"{"do_sample": true}"#), Strategy::Beam);
    assert_eq!(strategy(Knobs { num_beams: Some(8), ..off() }, sampled), Strategy::Beam);
    assert_eq!(strategy(Knobs { top_p: Some(0.9), ..off() }, diverse), Strategy::BeamSample);
    assert_eq!(strategy(Knobs { num_beams: Some(1), ..off() }, diverse), Strategy::Greedy);
    assert_eq!(strategy(Knobs { top_p: Some(0.9), ..off() }, r#"{"strategy": "exact"}"#), Strategy::Sample);
    assert_eq!(strategy(Knobs { strategy: Some(Strategy::Greedy), ..off() }, sampled), Strategy::Greedy);
}

#[test]
fn the_flag_comes_before_the_folder_and_the_folder_before_off() {
    let json = r#"{"do_sample": true, "temperature": 0.7, "top_k": 50, "eos_token_id": [1, 2], "use_cache": true}"#;
    let (config, notes) = resolve(Knobs { top_k: Some(5), ..off() }, json);
    assert_eq!((config.temperature, config.top_k, config.top_p), (0.7, 5, 1.0));
    assert_eq!(notes, "from generation_config.json: temperature 0.7");
    let (config, notes) = resolve(off(), json);
    assert_eq!((config.strategy, config.top_k), (Strategy::Sample, 50));
    assert_eq!(
        notes,
        "from generation_config.json: do_sample true, temperature 0.7, top_k 50 (--strategy greedy takes the most probable \
         token each time)"
    );
    // A flag that turns a knob off overrides the folder.
    let (config, notes) = resolve(Knobs { repetition_penalty: Some(1.0), ..off() }, r#"{"repetition_penalty": 1.3}"#);
    assert_eq!((config, notes.as_str()), (GenerationConfig::default(), ""));
}

#[test]
fn what_the_strategy_ignores_is_an_error_in_a_flag_and_a_note_in_the_folder() {
    let greedy = Knobs { strategy: Some(Strategy::Greedy), ..off() };
    let message = refused(Knobs { top_p: Some(0.9), ..greedy.clone() });
    assert_eq!(message, "--strategy greedy ignores --top-p; drop one of the two");
    let message = refused(Knobs { num_beams: Some(4), ..greedy.clone() });
    assert_eq!(message, "--strategy greedy ignores --num-beams; drop one of the two");
    let message = refused(Knobs { temperature: Some(0.0), top_k: Some(3), ..off() });
    assert_eq!(message, "--temperature 0 means greedy, which ignores --top-k; drop one of the two");
    let message = refused(Knobs { temperature: Some(0.0), top_k: Some(0), min_p: Some(0.1), ..off() });
    assert_eq!(message, "--temperature 0 means greedy, which ignores --min-p; drop one of the two");
    let message = refused(Knobs { length_penalty: Some(2.0), ..off() });
    assert_eq!(message, "greedy ignores --length-penalty; add --num-beams above 1, or drop it");
    let message = refused(Knobs { diversity_penalty: Some(2.0), num_beams: Some(2), ..off() });
    assert_eq!(message, "beam search ignores --diversity-penalty; add --num-beam-groups above 1, or drop it");
    let message = refused(Knobs { max_nodes: Some(2), top_k: Some(2), ..off() });
    assert_eq!(message, "sampling ignores --max-nodes; add --strategy exact, or drop it");
    let message = refused(Knobs { num_return_sequences: Some(2), ..off() });
    assert!(message.starts_with("--num-return-sequences above 1 would give the same greedy text again;"), "{message}");
    // A knob that is off is not ignored: it stays off.
    let (config, _) = resolve(Knobs { num_beams: Some(1), top_p: Some(1.0), ..greedy }, "{}");
    assert_eq!(config, GenerationConfig::default());

    let (config, notes) = resolve(off(), r#"{"top_p": 0.9, "num_return_sequences": 3, "top_h": 0.5, "min_p": null}"#);
    assert_eq!(config, GenerationConfig::default());
    assert_eq!(
        notes,
        "generation_config.json sets top_p 0.9, num_return_sequences 3, which greedy ignores\n\
         generation_config.json also sets top_h 0.5: not applied"
    );
}

#[test]
fn every_knob_is_an_error_or_is_used_under_every_strategy() {
    // Every knob with a value that is on; the counts are consistent.
    let all = folder(
        r#"{"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5, "length_penalty": 2.0, "early_stopping": true,
            "max_nodes": 10, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.9,
            "epsilon_cutoff": 0.1, "eta_cutoff": 0.1, "sequence_bias": [[[1], 2.0]], "repetition_penalty": 1.2,
            "presence_penalty": 1.0, "frequency_penalty": 1.0, "no_repeat_ngram_size": 2, "bad_words_ids": [[1]],
            "semantics": "mlx", "suppress_tokens": [2], "stop_strings": "x", "max_time": 1.0, "overflow": "stop", "num_return_sequences": 2,
            "min_new_tokens": 1, "max_new_tokens": 9}"#,
    )
    .unwrap();
    for &strategy in Strategy::ALL {
        for knob in KNOBS {
            let value = knob.set_in(&all.knobs).unwrap();
            assert!(!knob.is_off(value), "{} is off", knob.name);
            let mut flags = Knobs { strategy: Some(strategy), num_beams: Some(4), ..off() };
            if !strategy.has_beams() {
                flags.num_beams = None;
            }
            if strategy == Strategy::DiverseBeam {
                flags = Knobs { num_beam_groups: Some(2), diversity_penalty: Some(1.0), ..flags };
            }
            knob.read(&mut flags, &value.to_json()).unwrap();
            let result = GenerationConfig::resolve(&flags, &FolderSettings::default());
            match (knob.used_by.contains(strategy), result) {
                (true, Ok((config, _))) => assert_eq!(knob.of(&config).to_json(), value.to_json(), "{}", knob.name),
                (false, Err(error)) => assert!(error_line(error).words().contains(&format!("--{}", knob.label))),
                (_, result) => panic!("{} under {strategy:?}: {result:?}", knob.name),
            }
        }
    }
}

#[test]
fn another_stack_brings_its_defaults_behind_flags_and_before_the_folder() {
    let llama = Knobs { semantics: Some(Semantics::Llamacpp), ..off() };
    let (config, notes) =
        resolve(Knobs { top_k: Some(0), ..llama.clone() }, r#"{"top_p": 0.5, "repetition_penalty": 2.0}"#);
    assert_eq!((config.strategy, config.semantics), (Strategy::Sample, Semantics::Llamacpp));
    assert_eq!((config.temperature, config.top_k, config.top_p, config.min_p), (0.8, 0, 0.95, 0.05));
    assert_eq!(
        notes,
        "from generation_config.json: repetition_penalty 2\nllama.cpp's defaults: temperature 0.8, top_p 0.95, min_p 0.05"
    );
    // Our checkpoints set top_k = 0 against transformers' default of 50; that is not meant for
    // llama.cpp.
    assert_eq!(resolve(llama.clone(), r#"{"top_k": 0}"#).0.top_k, 40);
    // A file that names a stack was saved from it.
    let (config, _) = resolve(off(), r#"{"semantics": "llamacpp", "top_p": 0.5}"#);
    assert_eq!((config.semantics, config.top_p, config.top_k), (Semantics::Llamacpp, 0.5, 40));
    let (config, notes) = resolve(Knobs { temperature: Some(0.0), ..llama.clone() }, "{}");
    assert_eq!((config.strategy, notes.as_str()), (Strategy::Greedy, ""));
    let message = refused(Knobs { num_beams: Some(4), ..llama });
    assert_eq!(message, "beam search ignores --semantics; give --num-beams 1, or drop it");

    let mlx = Knobs { semantics: Some(Semantics::Mlx), ..off() };
    assert_eq!(resolve(mlx.clone(), "{}").0.strategy, Strategy::Greedy);
    let (config, _) = resolve(Knobs { temperature: Some(0.7), ..mlx.clone() }, "{}");
    assert_eq!((config.strategy, config.temperature), (Strategy::Sample, 0.7));
    let message = refused(Knobs { top_p: Some(0.9), ..mlx });
    assert!(message.starts_with("--semantics mlx has a temperature of 0 by default"), "{message}");
}

/// The file that `ember-train` writes into its folders, combined with each flag that asks for
/// something else.
#[test]
fn the_defaults_of_training_give_way_to_flags() {
    let text =
        r#"{"bos_token_id": 0, "eos_token_id": 0, "top_k": 0, "do_sample": true, "temperature": 0.8, "top_p": 0.95}"#;
    let stories = r#"{"bos_token_id": 0, "eos_token_id": 0, "top_k": 0, "do_sample": true, "temperature": 1.0}"#;
    for (json, sampling) in [
        (text, Sampling { temperature: 0.8, top_p: 0.95, opening: Some(0) }),
        (stories, Sampling { temperature: 1.0, top_p: 1.0, opening: Some(0) }),
    ] {
        let file: serde_json::Value = serde_json::from_str(json).unwrap();
        let keys = sampling.to_hugging_face();
        assert!(keys.iter().all(|(key, value)| file[key] == *value), "{keys:?}");
        assert_eq!(keys.len() + 2, file.as_object().unwrap().len()); // training knows what ends a text
        assert_eq!(resolve(off(), json).0, sampling.config());
    }
    let (config, notes) = resolve(off(), text);
    assert_eq!((config.strategy, config.temperature, config.top_p), (Strategy::Sample, 0.8, 0.95));
    assert!(
        notes
            .starts_with("from generation_config.json: do_sample true, temperature 0.8, top_p 0.95 (--strategy greedy")
    );
    let (config, notes) = resolve(off(), stories);
    assert_eq!(config, GenerationConfig { strategy: Strategy::Sample, ..GenerationConfig::default() });
    assert!(notes.starts_with("from generation_config.json: do_sample true (--strategy greedy"), "{notes}");

    let ignored =
        |words: &str| format!("generation_config.json sets temperature 0.8, top_p 0.95, which {words} ignores");
    let of = |strategy| Knobs { strategy: Some(strategy), ..off() };
    let beams = Knobs { num_beams: Some(4), ..off() };
    for (flags, strategy, notes) in [
        (of(Strategy::Greedy), Strategy::Greedy, ignored("greedy")),
        (Knobs { temperature: Some(0.0), ..off() }, Strategy::Greedy, ignored("greedy")),
        (beams.clone(), Strategy::Beam, ignored("beam search")),
        (of(Strategy::Exact), Strategy::Exact, ignored("exact search")),
        (
            Knobs { top_k: Some(3), ..beams },
            Strategy::BeamSample,
            "from generation_config.json: temperature 0.8, top_p 0.95".into(),
        ),
        (Knobs { temperature: Some(1.2), ..off() }, Strategy::Sample, "from generation_config.json: top_p 0.95".into()),
    ] {
        let (config, shown) = resolve(flags, text);
        assert_eq!((config.strategy, shown), (strategy, notes));
    }
    // Drafts and several texts go with sampling; another stack's defaults precede the folder's.
    let (config, _) = resolve(Knobs { draft_tokens: Some(4), num_return_sequences: Some(3), ..off() }, text);
    assert_eq!((config.strategy, config.draft_tokens, config.num_return_sequences), (Strategy::Sample, 4, 3));
    let mlx = Knobs { semantics: Some(Semantics::Mlx), ..off() };
    assert_eq!(resolve(mlx.clone(), text).0.strategy, Strategy::Greedy);
    let message = refused_with(Knobs { top_p: Some(0.9), ..mlx }, text);
    assert!(message.starts_with("--semantics mlx has a temperature of 0 by default"), "{message}");
    let llamacpp = resolve(Knobs { semantics: Some(Semantics::Llamacpp), ..off() }, stories).0;
    assert_eq!((llamacpp.strategy, llamacpp.temperature, llamacpp.top_p), (Strategy::Sample, 0.8, 0.95));
}

#[test]
fn what_our_own_folders_say_needs_no_note() {
    let (config, notes) = resolve(off(), r#"{"bos_token_id": 0, "eos_token_id": 0, "top_k": 0}"#);
    assert_eq!((config, notes.as_str()), (GenerationConfig::default(), ""));
    assert_eq!(FolderSettings::read(tempfile::tempdir().unwrap().path()).unwrap(), FolderSettings::default());
}

#[test]
fn lengths_that_count_the_prompt_are_explained() {
    let (_, notes) = resolve(off(), r#"{"max_length": 50, "min_length": 0}"#);
    assert_eq!(
        notes,
        "generation_config.json also sets max_length 50 (it includes the prompt; use max_new_tokens): not applied"
    );
    let (config, notes) = resolve(off(), r#"{"max_length": 50, "max_new_tokens": 9, "min_length": 5}"#);
    assert_eq!(config.max_new_tokens, 9);
    assert!(notes.ends_with("min_length 5 (it includes the prompt; use min_new_tokens): not applied"), "{notes}");
}

#[test]
fn a_line_says_how_text_is_chosen() {
    let summary = |flags: Knobs| decoding::summary(&GenerationConfig { seed: 5, ..resolve(flags, "{}").0 });
    assert_eq!(summary(off()), "greedy, up to 256 new tokens");
    assert_eq!(
        summary(Knobs { temperature: Some(0.8), top_p: Some(0.95), repetition_penalty: Some(1.1), ..off() }),
        "sampling: temperature 0.8, top-p 0.95, repetition-penalty 1.1, up to 256 new tokens, --seed 5 repeats it"
    );
    assert_eq!(
        summary(Knobs { num_beams: Some(4), suppress_tokens: Some(vec![3]), max_time_s: Some(2.5), ..off() }),
        "beam search: 4 beams, length-penalty 1, suppress [3], at most 2.5 s, up to 256 new tokens"
    );
    assert_eq!(
        summary(Knobs { strategy: Some(Strategy::Exact), ..off() }),
        "exact search: at most 100000 prefixes, up to 256 new tokens"
    );
    assert_eq!(
        summary(Knobs { draft_tokens: Some(8), ..off() }),
        "greedy: up to 256 new tokens, up to 8 drafted at a time"
    );
}
