//! Every architecture through both programs: trained, stopped, resumed, saved under its
//! transformers class, loaded, searched, scored, explained and measured. Combinations that no class
//! computes are refused before the text is read.

use std::fs;

use serde_json::Value;

use super::{NOT_CALIBRATED, Place, SMALL, end_of, small_run};

/// Settings, and the transformers class of their checkpoints.
const SHAPES: [(&str, &str); 5] = [
    ("--set architecture=llama", "LlamaForCausalLM"),
    ("--set architecture=llama --set n_head=4 --set n_kv_head=1 --set bias=true --set n_inner=44", "LlamaForCausalLM"),
    ("--set architecture=qwen3 --set n_kv_head=1 --set tied_head=false --set rope_theta=500", "Qwen3ForCausalLM"),
    ("--set architecture=gpt2 --set bias=false --set n_inner=48", "GPT2LMHeadModel"),
    ("--set positions=learned --set tied_head=false --set rope_theta=77", "GPT2LMHeadModel"),
];

#[test]
fn every_architecture_trains_resumes_and_writes() {
    let place = Place::new();
    for (number, (shape, class)) in SHAPES.into_iter().enumerate() {
        let [whole, halves] = ["whole", "halves"].map(|name| format!("runs/{name}-{number}"));
        for (run, steps) in [(&whole, 14), (&halves, 7)] {
            let settings = format!("{shape} {NOT_CALIBRATED} --set lr_decay_steps=14");
            place.train(&format!("{} {settings}", small_run(&place, run, steps))).succeeds();
        }
        // The second run ended halfway: resumed, it must reach the first one's end.
        let settings = place.path(&halves).join("config.toml");
        let text = fs::read_to_string(&settings).unwrap();
        fs::write(&settings, text.replace("max_steps = 7\n", "max_steps = 14\n")).unwrap();
        place.train(&format!("resume {halves} --device cpu")).succeeds();
        let [(weights, moments, _), (resumed, resumed_moments, _)] =
            [&whole, &halves].map(|run| end_of(&place.path(run)));
        assert!(weights == resumed && moments == resumed_moments, "{shape}: resumed to other numbers");

        let config = place.path(&whole).join("checkpoints/step-00000014/config.json");
        let config: Value = serde_json::from_slice(&fs::read(config).unwrap()).unwrap();
        assert_eq!(config["architectures"][0], class, "{shape}");

        // Cached (greedy) and uncached (scoring) passes give the same log-probabilities; beam
        // search runs.
        let from = format!("--from {whole} --device cpu --format json");
        let greedy =
            place.generate(&format!("text one~and {from} --strategy greedy --max-new-tokens 9")).succeeds().json();
        let beams = place.generate(&format!("text one~and {from} --num-beams 3 --max-new-tokens 9")).succeeds().json();
        assert_eq!(beams[0]["ids"].as_array().unwrap().len(), 9, "{shape}");
        let text = greedy[0]["text"].as_str().unwrap().replace(' ', "~").replace('\n', "\\n");
        if !text.contains('\\') {
            let scored = place.generate(&format!("score one~and{text} {from}")).succeeds().json();
            let tail: f64 =
                scored[0]["logprobs"].as_array().unwrap().iter().rev().take(9).filter_map(Value::as_f64).sum();
            let score = greedy[0]["score"].as_f64().unwrap();
            assert!((tail - score).abs() < 1e-3, "{shape}: scored {tail}, written with {score}");
        }
        let explained =
            place.generate(&format!("explain one~and --from {whole} --device cpu --max-new-tokens 3")).succeeds();
        assert!(!explained.out.is_empty());
        let ledger =
            format!("ledger {whole} --device cpu --repeats 1 --time 24 --new-tokens 4 --batch-size 2 --format json");
        assert_eq!(place.train(&ledger).succeeds().json().iter().filter(|line| line["kind"] == "mode").count(), 7);
    }
}

#[test]
fn parts_that_no_class_has_together_are_refused_before_the_text_is_read() {
    let place = Place::new();
    for (set, says) in [
        ("architecture=gpt2 --set positions=rotary", "norm = layernorm does not go with positions = rotary"),
        ("architecture=gpt2 --set norm=rmsnorm", "norm = rmsnorm does not go with positions = learned"),
        ("architecture=gpt2 --set mlp=swiglu", "mlp = swiglu does not go with positions = learned"),
        ("architecture=gpt2 --set qk_norm=true", "qk_norm = true does not go with positions = learned"),
        ("architecture=gpt2 --set n_kv_head=1", "n_kv_head = 1 of 2 heads does not go with positions = learned"),
        ("architecture=llama --set mlp=gelu", "mlp = gelu does not go with positions = rotary"),
        ("architecture=qwen3 --set bias=true", "qk_norm = true does not go with bias = true"),
    ] {
        // The text is missing: an attempt to read it would give another error.
        let ran = place.train(&format!("run missing.txt --out run {SMALL} --set {set}"));
        assert_eq!(ran.code, Some(2), "{set}: {}", ran.err);
        assert!(ran.err.contains(says), "{set}: {}", ran.err);
        assert!(!place.path("run").exists(), "{set}: a folder was left behind");
    }
    place.write("count.txt", super::text());
    for (set, says) in [
        ("architecture=llama --set n_kv_head=3 --set n_head=4", "n_head 4 is not a multiple of n_kv_head 3"),
        ("architecture=llama --set n_head=2 --set n_embd=6", "a head is 3 wide"),
    ] {
        let ran = place.train(&format!("run count.txt --out run {SMALL} --set {set}"));
        assert_eq!(ran.code, Some(2), "{set}: {}", ran.err);
        assert!(ran.err.contains(says), "{set}: {}", ran.err);
    }
}
