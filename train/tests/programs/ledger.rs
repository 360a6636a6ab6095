//! `ember-train ledger`: predictions match measurements, and measurements show the properties of
//! each mode.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Place, small_run, wait};

/// The parts of `predicted` and `measured`.
const PARTS: [&str; 7] = [
    "weights_bytes",
    "gradients_bytes",
    "moments_bytes",
    "activations_bytes",
    "logits_bytes",
    "cache_bytes",
    "peak_bytes",
];

fn modes(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line["kind"] == "mode").collect()
}

fn mode<'a>(lines: &'a [Value], name: &str) -> &'a Value {
    lines.iter().find(|line| line["mode"] == name).unwrap()
}

/// Each shape makes another part the largest: activations, attention weights, logits, weights.
#[test]
fn predicted_memory_is_measured_memory() {
    let place = Place::new();
    for shape in [
        "tokenizer=bpe:300 n_layer=3 n_head=4 n_embd=64 context_length=128 dropout=0.1 batch_size=4",
        "tokenizer=bpe:60 n_layer=4 n_head=16 n_embd=64 context_length=192 dropout=0 batch_size=2",
        "tokenizer=bpe:5000 n_layer=2 n_head=2 n_embd=128 context_length=48 dropout=0 batch_size=8",
        "tokenizer=bpe:500 n_layer=2 n_head=2 n_embd=512 context_length=32 dropout=0.2 batch_size=1",
        "architecture=llama tokenizer=bpe:300 n_layer=3 n_head=4 n_kv_head=2 n_embd=64 context_length=128 dropout=0.1 batch_size=4",
        "architecture=qwen3 tokenizer=bpe:300 n_layer=2 n_head=4 n_embd=128 context_length=64 dropout=0 batch_size=4 tied_head=false",
    ] {
        // One thread: the per-thread buffers of matrix products then exist before the first
        // measurement.
        let set = format!("--set {}", shape.replace(' ', " --set "));
        let ran = place.train(&format!(
            "ledger --config stories-cpu {set} --new-tokens 3 --repeats 1 --threads 1 --device cpu --format json"
        ));
        let lines = ran.succeeds().json();
        assert_eq!(modes(&lines).len(), 7);
        for entry in modes(&lines) {
            for part in PARTS {
                let [predicted, measured] = ["predicted", "measured"].map(|side| entry[side][part].as_f64().unwrap());
                // A quarter of a megabyte for everything that is not a tensor: names, lists, the
                // graph's nodes.
                let allowed = 0.03 * predicted + 262_144.0;
                assert!(
                    (predicted - measured).abs() <= allowed,
                    "{shape}: {} {part}: predicted {predicted}, measured {measured}",
                    entry["mode"]
                );
            }
        }
    }
}

#[test]
fn the_step_that_grows_is_that_of_the_run() {
    let place = Place::new();
    let longest = |checkpointing: bool| {
        let shape = "tokenizer=bpe:60 n_layer=6 n_head=4 n_embd=64 context_length=256 dropout=0 batch_size=1";
        let set = format!("--set {}", shape.replace(' ', " --set "));
        let ran = place.train(&format!(
            "ledger --config stories-cpu {set} --set activation_checkpointing={checkpointing} --growth --repeats 1 --threads 1 \
             --device cpu --new-tokens 3 --format json"
        ));
        let lines = ran.succeeds().json();
        let [step, growth] = [mode(&lines, "training_step"), &lines[lines.len() - 1]];
        [&step["measured"]["peak_bytes"], &growth["training_bytes"]].map(|bytes| bytes.as_f64().unwrap())
    };
    let ([_, plain], [step, checkpointed]) = (longest(false), longest(true));
    assert!(checkpointed < 0.8 * plain, "{checkpointed} of {plain}");
    assert!((checkpointed - step).abs() < 0.05 * step + 262_144.0, "{checkpointed} is not {step}");
}

