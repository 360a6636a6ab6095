//! Both programs as a user runs them: built separately, started as processes, judged by their
//! output, files and exit codes.
#![allow(clippy::unwrap_used)]

mod architectures;
mod bad_input;
mod bench;
#[path = "../../../generate/lib/src/constraint/cases.rs"]
#[allow(dead_code)]
mod cases;
mod decisions;
mod decoding;
mod faults;
mod instructions;
mod ledger;
mod measures;
mod memory;
mod optimizers;
mod packaged;
mod plan;
mod preparing;
mod processes;
mod records;
mod runs;
mod serving;
mod surroundings;
#[cfg(unix)]
mod terminals;
mod texts;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The folder of the programs. They are built separately: one build of both would enable automatic
/// differentiation in ember-generate.
fn programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        for package in ["ember-generate", "ember-train"] {
            let status =
                Command::new(env!("CARGO")).args(["build", "--release", "-q", "-p", package]).status().unwrap();
            assert!(status.success(), "cannot build {package}");
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        target.join("release")
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A temporary folder to run in.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn command(&self, program: &str, arguments: &str) -> Command {
        let mut command = Command::new(programs().join(program));
        command.current_dir(self.0.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.args(arguments.split_whitespace().map(|word| word.replace('~', " ")));
        command
    }

    /// Runs a program to its end; `~` in the arguments stands for a space inside one argument.
    fn run(&self, program: &str, arguments: &str) -> Ran {
        Ran::from(self.command(program, arguments).output().unwrap())
    }

    fn train(&self, arguments: &str) -> Ran {
        self.run("ember-train", arguments)
    }

    fn generate(&self, arguments: &str) -> Ran {
        self.run("ember-generate", arguments)
    }
}

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    #[track_caller]
    fn succeeds(self) -> Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.err);
        self
    }

    fn json(&self) -> Vec<serde_json::Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A text with something to learn: counting in words.
fn text() -> String {
    let words = ["one", "two", "three", "four", "five", "six", "seven"];
    (0..1500).map(|i| format!("{} and then {}.\n", words[i % 7], words[(i + 1) % 7])).collect()
}

/// A run of a few seconds on [`text`].
const SMALL: &str = "--device cpu --set n_layer=2 --set n_head=2 --set n_embd=32 --set context_length=32 --set batch_size=4 \
    --set eval_interval=20 --set checkpoint_interval=7 --set log_interval=5 --set sample_interval=20 --set sample_tokens=40 \
    --set dropout=0.1 --set grad_accum_steps=2 --set warmup_steps=5";

/// For a run that ends and is then lengthened: it has one more evaluation than a run that was that
/// long from the start, and its later checkpoints are divided by that evaluation's temperature.
const NOT_CALIBRATED: &str = "--set calibrate=false";

/// The default precision of a run on this CPU.
fn usual_precision() -> &'static str {
    if ember_kernels::multiplies_bf16() { "bf16" } else { "f32" }
}

fn small_run(place: &Place, out: &str, steps: u32) -> String {
    place.write("count.txt", text());
    format!("run count.txt --out {out} --set max_steps={steps} {SMALL}")
}

