//! Tests of the command line of `text`.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, fs};

use clap::{CommandFactory, Parser};
use serde_json::Value;

use super::*;
use ember_decoding::config::{FolderSettings, KNOBS};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    text: TextArgs,
}

fn parse(words: &str) -> TextArgs {
    let words = words.split_whitespace().map(|word| if word == "EMPTY" { "" } else { word });
    Line::try_parse_from(["text"].into_iter().chain(words)).unwrap().text
}

/// The first line of clap's error.
fn misread(words: &str) -> String {
    let error = Line::try_parse_from(["text"].into_iter().chain(words.split_whitespace())).unwrap_err();
    error.to_string().lines().next().unwrap().to_owned()
}

/// The error of the checks before loading, for a folder without settings.
fn refused(words: &str, format: OutputFormat) -> String {
    let args = parse(words);
    let check = args.check(format);
    let resolve =
        || Ok(GenerationConfig::resolve(&args.knobs_without_words(), &FolderSettings::default()).map(|_| ())?);
    let line = wording::line(check.and_then(|()| resolve()).unwrap_err().as_ref());
    assert_eq!(line.exit_code(), 2, "{line:?}");
    line.words()
}

#[test]
fn every_knob_has_its_flag_and_reaches_its_place() {
    let command = Line::command();
    let flags: Vec<String> = command.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned).collect();
    for knob in KNOBS {
        assert!(flags.contains(&knob.label.to_owned()), "{} is no flag", knob.label);
    }
    let args = parse(
        "--num-beams 4 --num-beam-groups 2 --diversity-penalty 0.5 --length-penalty -2 --early-stopping never --max-nodes 9 \
         --temperature 0.5 --top-k 3 --top-p 0.9 --min-p 0.1 --typical-p 0.8 --epsilon-cutoff 0.01 --eta-cutoff 0.02 \
         --logit-bias 5=-1.5 --logit-bias 5+6=2 --repetition-penalty 1.2 --presence-penalty 0.3 --frequency-penalty -0.4 \
         --no-repeat-ngram-size 2 --bad-words-ids 1,2 --bad-words-ids 3 --suppress 4,5 --suppress 6 --stop x --stop -y \
         --semantics mlx --max-time 1.5 --overflow stop --num-return-sequences 2 --min-new-tokens 1 --max-new-tokens 9",
    );
    let knobs = args.knobs_without_words();
    let words: Vec<String> = KNOBS
        .iter()
        .map(|knob| format!("{} {}", knob.name, knob.set_in(&knobs).map_or("unset".into(), |value| value.words())))
        .collect();
    assert_eq!(
        words,
        [
            "semantics mlx",
            "num_beams 4",
            "num_beam_groups 2",
            "diversity_penalty 0.5",
            "length_penalty -2",
            "early_stopping never",
            "max_nodes 9",
            "temperature 0.5",
            "top_k 3",
            "top_p 0.9",
            "min_p 0.1",
            "typical_p 0.8",
            "epsilon_cutoff 0.01",
            "eta_cutoff 0.02",
            "sequence_bias [[[5],-1.5],[[5,6],2.0]]",
            "repetition_penalty 1.2",
            "presence_penalty 0.3",
            "frequency_penalty -0.4",
            "no_repeat_ngram_size 2",
            "bad_words_ids [[1,2],[3]]",
            "suppress_tokens [4,5,6]",
            "stop_strings [\"x\",\"-y\"]",
            "max_time 1.5",
            "overflow stop",
            "num_return_sequences 2",
            "min_new_tokens 1",
            "max_new_tokens 9",
        ]
    );
}

#[test]
fn every_flag_stands_under_a_heading() {
    let command = Line::command();
    for argument in command.get_arguments().filter(|argument| argument.get_id() != "help" && !argument.is_positional())
    {
        assert!(argument.get_help_heading().is_some(), "{}", argument.get_id());
        assert!(argument.get_help().is_some(), "{}", argument.get_id());
    }
}

