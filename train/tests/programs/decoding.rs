//! Every decoding method, through the program: its output, its files and its errors on invalid
//! files.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use burn::tensor::Device;
use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_decoding::constraint::{Constraint, Grammar};
use ember_decoding::{FinishReason, GenerationConfig, Plan, Strategy, generate_batch};
use rand::Rng;
use serde_json::{Value, json};

use super::cases::{Expression, is_json_of, random_schema};
use super::{Place, Ran, SMALL, text};

/// Says whether a text is valid.
type Checker = Box<dyn Fn(&str) -> bool>;

/// A checkpoint that has learned a little counting in words and JSON, with byte-level BPE and an
/// end token.
fn checkpoint() -> PathBuf {
    static TRAINED: OnceLock<Place> = OnceLock::new();
    let place = TRAINED.get_or_init(|| {
        let place = Place::new();
        let records = (0..600).map(|i| {
            let words = ["one", "two", "three", "four", "five"];
            format!("{}\n", json!({"name": words[i % 5], "count": i % 37, "tags": [words[(i + 1) % 5], i % 2 == 0]}))
        });
        place.write("mixed.txt", text() + &records.collect::<String>());
        let model = "--set architecture=gpt2 --set optimizer=adamw --set schedule=cosine";
        let settings = "--set tokenizer=bpe:300 --set max_steps=120 --out run";
        place.train(&format!("run mixed.txt {SMALL} {model} {settings}")).succeeds();
        place
    });
    place.path("run")
}

fn generate(place: &Place, arguments: &str) -> Ran {
    place.generate(&format!("{arguments} --from {}", checkpoint().display()))
}

const STRATEGIES: [&str; 10] = [
    "--strategy exact --max-new-tokens 5",
    "--strategy greedy",
    "--temperature 0.9 --top-k 40 --top-p 0.95 --min-p 0.01 --typical-p 0.99 --epsilon-cutoff 0.0001 --num-return-sequences 3",
    "--strategy greedy --repetition-penalty 1.2 --presence-penalty 0.1 --frequency-penalty 0.1 --no-repeat-ngram-size 3 --bad-words three",
    "--num-beams 4 --num-return-sequences 2 --length-penalty 0.5 --early-stopping never",
    "--num-beams 3 --temperature 1.2",
    "--num-beams 4 --num-beam-groups 2 --diversity-penalty 0.8 --num-return-sequences 4",
    "--top-p 0.9 --regex (one|two|three)(~and~[a-z]+){1,3}\\.",
    "--num-beams 2 --stop then --min-new-tokens 2",
    "--semantics llamacpp",
];

/// A trace records the type in which the weights were kept: int8's numbers differ from those of
/// other types by less than the tolerance of a replay.
#[test]
fn a_trace_knows_its_weights() {
    let place = Place::new();
    let asked = "text one~and --seed 4 --max-new-tokens 12 --weights int8 --trace int8.jsonl";
    generate(&place, asked).succeeds();
    let head = std::fs::read_to_string(place.path("int8.jsonl")).unwrap();
    let head: Value = serde_json::from_str(head.lines().next().unwrap()).unwrap();
    assert_eq!((&head["weight_type"], &head["special_tokens"]), (&json!("int8"), &json!("parse")));
    assert!(head["machine"]["simd"].is_string() && head["machine"]["device_name"].is_string(), "{head}");
    let again = place.generate("replay int8.jsonl").succeeds();
    assert!(again.err.contains("to the last bit"), "{}", again.err);
    let other = place.generate("replay int8.jsonl --weights f32");
    assert!(other.err.contains("written with weights in int8, these are in f32"), "{}", other.err);
    assert_eq!(other.code, Some(1), "{}", other.err);
}

