//! The explanation agrees with the engine, the processors and the model.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::{module::Param, tensor::Device};
use ember_model::{Gpt, GptConfig, Matrix};
use itertools::Itertools;
use serde_json::Value;

use super::*;
use ember_decoding::config::{FolderSettings, GenerationConfig, Knobs, Strategy};
use ember_decoding::processors::{Chain, Step as ChainStep};
use ember_decoding::{generate, softmax::softmax, tokens::to_tensor};

const VOCAB: usize = 23;
const CONTEXT: usize = 8;
const PROMPT: [u32; 3] = [3, 1, 4];

fn model() -> Gpt {
    // An unusually confident model, so that knobs and seeds matter more at some steps than at
    // others.
    let shape = GptConfig::new(VOCAB, CONTEXT, 2, 2, 8);
    let mut model = Gpt::new(&shape, 3, &Device::flex()).unwrap();
    model.wte.weight = Matrix::Values(Param::from_tensor(model.wte.weight.values().unwrap() * 20.0));
    model
}

fn sampling() -> GenerationConfig {
    let knobs = GenerationConfig { temperature: 0.9, top_k: 12, repetition_penalty: 1.2, ..Default::default() };
    GenerationConfig { strategy: Strategy::Sample, seed: 5, max_new_tokens: 12, ..knobs }
}

fn token(id: u32) -> Vec<u8> {
    format!(" {id}").into_bytes()
}

static FOLDER: LazyLock<FolderSettings> = LazyLock::new(FolderSettings::default);

fn subject<'a>(model: &'a Gpt, config: &'a GenerationConfig) -> Subject<'a> {
    Subject {
        program: "a-program 1.2",
        model,
        checkpoint: "a/folder",
        prompt_text: Some("</script> & co"),
        prompt: &PROMPT,
        config,
        folder: &FOLDER,
        num_beams: 3,
        exact_nodes: 500,
        steps: None,
        words: Words { bytes_of: Some(&token) },
        go_on: &|| true,
    }
}

fn explained(config: &GenerationConfig) -> Value {
    let explanation = explain(&subject(&model(), config)).unwrap().unwrap();
    serde_json::from_str(&explanation.to_json()).unwrap()
}

#[test]
fn a_seed_keeps_its_last_digits_where_numbers_have_53_bits() {
    let explained = explained(&GenerationConfig { seed: u64::MAX - 1, ..sampling() });
    assert_eq!(explained["run"]["seed_digits"], "18446744073709551614");
    assert_eq!(explained["run"]["seed"], u64::MAX - 1);
    // Every seed on the page is that one.
    let scripts = [include_str!("page/page.js"), include_str!("page/noise.js")];
    assert!(scripts.iter().all(|script| script.contains("run.seed_digits}")));
    assert!(!scripts.concat().contains(".seed}"));
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    numbers(value).into_iter().map(|id| id as u32).collect()
}

#[test]
fn the_steps_are_those_of_the_engine_the_model_and_the_processors() {
    let (model, config) = (model(), sampling());
    let json = explained(&config);
    let written = generate(&model, &PROMPT, &config, &mut ()).unwrap();
    assert_eq!(ids(&json["run"]["ids"]), written.ids);
    assert!((json["run"]["logprob_sum"].as_f64().unwrap() - written.score).abs() < 1e-5);
    assert_eq!(json["steps"].as_array().unwrap().len(), 12);
    let mut text = PROMPT.to_vec();
    for (number, step) in json["steps"].as_array().unwrap().iter().enumerate() {
        let begin = text.len().saturating_sub(CONTEXT);
        assert_eq!(ids(&step["window"]), [begin as u32, text.len() as u32]);

        // The logits are the model's, recomputed without a cache.
        let window = &text[begin..];
        let all = model.forward(to_tensor(&[window], &model.device())).into_data().try_into_vec::<f32>().unwrap();
        let mut logits = all[(window.len() - 1) * VOCAB..].to_vec();
        let stored = ids(&step["logits"]["ids"]).into_iter().zip(numbers(&step["logits"]["values"]));
        let mut previous = f64::INFINITY;
        for (id, value) in stored {
            assert!((f64::from(logits[id as usize]) - value).abs() < 1e-4, "step {number}, id {id}");
            assert!(value <= previous);
            previous = value;
        }
        assert_eq!(step["logits"]["ids"].as_array().unwrap().len(), VOCAB);

        // The remaining candidates are those of the processors, and the draw falls into the chosen
        // one's interval.
        Chain::new(&config, None).process(&ChainStep { prompt: &PROMPT, generated: &text[3..] }, &mut logits);
        let probabilities = softmax(&logits);
        let left = ids(&step["processed"]["ids"]);
        assert_eq!((left.len(), step["processed"]["survivors"].as_u64()), (12, Some(12)));
        for (&id, probability) in left.iter().zip_eq(numbers(&step["processed"]["probabilities"])) {
            assert!((f64::from(probabilities[id as usize]) - probability).abs() < 1e-4);
        }
        let (draw, share) = (step["draw"].as_f64().unwrap(), numbers(&step["interval"]));
        assert!(share[0] <= draw && draw < share[1]);
        let chosen = step["chosen"].as_u64().unwrap() as u32;
        assert_eq!(chosen, written.ids[number]);
        assert!((share[1] - share[0] - f64::from(probabilities[chosen as usize])).abs() < 1e-4);
        text.push(chosen);
    }
}

