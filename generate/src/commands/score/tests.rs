//! The command from its arguments to its output, on a character model with random weights.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::commands::{Cli, Command};
use burn::tensor::Device;
use clap::Parser;
use ember_model::{Gpt, GptConfig, checkpoint, folder};
use itertools::Itertools;
use std::{fs, path::Path};
use tempfile::TempDir;

const CONTEXT: usize = 16;

/// A folder with a checkpoint `model` and the user's files.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let tokenizer = Tokenizer::chars(&('a'..='z').chain([' ', '.']).collect(), true).unwrap();
        let config = GptConfig::new(tokenizer.vocab_size(), CONTEXT, 2, 2, 8);
        let folder = place.0.path().join("model");
        checkpoint::save(
            &Gpt::new(&config, 3, &Device::flex()).unwrap(),
            tokenizer.end_of_text(),
            &folder::Settings::new(),
            &folder,
        )
        .unwrap();
        tokenizer.save(&folder).unwrap();
        place
    }

    fn write(&self, name: &str, content: &str) -> &Self {
        fs::write(self.0.path().join(name), content).unwrap();
        self
    }

    /// The output of `ember-generate score` with these arguments; `./` stands for this folder. An
    /// error is its line.
    fn score(&self, arguments: &[&str], interrupt: &Interrupt) -> Result<(Outcome, String), String> {
        let here = format!("{}/", self.0.path().display());
        let model = format!("{here}model");
        let given = arguments.iter().map(|argument| argument.replace("./", &here));
        let fixed = ["ember-generate", "score", "--quiet", "--device", "cpu", "--from", &model].map(str::to_owned);
        let cli = Cli::try_parse_from(fixed.into_iter().chain(given)).map_err(|error| error.to_string())?;
        let Command::Score(args) = &cli.command else { unreachable!() };
        let mut out = Vec::new();
        let outcome = run_onto(args, &cli.common, interrupt, &mut out)
            .map_err(|error| format!("{error:#}").replace(&here, "./"))?;
        Ok((outcome, String::from_utf8(out).unwrap()))
    }

    fn text(&self, arguments: &[&str]) -> String {
        self.score(arguments, &Interrupt::new()).unwrap().1
    }

    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.text(&[arguments, &["--format", "json"]].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn error(&self, arguments: &[&str]) -> String {
        self.score(arguments, &Interrupt::new()).unwrap_err()
    }
}

