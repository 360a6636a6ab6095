//! Losses, gradients and weights that are not finite, and spikes.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ember_model::folder::{TensorFile, write_checksums, write_tensors};
use serde_json::Value;

use super::super::{NOT_CALIBRATED, Place, SMALL, end_of, small_run, text};
use super::{checkpoint, copy_folder, documented_line, metrics, run_to_go_on, saved, set};

/// A run of 8 steps on a text with a rare letter, whose row of the token table is then set to NaN:
/// exactly the batches with that letter give a non-finite loss.
fn run_with_a_poisoned_letter(place: &Place) -> PathBuf {
    let lines = text().lines().map(str::to_owned).collect::<Vec<_>>();
    let rare: String = lines
        .iter()
        .enumerate()
        .map(|(i, line)| if i % 150 == 75 && i < 1300 { format!("Q\t{line}\n") } else { format!("{line}\n") })
        .collect();
    place.write("rare.txt", rare);
    place
        .train(&format!(
            "run rare.txt --out poisoned --set architecture=gpt2 --set tied_head=false --set max_steps=8 {SMALL} {NOT_CALIBRATED}"
        ))
        .succeeds();
    let run = place.path("poisoned");
    let letter = token_id(&checkpoint(&run, 8), "Q");
    poison_token_table(&checkpoint(&run, 8), "model.safetensors", letter * 32..(letter + 1) * 32);
    run
}

/// Sets values of the token table, or of its first moments, to NaN in a file of a checkpoint, which
/// stays intact by its checksums.
fn poison_token_table(checkpoint: &Path, file: &str, values: Range<usize>) {
    let path = checkpoint.join(file);
    let file = TensorFile::open(&path).unwrap();
    let mut tensors: Vec<_> = file.names().iter().map(|name| file.read(name).unwrap()).collect();
    let wte = tensors.iter_mut().find(|tensor| tensor.name.ends_with("wte.weight")).unwrap();
    wte.values[values].fill(f32::NAN);
    write_tensors(&path, &tensors).unwrap();
    write_checksums(checkpoint).unwrap();
}

fn token_id(checkpoint: &Path, letter: &str) -> usize {
    let tokenizer: Value = serde_json::from_slice(&fs::read(checkpoint.join("tokenizer.json")).unwrap()).unwrap();
    tokenizer["model"]["vocab"][letter].as_u64().unwrap() as usize
}

