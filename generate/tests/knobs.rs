//! Tests of the knobs as a whole: precedence, ranges, the file and back.

#![allow(clippy::unwrap_used)]

use std::fs;

use ember_model::folder::read_end_tokens;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use ember_cli::wording::{decoding, line};
use ember_decoding::config::{
    EarlyStopping, FolderSettings, GenerationConfig, KNOBS, Knob, Knobs, Overflow, Range, Sampling, Semantics, Strategy,
};
use ember_decoding::named::Named;

fn folder(json: &str) -> anyhow::Result<FolderSettings> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("generation_config.json"), json).unwrap();
    Ok(FolderSettings::read(dir.path())?)
}

/// The line of an error, and whether it exits with 2.
fn said(error: impl Into<anyhow::Error>) -> (String, bool) {
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
    let (line, is_usage) = said(GenerationConfig::resolve(&flags, &folder(json).unwrap()).unwrap_err());
    assert!(is_usage, "{line} must exit with 2");
    line
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
    // A penalty is no sampling knob.
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
    // By itself it still means that tokens are drawn.
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
    // A flag changes what it is about, and no more.
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
    // Off in a flag is off, whatever the folder says.
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
    // What is off is not ignored: it stays off.
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
    // A value that is on for each knob; the counts suit each other.
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
                (false, Err(error)) => assert!(said(error).0.contains(&format!("--{}", knob.label))),
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
    // What one of our own checkpoints says to keep transformers from its own 50 is not for
    // llama.cpp.
    assert_eq!(resolve(llama.clone(), r#"{"top_k": 0}"#).0.top_k, 40);
    // A file that names the stack itself is what was saved from one.
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

/// What `ember-train` writes into its folders, and what becomes of it beside each way to ask for
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
        let (config, said) = resolve(flags, text);
        assert_eq!((config.strategy, said), (strategy, notes));
    }
    // Drafts and several texts go with sampling; another stack's defaults come before the folder's.
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
        "generation_config.json also sets max_length 50 (it counts the prompt; write max_new_tokens): not applied"
    );
    let (config, notes) = resolve(off(), r#"{"max_length": 50, "max_new_tokens": 9, "min_length": 5}"#);
    assert_eq!(config.max_new_tokens, 9);
    assert!(notes.ends_with("min_length 5 (it counts the prompt; write min_new_tokens): not applied"), "{notes}");
}

#[test]
fn every_range_is_checked_and_named() {
    let is_number = |knob: &&Knob| !matches!(knob.range, Range::Any) && knob.name != "sequence_bias";
    for knob in KNOBS.iter().filter(is_number) {
        let is_whole = knob.read(&mut off(), &serde_json::json!(0.5)).is_err();
        // As a float32, this is infinity.
        let wrong = if is_whole { serde_json::json!(0) } else { serde_json::json!(1e300) };
        let mut flags = off();
        knob.read(&mut flags, &wrong).unwrap();
        assert!(refused(flags).starts_with(&format!("--{} is ", knob.label)), "{}", knob.name);
    }
    let nan = [
        Knobs { temperature: Some(f32::NAN), ..off() },
        Knobs { top_p: Some(f64::NAN), ..off() },
        Knobs { min_p: Some(f64::NAN), ..off() },
        Knobs { typical_p: Some(f64::NAN), ..off() },
        Knobs { epsilon_cutoff: Some(f64::NAN), ..off() },
        Knobs { eta_cutoff: Some(f64::NAN), ..off() },
        Knobs { repetition_penalty: Some(f32::NAN), ..off() },
        Knobs { presence_penalty: Some(f32::NAN), ..off() },
        Knobs { frequency_penalty: Some(f32::NAN), ..off() },
        Knobs { length_penalty: Some(f32::NAN), ..off() },
        Knobs { diversity_penalty: Some(f32::NAN), ..off() },
        Knobs { max_time_s: Some(f64::NAN), ..off() },
    ];
    for flags in nan {
        assert!(refused(flags).contains(" is NaN; it must be "));
    }
    assert_eq!(
        refused(Knobs { repetition_penalty: Some(0.0), ..off() }),
        "--repetition-penalty is 0; it must be from 0.001 to 1000"
    );
    for penalty in [1e-40, 1e-4, -1.0] {
        assert!(refused(Knobs { repetition_penalty: Some(penalty), ..off() }).contains("from 0.001 to 1000"));
    }
    assert_eq!(
        refused(Knobs { length_penalty: Some(-1e30), num_beams: Some(2), ..off() }),
        "--length-penalty is -1000000000000000000000000000000; it must be from -10 to 10"
    );
    let bias = Some(vec![(vec![3], -2.0), (vec![4, 5], 3e38)]);
    assert!(refused(Knobs { logit_bias: bias, ..off() }).ends_with("; it must be from -1000000000 to 1000000000"));
    let (error, _) = said(folder(r#"{"sequence_bias": [[[3], -1e10]]}"#).unwrap_err());
    assert!(error.contains("sequence_bias is [[[3],-10000000000.0]]; it must be from -1000000000"), "{error}");
    assert_eq!(
        refused(Knobs { temperature: Some(1e-9), ..off() }),
        "--temperature is 0.000000001; it must be 0 (greedy) or a finite number from 0.000001 up"
    );
}

#[test]
fn knobs_that_contradict_each_other_are_named() {
    let beams = Knobs { num_beams: Some(4), ..off() };
    let diverse = Knobs { num_beam_groups: Some(2), diversity_penalty: Some(1.0), ..beams.clone() };
    let cases = [
        (
            Knobs { min_new_tokens: Some(300), ..off() },
            "--min-new-tokens is 300, more than --max-new-tokens, which is 256;",
        ),
        (
            Knobs { num_return_sequences: Some(5), ..beams.clone() },
            "--num-return-sequences is 5, more than --num-beams",
        ),
        (
            Knobs { strategy: Some(Strategy::Beam), ..off() },
            "beam search needs --num-beams; add for example --num-beams 4",
        ),
        (
            Knobs { num_beam_groups: Some(3), ..diverse.clone() },
            "--num-beam-groups is 3, which does not divide --num-beams",
        ),
        (
            Knobs { num_beam_groups: Some(2), num_beams: None, ..diverse.clone() },
            "diverse beam search needs --num-beams;",
        ),
        (
            Knobs { diversity_penalty: None, ..diverse.clone() },
            "--diversity-penalty is 0; diverse beam search needs one",
        ),
        (Knobs { top_p: Some(0.9), ..diverse.clone() }, "diverse beam search ignores --top-p;"),
        (
            Knobs { strategy: Some(Strategy::DiverseBeam), num_beams: Some(4), ..off() },
            "diverse beam search needs --num-beam-groups above 1;",
        ),
        (
            Knobs { draft_tokens: Some(4), ..beams },
            "--draft and --prompt-lookup make greedy decoding and sampling faster,",
        ),
    ];
    for (flags, beginning) in cases {
        let message = refused(flags);
        assert!(message.starts_with(beginning), "{message}");
    }
    // The folder's own contradiction is no wrong argument; one that a flag brings about is.
    let (error, is_usage) =
        said(GenerationConfig::resolve(&off(), &folder(r#"{"min_new_tokens": 300}"#).unwrap()).unwrap_err());
    assert!(!is_usage && error.starts_with("generation_config.json asks"), "{error}");
    let message = refused_with(Knobs { max_new_tokens: Some(5), ..off() }, r#"{"min_new_tokens": 10}"#);
    assert!(message.starts_with("--min-new-tokens is 10, more than --max-new-tokens, which is 5"), "{message}");
}

#[test]
fn a_wrong_folder_file_is_named_and_its_knob_too() {
    let cases = [
        ("", "not a JSON object"),
        ("[1]", "not a JSON object"),
        (r#"{"top_p": 2}"#, "top_p is 2; it must be above 0 and at most 1"),
        (r#"{"top_k": -1}"#, "top_k is -1; it must be a whole number, 0 or more"),
        (r#"{"temperature": "hot"}"#, "temperature is \"hot\"; it must be a number"),
        (r#"{"temperature": 0.0}"#, "greedy is written"),
        (r#"{"do_sample": 1}"#, "do_sample is 1; it must be true or false"),
        (r#"{"early_stopping": "always"}"#, "it must be true, false or \"never\""),
        (r#"{"strategy": "lucky"}"#, "strategy is \"lucky\""),
        (r#"{"bad_words_ids": [[]]}"#, "bad_words_ids is [[]]; it must be a list of lists of token ids"),
        (r#"{"bad_words_ids": [5]}"#, "bad_words_ids is [5]"),
        (r#"{"stop_strings": [""]}"#, "it must be a string or a list of strings, none of them empty"),
        (r#"{"sequence_bias": [[[1], null]]}"#, "sequence_bias is"),
    ];
    for (json, problem) in cases {
        let (error, _) = said(folder(json).unwrap_err());
        assert!(error.contains("generation_config.json: ") && error.contains(problem), "{json}: {error}");
    }
}

#[test]
fn ids_outside_the_vocabulary_are_found() {
    let settings = folder(r#"{"suppress_tokens": [3, 9], "bad_words_ids": [[1, 2], [4]]}"#).unwrap();
    assert!(settings.check_vocabulary(10).is_ok());
    let error = settings.check_vocabulary(9).unwrap_err().to_string();
    assert!(error.contains("suppress_tokens has 9, which is outside the model's vocabulary of 9"), "{error}");
    assert!(settings.check_vocabulary(4).unwrap_err().to_string().contains("bad_words_ids has 4"));
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
    /// Knobs that agree with each other, each on or off; `num_beams` and its like stay on, for
    /// other knobs lean on them.
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
        // Off is not the same as unset where another stack has a default of its own.
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
        // As a folder's knobs: those that the strategy ignores make notes, not errors.
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

#[test]
fn a_configuration_that_no_flags_lead_to_is_refused() {
    let wrong = |change: fn(&mut GenerationConfig)| {
        let mut config = GenerationConfig { strategy: Strategy::Sample, ..Default::default() };
        change(&mut config);
        decoding::recorded(&config.check(10).unwrap_err())
    };
    assert_eq!(wrong(|config| config.max_new_tokens = 0), "max_new_tokens is 0; it must be at least 1");
    assert_eq!(
        wrong(|config| config.num_return_sequences = 0),
        "num_return_sequences is 0; it must be from 1 to 100000"
    );
    assert!(wrong(|config| config.top_p = 2.0).starts_with("top_p is 2; it must be"));
    assert!(wrong(|config| config.logit_bias = vec![(vec![], 1.0)]).starts_with("sequence_bias is"));
    assert!(wrong(|config| config.repetition_penalty = f32::INFINITY).starts_with("repetition_penalty is inf"));
    assert!(wrong(|config| config.temperature = 0.0).starts_with("temperature is 0"));
    assert!(wrong(|config| config.suppress_tokens = vec![3, 10]).starts_with("suppress_tokens has 10"));
    assert!(wrong(|config| config.end_tokens = vec![11]).starts_with("eos_token_id has 11"));
    assert!(wrong(|config| config.logprobs = 11).starts_with("logprobs is 11"));
    assert!(wrong(|config| config.min_new_tokens = 300).starts_with("--min-new-tokens is 300, more than"));
    let beams = |config: &mut GenerationConfig| (config.strategy, config.num_return_sequences) = (Strategy::Beam, 2);
    assert!(wrong(beams).starts_with("--num-return-sequences is 2, more than --num-beams"));
    let whole = GenerationConfig { max_time_s: Some(2.0), bad_words: vec![vec![1, 2]], ..Default::default() };
    whole.check(10).unwrap();
}
