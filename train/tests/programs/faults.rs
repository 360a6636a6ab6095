//! Real faults: each ends with the line that docs/faults.md shows, and with a run that can be
//! resumed.

#[cfg(unix)]
mod disk;
mod numbers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use super::{NOT_CALIBRATED, Place, Ran, SMALL, end_of, root, small_run, text};

/// The line of standard error that contains all of `parts`; docs/faults.md must contain each part.
#[track_caller]
fn documented_line<'a>(ran: &'a Ran, parts: &[&str]) -> &'a str {
    let page = fs::read_to_string(root().join("docs/faults.md")).unwrap();
    for part in parts {
        assert!(page.contains(part), "docs/faults.md does not show {part:?}");
    }
    let found = ran.err.lines().find(|line| parts.iter().all(|part| line.contains(part)));
    found.unwrap_or_else(|| panic!("no line with {parts:?} in\n{}", ran.err))
}

fn checkpoint(run: &Path, step: u64) -> PathBuf {
    run.join(format!("checkpoints/step-{step:08}"))
}

/// Changes keys in the config.toml of a run folder.
fn set(run: &Path, changes: &[(&str, &str)]) {
    let path = run.join("config.toml");
    let mut config = fs::read_to_string(&path).unwrap();
    for (key, value) in changes {
        let old = config.lines().find(|line| line.starts_with(&format!("{key} ="))).unwrap().to_owned();
        config = config.replace(&format!("\n{old}\n"), &format!("\n{key} = {value}\n"));
    }
    fs::write(path, config).unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
}

fn metrics(run: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn saved(run: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(run.join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A run of 8 steps that will be resumed to step 40, and an undisturbed copy that has reached it.
fn run_to_go_on(place: &Place, more: &str) -> (PathBuf, PathBuf) {
    place.train(&format!("{} {NOT_CALIBRATED} {more}", small_run(place, "run", 8))).succeeds();
    let (run, twin) = (place.path("run"), place.path("twin"));
    set(&run, &[("max_steps", "40")]);
    copy_folder(&run, &twin);
    place.train("resume twin --device cpu").succeeds();
    (run, twin)
}

#[test]
fn a_damaged_checkpoint_is_put_aside_for_the_newest_whole_one() {
    let place = Place::new();
    let (run, twin) = run_to_go_on(&place, "--set keep_checkpoints=3");
    assert_eq!(saved(&run), ["step-00000007", "step-00000008"]);
    for (name, file, damage) in [
        ("truncated", "model.safetensors", (|bytes| bytes.truncate(bytes.len() / 2)) as fn(&mut Vec<u8>)),
        ("flipped", "training/moments.safetensors", |bytes| *bytes.last_mut().unwrap() ^= 1),
        ("no-list", "checksums.json", |bytes| bytes.truncate(7)),
    ] {
        let copy = place.path(name);
        copy_folder(&run, &copy);
        let path = checkpoint(&copy, 8).join(file);
        let mut bytes = fs::read(&path).unwrap();
        damage(&mut bytes);
        fs::write(&path, bytes).unwrap();
        let ran = place.train(&format!("resume {name} --device cpu")).succeeds();
        let line = documented_line(&ran, &["damaged", "(set aside as "]);
        assert!(line.contains(&format!("{name}/checkpoints/step-00000008/{file}")), "{line}");
        assert!(ran.err.contains(&format!("resuming {name} at step 7")), "{}", ran.err);
        assert_eq!(saved(&copy)[0], "damaged-step-00000008");
        // The first session's last step wrote a row at step 8 that an uninterrupted run does not
        // have, so only weights and moments are compared.
        let (ended, undisturbed) = (end_of(&copy), end_of(&twin));
        assert!(ended.0 == undisturbed.0 && ended.1 == undisturbed.1, "{name}: the resumed run ended in other numbers");
    }
    // If no checkpoint is whole, nothing is changed.
    for step in [7, 8] {
        fs::write(checkpoint(&run, step).join("config.json"), "{}").unwrap();
    }
    let ran = place.train("resume run --device cpu");
    assert_eq!(ran.code, Some(1));
    documented_line(&ran, &["error: run/checkpoints/step-00000008/config.json is damaged: its checksum differs"]);
    assert_eq!(saved(&run), ["step-00000007", "step-00000008"]);
}

#[test]
fn killed_during_a_save_and_resumed_ends_in_the_same_bits() {
    let place = Place::new();
    let run_of = |out: &str| format!("{} --set checkpoint_interval=1", small_run(&place, out, 60));
    place.train(&run_of("whole")).succeeds();
    let began = Instant::now();
    let mut kills = 0;
    let mut arguments = run_of("killed");
    while kills < 3 && began.elapsed() < Duration::from_secs(60) {
        let left_over = unfinished(&place.path("killed"));
        let is_saving = || unfinished(&place.path("killed")).iter().any(|found| !left_over.contains(found));
        let mut command = place.command("ember-train", &arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while child.try_wait().unwrap().is_none() && !is_saving() {
            std::thread::yield_now();
        }
        kills += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        arguments = "resume killed --device cpu".to_owned();
    }
    assert!(kills > 0);
    place.train("resume killed --device cpu").succeeds();
    assert!(end_of(&place.path("whole")) == end_of(&place.path("killed")), "the resumed run ended in other numbers");
}

/// Unfinished files and folders in checkpoints/ (being written, or left by a kill), with their
/// times of modification.
fn unfinished(run: &Path) -> Vec<(PathBuf, SystemTime)> {
    let Ok(entries) = fs::read_dir(run.join("checkpoints")) else { return Vec::new() };
    let unfinished = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(".unfinished-"));
    unfinished.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.modified().ok()?))).collect()
}