#[test]
fn nan_in_a_batch_stops_the_step_and_not_the_run() {
    let place = Place::new();
    let run = run_with_a_poisoned_letter(&place);
    copy_folder(&run, &place.path("halves"));
    copy_folder(&run, &place.path("short"));
    set(&run, &[("max_steps", "40"), ("max_skipped_batches", "20")]);
    let ran = place.train("resume poisoned --device cpu").succeeds();
    documented_line(&ran, &["is not finite in the checkpoint that training starts from"]);
    let line = documented_line(&ran, &["the loss is not finite, so the step is skipped; first in embeddings, "]);
    let letter = token_id(&checkpoint(&run, 40), "Q");
    assert!(line.contains(&format!("wte.weight [{letter}, 0], 32 of its ")), "{line}");
    assert!(line.contains("learning rate ") && line.contains("gradient norm "), "{line}");

    // The report contains the batch, and the window it names contains the letter.
    let reports: Vec<_> = fs::read_dir(run.join("reports")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let skips: Vec<_> = metrics(&run).into_iter().filter(|row| !row["skipped"].is_null()).collect();
    assert!(!skips.is_empty() && reports.len() == skips.len(), "{reports:?} {skips:?}");
    for report in &reports {
        let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
        let worst = &report["found"]["window"];
        let window = report["windows"].as_array().unwrap().iter().find(|window| window["window"] == *worst).unwrap();
        assert!(window["text"].as_str().unwrap().contains("Q\t"), "{report}");
        assert_eq!(report["windows"].as_array().unwrap().len(), 8);
    }
    assert_eq!(skips.last().unwrap()["skipped"], skips.len());
    assert_eq!(metrics(&run).last().unwrap()["step"], 40);

    // Stopped halfway and resumed: the same bits, the same batches skipped.
    set(&place.path("halves"), &[("max_steps", "21"), ("max_skipped_batches", "20")]);
    place.train("resume halves --device cpu").succeeds();
    set(&place.path("halves"), &[("max_steps", "40")]);
    place.train("resume halves --device cpu").succeeds();
    let (whole, halves) = (end_of(&run), end_of(&place.path("halves")));
    assert!(whole.0 == halves.0 && whole.1 == halves.1, "the resumed run ended in other numbers");
    let skipped = |rows: &[Value]| rows.iter().filter(|r| !r["skipped"].is_null()).cloned().collect::<Vec<_>>();
    assert_eq!(skipped(&whole.2), skipped(&halves.2));

    // One skipped batch too many: the last good step is saved, and the run can resume with a higher
    // limit.
    let short = place.path("short");
    set(&short, &[("max_steps", "40"), ("max_skipped_batches", "0")]);
    let ran = place.train("resume short --device cpu");
    assert_eq!(ran.code, Some(1));
    let line = documented_line(&ran, &["error: more than max_skipped_batches = ", " is saved: look at reports/"]);
    let last: u64 =
        fs::read_to_string(short.join("latest")).unwrap().trim().trim_start_matches("step-").parse().unwrap();
    assert!(line.contains(&format!("step {last} is saved")), "{line}");
    set(&short, &[("max_skipped_batches", "20")]);
    place.train("resume short --device cpu").succeeds();
    let (whole, short) = (end_of(&run), end_of(&short));
    assert!(whole.0 == short.0 && whole.1 == short.1, "the resumed run ended in other numbers");
}

/// A moment that is not finite does to the weights what a fault of the device does: the gradient is
/// finite, and the step is taken.
#[test]
fn weights_that_stop_being_finite_are_not_saved() {
    const MOMENTS: &str = "training/moments.safetensors";
    let place = Place::new();
    let (run, twin) = run_to_go_on(&place, "");
    let saved_last = checkpoint(&run, 8);
    let intact = fs::read(saved_last.join(MOMENTS)).unwrap();
    poison_token_table(&saved_last, MOMENTS, 0..1);
    // A save finds them, or the next batch.
    for checkpoint_interval in ["1", "7"] {
        set(&run, &[("checkpoint_interval", checkpoint_interval)]);
        let ran = place.train("resume run --device cpu");
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        let line =
            documented_line(&ran, &[" is no longer finite, though every gradient was; these weights are not saved"]);
        let expected = "error: wte.weight [0, 0] is no longer finite, though every gradient was; these weights are not \
                        saved: run/checkpoints/step-00000008 is intact, and `ember-train resume` continues from it";
        assert_eq!(line, expected);
        assert_eq!(saved(&run), ["step-00000008"]);
    }
    fs::write(saved_last.join(MOMENTS), intact).unwrap();
    write_checksums(&saved_last).unwrap();
    place.train("resume run --device cpu").succeeds();
    assert!(end_of(&run) == end_of(&twin), "the resumed run ended in other numbers");
}

#[test]
fn spikes_are_dealt_with_as_asked_and_logged() {
    let place = Place::new();
    for (spikes, rows_with, what) in
        [("clip", "spike", "it is scaled down to that"), ("skip", "skipped", "its batch is skipped")]
    {
        // A threshold so low that ordinary gradients exceed it, and no other clipping.
        let more = format!("--set spikes={spikes} --set spike_factor=1.05 --set grad_clip=0");
        let ran = place.train(&format!("{} {more}", small_run(&place, spikes, 60))).succeeds();
        documented_line(&ran, &[": a gradient norm of ", " times the median of the last 100; ", what]);
        assert!(!place.path(spikes).join("reports").exists());
        let rows = metrics(&place.path(spikes));
        assert!(rows.iter().any(|row| !row[rows_with].is_null() && !row["spike"].is_null()), "{rows:?}");
        assert_eq!(rows.iter().any(|row| !row["skipped"].is_null()), spikes == "skip");
        let scaled_down =
            |step: &Value| spikes == "clip" && rows.iter().any(|row| row["step"] == *step && !row["spike"].is_null());
        for row in rows.iter().filter(|row| !row["train_loss"].is_null()) {
            assert_eq!(row["clipped"], scaled_down(&row["step"]), "{row}");
        }
        place.train(&format!("verify-resume count.txt --steps 25 {SMALL} {more}")).succeeds();
    }
}