#[test]
fn the_modes_are_what_they_say() {
    let place = Place::new();
    place.train(&small_run(&place, "runs/count", 5)).succeeds();
    let arguments = "ledger --device cpu --repeats 2 --time 24 --new-tokens 8 --batch-size 3";
    let lines = place.train(&format!("{arguments} --growth --html page.html --format json")).succeeds().json();
    let subject = &lines[0];
    assert_eq!((&subject["kind"], &subject["real_text"]), (&"subject".into(), &true.into()));
    assert_eq!((subject["batch_size"].as_u64(), subject["time"].as_u64()), (Some(3), Some(24)));

    // Dropout of 0.1 is active only in modes with a graph; all other modes give the same logits.
    for entry in modes(&lines) {
        let (nodes, off) = (entry["graph_nodes"].as_u64().unwrap(), entry["logits_difference"].as_f64().unwrap());
        let training = ["training_step", "forward_with_graph"].map(Value::from).contains(&entry["mode"]);
        assert_eq!(nodes > 0, training, "{entry}");
        assert_eq!(off > 1e-3, training, "{entry}");
        assert_eq!(entry["measured"]["activations_bytes"].as_u64().unwrap() > 0, training, "{entry}");
        assert!(entry["time_min_s"].as_f64() <= entry["time_s"].as_f64());
        assert!(entry["time_s"].as_f64() <= entry["time_max_s"].as_f64());
    }
    assert_eq!(mode(&lines, "forward")["logits_difference"], 0.0);
    assert_eq!(mode(&lines, "prefill")["tokens"], 3 * 16);
    assert_eq!(mode(&lines, "decode_cached")["tokens"], 3 * 8);
    let flops = |name: &str| mode(&lines, name)["flops"].as_f64().unwrap();
    assert_eq!(flops("training_step"), 3.0 * flops("forward"));
    assert!(flops("decode_uncached") > 5.0 * flops("decode_cached"));
    let lengths: Vec<u64> =
        lines.iter().filter(|line| line["kind"] == "growth").map(|line| line["time"].as_u64().unwrap()).collect();
    assert_eq!(lengths, [3, 6, 9, 12, 15, 18, 21, 24]);

    let page = std::fs::read_to_string(place.path("page.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 6);
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert!(!page.contains("{{") && !page.contains("http") && !page.contains("NaN"), "{page}");
    // The table fits a terminal of 100 columns, except the line with the model.
    let ran = place.train(arguments).succeeds();
    assert!(ran.out.lines().skip(1).all(|line| line.chars().count() <= 100), "{}", ran.out);
    assert!(ran.out.contains("decode uncached"), "{}", ran.out);
}

/// In float16 the loss is scaled, and the gradient divided by the scale.
#[test]
fn a_step_in_float16_with_a_regularised_loss_is_measured() {
    let keys =
        "--set precision=f16 --set z_loss=0.01 --set label_smoothing=0.1 --batch-size 2 --time 24 --new-tokens 3";
    let arguments = format!("ledger --config stories-cpu {keys} --repeats 1 --device cpu --format json");
    let lines = Place::new().train(&arguments).succeeds().json();
    let step = mode(&lines, "training_step");
    assert!(step["time_s"].as_f64() > Some(0.0) && step["graph_nodes"].as_u64() > Some(0), "{step}");
    assert!(step["measured"]["activations_bytes"].as_u64() > Some(0), "{step}");
}

/// A mode takes ten seconds here.
#[cfg(unix)]
#[test]
fn a_ledger_is_interrupted_in_the_middle_of_a_mode() {
    let place = Place::new();
    let child =
        place.command("ember-train", "ledger --config stories-cpu --repeats 1000 --device cpu").spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let asked = Instant::now();
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let ran = wait(child);
    assert_eq!((ran.code, ran.out.as_str()), (Some(130), ""), "{}", ran.err);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

#[test]
fn what_cannot_be_measured_is_refused_in_one_line() {
    let place = Place::new();
    for (arguments, code, says) in [
        ("ledger", 1, "there is no folder runs here"),
        ("ledger missing", 1, "missing does not exist"),
        ("ledger --config missing.toml", 2, "missing.toml"),
        ("ledger --config stories-cpu --set tokenizer=mine.json", 2, "--set tokenizer=bpe:SIZE"),
        ("ledger --config stories-cpu --time 97", 2, "--time 97: the model's context holds 96 tokens"),
        ("ledger --config stories-cpu --time 1", 2, "give 2 to 96"),
        ("ledger --config stories-cpu --new-tokens 96", 2, "--new-tokens 96: rows have 96 tokens; give 1 to 95"),
        ("ledger --config gpt2-124m --batch-size 60000", 2, "give a smaller --batch-size or --time, or --force"),
    ] {
        let ran = place.train(&format!("{arguments} --device cpu"));
        assert_eq!(ran.code, Some(code), "{arguments}: {}", ran.err);
        assert!(ran.err.contains(says), "{arguments}: {}", ran.err);
        assert_eq!(ran.err.matches("error:").count(), 1, "{arguments}: {}", ran.err);
    }
}
