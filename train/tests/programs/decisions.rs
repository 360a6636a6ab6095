//! The decisions that a run bases on its evaluations (`best` and which checkpoints it keeps) do not
//! depend on interruptions.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Place, SMALL, text};

/// Steps and losses of a run's evaluations.
fn evaluations(run: &Path) -> Vec<(u64, f64)> {
    let log = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let rows = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    rows.filter_map(|row| Some((row["step"].as_u64()?, row["val_loss"].as_f64()?))).collect()
}

fn best(run: &Path) -> String {
    let name = fs::read_to_string(run.join("best")).unwrap().trim().to_owned();
    assert!(run.join("checkpoints").join(&name).is_dir(), "{name} is gone");
    name
}

/// A run whose best step is neither the first nor the last evaluated one: its learning rate grows
/// until the model diverges.
fn wild_run(out: &str, steps: u32) -> String {
    let wild = "--set precision=f32 --set architecture=gpt2 --set optimizer=adamw --set schedule=cosine --set learning_rate=1 --set warmup_steps=60 --set eval_interval=5 --set sample_interval=0";
    format!("run count.txt --out {out} --set max_steps={steps} {SMALL} {wild}")
}

fn wild_twins(more: &str) -> Place {
    let place = Place::new();
    place.write("count.txt", text());
    for out in ["twin", "run"] {
        place.train(&format!("{} {more}", wild_run(out, 30))).succeeds();
    }
    place
}

/// Resumes both for the same number of steps, and compares their decisions.
fn go_on_and_compare(place: &Place) {
    for out in ["twin", "run"] {
        place.train(&format!("resume {out} --set max_steps=45 --device cpu")).succeeds();
    }
    let (run, twin) = (place.path("run"), place.path("twin"));
    assert_eq!(best(&run), best(&twin));
    let all = evaluations(&twin);
    let lowest = all.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0;
    assert_eq!(best(&twin), format!("step-{lowest:08}"));
    assert!(lowest <= 25, "the best is step {lowest}: nothing could go wrong");
}

#[test]
fn rows_that_a_power_cut_took_from_the_log_decide_nothing() {
    let place = wild_twins("");
    let log = place.path("run/metrics.jsonl");
    let rows = fs::read_to_string(&log).unwrap();
    fs::write(&log, rows.lines().take(1).map(|row| format!("{row}\n")).collect::<String>()).unwrap();
    go_on_and_compare(&place);
}