/// Training saves sampling parameters in its folders; ember-generate uses them, says so, and lets
/// flags override them.
#[test]
fn what_training_says_of_drawing_is_followed_and_can_be_overruled() {
    let place = Place::new();
    let asked = "text one~and --max-new-tokens 20 --format json";
    let ran = generate(&place, &format!("{asked} --seed 3")).succeeds();
    let expected = "from generation_config.json: do_sample true, temperature 0.8, top_p 0.95 (--strategy greedy";
    assert!(ran.err.contains(expected), "{}", ran.err);
    let spelled = format!("{asked} --seed 3 --temperature 0.8 --top-p 0.95");
    assert_eq!(ran.json()[0]["ids"], generate(&place, &spelled).succeeds().json()[0]["ids"]);
    // Without a seed, one is drawn and reported.
    let ran = generate(&place, asked).succeeds();
    let seed = ran.err.split("--seed ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    assert_eq!(ran.json()[0]["ids"], generate(&place, &format!("{asked} --seed {seed}")).succeeds().json()[0]["ids"]);
    let greedy = generate(&place, &format!("{asked} --strategy greedy")).succeeds();
    assert!(greedy.err.contains("sets temperature 0.8, top_p 0.95, which greedy ignores"), "{}", greedy.err);
    let beams = generate(&place, &format!("{asked} --num-beams 3")).succeeds();
    assert!(beams.err.contains("beam search: 3 beams"), "{}", beams.err);
}

/// A trace contains everything that a replay needs: a replay reproduces every token, and detects a
/// change of one number.
#[test]
fn every_strategy_leaves_a_trace_that_replays() {
    let place = Place::new();
    for (number, strategy) in STRATEGIES.iter().enumerate() {
        let trace = format!("trace-{number}.jsonl");
        let length = if strategy.contains("exact") { "" } else { "--max-new-tokens 12" };
        let ask = format!("text one~and {length} --seed 4 --format json --logprobs 2 {strategy} --trace {trace}");
        let written = generate(&place, &ask).succeeds().json();
        for answer in &written {
            assert_eq!(answer["ids"].as_array().unwrap().len(), answer["logprobs"].as_array().unwrap().len());
        }
        let replayed = place.generate(&format!("replay {trace}")).succeeds();
        assert!(replayed.err.contains("the same again"), "{strategy}: {}", replayed.err);

        let lines = std::fs::read_to_string(place.path(&trace)).unwrap();
        assert_eq!(lines.lines().filter(|line| line.contains("\"event\":\"end\"")).count(), written.len());
        let mut changed: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let step = &mut changed[1];
        let number = if step["event"] == "beams" { &mut step["candidates"][0]["score"] } else { &mut step["logprob"] };
        *number = json!(number.as_f64().unwrap() - 0.5);
        let changed: String = changed.iter().map(|line| format!("{line}\n")).collect();
        place.write("changed.jsonl", changed);
        let refused = place.generate("replay changed.jsonl");
        assert_eq!(refused.code, Some(1), "{strategy}: {}", refused.err);
        assert!(refused.err.contains("differs (line 2)") && refused.err.contains("was"), "{}", refused.err);
    }
}

#[test]
fn the_clock_and_the_user_end_a_text_and_its_trace_replays() {
    let place = Place::new();
    let asked = "text one --strategy greedy --max-new-tokens 1000000 --overflow slide --trace timed.jsonl --max-time 0.3 --format json";
    let timed = generate(&place, asked).succeeds().json();
    assert_eq!(timed[0]["finish_reason"], "time");
    place.generate("replay timed.jsonl").succeeds();
    let beams = "text one --max-new-tokens 1000000 --num-beams 3 --trace beams.jsonl --max-time 0.3 --format json";
    assert_eq!(generate(&place, beams).succeeds().json()[0]["finish_reason"], "time");
    place.generate("replay beams.jsonl").succeeds();
    #[cfg(unix)]
    for (name, knobs) in [("tokens.jsonl", "--strategy greedy"), ("search.jsonl", "--num-beams 2")] {
        let asked = format!(
            "text one --max-new-tokens 1000000 {knobs} --trace {name} --format json --from {}",
            checkpoint().display()
        );
        let child = place.command("ember-generate", &asked).spawn().unwrap();
        // The signal must come during decoding; the trace file shows when that is.
        while std::fs::metadata(place.path(name)).map_or(0, |file| file.len()) < 100_000 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        let ran = super::wait(child);
        assert_eq!(ran.code, Some(130), "{}", ran.err);
        assert_eq!(ran.json()[0]["finish_reason"], "interrupted");
        place.generate(&format!("replay {name}")).succeeds();
    }
}

/// Batches cut short separately: each by its own time limit, the last by the user, some never
/// started.
#[test]
fn a_run_of_many_batches_cut_short_replays() {
    let place = Place::new();
    let lines: String = (0..3).map(|i| format!("{}\n", &"one and then two."[..3 + 4 * i])).collect();
    place.write("prompts.txt", lines);
    let asked = "text --prompts prompts.txt --temperature 1 --seed 2 --num-return-sequences 60 --max-new-tokens 300 --max-time 0.02";
    generate(&place, &format!("{asked} --trace timed.jsonl --format json")).succeeds();
    place.generate("replay timed.jsonl").succeeds();
    let exact = "text --prompts prompts.txt --strategy exact --max-new-tokens 20 --max-time 0.0001 --trace exact.jsonl --format json";
    assert!(generate(&place, exact).succeeds().out.contains("\"cut_short\":\"time\""));
    place.generate("replay exact.jsonl").succeeds();
    #[cfg(unix)]
    {
        let asked =
            "text one --temperature 1 --seed 3 --num-return-sequences 300 --max-new-tokens 100000 --trace many.jsonl";
        let child =
            place.command("ember-generate", &format!("{asked} --from {}", checkpoint().display())).spawn().unwrap();
        while std::fs::metadata(place.path("many.jsonl")).map_or(0, |file| file.len()) < 100_000 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        let ran = super::wait(child);
        assert_eq!(ran.code, Some(130), "{}", ran.err);
        assert!(ran.err.contains("64 texts, interrupted, 236 of 300 not started"), "{}", ran.err);
        place.generate("replay many.jsonl").succeeds();
    }
}

#[test]
fn prompts_from_a_file_come_back_in_order_each_as_alone() {
    let place = Place::new();
    let prompts: Vec<String> = (0..40).map(|i| "one and then two.\n"[..1 + i % 17].to_owned()).collect();
    let lines: String =
        prompts.iter().enumerate().map(|(i, p)| format!("{}\n", json!({"prompt": p, "id": i}))).collect();
    place.write("prompts.jsonl", lines);
    for knobs in ["--strategy greedy", "--temperature 1 --seed 3 --num-return-sequences 2", "--num-beams 3"] {
        let asked = format!("text --max-new-tokens 8 --format json {knobs}");
        let together = generate(&place, &format!("{asked} --prompts prompts.jsonl")).succeeds().json();
        let each = together.len() / prompts.len();
        for (row, answer) in together.iter().enumerate() {
            assert_eq!((&answer["prompt_index"], &answer["id"]), (&json!(row / each), &json!(row / each)));
            assert_eq!(answer["prompt"], json!(prompts[row / each]));
        }
        // Sequence 0 of prompt 0 has the same random stream as a prompt alone; others have other
        // streams.
        let number = if knobs.contains("seed") { 0 } else { 23 };
        let alone = format!("{asked} {}", prompts[number].replace(' ', "~"));
        let alone = generate(&place, &alone).succeeds().json();
        assert_eq!(together[number * each]["ids"], alone[0]["ids"], "{knobs}");
    }
    place.write("plain.txt", "one and\n\ntwo and\n");
    let plain = generate(&place, "text --prompts plain.txt --max-new-tokens 3 --format json").succeeds().json();
    assert_eq!(plain.iter().map(|line| line["prompt"].clone()).collect::<Vec<_>>(), ["one and", "", "two and"]);
}

#[test]
fn a_form_is_kept_and_a_text_cut_off_says_so() {
    let place = Place::new();
    let schema = json!({"type": "object", "properties": {"name": {"enum": ["one", "two"]}, "count": {"type": "integer", "maximum": 99}},
        "required": ["name", "count"], "additionalProperties": false});
    place.write("schema.json", schema.to_string());
    for knobs in [
        "--temperature 1 --seed 1 --num-return-sequences 20",
        "--strategy greedy",
        "--num-beams 3",
        "--strategy greedy --repetition-penalty 1.3",
    ] {
        let asked = format!("text one --json-schema schema.json --max-new-tokens 60 --format json {knobs}");
        for answer in generate(&place, &asked).succeeds().json() {
            assert_eq!(answer["valid"], true, "{knobs}: {answer}");
            assert!(is_json_of(&schema, answer["text"].as_str().unwrap()), "{answer}");
        }
    }
    let cut = generate(&place, "text one --json-schema schema.json --max-new-tokens 2 --format json").succeeds();
    assert_eq!((&cut.json()[0]["valid"], &cut.json()[0]["finish_reason"]), (&json!(false), &json!("length")));
    assert!(cut.err.contains("is not valid; raise --max-new-tokens"), "{}", cut.err);
}

#[test]
fn drafts_write_the_same_text_and_say_what_they_saved() {
    let place = Place::new();
    let plain = generate(&place, "text one~and --strategy greedy --max-new-tokens 40 --format json").succeeds().json();
    for draft in ["--prompt-lookup".to_owned(), format!("--draft {}", checkpoint().display())] {
        let drafted =
            generate(&place, &format!("text one~and --strategy greedy --max-new-tokens 40 --format json {draft}"))
                .succeeds();
        assert_eq!(drafted.json()[0]["ids"], plain[0]["ids"]);
        assert!(drafted.json()[0]["draft"]["passes"].as_u64().unwrap() < 40, "{}", drafted.out);
        assert!(drafted.err.contains("proposed tokens accepted"), "{}", drafted.err);
    }
}

#[test]
fn the_exact_search_proves_its_text_or_says_that_it_does_not() {
    let place = Place::new();
    let exact = generate(&place, "text one~and --strategy exact --max-new-tokens 6 --format json").succeeds();
    assert_eq!(exact.json()[0]["exact"]["proven"], true);
    let score = |line: &Value| line["score"].as_f64().unwrap();
    let beams = "text one~and --num-beams 2 --length-penalty 0 --max-new-tokens 6 --format json";
    assert!(score(&generate(&place, beams).succeeds().json()[0]) <= score(&exact.json()[0]) + 1e-4);
    let poor = "text one~and --strategy exact --max-new-tokens 30 --max-nodes 40 --format json";
    let poor = generate(&place, poor).succeeds();
    assert_eq!(poor.json()[0]["exact"]["proven"], false);
    assert!(poor.err.contains("not proven"), "{}", poor.err);
}

#[test]
fn what_was_resolved_is_saved_and_read_back() {
    let place = Place::new();
    let knobs = "--temperature 0.7 --top-k 9 --repetition-penalty 1.1 --max-new-tokens 9";
    generate(&place, &format!("text one {knobs} --save-config saved.json")).succeeds();
    let saved: Value = serde_json::from_slice(&std::fs::read(place.path("saved.json")).unwrap()).unwrap();
    assert_eq!((&saved["do_sample"], &saved["top_k"]), (&json!(true), &json!(9)));
    // A folder with that file uses it by default, and says so.
    let run = checkpoint();
    let step = std::fs::read_to_string(run.join("latest")).unwrap();
    let from = run.join("checkpoints").join(step.trim());
    std::fs::create_dir(place.path("copy")).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(file), place.path("copy").join(file)).unwrap();
    }
    std::fs::copy(place.path("saved.json"), place.path("copy/generation_config.json")).unwrap();
    let ran = place.generate("text one --from copy --seed 1 --format json").succeeds();
    assert!(ran.err.contains("from generation_config.json: ") && ran.err.contains("temperature 0.7"), "{}", ran.err);
    assert!(ran.json()[0]["ids"].as_array().unwrap().len() <= 9);
}

