//! Refused values, and their errors.

use ember_decoding::config::{Knob, Range};

use super::*;

#[test]
fn every_range_is_checked_and_named() {
    let is_number = |knob: &&Knob| !matches!(knob.range, Range::Any) && knob.name != "sequence_bias";
    for knob in KNOBS.iter().filter(is_number) {
        let is_whole = knob.read(&mut off(), &serde_json::json!(0.5)).is_err();
        // As a float32 this is infinity.
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
    let error = error_line(folder(r#"{"sequence_bias": [[[3], -1e10]]}"#).unwrap_err()).words();
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
    // A contradiction in the folder is not a usage error; one that a flag causes is.
    let error =
        error_line(GenerationConfig::resolve(&off(), &folder(r#"{"min_new_tokens": 300}"#).unwrap()).unwrap_err());
    let line = "the settings of generation_config.json cannot be used: min_new_tokens is 300, more than max_new_tokens, which \
                is 256; correct that file, or override it by flags";
    assert_eq!(error, Worded::Failure(line.to_owned()));
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
        (r#"{"temperature": 0.0}"#, "for greedy decoding"),
        (r#"{"do_sample": 1}"#, "do_sample is 1; it must be true or false"),
        (r#"{"early_stopping": "always"}"#, "it must be true, false or \"never\""),
        (r#"{"strategy": "lucky"}"#, "strategy is \"lucky\""),
        (r#"{"bad_words_ids": [[]]}"#, "bad_words_ids is [[]]; it must be a list of lists of token ids"),
        (r#"{"bad_words_ids": [5]}"#, "bad_words_ids is [5]"),
        (r#"{"stop_strings": [""]}"#, "it must be a string or a list of strings, none of them empty"),
        (r#"{"sequence_bias": [[[1], null]]}"#, "sequence_bias is"),
    ];
    for (json, problem) in cases {
        let error = error_line(folder(json).unwrap_err()).words();
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