#[test]
fn a_kill_between_an_evaluation_and_the_pointer_loses_no_best() {
    for pointer in [Some("step-00000005\n"), None] {
        let place = wild_twins("--set keep_checkpoints=20");
        let file = place.path("run/best");
        match pointer {
            Some(name) => fs::write(&file, name).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        go_on_and_compare(&place);
    }
}

/// The best and the latest checkpoint are all that is kept.
#[test]
fn a_run_whose_latest_checkpoint_is_damaged_goes_on_from_its_best() {
    let place = wild_twins("");
    let (run, twin) = (place.path("run"), place.path("twin"));
    assert_eq!(fs::read_dir(run.join("checkpoints")).unwrap().count(), 2);
    fs::write(run.join("checkpoints/step-00000030/model.safetensors"), "damaged").unwrap();
    go_on_and_compare(&place);
    assert!(run.join("checkpoints/damaged-step-00000030").is_dir());
    assert!(super::end_of(&run) == super::end_of(&twin), "the resumed run ended in other numbers");
}

#[test]
fn a_run_of_a_version_that_kept_less_is_refused_with_a_way_on() {
    let place = wild_twins("");
    let checkpoint = place.path("run/checkpoints/step-00000030");
    let state = checkpoint.join("training/state.json");
    let mut kept: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    assert!(kept.remove("evaluations").is_some() && kept.remove("data").is_some());
    fs::write(&state, serde_json::to_string(&kept).unwrap()).unwrap();
    ember_model::folder::write_checksums(&checkpoint).unwrap();
    let ran = place.train("resume run --device cpu");
    let line = "step-00000030 was saved by another version of ember-train; resume with that one, or begin a new run with --init ";
    assert!(ran.code == Some(1) && ran.err.contains(line), "{}", ran.err);
}

#[cfg(unix)]
#[test]
fn an_evaluation_that_was_interrupted_is_made_by_the_resume() {
    let place = Place::new();
    // An evaluation of several batches, much longer than a step.
    place.write("count.txt", text().repeat(8));
    let run = |out: &str| {
        format!(
            "run count.txt --out {out} --device cpu --set n_layer=2 --set n_head=2 --set n_embd=64 --set context_length=32 \
             --set batch_size=2 --set max_steps=40 --set eval_interval=20 --set checkpoint_interval=100 --set warmup_steps=5 \
             --set val_fraction=0.5 --set sample_interval=0 --threads 1"
        )
    };
    place.train(&run("twin")).succeeds();
    let mut child = place.command("ember-train", &run("run")).spawn().unwrap();
    let began = Instant::now();
    while !place.path("run/latest").exists() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // Interrupted after the save of step 20 and before its row: no further step was taken.
    assert_eq!(fs::read_to_string(place.path("run/latest")).unwrap().trim(), "step-00000020");
    assert_eq!(evaluations(&place.path("run")), []);

    place.train("resume run --device cpu --threads 1").succeeds();
    assert_eq!(evaluations(&place.path("run")), evaluations(&place.path("twin")));
    assert_eq!(best(&place.path("run")), best(&place.path("twin")));
}

#[cfg(unix)]
#[test]
fn a_step_of_many_passes_that_was_interrupted_is_taken_by_the_resume() {
    let place = Place::new();
    place.write("count.txt", text());
    let run = |out: &str| format!("run count.txt --out {out} {SMALL} --set max_steps=1 --set grad_accum_steps=2000");
    place.train(&run("twin")).succeeds();
    let child = place.command("ember-train", &run("run")).spawn().unwrap();
    let began = Instant::now();
    while !place.path("run/metrics.jsonl").exists() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(300)); // in the middle of the 2000 micro-batches
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let ran = super::wait(child);
    assert!(ran.err.contains("interrupted at step 0, which is saved"), "{}", ran.err);
    super::assert_saved_where_interrupted(&ran, &place.path("run"));

    place.train("resume run --device cpu").succeeds();
    assert!(super::end_of(&place.path("run")) == super::end_of(&place.path("twin")), "other numbers");
}

#[cfg(unix)]
#[test]
fn a_long_sample_that_was_interrupted_is_drawn_by_the_resume() {
    let place = Place::new();
    place.write("count.txt", text());
    let run = |out: &str| {
        format!(
            "run count.txt --out {out} {SMALL} --set max_steps=8 --set eval_interval=4 --set checkpoint_interval=100 \
             --set sample_interval=4 --set sample_tokens=1000"
        )
    };
    place.train(&run("twin")).succeeds();
    let mut child = place.command("ember-train", &run("run")).spawn().unwrap();
    let began = Instant::now();
    let log = || fs::read_to_string(place.path("run/metrics.jsonl")).unwrap_or_default();
    while !log().contains("val_loss") && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // Interrupted in the middle of the sample: no further step was taken, and no partial sample is
    // kept.
    assert_eq!(fs::read_to_string(place.path("run/latest")).unwrap().trim(), "step-00000004");
    let drawn = |run: &str| fs::read_to_string(place.path(run).join("samples/samples.jsonl")).unwrap_or_default();
    assert_eq!(drawn("run"), "");

    place.train("resume run --device cpu").succeeds();
    assert_eq!(drawn("run"), drawn("twin"));
}

