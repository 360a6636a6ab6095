//! Plans and time budgets, through the real program.

use std::io::{BufRead, BufReader};
use std::time::Instant;

use super::{Place, programs, text};

/// A text long enough to be planned for.
fn long_text() -> String {
    (0..12).map(|i| text().replace("then", ["then", "next", "later"][i % 3])).collect()
}

#[test]
fn a_plan_is_a_recipe_that_runs() {
    let place = Place::new();
    place.write("count.txt", long_text());
    let ran = place
        .train("plan count.txt --minutes 0.5 --device cpu --threads 1 --out p.toml --format json --measure")
        .succeeds();
    let row = &ran.json()[0];
    for key in ["loss", "low", "high"] {
        assert!(row["plan"]["loss"][key].as_f64().unwrap() > 0.0, "{row}");
    }
    assert!(row["plan"]["speed"]["measured_s"].as_f64().unwrap() <= 20.0, "{row}");
    assert!((row["plan"]["seconds"].as_f64().unwrap() - 30.0).abs() < 3.0, "{row}");
    // Memory: within a tenth, or 64 MB, of the allocator's count.
    let peak = |of: &serde_json::Value| of["peak_bytes"].as_f64().unwrap();
    let (predicted, measured) = (peak(&row["measured"]["predicted"]), peak(&row["measured"]["measured"]));
    assert!((predicted - measured).abs() <= (0.1 * measured).max(64e6), "{predicted} {measured}");

    let recipe = std::fs::read_to_string(place.path("p.toml")).unwrap();
    assert!((25..=45).contains(&recipe.lines().count()), "{recipe}");
    assert!(recipe.contains("text = [\"count.txt\"]") && recipe.contains("# "), "{recipe}");
    // The recipe has the planned values, and runs unchanged.
    place.train("run --config p.toml --device cpu --out run --set max_steps=3 --set lr_decay_steps=3").succeeds();
    let resolved = std::fs::read_to_string(place.path("run/config.toml")).unwrap();
    for line in recipe.lines().filter(|line| line.starts_with("n_") || line.starts_with("batch_size")) {
        let setting = line.split('#').next().unwrap().trim_end();
        assert!(resolved.contains(&format!("\n{setting}\n")), "{setting} in {resolved}");
    }
    // A default file name is never overwritten; a given one is.
    place.write("plan.toml", "seed = 1\n");
    assert_eq!(place.train("plan count.txt --minutes 0.5 --device cpu").code, Some(2));
    place.train("plan count.txt --facts --device cpu").succeeds(); // writes none
}

#[cfg(target_os = "linux")]
#[test]
fn a_recipe_may_have_a_name_that_is_not_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    place.write("count.txt", long_text());
    let recipe = place.path("").join(std::ffi::OsStr::from_bytes(b"p-\xff.toml"));
    let mut command = place.command("ember-train", "plan count.txt --minutes 0.1 --device cpu --format json --out");
    let ran = super::Ran::from(command.arg(&recipe).output().unwrap()).succeeds();
    assert!(ran.json()[0]["recipe"].as_str().unwrap().ends_with("p-\u{fffd}.toml"), "{}", ran.out);
    assert!(recipe.is_file());
}

/// A warning that a key comes too late appears only for keys that were set.
#[test]
fn a_text_that_was_prepared_stays_as_it_is_in_plans_and_runs() {
    let place = Place::new();
    place.write("count.txt", long_text());
    place.train("prepare count.txt --out tokens").succeeds();
    place.train("plan tokens --minutes 0.1 --device cpu --out p.toml").succeeds();
    let recipe = std::fs::read_to_string(place.path("p.toml")).unwrap();
    assert!(!recipe.contains("tokenizer") && !recipe.contains("val_fraction"), "{recipe}");
    let short = "--set max_steps=3 --set lr_decay_steps=3 --device cpu";
    for run in ["run --config p.toml --out base", "run tokens --init base --out tuned"] {
        let ran = place.train(&format!("{run} {short}")).succeeds();
        assert!(!ran.err.contains("is already prepared"), "{}", ran.err);
    }
    let ran = place.train("plan tokens --set val_fraction=0.2 --facts --device cpu").succeeds();
    let line = "tokens is already prepared, so these keys have no effect: val_fraction";
    assert!(ran.err.lines().any(|shown| shown == line), "{}", ran.err);
    // The model card does not list the key that had no effect.
    place.train(&format!("run tokens --set val_fraction=0.2 --out late {short}")).succeeds();
    let card = std::fs::read_to_string(place.path("late/checkpoints/step-00000003/README.md")).unwrap();
    assert!(card.contains("max_steps = 3") && !card.contains("val_fraction"), "{card}");
}