fn number(json: &Value, key: &str) -> f64 {
    json[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {json}"))
}

#[test]
fn texts_of_every_source_keep_their_order_and_add_up() {
    let place = Place::new();
    place
        .write("whole.txt", "a whole file\u{2e} longer than the context of the model.")
        .write("lines.txt", "one\n\nand two\n");
    place.write("lines.jsonl", "{\"text\": \"ab\", \"id\": \"x\"}\n{\"text\": \"a longer line.\", \"id\": 2}\n");
    let all = ["some text", "ab", "--file", "./whole.txt", "--lines", "./lines.txt", "--lines", "./lines.jsonl"];
    let together = place.json(&all);
    let texts: Vec<&str> = together[..7].iter().map(|score| score["text"].as_str().unwrap()).collect();
    assert_eq!(texts[..2], ["some text", "ab"]);
    assert_eq!(texts[3..], ["one", "and two", "ab", "a longer line."]);
    assert_eq!((&together[5]["id"], &together[6]["id"]), (&"x".into(), &2.into()));
    assert!(together[0].get("id").is_none());
    // Scored alone, each is the same, without a summary.
    for (text, together) in texts.iter().zip_eq(&together[..7]) {
        let alone = place.json(&[text]);
        assert_eq!(alone.len(), 1);
        for key in ["loss", "perplexity", "bits_per_byte", "tokens"] {
            assert!((number(&alone[0], key) - number(together, key)).abs() < 1e-4, "{key} of {text:?}");
        }
        assert_eq!(together["logprobs"].as_array().unwrap().len(), together["ids"].as_array().unwrap().len() - 1);
    }
    // The last line: all tokens have equal weight.
    let (summary, scores) = (&together[7]["summary"], &together[..7]);
    assert_eq!((together.len(), &summary["texts"]), (8, &7.into()));
    let tokens: f64 = scores.iter().map(|score| number(score, "tokens")).sum();
    let nats: f64 = scores.iter().map(|score| number(score, "tokens") * number(score, "loss")).sum();
    assert_eq!(number(summary, "tokens"), tokens);
    assert!((number(summary, "loss") - nats / tokens).abs() < 1e-9);
    assert!((number(summary, "perplexity") - (nats / tokens).exp()).abs() < 1e-6);
    // A character is a byte, so bits per byte are the loss in bits.
    assert!((number(summary, "bits_per_byte") - nats / tokens / std::f64::consts::LN_2).abs() < 1e-9);

    let text = place.text(&["some text", "ab"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].starts_with("loss ") && lines[0].ends_with("bits/byte  8 tokens  some text"), "{text}");
    assert!(lines[2].ends_with("9 tokens  in all 2 texts"), "{text}");
}

#[test]
fn an_id_that_is_null_is_passed_through_as_any_other() {
    let place = Place::new();
    place.write("lines.jsonl", "{\"text\": \"ab\", \"id\": null}\n{\"text\": \"ab\"}\n");
    let json = place.json(&["--lines", "./lines.jsonl"]);
    assert_eq!((json[0].get("id"), json[1].get("id")), (Some(&Value::Null), None));
}

/// A front end can show each token's text without a tokenizer.
#[test]
fn each_token_says_how_it_reads() {
    let place = Place::new();
    let score = &place.json(&["a b.<|endoftext|>"])[0];
    assert_eq!(score["token_texts"], json!(["a", " ", "b", ".", "<|endoftext|>"]));
    assert_eq!(place.json(&["--prompt-ids", "0,1"])[0]["token_texts"].as_array().unwrap().len(), 2);
    fs::remove_file(place.0.path().join("model/tokenizer.json")).unwrap();
    assert_eq!(place.json(&["--prompt-ids", "0,1"])[0]["token_texts"], Value::Null);
}

#[test]
fn questions_are_answered_in_their_order_and_counted() {
    let place = Place::new();
    let questions = [
        r#"{"context": "the cat ", "choices": ["sat", "ran away."], "answer": 0, "id": "q"}"#,
        r#"{"context": "the cat ", "choices": ["sat", "ran away."], "answer": 1}"#,
        r#"{"context": "", "choices": ["a", "b", "c"], "id": null}"#,
        r#"{"context": "a context that the model cannot hold ", "choices": ["a", "bcd"], "answer": 1}"#,
    ];
    place.write("questions.jsonl", &questions.join("\n"));
    let json = place.json(&["--choices", "./questions.jsonl"]);
    assert_eq!(json.len(), 5);
    assert_eq!((&json[0]["id"], json[1].get("id"), &json[2]["answer"]), (&"q".into(), None, &Value::Null));
    assert_eq!(json[2].get("id"), Some(&Value::Null));
    let mut right = 0.0;
    for question in &json[..4] {
        let of = |key: &str| question[key].as_array().unwrap().clone();
        let logprobs: Vec<f64> = of("logprobs").iter().map(|logprob| logprob.as_f64().unwrap()).collect();
        for ((sum, tokens), choice) in logprobs.iter().zip_eq(of("token_logprobs")).zip_eq(of("choices")) {
            let tokens = tokens.as_array().unwrap();
            assert_eq!(tokens.len(), choice.as_str().unwrap().len());
            assert!((sum - tokens.iter().map(|logprob| logprob.as_f64().unwrap()).sum::<f64>()).abs() < 1e-5);
        }
        let best = of("ranking")[0].as_u64().unwrap() as usize;
        assert!(logprobs.iter().all(|&logprob| logprob <= logprobs[best]));
        assert_eq!(of("ranking_per_token"), of("ranking_per_byte")); // a token is a byte here
        right += f64::from(u8::from(question["answer"].as_u64() == Some(best as u64)));
    }
    // 37 tokens of context, and 1 or 3 of a choice: 16 are read, one more is predicted.
    assert_eq!(json[3]["cut_tokens"], serde_json::json!([21, 23]));
    assert_eq!(json[0]["cut_tokens"], serde_json::json!([0, 0]));
    let summary = &json[4]["summary"];
    assert_eq!((number(summary, "questions"), number(summary, "answered")), (4.0, 3.0));
    assert!((number(summary, "accuracy") - right / 3.0).abs() < 1e-12);
    assert_eq!(number(summary, "chance"), 0.5);

    let text = place.text(&["--choices", "./questions.jsonl"]);
    let lines: Vec<&str> = text.lines().collect();
    // The same choices with each answer: one of the two is right.
    assert_ne!(lines[0].starts_with("right"), lines[1].starts_with("right"));
    assert!(lines[2].starts_with("  -    choice"), "{text}");
    assert!(lines[4].starts_with("accuracy ") && lines[4].ends_with("3 of 4 questions with an answer"), "{text}");
}

/// A pass takes 4096 tokens: the first does not reach the last of these texts and questions.
#[test]
fn an_interruption_ends_it_with_what_is_done() {
    let place = Place::new();
    let interrupt = Interrupt::new();
    interrupt.request();
    // The longest are read first, but output keeps the input order.
    place.write("texts.txt", &("ab\n".to_owned() + &"abcdefghijklmno\n".repeat(400)));
    // Of the question in the middle, one choice is scored.
    place.write("q.jsonl", &"{\"context\": \"a\", \"choices\": [\"bcdefgh\", \"cdefghi\"]}\n".repeat(400));
    for (arguments, end) in
        [(["--lines", "./texts.txt"], "  abcdefghijklmno"), (["--choices", "./q.jsonl"], "|bcdefgh")]
    {
        let (outcome, output) = place.score(&arguments, &interrupt).unwrap();
        assert_eq!((outcome, output.lines().count()), (Outcome::Interrupted, 4096 / 14), "{output}");
        assert!(output.lines().all(|line| line.ends_with(end) || line.ends_with("|cdefghi")), "{output}");
    }
}

#[test]
fn bad_input_is_named() {
    let place = Place::new();
    place.write("short.txt", "fine\na\n").write("none.txt", "\n").write("accent.txt", "fine\ncaf\u{e9}\n");
    let starts = |arguments: &[&str], expected: &str| {
        let error = place.error(arguments);
        assert!(error.starts_with(expected), "{arguments:?} gave {error:?}");
    };
    starts(&["ab", ""], "text 2 is empty; give at least two tokens");
    starts(&["ab", "c"], "text 2: 1 token leaves nothing to score");
    starts(&["--lines", "./short.txt"], "./short.txt:2: 1 token leaves nothing to score");
    starts(&["--lines", "./none.txt"], "--lines ./none.txt holds no text");
    starts(&["--lines", "./accent.txt"], "./accent.txt:2: character '\u{e9}'");
    starts(&["--lines", "./missing.txt"], "cannot read --lines ./missing.txt; name a file that exists");
    starts(&["ab", "--stride", "17"], "--stride is 17; it must be at most the model's context of 16");
    starts(&["--prompt-ids", "1"], "--prompt-ids: 1 token leaves nothing to score");
    starts(&["--prompt-ids", "1,99"], "--prompt-ids: 99 is outside the model's vocabulary");
    assert!(place.error(&["ab", "--choices", "./q.jsonl"]).contains("cannot be used with"));

    let question = |line: &str, expected: &str| {
        let fine = r#"{"context": "a", "choices": ["b", "c"]}"#;
        place.write("q.jsonl", &format!("{fine}\n{line}\n"));
        starts(&["--choices", "./q.jsonl"], expected);
    };
    question("{", "./q.jsonl:2: not a JSON object (EOF while parsing an object at column 1); write {\"context\"");
    question(r#"{"context": "a"}"#, "./q.jsonl:2: missing field \"choices\"; write {\"context\"");
    question(r#"{"context": "a", "choices": []}"#, "./q.jsonl:2: \"choices\" holds 0");
    question(r#"{"context": "a", "choices": ["b", "c"], "answer": 2}"#, "./q.jsonl:2: \"answer\" is 2, but");
    question(r#"{"context": "a", "choices": ["b", "c"], "answer": -1}"#, "./q.jsonl:2: \"answer\" is -1; it must");
    question(r#"{"context": "A", "choices": ["b", "c"]}"#, "./q.jsonl:2: \"context\": character 'A'");
    question(
        r#"{"context": "a", "choices": ["b", "a choice too long."]}"#,
        "./q.jsonl:2: choice 1 has 18 tokens, more",
    );
    place.write("empty.jsonl", "\n");
    starts(&["--choices", "./empty.jsonl"], "--choices ./empty.jsonl holds no question");
}

#[test]
fn a_text_is_named_by_its_beginning() {
    assert_eq!(beginning("short"), "short");
    assert_eq!(beginning("two\nlines"), "two lines");
    assert_eq!(beginning(&"\u{e9}".repeat(41)), format!("{}...", "\u{e9}".repeat(40)));
}

/// Ids and perplexities from transformers with the folder's own tokenizer
/// (tools/make_prompt_fixtures.py).
#[test]
fn what_the_tokenizer_puts_around_a_text_is_scored_as_transformers_scores_it() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let prompts = repository.join("data/tests/fixtures/prompts");
    let cases: Vec<Value> = serde_json::from_slice(&fs::read(prompts.join("prompts.json")).unwrap()).unwrap();
    let ids = |ids: &Value| serde_json::from_value::<Vec<u32>>(ids.clone()).unwrap();
    let mut compared = 0;
    for name in ["llama", "closing", "said"] {
        let place = Place(tempfile::tempdir().unwrap());
        let model = place.0.path().join("model");
        fs::create_dir(&model).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(repository.join("model/tests/fixtures/b").join(file), model.join(file)).unwrap();
        }
        for file in ["tokenizer.json", "tokenizer_config.json"] {
            fs::copy(prompts.join(name).join(file), model.join(file)).unwrap();
        }
        let of_name = cases.iter().filter(|case| case["tokenizer"] == name && case["text"] != "");
        for case in of_name.filter(|case| case.get("perplexity").is_some()) {
            let text = case["text"].as_str().unwrap();
            let score = &place.json(&[text])[0];
            assert_eq!(ids(&score["ids"]), ids(&case["parsed"]), "{name}: {text:?}");
            let ratio = number(score, "perplexity") / number(case, "perplexity");
            assert!((ratio - 1.0).abs() < 1e-4, "{name}: {text:?}: {score} is not {case}");
            // After an opening token all of the text is scored; added tokens stand for none of it.
            if name == "llama" {
                let bits = number(score, "loss") * number(score, "tokens") / std::f64::consts::LN_2;
                assert!((number(score, "bits_per_byte") - bits / text.len() as f64).abs() < 1e-3, "{text:?}: {score}");
            }
            if ids(&case["plain"]).len() <= 24 {
                let plain = &place.json(&["--special-tokens", "text", text])[0];
                assert_eq!(ids(&plain["ids"]), ids(&case["plain"]), "{name}: {text:?}");
            }
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}