#[test]
fn a_text_becomes_a_checkpoint_becomes_text() {
    let place = Place::new();
    let ran = place.train(&small_run(&place, "runs/count", 60)).succeeds();
    assert!(ran.err.contains("n_embd") || ran.err.contains("parameters"), "{}", ran.err);
    for file in ["config.toml", "metrics.jsonl", "loss.svg", "latest", "best", "data/manifest.json"] {
        assert!(place.path("runs/count").join(file).is_file(), "{file} is missing");
    }
    let latest = std::fs::read_to_string(place.path("runs/count/latest")).unwrap();
    assert_eq!(latest.trim(), "step-00000060");
    let checkpoint = place.path("runs/count/checkpoints/step-00000060");
    for file in
        ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
    {
        assert!(checkpoint.join(file).is_file(), "{file} is missing");
    }
    // The model card contains no path, and the user's changes to it are kept.
    let card = std::fs::read_to_string(checkpoint.join("README.md")).unwrap();
    for words in ["# count\n", "| trained | step 60: ", "validation loss", "- count.txt (", "n_embd = "] {
        assert!(card.contains(words), "{words} in {card}");
    }
    assert!(!card.contains(&place.path("").display().to_string()), "{card}");
    std::fs::write(checkpoint.join("README.md"), card.replace("# license: ", "license: mit")).unwrap();
    // The same holds for the sampling parameters.
    let drawn = std::fs::read_to_string(checkpoint.join("generation_config.json")).unwrap();
    std::fs::write(checkpoint.join("generation_config.json"), drawn + "\n").unwrap();
    place.train("resume runs/count --set max_steps=60").succeeds();
    let card = std::fs::read_to_string(checkpoint.join("README.md")).unwrap();
    assert!(card.contains("\nlicense: mit\n"), "{card}");
    let generation: serde_json::Value =
        serde_json::from_slice(&std::fs::read(checkpoint.join("generation_config.json")).unwrap()).unwrap();
    let drawn = ["top_k", "do_sample", "temperature", "top_p"].map(|key| &generation[key]);
    assert_eq!(serde_json::json!(drawn), serde_json::json!([0, true, 0.8, 0.95]));
    // A text of one document seldom ends: unprompted, the model begins as a line does.
    let tokenizer = ember_data::tokenizer::Tokenizer::from_folder(&checkpoint).unwrap();
    assert_eq!(serde_json::json!([generation["bos_token_id"]]), serde_json::json!(tokenizer.encode("\n").unwrap()));
    assert!(std::fs::read_dir(place.path("runs/count/samples")).unwrap().count() >= 3);
    // It learned something.
    let metrics = std::fs::read_to_string(place.path("runs/count/metrics.jsonl")).unwrap();
    let losses: Vec<f64> = metrics
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["val_loss"].as_f64())
        .collect();
    assert_eq!(losses.len(), 3);
    assert!(losses[2] < losses[0], "{losses:?}");

    // Without --from: the newest run. The same seed gives the same text; JSON has the documented
    // keys.
    let draw = |seed: u32| {
        place
            .generate(&format!("text one --device cpu --temperature 0.9 --seed {seed} --max-new-tokens 50"))
            .succeeds()
            .out
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    let ran =
        place.generate("text one~and --device cpu --strategy greedy --max-new-tokens 12 --format json").succeeds();
    let rows = ran.json();
    assert_eq!(rows.len(), 1);
    for key in [
        "prompt_index",
        "sequence_index",
        "prompt",
        "prompt_ids",
        "text",
        "ids",
        "finish_reason",
        "score",
        "seconds",
        "tokens_per_s",
    ] {
        assert!(rows[0].get(key).is_some(), "{key} is missing in {}", rows[0]);
    }
    assert_eq!(rows[0]["finish_reason"], "length");
    assert_eq!(rows[0]["ids"].as_array().unwrap().len(), 12);
    assert_eq!(rows[0]["prompt"], "one and");
    // Streamed text is the same as the JSON's.
    let streamed =
        place.generate("text one~and --device cpu --strategy greedy --max-new-tokens 12 --quiet").succeeds().out;
    assert!(streamed.contains(rows[0]["text"].as_str().unwrap().trim_end()), "{streamed:?} {}", rows[0]);
    // A plain checkpoint folder works too; one without a tokenizer works with ids.
    let copy = place.path("bare");
    std::fs::create_dir(&copy).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(checkpoint.join(file), copy.join(file)).unwrap();
    }
    let bare = place
        .generate("text --from bare --prompt-ids 1,2 --device cpu --strategy greedy --max-new-tokens 5 --format json")
        .succeeds();
    assert_eq!(bare.json()[0]["text"], serde_json::Value::Null);
    assert_eq!(bare.json()[0]["ids"].as_array().unwrap().len(), 5);
    // Scores.
    let score = place.generate("score one~and~then~two. --device cpu --format json").succeeds();
    assert!(score.json()[0]["loss"].as_f64().unwrap() > 0.0);
}