#[test]
fn a_run_learns_from_the_tokens_it_began_with_wherever_it_is_resumed() {
    let place = Place::new();
    place.write("count.txt", text());
    place.write("other.txt", text().chars().rev().collect::<String>());
    let ran = place.train("prepare count.txt --out tokens").succeeds();
    assert!(ran.out.ends_with("\ntokens is ready: train on it with `ember-train run tokens`\n"), "{}", ran.out);
    fs::create_dir_all(place.path("run/data")).unwrap(); // as an interrupted preparation leaves it
    place.train(&format!("run tokens --out run --set max_steps=6 {SMALL}")).succeeds();
    // From another folder: the stored path of the tokens is not relative to this one.
    let mut elsewhere = place.command("ember-train", "resume ../run --set max_steps=8 --device cpu");
    fs::create_dir(place.path("elsewhere")).unwrap();
    let ran = super::Ran::from(elsewhere.current_dir(place.path("elsewhere")).output().unwrap()).succeeds();
    assert!(ran.err.contains("resuming ../run at step 6"), "{}", ran.err);

    fs::rename(place.path("tokens"), place.path("away")).unwrap();
    let ran = place.train("resume run --set max_steps=10 --device cpu");
    assert!(ran.code == Some(1) && ran.err.contains("tokens is not a folder"), "{}", ran.err);

    // The same tokenizer and number of tokens, but another text.
    place.train("prepare other.txt --out tokens").succeeds();
    let ran = place.train("resume run --set max_steps=10 --device cpu");
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let line = "tokens has a different training text than run was trained on; put the folder back as it was, or \
                begin a new run with --init run";
    assert!(ran.err.contains(line), "{}", ran.err);

    fs::remove_dir_all(place.path("tokens")).unwrap();
    fs::rename(place.path("away"), place.path("tokens")).unwrap();
    place.train("resume run --set max_steps=10 --device cpu").succeeds();
}

#[test]
fn a_folder_that_is_called_as_the_text_of_a_run_is_not_taken_for_it() {
    let place = Place::new();
    place.write("book/count.txt", text());
    place.train(&format!("run book --out run --set max_steps=6 {SMALL}")).succeeds();
    place.write("other.txt", text().chars().rev().collect::<String>());
    place.train("prepare other.txt --out elsewhere/book").succeeds();
    let mut elsewhere = place.command("ember-train", "resume ../run --set max_steps=8 --device cpu");
    let ran = super::Ran::from(elsewhere.current_dir(place.path("elsewhere")).output().unwrap()).succeeds();
    assert!(ran.err.contains("resuming ../run at step 6"), "{}", ran.err);

    // Another text is prepared in the place of the run's raw one.
    let book = place.path("book");
    place.train(&format!("run {} --out absolute --set max_steps=6 {SMALL}", book.display())).succeeds();
    fs::remove_dir_all(&book).unwrap();
    fs::rename(place.path("elsewhere/book"), &book).unwrap();
    let ran = place.train("resume absolute --set max_steps=8 --device cpu").succeeds();
    assert!(ran.err.contains("resuming absolute at step 6"), "{}", ran.err);
    // How it prepared its own still belongs to its recipe.
    let prepares = |run: &str| {
        let card = place.path(run).join("checkpoints/step-00000008/README.md");
        fs::read_to_string(card).unwrap().contains("\nval_fraction = ")
    };
    assert!(prepares("absolute"));

    // So no run on a text elsewhere begins beside data that are not its own.
    place.train("prepare other.txt --out begun/data").succeeds();
    let ran = place.train(&format!("run book --out begun --set max_steps=6 {SMALL}"));
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("error: --out begun holds another prepared text, which would be taken"), "{}", ran.err);
    assert!(!place.path("begun/.lock").exists() && place.path("begun/data/train.bin").exists());

    // Earlier versions began one there: it goes on with the text that it has learned from.
    place.train(&format!("run book --out both --set max_steps=6 {SMALL}")).succeeds();
    place.write("count.txt", text());
    place.train("prepare count.txt --out both/data").succeeds();
    let ran = place.train("resume both --set max_steps=8 --device cpu").succeeds();
    assert!(ran.err.contains("resuming both at step 6"), "{}", ran.err);
    assert!(!prepares("both"));
}
