//! Precision and memory: half-precision types, activation checkpointing, the loss in pieces, and
//! the micro-batch that fits.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use itertools::Itertools;
use serde_json::Value;

use super::{Place, end_of, small_run, text, usual_precision, wait};

/// The modes `training_step` and `forward_with_graph` of a ledger with these keys: (part,
/// predicted, measured).
fn parts(keys: &str) -> Vec<(String, f64, f64)> {
    let set = format!("--set {}", keys.replace(' ', " --set "));
    let lines = Place::new().train(&format!(
        "ledger --config stories-cpu {set} --new-tokens 3 --repeats 1 --threads 1 --device cpu --format json"
    ));
    let lines = lines.succeeds().json();
    let entries = lines.iter().filter(|line| line["mode"] == "training_step" || line["mode"] == "forward_with_graph");
    let part = |entry: &Value, part: &str| {
        let [predicted, measured] = ["predicted", "measured"].map(|side| entry[side][part].as_f64().unwrap());
        (format!("{} {part}", entry["mode"]), predicted, measured)
    };
    let names =
        ["weights_bytes", "gradients_bytes", "moments_bytes", "activations_bytes", "logits_bytes", "peak_bytes"];
    entries.flat_map(|entry| names.map(|name| part(entry, name))).collect()
}

/// The predicted memory of a step holds for every way to save memory, within a twentieth and an
/// allowance for what is not a tensor.
#[test]
fn what_saves_memory_is_predicted() {
    for shape in [
        "tokenizer=bpe:300 n_layer=6 n_head=4 n_embd=96 context_length=128 batch_size=6",
        "tokenizer=bpe:60 n_layer=4 n_head=16 n_embd=64 context_length=192 batch_size=3",
        "tokenizer=bpe:3000 n_layer=2 n_head=2 n_embd=256 context_length=32 batch_size=4",
    ] {
        for how in [
            "precision=f32 activation_checkpointing=true",
            "precision=bf16",
            "precision=bf16 activation_checkpointing=true",
        ] {
            for (part, predicted, measured) in parts(&format!("{shape} {how}")) {
                let allowed = 0.05 * predicted + 400_000.0;
                assert!(
                    (predicted - measured).abs() <= allowed,
                    "{shape} {how}: {part}: predicted {predicted}, measured {measured}"
                );
            }
        }
    }
}

/// 38 million logits: 154 MB, and as much again for their gradient.
#[test]
fn a_large_vocabulary_never_has_all_its_logits() {
    let keys = "tokenizer=bpe:50000 n_layer=2 n_head=2 n_embd=32 context_length=96 batch_size=8";
    for how in ["activation_checkpointing=false", "activation_checkpointing=true"] {
        let parts = parts(&format!("{keys} {how}"));
        let (part, predicted, measured) = parts.iter().find(|part| part.0.contains("step\" peak")).unwrap();
        assert!((predicted - measured).abs() <= 0.05 * predicted, "{part}: predicted {predicted}, measured {measured}");
    }
}

fn losses(run: &Path, key: &str) -> Vec<f64> {
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    metrics.lines().filter_map(|line| serde_json::from_str::<Value>(line).unwrap()[key].as_f64()).collect()
}