/// Weights and optimizer state at the end of a run, its log rows and its samples.
fn end_of(run: &Path) -> (Vec<u8>, Vec<u8>, Vec<serde_json::Value>) {
    let latest = std::fs::read_to_string(run.join("latest")).unwrap();
    let checkpoint = run.join("checkpoints").join(latest.trim());
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let samples = std::fs::read_to_string(run.join("samples/samples.jsonl")).unwrap();
    let rows = metrics.lines().chain(samples.lines()).map(|line| {
        let mut row: serde_json::Value = serde_json::from_str(line).unwrap();
        // Measurements, and facts in the first row: device, threads and length of the first
        // session.
        for measured in ["run", "elapsed_s", "tokens_per_s", "memory_bytes", "mfu", "eval_s", "save_s", "sample_s"] {
            row.as_object_mut().unwrap().remove(measured);
        }
        row
    });
    (
        std::fs::read(checkpoint.join("model.safetensors")).unwrap(),
        std::fs::read(checkpoint.join("training/moments.safetensors")).unwrap(),
        rows.collect(),
    )
}

/// Waits until the child ends; kills it after a minute.
fn wait(mut child: Child) -> Ran {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ran::from(child.wait_with_output().unwrap())
}

/// Asserts that the run was interrupted, and that the step that its line names is saved.
#[cfg(unix)]
#[track_caller]
fn assert_saved_where_interrupted(ran: &Ran, run: &Path) {
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    let named = ran.err.split_once("interrupted at step ").and_then(|(_, rest)| rest.split_once(", which is saved"));
    let (step, _) = named.unwrap_or_else(|| panic!("{}", ran.err));
    let latest = std::fs::read_to_string(run.join("latest")).unwrap();
    assert_eq!(latest.trim(), format!("step-{step:0>8}"));
}

#[test]
fn killed_at_ten_random_moments_and_resumed_ends_in_the_same_bits() {
    let place = Place::new();
    let began = Instant::now();
    place.train(&small_run(&place, "whole", 120)).succeeds();
    let whole = began.elapsed();

    // Random times within the length of a whole run, so that kills hit preparing, training, saving
    // and evaluating.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut kills = 0;
    let mut tries = 0;
    while kills < 10 && tries < 60 {
        tries += 1;
        let fresh = !place.path("killed/config.toml").exists();
        let arguments = if fresh { small_run(&place, "killed", 120) } else { "resume killed --device cpu".to_owned() };
        let mut child = place.command("ember-train", &arguments).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(0.05 + 0.35 * random()));
        let ended = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap());
        if ended {
            assert_eq!(ran.code, Some(0), "{}", ran.err);
            // The run finished before ten kills: start again.
            if kills < 10 {
                std::fs::remove_dir_all(place.path("killed")).unwrap();
            }
        } else {
            kills += 1;
        }
    }
    assert_eq!(kills, 10, "only {kills} kills in {tries} tries");
    if !place.path("killed/config.toml").exists() {
        place.train(&small_run(&place, "killed", 120)).succeeds();
    }
    place.train("resume killed --device cpu").succeeds();
    assert!(end_of(&place.path("whole")) == end_of(&place.path("killed")), "the resumed run ended in other numbers");
    // No unfinished files remain.
    let left: Vec<_> =
        std::fs::read_dir(place.path("killed/checkpoints")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name.to_string_lossy().starts_with("step-")), "{left:?}");
}