#[test]
fn a_half_written_row_is_passed_over() {
    let place = Place::new();
    let (run, twin) = run_to_go_on(&place, "");
    let path = run.join("metrics.jsonl");
    fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"step\":9,\"train_l").unwrap();
    place.train("resume run --device cpu").succeeds();
    assert!(end_of(&run) == end_of(&twin));
}

#[test]
fn a_resume_that_fails_leaves_the_configuration() {
    let place = Place::new();
    let (run, _) = run_to_go_on(&place, "");
    let (config, log) = (run.join("config.toml"), run.join("metrics.jsonl"));
    let before = [&config, &log].map(|file| fs::read_to_string(file).unwrap());
    // Half a row, and a whole row whose loss is not a number.
    for row in ["{\"step\":1,", "{\"step\":1,\"val_loss\":\"low\"}"] {
        let damaged = format!("{row}\n{}", before[1]);
        fs::write(&log, &damaged).unwrap();
        let ran = place.train("resume run --device cpu --set max_steps=99");
        assert_eq!(ran.code, Some(1));
        assert!(ran.err.contains("metrics.jsonl: line 1 is not a row of this log"), "{}", ran.err);
        assert_eq!([&config, &log].map(|file| fs::read_to_string(file).unwrap()), [before[0].clone(), damaged]);
    }
}

#[test]
fn a_run_without_a_new_best_ends_early_and_keeps_what_it_was_told_to() {
    let place = Place::new();
    let more = "--set patience=2 --set eval_interval=5 --set keep_checkpoints=3 --set learning_rate=0.5";
    let ran = place.train(&format!("{} {more}", small_run(&place, "run", 400))).succeeds();
    let run = place.path("run");
    let line = documented_line(&ran, &["no new best in 2 evaluations (patience): the run ends at step "]).to_owned();
    let evaluations: Vec<_> = metrics(&run).into_iter().filter(|row| !row["val_loss"].is_null()).collect();
    let loss = |row: &serde_json::Value| row["val_loss"].as_f64().unwrap();
    let best = evaluations.iter().min_by(|a, b| loss(a).total_cmp(&loss(b))).unwrap();
    let (best, last) = (best["step"].as_u64().unwrap(), evaluations.last().unwrap()["step"].as_u64().unwrap());
    assert_eq!(last, best + 10);
    assert!(line.ends_with(&format!("step {last}")));
    let kept = saved(&run);
    assert_eq!(fs::read_to_string(run.join("best")).unwrap().trim(), format!("step-{best:08}"));
    assert!(kept.contains(&format!("step-{best:08}")) && kept.contains(&format!("step-{last:08}")), "{kept:?}");
    assert!(kept.len() == 3 || kept.len() == 4, "{kept:?}");
    // A step is saved before its evaluation, and `best` is written after it.
    let written = |file: PathBuf| fs::metadata(file).unwrap().modified().unwrap();
    assert!(written(checkpoint(&run, best).join("checksums.json")) <= written(run.join("best")));
    // Resuming a finished run changes nothing.
    let rows = metrics(&run);
    let ran = place.train("resume run --device cpu").succeeds();
    assert!(ran.err.contains(&line), "{}", ran.err);
    assert_eq!(metrics(&run), rows);
}