#[test]
fn a_flag_that_is_no_number_is_explained() {
    let cases = [
        ("--temperature warm", "error: invalid value 'warm' for '--temperature <T>': it must be a number"),
        ("--top-k -2", "error: invalid value '-2' for '--top-k <K>': it must be a whole number from 0 to 4294967295"),
        (
            "--max-new-tokens 99999999999999999999",
            "error: invalid value '99999999999999999999' for '--max-new-tokens <N>': it must be a whole number from 1 to 4294967295",
        ),
        ("--num-beams x", "error: invalid value 'x' for '--num-beams <N>': it must be a whole number from 1 to 10000"),
        ("--bad-words-ids 1,x", "error: invalid value '1,x' for '--bad-words-ids <IDS>': write token ids"),
        ("--logit-bias 5", "error: invalid value '5' for '--logit-bias <ID=VALUE>': write ID=VALUE, such as 12=-2.5"),
        ("--logit-bias 5+=1", "error: invalid value '5+=1' for '--logit-bias <ID=VALUE>': write ID=VALUE"),
        ("--logit-bias 5=inf", "error: invalid value '5=inf' for '--logit-bias <ID=VALUE>': VALUE must be a finite"),
        ("--early-stopping maybe", "error: invalid value 'maybe' for '--early-stopping <WHEN>'"),
        ("--draft a --prompt-lookup", "error: the argument '--draft <RUN>' cannot be used with '--prompt-lookup'"),
        ("one --prompts file", "error: the argument '[PROMPT]' cannot be used with '--prompts <FILE>'"),
    ];
    for (words, beginning) in cases {
        assert!(misread(words).starts_with(beginning), "{words}: {}", misread(words));
    }
}

#[test]
fn what_cannot_go_together_is_refused_before_anything_is_loaded() {
    let cases = [
        ("--logprobs 2", "--logprobs does not go with --format text; add --format json"),
        ("--stream --num-return-sequences 2 --top-k 2", "--stream shows a single text as it is written;"),
        ("--stream --prompts file", "--stream shows a single text as it is written;"),
        ("--stream --strategy exact", "--strategy exact knows its text only at the end;"),
        ("--draft-tokens 4", "--draft-tokens is for drafts;"),
        ("--draft-tokens 0 --prompt-lookup", "--draft-tokens is 0; it must be at least 1;"),
        (
            "--draft a --num-beams 4",
            "--draft and --prompt-lookup make greedy decoding and sampling faster, not beam search;",
        ),
        ("--prompt-lookup --strategy exact", "--draft and --prompt-lookup make greedy decoding and sampling faster,"),
        ("--trace file --prompt-lookup", "--trace records one token per step;"),
        ("--explain-semantics", "--explain-semantics needs a prompt"),
        ("one --explain-semantics --stream", "--explain-semantics writes no text;"),
        ("--stop EMPTY", "--stop is empty"),
        ("--bad-words EMPTY", "--bad-words is empty"),
        ("--logit-bias 5+6=1 --logit-bias 5+6=2", "--logit-bias gives 5+6 twice;"),
        ("--top-p nan", "--top-p is NaN; it must be above 0 and at most 1"),
        ("--repetition-penalty 1e99", "--repetition-penalty is inf; it must be from 0.001 to 1000"),
        ("--max-time 0", "--max-time is 0; it must be above 0 and at most 1000000000"),
        ("--num-beams 0", "--num-beams is 0; it must be from 1 to 10000"),
    ];
    for (words, beginning) in cases {
        let message = refused(words, OutputFormat::Text);
        assert!(message.starts_with(beginning), "{words}: {message}");
    }
    let message = refused("--stream", OutputFormat::Json);
    assert!(message.starts_with("--stream shows a single text"), "{message}");
    assert!(parse("--stream --num-beams 2").check(OutputFormat::Text).is_ok());
    assert!(parse("one --explain-semantics --top-k 3").check(OutputFormat::Text).is_ok());
}

/// The folder may ask for it.
#[test]
fn what_cannot_go_with_the_folder_s_settings_is_refused() {
    let several = GenerationConfig { strategy: Strategy::Sample, num_return_sequences: 2, ..Default::default() };
    let of = |strategy| GenerationConfig { strategy, num_beams: 2, ..Default::default() };
    for (words, config, beginning) in [
        ("--stream", several.clone(), "--stream shows a single text as it is written,"),
        ("--stream", of(Strategy::Exact), "generation_config.json asks for an exact search,"),
        ("one --explain-semantics", of(Strategy::Beam), "--explain-semantics compares how single tokens are chosen,"),
    ] {
        let error = parse(words).check_with(&config).unwrap_err();
        assert!(error.is::<UsageError>() && error.to_string().starts_with(beginning), "{words}: {error}");
    }
    for (words, config) in
        [("", several), ("--stream", of(Strategy::Beam)), ("one --explain-semantics", of(Strategy::Sample))]
    {
        assert!(parse(words).check_with(&config).is_ok(), "{words}");
    }
}

#[test]
fn drafts_have_a_default_length_and_are_off_without_a_drafter() {
    assert_eq!(parse("").knobs_without_words().draft_tokens, None);
    assert_eq!(parse("--prompt-lookup").knobs_without_words().draft_tokens, Some(DEFAULT_DRAFT_TOKENS));
    assert_eq!(parse("--draft a --draft-tokens 3").knobs_without_words().draft_tokens, Some(3));
}