#[cfg(unix)]
#[test]
fn a_signal_saves_and_exits_with_130_and_resume_goes_on_to_the_same_bits() {
    let place = Place::new();
    place.train(&small_run(&place, "whole", 400)).succeeds();
    let child = place.command("ember-train", &small_run(&place, "stopped", 400)).spawn().unwrap();
    let metrics = place.path("stopped/metrics.jsonl");
    let began = Instant::now();
    while std::fs::metadata(&metrics).map_or(0, |file| file.len()) < 200 && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    // A second process cannot use the run while the first does.
    let second = place.train("resume stopped --device cpu");
    assert_eq!(second.code, Some(1));
    assert!(second.err.contains("in use"), "{}", second.err);
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let ran = wait(child);
    assert_saved_where_interrupted(&ran, &place.path("stopped"));
    assert!(ran.err.contains("resume"), "{}", ran.err);
    place.train("resume stopped --device cpu").succeeds();
    assert!(end_of(&place.path("whole")) == end_of(&place.path("stopped")), "the resumed run ended in other numbers");
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let place = Place::new();
    place.train(&format!("{} --threads 1", small_run(&place, "one", 30))).succeeds();
    place.train(&format!("{} --threads 3", small_run(&place, "three", 30))).succeeds();
    assert!(end_of(&place.path("one")) == end_of(&place.path("three")));
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let place = Place::new();
    place.train(&small_run(&place, "runs/count", 10)).succeeds();
    let mut child = place
        .command("ember-generate", "text one --device cpu --temperature 1 --max-new-tokens 2000 --quiet")
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = wait(child);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
}

#[test]
fn standard_input_is_a_text_and_a_prompt() {
    let place = Place::new();
    let mut child = place.command("ember-train", &format!("run - --out runs/in --set max_steps=5 {SMALL}"));
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text().as_bytes()).unwrap();
    assert_eq!(wait(child).code, Some(0));
    let mut child =
        place.command("ember-generate", "text --device cpu --strategy greedy --max-new-tokens 4 --format json");
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one and").unwrap();
    let ran = wait(child).succeeds();
    assert_eq!(ran.json()[0]["prompt"], "one and");
}

#[test]
fn prepared_once_trained_on_from_elsewhere() {
    let place = Place::new();
    place.write("count.txt", text());
    let ran = place.train("prepare count.txt --out tokens --tokenizer chars --format json").succeeds();
    assert!(ran.json()[0]["train"]["tokens"].as_u64().unwrap() > 1000);
    place.train(&format!("run tokens --out run --set max_steps=5 {SMALL}")).succeeds();
    assert!(!place.path("run/data").exists(), "the tokens were prepared twice");
    place.train("resume run --device cpu").succeeds();
    // Training refuses a damaged token file.
    let file = place.path("tokens/train.bin");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let ran = place.train(&format!("run tokens --out again --set max_steps=5 {SMALL}"));
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("train.bin"), "{}", ran.err);
    // A model can be shared without its text.
    std::fs::remove_dir_all(place.path("tokens")).unwrap();
    let ran = place.train("share run --html page.html").succeeds();
    let line = "the page says nothing of the training text: ";
    assert!(ran.err.contains(line) && place.path("page.html").is_file(), "{}", ran.err);
}

#[test]
fn both_programs_list_the_devices() {
    let place = Place::new();
    for program in ["ember-train", "ember-generate"] {
        let ran = place.run(program, "devices").succeeds();
        assert!(ran.out.contains("cpu"), "{}", ran.out);
        let rows = place.run(program, "devices --format json").succeeds().json();
        assert!(rows.iter().any(|row| row["id"] == "cpu"), "{rows:?}");
    }
    place.train(&small_run(&place, "runs/count", 5)).succeeds();
    let ran = place.generate("text one --device wgpu:99");
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("error: --device wgpu:99: no such device ("), "{}", ran.err);
}

#[test]
fn a_report_of_a_fault_has_what_was_compared_or_why_nothing_was() {
    let place = Place::new();
    let page = || std::fs::read_to_string(place.path("page.md")).unwrap();
    let right = place.train("devices --check --device cpu --report page.md").succeeds().out.lines().count();
    assert!(
        right > 20 && page().contains(&format!(": {right} of {right} comparisons with the CPU are right")),
        "{}",
        page()
    );
    assert_eq!(page().matches(" right  ").count(), right);
    let ran = place.train("devices --check --device wgpu:99 --report page.md");
    assert_eq!(ran.code, Some(1));
    assert!(page().contains("- nothing was checked: device wgpu:99: no such device"), "{}", page());
    assert!(page().contains("\ncpu "), "{}", page());
}