#[cfg(unix)]
#[test]
fn a_plan_is_interrupted_in_the_middle_of_a_step() {
    let place = Place::new();
    place.write("count.txt", long_text());
    // Steps of minutes, in micro-batches of milliseconds.
    let set =
        "--set n_layer=2 --set n_embd=32 --set context_length=32 --set batch_size=1 --set grad_accum_steps=200000";
    let mut child =
        place.command("ember-train", &format!("plan count.txt --device cpu --out p.toml {set}")).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(stderr.any(|line| line.unwrap() == "measuring the device"));
    std::thread::sleep(std::time::Duration::from_millis(500));
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(super::wait(child).code, Some(130));
    assert!(!place.path("p.toml").exists());
}

#[cfg(unix)]
#[test]
fn a_run_is_interrupted_while_it_is_planned_and_leaves_nothing() {
    let place = Place::new();
    place.write("count.txt", long_text());
    let set =
        "--set n_layer=2 --set n_embd=32 --set context_length=32 --set batch_size=1 --set grad_accum_steps=200000";
    let child = place.command("ember-train", &format!("run count.txt --device cpu --minutes 3 {set}")).spawn().unwrap();
    // The manifest is written last in a preparation; the measurement follows.
    let began = Instant::now();
    while !place.path("runs/count/data/manifest.json").exists() && began.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let ran = super::wait(child);
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    let line = "interrupted: no partial results remain; run the command again";
    assert_eq!(ran.err.lines().last(), Some(line), "{}", ran.err);
    assert!(!place.path("runs").exists());
}

#[test]
fn what_is_set_stays_and_what_does_not_fit_is_refused() {
    let place = Place::new();
    place.write("count.txt", long_text());
    let set =
        "--set n_layer=1 --set n_embd=48 --set n_head=3 --set context_length=16 --set batch_size=4 --set dropout=0.3";
    let ran = place.train(&format!("plan count.txt --minutes 0.1 --device cpu --out p.toml {set}")).succeeds();
    assert!(
        ran.out.contains("n_layer = 1, n_head = 3, n_embd = 48, context_length = 16, dropout = 0.3"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("ember-train run --config p.toml"), "{}", ran.out);
    let ran = place.train("plan count.txt --minutes 0.1 --device cpu --out q.toml --memory-limit 100kB");
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("does not fit into memory"), "{}", ran.err);
    assert!(!place.path("q.toml").exists());
}

