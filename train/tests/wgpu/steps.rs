//! A run on a GPU, whose host learns a step's result late, has the same numbers as on the CPU: both
//! skip non-finite batches, at the same steps.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use ember_model::folder::{TensorFile, write_checksums, write_tensors};
use serde_json::Value;

use crate::gpu;

/// Number of steps compared, starting with the second.
const STEPS: u64 = 14;

/// `ember-train` with these arguments on a device, without output.
fn program(device: &str, arguments: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_ember-train"));
    program.args(arguments).args(["--quiet", "--device", device]);
    program
}

/// A run of two steps on a text with a rare letter, whose row of the token table is then set to
/// NaN: a batch with that letter has a non-finite loss.
fn poisoned(path: &Path) {
    let line = "the quick brown fox jumps over a lazy dog and goes on to the next one\n";
    let text: String = (0..120).map(|i| if i % 2 == 1 { format!("Q {line}") } else { line.to_owned() }).collect();
    let file = path.with_extension("txt");
    fs::write(&file, text).unwrap();
    let settings = "architecture=gpt2 optimizer=adamw n_layer=1 n_head=2 n_embd=32 context_length=16 batch_size=2 grad_accum_steps=2 micro_batch=2 dropout=0 \
        tied_head=false max_steps=2 eval_interval=1000 eval_tokens=32 checkpoint_interval=1000 sample_interval=0 log_interval=5 \
        ema_decay=0.9 max_skipped_batches=50 learning_rate=1e-3 precision=f32";
    let [text, run] = [&file, path].map(|path| path.to_str().unwrap());
    let settings = settings.split_whitespace().flat_map(|setting| ["--set", setting]);
    let arguments: Vec<&str> = ["run", text, "--out", run].into_iter().chain(settings).collect();
    assert!(program("cpu", &arguments).status().unwrap().success());

    let checkpoint = path.join("checkpoints/step-00000002");
    let tokenizer: Value = serde_json::from_slice(&fs::read(checkpoint.join("tokenizer.json")).unwrap()).unwrap();
    let letter = tokenizer["model"]["vocab"]["Q"].as_u64().unwrap() as usize;
    let weights = checkpoint.join("model.safetensors");
    let file = TensorFile::open(&weights).unwrap();
    let mut tensors: Vec<_> = file.names().iter().map(|name| file.read(name).unwrap()).collect();
    let wte = tensors.iter_mut().find(|tensor| tensor.name.ends_with("wte.weight")).unwrap();
    wte.values[letter * 32..(letter + 1) * 32].fill(f32::NAN);
    write_tensors(&weights, &tensors).unwrap();
    write_checksums(&checkpoint).unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn rows(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Resumes a run until the steps to compare are logged, then interrupts it: an evaluation would
/// compile more kernels.
fn resumed(run: &Path, device: &str) -> Vec<Value> {
    let is_there = |row: &Value| row["step"].as_u64() > Some(STEPS) && row["train_loss"].is_number();
    let arguments = ["resume", run.to_str().unwrap(), "--set", "max_steps=100000"];
    let mut resumed = program(device, &arguments).spawn().unwrap();
    while !rows(run).iter().any(is_there) {
        assert_eq!(resumed.try_wait().unwrap(), None, "it ended before it was interrupted");
        thread::sleep(Duration::from_millis(5));
    }
    let id = resumed.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(resumed.wait().unwrap().code(), Some(130));
    rows(run).into_iter().filter(|row| (3..=STEPS).contains(&row["step"].as_u64().unwrap())).collect()
}

#[test]
fn a_gpu_leaves_out_the_batches_that_the_cpu_does() {
    if gpu().is_none() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| place.path().join(name));
    poisoned(&here);
    copy_folder(&here, &there);
    let (here, there) = (resumed(&here, "cpu"), resumed(&there, "wgpu"));

    assert!(here.iter().filter(|row| !row["skipped"].is_null()).count() > 2, "too few batches are poisoned: {here:?}");
    assert_eq!(here.len(), there.len(), "{here:?}\n{there:?}");
    for (a, b) in here.iter().zip(&there) {
        for key in ["step", "skipped", "window", "tokens", "clipped"] {
            assert_eq!(a[key], b[key], "{key}: {a} and {b}");
        }
        for key in ["train_loss", "learning_rate"] {
            let [a, b] = [a, b].map(|row| row[key].as_f64());
            assert!(a.zip(b).is_none_or(|(a, b)| (a - b).abs() < 1e-4 * a.abs()), "{key}: {a:?} and {b:?}");
        }
    }
}
