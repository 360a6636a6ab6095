//! Times a grammar's mask on GPT-2's vocabulary.

#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};
use std::{fs, sync::Arc, time::Instant};

use ember_data::tokenizer::Tokenizer;
use ember_decoding::constraint::{Constraint, Grammar};
use ember_decoding::processors::{Chain, LogitsProcessor, Step, temperature};
use ember_decoding::sampler::draw;
use rand::RngExt;
use serde_json::Value;

use crate::VOCAB;

/// Each kind of grammar: the time until it is ready, and per step.
pub fn report() {
    let tokenizer = words_tokenizer(&vocabulary());
    assert_eq!(tokenizer.vocab_size(), VOCAB);
    let end = tokenizer.end_of_text().unwrap();
    let schema = r#"{"type": "object", "properties": {
        "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 4},
        "score": {"type": "number"}}, "required": ["name", "age", "tags"], "additionalProperties": false}"#;
    let grammars = [
        ("schema", Grammar::json_schema("schema", schema).unwrap()),
        ("regex", Grammar::regex("regex", r"([A-Z][a-z]+ )*[a-z]+(, [a-z ]{2,40})?\.").unwrap()),
        ("lark", Grammar::lark("lark", "start: sum\nsum: /[0-9]+/ | sum \"+\" sum | \"(\" sum \")\"").unwrap()),
    ];
    for (name, grammar) in grammars {
        let started = Instant::now();
        let constraint = Arc::new(Constraint::new(grammar, &tokenizer, VOCAB, &[end]).unwrap());
        println!("{name}: ready after {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
        let mut steps: Vec<f64> = Vec::new();
        let chain = Chain::of(vec![constraint.clone(), Arc::new(temperature(0.9))]);
        for sequence in 0..20 {
            let mut generated = Vec::new();
            for _ in 0..100 {
                let mut rng = ember_data::random::rng(2, &[sequence, generated.len() as u64]);
                let mut logits: Vec<f32> = (0..VOCAB).map(|_| rng.random_range(-4.0..4.0)).collect();
                logits[end as usize] = -6.0;
                let step = Step { prompt: &[], generated: &generated };
                // The complete cost of a step: the allowed tokens, masking the logits, and the
                // check for completeness.
                let started = Instant::now();
                constraint.process(&step, &mut logits);
                let mut elapsed_s = started.elapsed().as_secs_f64();
                chain.process(&step, &mut logits);
                let id = draw(3, sequence, generated.len() as u64, &logits).id;
                generated.push(id);
                let started = Instant::now();
                let complete = constraint.is_complete(&generated);
                elapsed_s += started.elapsed().as_secs_f64();
                steps.push(elapsed_s * 1e3);
                if complete || id == end {
                    break;
                }
            }
        }
        steps.sort_by(f64::total_cmp);
        let at = |share: f64| steps[((steps.len() - 1) as f64 * share) as usize];
        println!(
            "{name}: {} steps, ms: median {:.3}, 99th percentile {:.3}, longest {:.3}",
            steps.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
}

/// Words of one to eight characters, shorter ones first, and every byte.
fn vocabulary() -> Vec<Vec<u8>> {
    let mut rng = ember_data::random::rng(1, &[]);
    let letters: Vec<char> = (' '..='~').chain(['é']).collect();
    let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut seen: HashSet<Vec<u8>> = words.iter().cloned().collect();
    while words.len() < VOCAB - 1 {
        let len = rng.random_range(2..9);
        // Letters and a leading space, as in most words, and occasionally other characters.
        let letter = |rng: &mut _, at: usize| match RngExt::random_range(rng, 0..12) {
            0 => letters[RngExt::random_range(rng, 0..letters.len())],
            1 if at == 0 => ' ',
            _ => char::from(b'a' + RngExt::random_range(rng, 0..26) as u8),
        };
        let word = (0..len).map(|at| letter(&mut rng, at)).collect::<String>().into_bytes();
        if seen.insert(word.clone()) {
            words.push(word);
        }
    }
    words
}

/// A tokenizer with all 256 bytes, then these tokens, then `<|endoftext|>`.
fn words_tokenizer(words: &[Vec<u8>]) -> Tokenizer {
    let mut json: Value = serde_json::from_str(&Tokenizer::bytes().unwrap().to_json().unwrap()).unwrap();
    let written: HashMap<u64, &String> =
        json["model"]["vocab"].as_object().unwrap().iter().map(|(name, id)| (id.as_u64().unwrap(), name)).collect();
    let name = |word: &Vec<u8>| word.iter().map(|&byte| written[&byte.into()].as_str()).collect::<String>();
    let vocabulary: serde_json::Map<String, Value> = words.iter().map(name).zip((0..).map(Value::from)).collect();
    json["model"]["vocab"] = vocabulary.into();
    json["added_tokens"][0]["id"] = words.len().into();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    fs::write(&path, json.to_string()).unwrap();
    Tokenizer::from_file(&path).unwrap()
}