/// A plan uses the micro-batch that `run` would choose to fit memory, in the precision that was
/// set.
#[test]
fn what_memory_cannot_hold_at_once_is_planned_in_passes() {
    let place = Place::new();
    place.write("count.txt", long_text());
    let set = "--set precision=f32 --set n_layer=6 --set n_embd=64 --set context_length=128 --set batch_size=16";
    let plan = |more: &str| {
        let ran = place.train(&format!(
            "plan count.txt --minutes 0.1 --device cpu --threads 1 --out p.toml --format json --measure {set} {more}"
        ));
        let row = ran.succeeds().json().remove(0);
        let number = |of: &str, part: &str| row["measured"][of][part].as_f64().unwrap();
        let [predicted, measured] = ["predicted", "measured"].map(|of| number(of, "peak_bytes"));
        assert!((predicted - measured).abs() <= (0.1 * measured).max(64e6), "{predicted} {measured}");
        // With checkpointing, the activations never exist all at once.
        assert_eq!(number("measured", "activations_bytes") == 0.0, more.contains("checkpointing"), "{row}");
        let recipe = std::fs::read_to_string(place.path("p.toml")).unwrap();
        assert!(recipe.contains("precision = \"f32\""), "{recipe}");
        (row["plan"]["memory"]["peak_bytes"].as_u64().unwrap(), recipe)
    };
    let (whole, recipe) = plan("");
    assert!(!recipe.contains("micro_batch"), "{recipe}");
    let (less, recipe) = plan(&format!("--memory-limit {}", whole / 2));
    assert!(less * 11 / 10 <= whole / 2 && recipe.contains("\nmicro_batch = "), "{less} of {whole}\n{recipe}");
    plan("--set activation_checkpointing=true");
    // An explicit micro_batch is not changed: if it does not fit, that is an error.
    let decided = "--set micro_batch=16 --set activation_checkpointing=false";
    let ran = place.train(&format!("plan count.txt --device cpu --memory-limit {} {set} {decided}", whole / 2));
    assert!(ran.code == Some(2) && ran.err.contains("with micro_batch = 16 it needs"), "{}", ran.err);
}

#[test]
fn the_fit_can_be_seen() {
    let place = Place::new();
    let ran = place.train("plan --show-fit --svg fit.svg").succeeds();
    assert!(ran.out.contains("left out") && ran.out.contains("tiny-shakespeare-chars"), "{}", ran.out);
    let svg = std::fs::read_to_string(place.path("fit.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("predicted (nats per token)"));
}

/// Twelve seconds with a tolerance for a busy machine: an evaluation is long compared with so short
/// a budget.
#[test]
fn a_promise_of_time_is_kept_and_the_end_is_whole() {
    let place = Place::new();
    place.write("count.txt", long_text());
    // Building the programs must not count.
    programs();
    let began = Instant::now();
    let ran = place.train("run count.txt --minutes 0.2 --device cpu --threads 1 --out run").succeeds();
    let seconds = began.elapsed().as_secs_f64();
    assert!((9.0..15.5).contains(&seconds), "{seconds} s for 12\n{}", ran.err);
    for file in ["config.toml", "metrics.jsonl", "loss.svg", "latest", "best"] {
        assert!(place.path("run").join(file).is_file(), "{file} is missing");
    }
    // The configuration has the length actually reached, and a resume finds the run finished.
    let config = std::fs::read_to_string(place.path("run/config.toml")).unwrap();
    let latest = std::fs::read_to_string(place.path("run/latest")).unwrap();
    let step: u64 = latest.trim().trim_start_matches("step-").parse().unwrap();
    assert!(config.contains(&format!("\nmax_steps = {step}\n")), "{step}\n{config}");
    let metrics = std::fs::read_to_string(place.path("run/metrics.jsonl")).unwrap();
    let last = metrics.lines().rev().find(|line| line.contains("val_loss")).unwrap();
    assert!(last.contains(&format!("\"step\":{step},")), "{last}");
    place.train("resume run --device cpu").succeeds();
}

#[test]
fn who_has_prepared_the_text_is_not_told_to_prepare_it() {
    let place = Place::new();
    place.write("count.txt", long_text());
    // So little time gets no advice to prepare the text: no run would finish in time.
    let ran = place.train("run count.txt --minutes 0.0001 --device cpu");
    assert_eq!(ran.err.lines().last(), Some("error: 0.0s is too short for any run; give more --minutes"));
    let ran = place.train("run count.txt --minutes 0.0025 --device cpu");
    assert!(ran.code == Some(1) && ran.err.contains("; prepare it once with `ember-train prepare` and"), "{}", ran.err);
    place.train("prepare count.txt --out tokens").succeeds();
    let ran = place.train("run tokens --minutes 0.0025 --device cpu");
    assert!(ran.code == Some(1) && ran.err.contains("leaves too little of 0.1s; give more --minutes"), "{}", ran.err);
}