#[test]
fn half_precision_and_checkpointing_learn_the_same() {
    let place = Place::new();
    let exact = "--set precision=f32";
    for (name, how) in [
        ("f32", exact),
        ("bf16", "--set precision=bf16"),
        ("f16", "--set precision=f16"),
        ("by-block", "--set precision=f32 --set activation_checkpointing=true"),
    ] {
        place.train(&format!("{} --set dropout=0 {how}", small_run(&place, name, 60))).succeeds();
    }
    let of = |name: &str| losses(&place.path(name), "train_loss");
    let exact = of("f32");
    assert!(exact.last().unwrap() < &(0.8 * exact[0]), "{exact:?}");
    // The same sums of two micro-batches, in another order.
    for (a, b) in exact.iter().zip_eq(&of("by-block")) {
        assert!((a - b).abs() < 1e-5, "checkpointing changed the numbers: {a} {b}");
    }
    for name in ["bf16", "f16"] {
        let rounded = of(name);
        assert_ne!(exact, rounded);
        for (a, b) in exact.iter().zip_eq(&rounded) {
            assert!((a - b).abs() < 0.02 * a, "{name}: {exact:?} {rounded:?}");
        }
    }
    // Weights and moments stay float32.
    let sizes = |name: &str| {
        let (weights, moments, _) = end_of(&place.path(name));
        (weights.len(), moments.len())
    };
    assert_eq!(sizes("f32"), sizes("bf16"));
    let state = std::fs::read_to_string(place.path("f16/checkpoints/step-00000060/training/state.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    assert!(state["loss_scale"]["scale"].as_f64().unwrap() >= 1024.0, "{state}");
}

#[test]
fn a_resumed_run_in_half_precision_by_block_ends_in_the_same_bits() {
    let place = Place::new();
    for precision in ["bf16", "f16"] {
        let keys = format!("--set precision={precision} --set activation_checkpointing=true --set micro_batch=2");
        let (whole, killed) = (format!("whole-{precision}"), format!("killed-{precision}"));
        place.train(&format!("{} {keys}", small_run(&place, &whole, 60))).succeeds();
        let latest = place.path(&killed).join("latest");
        let mut is_killed = false;
        for _ in 0..20 {
            let arguments = format!("{} {keys}", small_run(&place, &killed, 60));
            let mut child = place.command("ember-train", &arguments).spawn().unwrap();
            while !latest.exists() && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            child.kill().unwrap();
            let ran = wait(child);
            let saved = std::fs::read_to_string(&latest).unwrap_or_else(|_| panic!("nothing is saved: {}", ran.err));
            is_killed = saved.trim() != "step-00000060";
            if is_killed {
                break;
            }
            // It had ended before it was killed, as may happen on a busy machine.
            std::fs::remove_dir_all(place.path(&killed)).unwrap();
        }
        assert!(is_killed, "{precision}: it always ended before it was killed");
        place.train(&format!("resume {killed} --device cpu")).succeeds();
        assert!(end_of(&place.path(&whole)) == end_of(&place.path(&killed)), "{precision}: other numbers");
    }
}

/// With less and less memory: smaller micro-batches, then activation checkpointing (with whole
/// batches again), then an error. Each window of this model has about 60 MB of activations.
#[test]
fn the_micro_batch_is_what_the_memory_holds() {
    let place = Place::new();
    place.write("count.txt", text().repeat(2));
    let run = |name: &str, more: &str| {
        place.train(&format!(
            "run count.txt --out {name} --device cpu --set tokenizer=chars --set architecture=gpt2 --set n_layer=12 --set n_head=1 --set n_embd=16 \
             --set context_length=1024 --set batch_size=4 --set precision=f32 --set max_steps=1 --set dropout=0 --set sample_tokens=2 {more}"
        ))
    };
    let kept = |name: &str| {
        let config = std::fs::read_to_string(place.path(name).join("config.toml")).unwrap();
        let value = |key: &str| {
            let line = config.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
            line.split(" = ").nth(1).unwrap().to_owned()
        };
        (value("micro_batch"), value("activation_checkpointing"))
    };
    let mut losses_seen = Vec::new();
    for (limit, micro_batch, activation_checkpointing) in
        [("1GB", "4", "false"), ("40MB", "2", "false"), ("20MB", "1", "false"), ("13MB", "4", "true")]
    {
        let ran = run(limit, &format!("--memory-limit {limit}")).succeeds();
        assert_eq!(kept(limit), (micro_batch.to_owned(), activation_checkpointing.to_owned()), "{limit}: {}", ran.err);
        assert!(ran.err.contains(&format!("micro_batch = {micro_batch}")), "{}", ran.err);
        losses_seen.push(losses(&place.path(limit), "train_loss")[0]);
    }
    assert!(losses_seen.iter().all(|loss| (loss - losses_seen[0]).abs() < 1e-5), "{losses_seen:?}");
    let ran = run("none", "--memory-limit 3MB");
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("training does not fit into memory: with micro_batch = 1 it needs"), "{}", ran.err);
    assert!(!place.path("none").exists(), "a run that cannot be is left behind");
    // An explicit micro_batch is kept, whatever the limit.
    run("set", "--memory-limit 3MB --set micro_batch=2").succeeds();
    assert_eq!(kept("set").0, "2");
    // Nor does a resume change it; it only warns.
    for (limit, is_short) in [("3MB", true), ("1GB", false)] {
        let ran = place.train(&format!("resume set --device cpu --memory-limit {limit}")).succeeds();
        assert_eq!(ran.err.contains("the run needs about "), is_short, "{}", ran.err);
    }
    assert_eq!(kept("set").0, "2");
}

/// Peak growth of a run's memory in bytes after the check that it fits, and the bytes that the
/// check reported. Pages of mapped files are not counted: the system can reclaim them.
#[cfg(target_os = "linux")]
fn held_and_needed(place: &Place, arguments: &str) -> [f64; 2] {
    let mut child = place.command("ember-train", arguments).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let held = move || {
        let status = std::fs::read_to_string(&status).ok()?;
        let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
        Some(1024.0 * line.split_whitespace().nth(1)?.parse::<f64>().ok()?)
    };
    let (mut needed, mut before, mut stderr) = (0.0, 0.0, String::new());
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    while needed == 0.0 {
        let line = lines.next().unwrap_or_else(|| panic!("it never said what it needs\n{stderr}"));
        if let Some((_, rest)) = line.split_once("training needs about ") {
            before = held().unwrap();
            let mut words = rest.split_whitespace();
            needed = words.next().unwrap().parse::<f64>().unwrap() * 1e6;
            assert_eq!(words.next(), Some("MB"), "{line}");
        }
        stderr += &(line + "\n");
    }
    let rest = std::thread::spawn(move || lines.collect::<Vec<_>>().join("\n"));
    let mut most = before;
    while child.try_wait().unwrap().is_none() {
        most = held().unwrap_or(0.0).max(most);
        std::thread::sleep(Duration::from_millis(1));
    }
    let rest = rest.join().unwrap();
    assert!(child.wait().unwrap().success(), "{stderr}{rest}");
    [most - before, needed]
}

/// A run that passed the check uses no more than the reported need, a tenth of it, and the
/// program's own memory, during steps, an evaluation, a sample and a save.
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_fits_stays_within_what_it_was_given() {
    /// As in `train/lib/src/memory/mod.rs`.
    const BESIDE_TRAINING: f64 = 24e6;
    let place = Place::new();
    place.write("count.txt", text());
    let keys =
        "--device cpu --threads 2 --set max_steps=3 --set eval_interval=2 --set sample_tokens=20 --set dropout=0.1";
    let deep = "--set tokenizer=chars --set n_layer=6 --set n_embd=192 --set context_length=256 --set batch_size=8";
    let wide = "--set tokenizer=chars --set n_layer=2 --set n_embd=512 --set context_length=64 --set batch_size=2";
    let ema = "--set ema_decay=0.9 --set optimizer=muon";
    for (name, limit, how) in [
        ("deep", "240MB", deep.to_owned()),
        ("by-block", "110MB", format!("{deep} --set activation_checkpointing=true")),
        ("halves", "160MB", format!("{deep} --set precision=bf16")),
        ("wide", "270MB", wide.to_owned()),
        ("average", "270MB", format!("{wide} {ema}")),
    ] {
        let [held, needed] =
            held_and_needed(&place, &format!("run count.txt --out {name} --memory-limit {limit} {keys} {how}"));
        let admitted = 1.1 * needed + BESIDE_TRAINING;
        assert!(held <= admitted, "{name}: held {held}, needs {needed}, admitted with {admitted}");
    }
    // If memory is plentiful, freed memory is kept for reuse: at most twice the need.
    let [held, needed] = held_and_needed(&place, &format!("run count.txt --out kept --memory-limit 2GB {keys} {deep}"));
    assert!(held <= 2.0 * needed + BESIDE_TRAINING, "held {held}, needs {needed}");
}

/// The trial step that `run` starts in a process if the device does not report its memory.
#[test]
fn a_trial_step_fits_or_ends_in_one_line() {
    let place = Place::new();
    place.train(&small_run(&place, "run", 2)).succeeds();
    for (name, vocab_size) in [("small.json", 30), ("large.json", 40_000_000)] {
        let shape = ember_model::GptConfig::new(vocab_size, 32, 2, 2, 32);
        place.write(name, serde_json::to_string(&shape).unwrap());
    }
    place.train("first-steps run/config.toml small.json --device cpu").succeeds();
    #[cfg(target_os = "linux")]
    {
        let program = place.command("ember-train", "");
        let limited = format!(
            "ulimit -v 4000000; exec {} first-steps run/config.toml large.json --device cpu --threads 1",
            program.get_program().to_string_lossy()
        );
        let ran = std::process::Command::new("sh").args(["-c", &limited]).current_dir(place.path("")).output().unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{stderr}");
        assert!(stderr.trim_end().lines().count() == 1 && stderr.contains("out of memory"), "{stderr}");
    }
}

/// The default precision is reported with its reason.
#[test]
fn precision_is_chosen_aloud() {
    let place = Place::new();
    let ran = place.train(&small_run(&place, "run", 1)).succeeds();
    assert!(ran.err.contains(&format!("precision = {}: ", usual_precision())), "{}", ran.err);
}