#[test]
fn multiple_choice_and_many_texts_are_scored() {
    let place = Place::new();
    let question =
        |answer: usize| json!({"context": "one and then", "choices": [" two.", " seven."], "answer": answer});
    place.write("questions.jsonl", format!("{}\n{}\n", question(0), question(1)));
    let scored = generate(&place, "score --choices questions.jsonl --format json").succeeds().json();
    assert_eq!(scored.last().unwrap()["summary"]["accuracy"], 0.5);
    place.write("texts.txt", "one and then two.\ntwo and then three.\n");
    let scored = generate(&place, "score --lines texts.txt --format json").succeeds().json();
    let alone = generate(&place, "score two~and~then~three. --format json").succeeds().json();
    assert!((scored[1]["loss"].as_f64().unwrap() - alone[0]["loss"].as_f64().unwrap()).abs() < 1e-5);
    assert_eq!(scored[2]["summary"]["texts"], 2);
}

#[cfg(unix)]
#[test]
fn a_score_that_is_interrupted_keeps_what_it_wrote_and_says_how_far_it_came() {
    let place = Place::new();
    place.write("many.txt", "one and then two, three and then four.\n".repeat(60_000));
    let scores = std::fs::File::create(place.path("scores.txt")).unwrap();
    let asked = format!("score --lines many.txt --device cpu --from {}", checkpoint().display());
    let mut child = place.command("ember-generate", &asked).stdout(scores).spawn().unwrap();
    while std::fs::metadata(place.path("scores.txt")).unwrap().len() == 0 {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it was interrupted");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let ran = super::wait(child);
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    let scores = std::fs::read_to_string(place.path("scores.txt")).unwrap();
    assert!(scores.ends_with('\n') && !scores.contains("in all"), "half a line, or a summary");
    let expected = format!("interrupted: {} of 60000 texts scored\n", scores.lines().count());
    assert!(ran.err.ends_with(&expected), "{}", ran.err);
}

/// Over a thousand random schemas and expressions, sampled by a trained model at temperature 1: an
/// independent checker accepts every finished text.
#[test]
fn over_a_thousand_forms_a_trained_model_writes_nothing_invalid() {
    let run = checkpoint();
    let step = std::fs::read_to_string(run.join("latest")).unwrap();
    let folder = run.join("checkpoints").join(step.trim());
    let model = ember_model::checkpoint::load(&folder, &Device::flex()).unwrap();
    let tokenizer = Tokenizer::from_folder(&folder).unwrap();
    let config = GenerationConfig {
        strategy: Strategy::Sample,
        max_new_tokens: 60,
        end_tokens: tokenizer.end_of_text().into_iter().collect(),
        ..GenerationConfig::default()
    };
    let prompt = tokenizer.encode_prompt("one and then", SpecialTokens::Parse).unwrap();
    let (mut ended, mut texts) = (0, HashSet::new());
    for number in 0..1100_u64 {
        let mut rng = ember_data::random::rng(7, &[number]);
        let depth = 1 + rng.next_u64() as usize % 3;
        let (grammar, check): (_, Checker) = if number % 2 == 0 {
            let schema = random_schema(&mut rng, depth);
            let grammar = Grammar::json_schema("schema", &schema.to_string()).unwrap();
            (grammar, Box::new(move |text| is_json_of(&schema, text)))
        } else {
            let expression = Expression::random(&mut rng, depth, true);
            (Grammar::regex("regex", &expression.pattern()).unwrap(), Box::new(move |text| expression.matches(text)))
        };
        let source = grammar.source().to_owned();
        // An expression may match only the empty text, which is refused.
        let Ok(constraint) = Constraint::new(grammar, &tokenizer, model.config().vocab_size, &config.end_tokens) else {
            continue;
        };
        let constraint = Arc::new(constraint);
        let complete = |generated: &[u32]| constraint.is_complete(generated);
        let plan = Plan {
            constraint: Some(constraint.clone()),
            ends: Some(&complete),
            first_sequences: &[number],
            ..Plan::new(&config)
        };
        let written = generate_batch(&model, &[&prompt], &plan, &mut ()).unwrap();
        let completion = &written[0][0];
        if completion.finish_reason != FinishReason::Length {
            let ids: Vec<u32> =
                completion.ids.iter().copied().filter(|id| Some(*id) != tokenizer.end_of_text()).collect();
            let text = tokenizer.decode_text(&ids).unwrap();
            assert!(check(&text), "{source}: {text:?}");
            ended += 1;
            texts.insert(text);
        }
    }
    assert!(ended >= 800 && texts.len() > 300, "{ended} texts ended, {} of them different", texts.len());
}