#[test]
fn stopping_and_resuming_is_shown_to_change_nothing() {
    let place = Place::new();
    place.write("count.txt", text());
    let ran = place.train(&format!("verify-resume count.txt --steps 8 --format json {SMALL}")).succeeds();
    let answer = &ran.json()[0];
    assert!(
        answer["same"] == true && answer["difference"].is_null() && answer["values"].as_u64() > Some(1000),
        "{answer}"
    );
    let ran = place.train(&format!("verify-resume count.txt --steps 8 --quiet {SMALL}")).succeeds();
    assert!(
        ran.out.starts_with("the same bits on cpu after 8 + 8 steps as after 16: ") && ran.err.is_empty(),
        "{ran:?}"
    );
}

#[test]
fn a_run_beside_data_of_something_else_is_refused_and_leaves_nothing() {
    let place = Place::new();
    place.write("project/data/train.bin", "mine");
    let ran = place.train(&small_run(&place, "project", 5));
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    documented_line(
        &ran,
        &["error: project/data holds other files, train.bin among them, and they might be overwritten; "],
    );
    let names = |folder: &str| -> Vec<_> {
        fs::read_dir(place.path(folder)).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!([names("project"), names("project/data")], [["data"], ["train.bin"]]);
    assert_eq!(fs::read_to_string(place.path("project/data/train.bin")).unwrap(), "mine");
}

#[cfg(unix)]
#[test]
fn a_run_that_is_moved_or_removed_while_it_trains_ends_with_a_line() {
    for is_removed in [false, true] {
        let place = Place::new();
        let more = "--set sample_interval=7 --set sample_tokens=10000 --set tensorboard=true";
        let arguments = format!("{} {more}", small_run(&place, "here", 1_000_000));
        let child = place.command("ember-train", &arguments).spawn().unwrap();
        let [here, elsewhere] = ["here", "elsewhere"].map(|name| place.path(name));
        let began = Instant::now();
        while !here.join("latest").exists() && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(50)); // in the middle of the sample, which takes seconds
        fs::rename(&here, &elsewhere).unwrap();
        if is_removed {
            fs::remove_dir_all(&elsewhere).unwrap();
        }
        let ran = super::wait(child);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(ran.err.contains(": no sample ("), "it was moved before or after the sample: {}", ran.err);
        let line = documented_line(&ran, &["was moved or removed while it trained; put it back and continue with "]);
        let expected = "error: here was moved or removed while it trained; put it back and continue with \
                        `ember-train resume here`";
        assert_eq!(line, expected);
        assert!(!here.exists(), "a folder of that name has come again");
        if !is_removed {
            fs::rename(&elsewhere, &here).unwrap();
            let latest = fs::read_to_string(here.join("latest")).unwrap();
            let step: u64 = latest.trim().trim_start_matches("step-").parse().unwrap();
            let steps = step + 3;
            place.train(&format!("resume here --device cpu --set max_steps={steps} --set sample_tokens=9")).succeeds();
        }
    }
}

#[test]
fn tokens_that_are_cut_short_while_a_run_reads_them_end_it_with_a_line() {
    let place = Place::new();
    let child = place.command("ember-train", &small_run(&place, "cut", 1_000_000)).spawn().unwrap();
    let run = place.path("cut");
    let began = Instant::now();
    while !run.join("latest").exists() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let tokens = run.join("data/train.bin");
    let whole = fs::read(&tokens).unwrap();
    fs::OpenOptions::new().write(true).open(&tokens).unwrap().set_len(4096).unwrap();
    let ran = super::wait(child);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let line = documented_line(&ran, &["was truncated while it was in use; prepare the text again"]);
    assert_eq!(line, "error: cut/data/train.bin was truncated while it was in use; prepare the text again");
    assert!(!ran.err.contains("panicked") && !ran.err.contains("mistake in the program"), "{}", ran.err);
    // With the file restored, the run can be resumed.
    fs::write(&tokens, whole).unwrap();
    let step = metrics(&run).last().unwrap()["step"].as_u64().unwrap();
    place.train(&format!("resume cut --device cpu --set max_steps={}", step + 10)).succeeds();
}