#[test]
fn a_greedy_run_draws_nothing_and_its_noise_is_sampled_all_the_same() {
    let json = explained(&GenerationConfig { strategy: Strategy::Greedy, top_k: 0, temperature: 1.0, ..sampling() });
    assert_eq!(json["run"]["strategy"], "greedy");
    assert!(json["steps"][0]["draw"].is_null() && json["steps"][0]["interval"].is_null());
    assert_eq!(json["run"]["ids"], json["ways"][0]["ids"]);
    assert_eq!(json["run"]["ids"], json["beams"]["greedy"]["ids"]);
    assert_ne!(json["noise"]["a"]["ids"], json["run"]["ids"]);
}

#[test]
fn the_last_layer_says_what_the_step_said() {
    let config = sampling();
    let json = explained(&config);
    let steps: Vec<u64> = json["lens"].as_array().unwrap().iter().map(|lens| lens["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [0, 11]);
    for lens in json["lens"].as_array().unwrap() {
        let step = &json["steps"][lens["step"].as_u64().unwrap() as usize];
        let values = numbers(&step["logits"]["values"]);
        let sum: f64 = values.iter().map(|logit| logit.exp()).sum();
        let layers = lens["layers"].as_array().unwrap();
        let names: Vec<&str> = layers.iter().map(|layer| layer["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["embedding", "block 1", "block 2"]);
        for (place, likely) in layers[2]["top"].as_array().unwrap().iter().enumerate() {
            assert_eq!(likely["id"], step["logits"]["ids"][place]);
            assert!((likely["probability"].as_f64().unwrap() - values[place].exp() / sum).abs() < 1e-4);
        }
        let chosen = &layers[2]["chosen"];
        let place = chosen["rank"].as_u64().unwrap() as usize - 1;
        assert_eq!(step["logits"]["ids"][place], step["chosen"]);
        assert!((chosen["probability"].as_f64().unwrap().ln() - step["logprob"].as_f64().unwrap()).abs() < 1e-3);
        assert_ne!(layers[0]["top"], layers[2]["top"]);
    }
}

#[test]
fn attention_is_told_for_every_head_and_looks_back_only() {
    let (model, config) = (model(), sampling());
    let steps = [5, 2, 99];
    let subject = Subject { steps: Some(&steps), ..subject(&model, &config) };
    let json = serde_json::to_value(explain(&subject).unwrap().unwrap()).unwrap();
    let attention = json["attention"].as_array().unwrap();
    assert_eq!(attention.iter().map(|step| step["step"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 5]);
    let window = ids(&attention[1]["ids"]);
    assert_eq!(window, [&PROMPT[..], &ids(&json["run"]["ids"])[..5]].concat());
    assert_eq!(attention[1]["layers"].as_array().unwrap().len(), 2);
    for head in attention[1]["layers"].as_array().unwrap().iter().flat_map(|layer| layer.as_array().unwrap()) {
        for (query, row) in head.as_array().unwrap().iter().enumerate() {
            let row = numbers(row);
            assert_eq!(row.len(), query + 1);
            assert!((row.iter().sum::<f64>() - 1000.0).abs() <= row.len() as f64 / 2.0, "{row:?}");
        }
        assert_eq!(head.as_array().unwrap().len(), window.len());
    }
}

#[test]
fn the_texts_part_where_one_number_falls_into_two_shares() {
    let mut parted = 0;
    for seed in 0..8 {
        let config = GenerationConfig { seed, ..sampling() };
        let noise = &explained(&config)["noise"];
        let (a, b) = (ids(&noise["a"]["ids"]), ids(&noise["b"]["ids"]));
        let warmer = GenerationConfig { temperature: 1.2, ..config };
        let written = generate(&model(), &PROMPT, &warmer, &mut ()).unwrap();
        assert_eq!((noise["to"].as_f64(), b.as_slice()), (Some(round(f64::from(1.2_f32))), written.ids.as_slice()));
        let first = a.iter().zip(&b).position(|(a, b)| a != b);
        assert_eq!(noise["parts_at"].as_u64().map(|step| step as usize), first);
        let Some(step) = first else { continue };
        parted += 1;
        assert_eq!(
            (noise["a_chosen"].as_u64(), noise["b_chosen"].as_u64()),
            (Some(a[step].into()), Some(b[step].into()))
        );
        let draw = noise["draw"].as_f64().unwrap();
        for candidate in noise["candidates"].as_array().unwrap() {
            for (text, chosen) in [("a", a[step]), ("b", b[step])] {
                let share = numbers(&candidate[format!("{text}_interval")]);
                let probability = candidate[format!("{text}_probability")].as_f64().unwrap();
                assert!((share[1] - share[0] - probability).abs() < 1e-6);
                let falls_in = share[0] <= draw && draw < share[1];
                assert_eq!(falls_in, candidate["id"].as_u64() == Some(chosen.into()), "seed {seed}");
                if falls_in {
                    assert_eq!(share, numbers(&noise[format!("{text}_interval")]));
                }
            }
        }
        let shown_ids = ids(&Value::from_iter(noise["candidates"].as_array().unwrap().iter().map(|c| c["id"].clone())));
        assert!(shown_ids.contains(&a[step]) && shown_ids.contains(&b[step]) && shown_ids.len() <= 10);
    }
    assert!(parted > 2, "{parted} of 8 seeds");
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[test]
fn the_exact_text_is_no_less_probable_than_what_beams_and_greedy_find() {
    let config = GenerationConfig { max_new_tokens: 3, repetition_penalty: 1.0, ..sampling() };
    let (model, config) = (model(), config);
    let subject = Subject { exact_nodes: 100_000, ..subject(&model, &config) };
    let json = serde_json::to_value(explain(&subject).unwrap().unwrap()).unwrap();
    let exact = &json["beams"]["exact"];
    assert_eq!((exact["proven"].as_bool(), exact["max_new_tokens"].as_u64()), (Some(true), Some(3)));
    let sum = |text: &Value| text["logprob_sum"].as_f64().unwrap();
    assert!(sum(exact) >= sum(&exact["beam"]) - 1e-5 && sum(&exact["beam"]) >= sum(&exact["greedy"]) - 1e-5);
    assert_eq!(exact["greedy"]["ids"], json["beams"]["greedy"]["ids"]);
    assert_eq!(json["beams"]["results"].as_array().unwrap().len(), 3);
    assert_eq!(json["beams"]["steps"].as_array().unwrap().len(), 3);
    assert_eq!(json["ways"][6]["ids"], json["beams"]["results"][0]["ids"]);
}

#[test]
fn each_way_is_what_its_knobs_write() {
    let config = sampling();
    let json = explained(&config);
    let names: Vec<&str> = json["ways"].as_array().unwrap().iter().map(|way| way["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["greedy", "temperature 0.5", "temperature 1.0", "temperature 1.5", "top-k 40", "top-p 0.9", "3 beams"]
    );
    let hotter = GenerationConfig { temperature: 1.5, top_k: 0, ..config };
    let written = generate(&model(), &PROMPT, &hotter, &mut ()).unwrap();
    let way = &json["ways"][3];
    assert_eq!(ids(&way["ids"]), written.ids);
    assert!((way["logprob_sum"].as_f64().unwrap() - written.score).abs() < 1e-5);
    let text: String = written.ids.iter().map(|id| format!(" {id}")).collect();
    assert_eq!(way["text"].as_str(), Some(text.as_str()));
}

#[test]
fn each_way_says_what_writes_it_where_the_folder_says_otherwise() {
    let knobs = Knobs { temperature: Some(0.8), top_p: Some(0.95), do_sample: Some(true), ..Knobs::default() };
    let (model, config) = (model(), sampling());
    let folder = FolderSettings { knobs, ..FolderSettings::default() };
    let json = explain(&Subject { folder: &folder, ..subject(&model, &config) }).unwrap().unwrap();
    let json = serde_json::to_value(json).unwrap();
    let flags =
        |way: usize| json["ways"][way]["flags"].as_array().unwrap().iter().map(|flag| flag.as_str().unwrap()).join(" ");
    assert_eq!(flags(0), "--strategy greedy --repetition-penalty 1.2 --max-new-tokens 12");
    assert_eq!(flags(1), "--temperature 0.5 --top-p 1 --repetition-penalty 1.2 --max-new-tokens 12 --seed 5");
    assert_eq!(flags(6), "--strategy beam --num-beams 3 --repetition-penalty 1.2 --max-new-tokens 12");
}

#[test]
fn every_named_token_has_its_text_and_without_a_tokenizer_none() {
    let (model, config) = (model(), sampling());
    let json = serde_json::to_value(explain(&subject(&model, &config)).unwrap().unwrap()).unwrap();
    assert_eq!(json["tokens"].as_object().unwrap().len(), VOCAB);
    assert_eq!(json["tokens"]["17"], " 17");
    let subject = Subject { words: Words::default(), prompt_text: None, ..subject(&model, &config) };
    let json = serde_json::to_value(explain(&subject).unwrap().unwrap()).unwrap();
    assert!(json["tokens"].as_object().unwrap().is_empty());
    assert!(json["prompt"]["text"].is_null() && json["run"]["text"].is_null() && json["ways"][0]["text"].is_null());
}

#[test]
fn a_token_that_is_a_part_of_a_character_is_told_as_its_bytes() {
    let (model, config) = (model(), sampling());
    let halves = |id: u32| if id == 17 { vec![0xc3] } else { token(id) };
    let words = Words { bytes_of: Some(&halves) };
    let json = serde_json::to_value(explain(&Subject { words, ..subject(&model, &config) }).unwrap().unwrap()).unwrap();
    assert_eq!(json["tokens"]["16"], " 16");
    assert_eq!(json["tokens"]["17"], serde_json::json!([0xc3]));
}

#[test]
fn tokens_are_read_together_and_what_is_no_character_stands_as_its_bytes() {
    let byte = |id: u32| vec![id as u8];
    let words = Words { bytes_of: Some(&byte) };
    let text = |bytes: &[u8]| words.text(&bytes.iter().copied().map(u32::from).collect::<Vec<_>>()).unwrap();
    assert_eq!(text("a\u{4f60}b".as_bytes()), "a\u{4f60}b");
    assert_eq!(text(&[0xe4, 0xbd, b'x', 0xff]), "<E4><BD>x<FF>");
    assert_eq!(Words::default().text(&[1]), None);
}

#[test]
fn whoever_asks_to_end_gets_nothing_half() {
    let (model, config) = (model(), sampling());
    for answers in (0..60).step_by(7) {
        let asked = AtomicUsize::new(0);
        let go_on = || asked.fetch_add(1, Ordering::Relaxed) < answers;
        assert!(explain(&Subject { go_on: &go_on, ..subject(&model, &config) }).unwrap().is_none(), "{answers}");
        assert!(asked.load(Ordering::Relaxed) < answers + 60, "it went on for long");
    }
}

#[test]
fn the_page_holds_the_numbers_and_asks_the_network_for_nothing() {
    let (model, config) = (model(), sampling());
    let explanation = explain(&subject(&model, &config)).unwrap().unwrap();
    let page = page::page(&explanation);
    let data = page.split("id=\"explanation\">").nth(1).unwrap().split("</script>").next().unwrap();
    let json: Value = serde_json::from_str(data).unwrap();
    assert_eq!(json, serde_json::from_str::<Value>(&explanation.to_json()).unwrap());
    assert_eq!(json["prompt"]["text"], "</script> & co");
    assert_eq!(json["program"], "a-program 1.2");
    assert!(page.contains("<title>&lt;/script&gt; &amp; co: explained</title>"));
    for outside in [" src=", "<link rel=\"stylesheet\"", "@import", "fetch(", "XMLHttpRequest", "url(http"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

/// A hundred steps with a vocabulary and heads of GPT-2's size: the page can still be opened on a
/// phone.
#[test]
fn a_page_of_a_large_vocabulary_stays_below_3_mb() {
    let shape = GptConfig::new(50_257, 128, 12, 12, 24);
    let model = Gpt::new(&shape, 3, &Device::flex()).unwrap();
    let config =
        GenerationConfig { strategy: Strategy::Sample, max_new_tokens: 100, temperature: 0.8, ..Default::default() };
    let most = Cell::new(0);
    let word = |id: u32| {
        most.set(most.get().max(id));
        format!(" token{}", id % 100).into_bytes()
    };
    let words = Words { bytes_of: Some(&word) };
    let subject = Subject { words, exact_nodes: 50, num_beams: 4, ..subject(&model, &config) };
    let explanation = explain(&subject).unwrap().unwrap();
    assert_eq!(explanation.tokens_written(), 100);
    assert!(most.get() > 40_000, "texts all over the vocabulary");
    let bytes = page::page(&explanation).len();
    assert!(bytes < 3_000_000, "{bytes} bytes");
}