#[test]
fn bad_words_are_banned_as_they_are_written_with_and_without_a_space() {
    let text = "a cat sat on the mat, the cat. ".repeat(50);
    let bpe = Tokenizer::train_bpe(300, [&text]).unwrap();
    let plain = bpe.encode("cat").unwrap();
    let spaced = bpe.encode(" cat").unwrap();
    assert!(!spaced.ends_with(&plain), "the test needs a tokenizer that joins the space to the word");
    let banned = parse("--bad-words-ids 7,8 --bad-words cat").knobs(Some(&bpe), 300).unwrap().bad_words;
    assert_eq!(banned, Some(vec![vec![7, 8], plain, spaced]));

    // Characters: the encoding with a leading space ends with the one without.
    let chars = |alphabet: &str| Tokenizer::chars(&alphabet.chars().collect::<BTreeSet<_>>(), false).unwrap();
    for alphabet in ["cat ", "cat"] {
        let tokenizer = chars(alphabet);
        let banned = parse("--bad-words cat").knobs(Some(&tokenizer), 10).unwrap().bad_words;
        assert_eq!(banned, Some(vec![tokenizer.encode("cat").unwrap()]));
    }

    let usage = |words: &str, tokenizer: Option<&Tokenizer>| {
        let error = parse(words).knobs(tokenizer, 10).unwrap_err();
        assert!(error.is::<UsageError>(), "{error}");
        error.to_string()
    };
    let unknown = usage("--bad-words dog", Some(&chars("cat")));
    assert!(unknown.starts_with("--bad-words \"dog\": character 'd' (U+0064)"), "{unknown}");
    let without = usage("--bad-words dog", None);
    assert_eq!(without, "--bad-words needs a tokenizer, and the checkpoint holds none; give --bad-words-ids");
    assert_eq!(usage("--stop x", None), "--stop needs a tokenizer, and the checkpoint holds none; drop --stop");
}

#[test]
fn ids_outside_the_vocabulary_are_named_with_their_flag() {
    let refused = |words: &str| parse(words).knobs(None, 10).unwrap_err().to_string();
    let beyond = |flag: &str| format!("{flag}: 10 is outside the model's vocabulary; ids go from 0 to 9");
    assert_eq!(refused("--suppress 9,10"), beyond("--suppress"));
    assert_eq!(refused("--bad-words-ids 1,10"), beyond("--bad-words-ids"));
    assert_eq!(refused("--logit-bias 1+10=2"), beyond("--logit-bias"));
    assert!(parse("--suppress 9").knobs(None, 10).is_ok());
}

/// Each line: flags, end tokens, the file that we write for them (`ours`), and the file that
/// transformers writes after reading ours (`theirs`). After a change, `EMBER_BLESS=1` rewrites
/// `ours` and tools/check_generation_config.py `theirs`.
#[test]
fn our_file_and_the_one_that_transformers_makes_of_it_mean_what_the_flags_do() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/lib/tests/fixtures/generation_configs.jsonl");
    let lines = fs::read_to_string(path).unwrap();
    let mut cases: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let bless = std::env::var_os("EMBER_BLESS").is_some();
    for case in &mut cases {
        let flags = parse(case["flags"].as_str().unwrap()).knobs_without_words();
        let (config, _) = GenerationConfig::resolve(&flags, &FolderSettings::default()).unwrap();
        let end_tokens = serde_json::from_value(case["end_tokens"].clone()).unwrap();
        let config = GenerationConfig { end_tokens, ..config };
        if bless {
            case["ours"] = config.to_hugging_face();
        }
        assert_eq!(config.to_hugging_face(), case["ours"]);
        for whose in ["ours", "theirs"] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("generation_config.json"), case[whose].to_string()).unwrap();
            if bless && case[whose].is_null() {
                continue;
            }
            let folder = FolderSettings::read(dir.path()).unwrap();
            assert_eq!(folder.not_applied, Vec::<String>::new(), "{whose}");
            let (read, _) = GenerationConfig::resolve(&Knobs::default(), &folder).unwrap();
            let end_tokens = ember_model::folder::read_end_tokens(dir.path()).unwrap();
            assert_eq!(GenerationConfig { end_tokens, ..read }, config, "{whose}");
        }
    }
    if bless {
        let lines: Vec<String> = cases.iter().map(|case| format!("{case}\n")).collect();
        fs::write(path, lines.concat()).unwrap();
    }
}
