#![allow(clippy::unwrap_used)]
use ember_data::prepare::{Input, PrepareOptions, Silent, prepare};
use tempfile::TempDir;

use super::*;
use crate::run::checkpoint::OF_TRAINING;
use crate::run::folder::{LOCK, REMOVING, REPORTS, RunFolder};
use crate::run::small_run;
use crate::step::progress::{DataChecksums, Progress};

/// A run in `place` at `step` of 20, with this validation loss there.
fn run(place: &TempDir, name: &str, step: u64, val_loss: f64) -> PathBuf {
    let path = place.path().join(name);
    let write = |file: &str, content: &str| {
        let file = path.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    };
    write("config.toml", "max_steps = 20\narchitecture = \"gpt2\"\n");
    write("metrics.jsonl", &format!("{{\"step\":{step},\"val_loss\":{val_loss}}}\n"));
    write("latest", &format!("step-{step:08}\n"));
    write("samples/step-00000000.txt", "");
    let checkpoint = format!("checkpoints/step-{step:08}");
    write(&format!("{checkpoint}/model.safetensors"), "weights");
    for file in OF_TRAINING {
        write(&format!("{checkpoint}/{file}"), "");
    }
    path
}

/// Prepares a text for a run, with the tokenizer of this name.
fn prepare_text(run: &Path, tokenizer: &str, text: &str) {
    let file = run.with_extension("txt");
    fs::write(&file, text).unwrap();
    let inputs = vec![Input::Path(file)];
    let options = PrepareOptions {
        inputs,
        tokenizer: tokenizer.parse().unwrap(),
        out: run.join("data"),
        ..PrepareOptions::default()
    };
    prepare(&options, &Silent).unwrap();
}

fn list_all(place: &TempDir) -> Vec<Summary> {
    let mut runs = list(&[place.path().to_owned()]).unwrap();
    runs.sort_by(|a, b| a.path.cmp(&b.path));
    runs
}

#[test]
fn a_run_is_running_finished_interrupted_not_begun_half_removed_or_without_its_configuration() {
    let place = TempDir::new().unwrap();
    run(&place, "a", 20, 1.5);
    run(&place, "b", 10, 1.5);
    let running = RunFolder::open(&run(&place, "c", 10, 1.5)).unwrap();
    fs::create_dir_all(place.path().join("d/data")).unwrap();
    fs::write(place.path().join("d/.lock"), "").unwrap();
    // A run that began anew in the remains of a removal.
    fs::write(place.path().join("a").join(REMOVING), "").unwrap();
    let cut_short = run(&place, "e", 20, 1.5);
    fs::rename(cut_short.join("config.toml"), cut_short.join(REMOVING)).unwrap();
    // It ran out of patience.
    let patient = run(&place, "f", 10, 1.5);
    fs::write(patient.join("config.toml"), "max_steps = 20\npatience = 1\n").unwrap();
    fs::write(patient.join("metrics.jsonl"), "{\"step\":5,\"val_loss\":1}\n{\"step\":10,\"val_loss\":2}\n").unwrap();
    fs::create_dir(place.path().join("somebodys")).unwrap();
    let lost = run(&place, "g", 10, 1.5);
    fs::remove_file(lost.join("config.toml")).unwrap();
    fs::write(lost.join(".lock"), "").unwrap();
    fs::create_dir_all(lost.join("data")).unwrap();

    let states: Vec<State> = list_all(&place).iter().map(|run| run.state).collect();
    let expected = [
        State::Finished,
        State::Interrupted,
        State::Running,
        State::NotBegun,
        State::HalfRemoved,
        State::Finished,
        State::LostConfig,
    ];
    assert_eq!(states, expected);
    drop(running);
    assert_eq!(list_all(&place)[2].state, State::Interrupted);
}

#[test]
fn a_summary_has_what_the_files_say_and_survives_a_damaged_log() {
    let place = TempDir::new().unwrap();
    let path = run(&place, "a", 10, 1.5);
    let [summary] = &list(std::slice::from_ref(&path)).unwrap()[..] else { panic!("not one run") };
    let best = summary.best.unwrap();
    assert_eq!((summary.step, summary.max_steps, best.step, best.val_loss), (10, Some(20), 10, 1.5));
    assert_eq!((summary.checkpoint_bytes, summary.architecture.as_deref()), (7, Some("gpt2")));
    assert!(summary.bytes > summary.checkpoint_bytes && !summary.lowest && summary.problem.is_none());
    fs::write(path.join("metrics.jsonl"), "{\"st\n{\"step\":1}\n").unwrap();
    let damaged = &list(&[path]).unwrap()[0];
    assert!(damaged.problem.is_some() && damaged.step == 10 && damaged.best.is_none());
    let json = serde_json::to_value(damaged).unwrap();
    assert!(json["problem"].as_str().unwrap().contains("line 1") && json["state"] == "interrupted", "{json}");
}

#[test]
fn a_configuration_that_tells_nothing_is_a_problem() {
    let place = TempDir::new().unwrap();
    let path = run(&place, "a", 10, 1.5);
    for content in ["garbage =", ""] {
        fs::write(path.join("config.toml"), content).unwrap();
        let problem = list_all(&place)[0].problem.as_ref().map(ToString::to_string).unwrap();
        let file = path.join("config.toml");
        assert!(problem.starts_with(&format!("{} is no configuration of a run (", file.display())), "{problem}");
        assert!(problem.ends_with("); restore that file"), "{problem}");
    }
}

#[test]
fn the_lowest_loss_is_that_of_the_same_text_by_any_tokenizer() {
    let place = TempDir::new().unwrap();
    let (long, short) = ("one and two and three.\n".repeat(400), "four and five.\n".repeat(500));
    let other = long.replace("two", "six"); // the same number of bytes and characters
    // The text is ASCII: a byte token stands for as much text as a character token.
    for (name, tokenizer, text, loss) in [
        ("a", "chars", &long, 2.0),
        ("b", "bytes", &long, 1.5),
        ("c", "chars", &long, 1.7),
        ("d", "chars", &short, 0.1),
        ("e", "bytes", &other, 0.1),
    ] {
        prepare_text(&run(&place, name, 20, loss), tokenizer, text);
    }
    let runs = list_all(&place);
    assert_eq!(runs.iter().map(|run| run.lowest).collect::<Vec<_>>(), [false, true, false, false, false]);
    assert_eq!(runs[1].tokenizer.as_deref(), Some("bytes"));
    let bits = runs[1].bits_per_byte.unwrap();
    assert!((bits - 1.5 / std::f64::consts::LN_2).abs() < 0.05, "{bits}");
}

/// Logged facts stay true, even if another text is prepared in the same place.
#[test]
fn a_text_prepared_anew_changes_nothing_of_the_runs_that_learned_the_old_one() {
    let place = TempDir::new().unwrap();
    let prepared = place.path().join("prepared");
    fs::create_dir(&prepared).unwrap();
    let old = "one and two and three.\n".repeat(400);
    prepare_text(&prepared, "chars", &old);
    let data = prepared.join("data");
    let manifest: ember_data::prepare::Manifest =
        serde_json::from_slice(&fs::read(data.join("manifest.json")).unwrap()).unwrap();
    let progress = Progress { data: Some(DataChecksums::new(&manifest)), ..Progress::default() };
    for (name, loss, bits) in [("a", 1.5, 2.25), ("b", 2.0, 3.0)] {
        let path = run(&place, name, 20, loss);
        fs::write(path.join("config.toml"), format!("max_steps = 20\ntext = [{data:?}]\n")).unwrap();
        let row = format!("{{\"step\":20,\"val_loss\":{loss},\"bits_per_byte\":{bits}}}\n");
        fs::write(path.join("metrics.jsonl"), row).unwrap();
        let state = path.join("checkpoints/step-00000020").join(OF_TRAINING[0]);
        fs::write(state, serde_json::to_string(&progress).unwrap()).unwrap();
    }
    let listed = || -> Vec<_> {
        let runs = list_all(&place);
        runs.iter().map(|run| (run.bits_per_byte, run.lowest, run.tokenizer.clone())).collect()
    };
    let chars = Some("chars".to_owned());
    assert_eq!(listed(), [(Some(2.25), true, chars.clone()), (Some(3.0), false, chars)]);
    fs::remove_dir_all(&data).unwrap();
    prepare_text(&prepared, "bytes", &"four and five, and six.\n".repeat(500));
    assert_eq!(listed(), [(Some(2.25), true, None), (Some(3.0), false, None)]);
    fs::remove_dir_all(&data).unwrap();
    assert_eq!(listed(), [(Some(2.25), true, None), (Some(3.0), false, None)]);
}

#[test]
fn a_step_whose_batch_was_left_out_was_not_taken() {
    let place = TempDir::new().unwrap();
    let path = run(&place, "a", 10, 1.5);
    fs::write(path.join("metrics.jsonl"), "{\"step\":10,\"val_loss\":1.5}\n{\"step\":11,\"skipped\":1}\n").unwrap();
    assert_eq!(list(&[path]).unwrap()[0].step, 10);
}

#[test]
fn a_run_that_learns_from_the_text_of_another_is_known() {
    let place = TempDir::new().unwrap();
    let [source, dependent, other] = ["source", "dependent", "other"].map(|name| run(&place, name, 20, 1.5));
    for path in [&source, &other] {
        prepare_text(path, "chars", &"one and two and three.\n".repeat(400));
    }
    let text = source.join("data");
    fs::write(dependent.join("config.toml"), format!("max_steps = 20\ntext = [{text:?}]\n")).unwrap();
    assert_eq!(learning_from(std::slice::from_ref(&source)), [(dependent.clone(), source.clone())]);
    assert!(learning_from(&[source, dependent]).is_empty(), "both go");
    assert!(learning_from(&[other]).is_empty());
}

/// A disk may have a folder such as `lost+found` that only root reads.
#[cfg(unix)]
#[test]
fn a_folder_that_may_not_be_read_is_blamed_only_if_no_other_may_be() {
    use std::os::unix::fs::PermissionsExt;

    let place = TempDir::new().unwrap();
    let [closed, open] = ["lost+found", "texts"].map(|name| place.path().join(name));
    let permit = |mode| fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
    fs::create_dir(&closed).unwrap();
    permit(0o000);
    if fs::read_dir(&closed).is_ok() {
        return; // root may read everything
    }
    let refused = || list(&[place.path().to_owned()]).unwrap_err();
    assert!(matches!(refused(), FolderError::File(error) if error.path == closed));
    fs::create_dir(open).unwrap();
    assert!(matches!(refused(), FolderError::NoRuns(_)));
    permit(0o700);
}

#[test]
fn nothing_goes_with_a_run_that_no_run_left() {
    for other in [
        "notes.txt",
        ".git/config",
        "data/mine.txt",
        "samples/best.md",
        "checkpoints/merged/model.safetensors",
        "checkpoints/step-00000020/NOTES.md",
        "checkpoints/step-00000020/training/mine",
    ] {
        let place = TempDir::new().unwrap();
        let path = run(&place, "a", 20, 1.5);
        fs::create_dir_all(path.join(other).parent().unwrap()).unwrap();
        fs::write(path.join(other), "mine").unwrap();
        let line = Removal::new(&path).unwrap_err().to_string();
        assert!(line.contains("holds files that no run wrote"), "{other}: {line}");
        assert!(path.join("config.toml").exists() && !path.join(LOCK).exists());
    }
    let place = TempDir::new().unwrap();
    fs::create_dir(place.path().join("somebodys")).unwrap();
    assert!(matches!(Removal::new(&place.path().join("somebodys")), Err(FolderError::NoRun(_))));
}

/// By its name alone it could be a run's.
#[test]
fn data_that_no_run_prepared_is_nobody_s_to_remove() {
    let mine = |data: &Path| {
        fs::create_dir(data).unwrap();
        for name in ["train.bin", "val.bin", "tokenizer.json", "manifest.json"] {
            fs::write(data.join(name), "{}").unwrap();
        }
    };
    // A process that was refused there and then killed leaves a lock.
    let place = TempDir::new().unwrap();
    let project = place.path().join("project");
    fs::create_dir(&project).unwrap();
    mine(&project.join("data"));
    fs::write(project.join(LOCK), "").unwrap();
    assert!(matches!(Removal::new(&project), Err(FolderError::NoRun(_))));
    assert!(matches!(list(&[project]), Err(FolderError::NoRuns(_))));
    // A run that learned from a text elsewhere has no data of its own.
    let path = run(&place, "a", 20, 1.5);
    mine(&path.join("data"));
    let error = Removal::new(&path).unwrap_err();
    assert!(matches!(&error, FolderError::NotOnlyRun { file, .. } if file == Path::new("data")), "{error}");
}

#[test]
fn the_data_of_a_run_goes_with_it_also_when_that_was_cut_short() {
    let place = TempDir::new().unwrap();
    let path = run(&place, "a", 20, 1.5);
    prepare_text(&path, "chars", &"one and two and three.\n".repeat(400));
    fs::remove_file(path.join("data/train.bin")).unwrap();
    fs::remove_file(path.join("data/manifest.json")).unwrap();
    assert!(matches!(Removal::new(&path), Err(FolderError::NotOnlyRun { .. })));
    fs::rename(path.join("config.toml"), path.join(REMOVING)).unwrap();
    Removal::new(&path).unwrap().carry_out().unwrap();
    assert!(!path.exists());
}

#[cfg(unix)]
#[test]
fn a_configuration_that_is_no_file_is_not_waited_for() {
    let place = TempDir::new().unwrap();
    let config = run(&place, "a", 20, 1.5).join("config.toml");
    fs::remove_file(&config).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&config).status().unwrap().success());
    assert_eq!(list(&[place.path().join("a")]).unwrap()[0].max_steps, None);
}

#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for() {
    for file in [
        "config.toml",
        ".lock",
        "latest",
        "data/manifest.json",
        "data/tokenizer.json",
        "checkpoints/step-00000020/training/state.json",
    ] {
        let place = TempDir::new().unwrap();
        let pipe = run(&place, "a", 20, 1.5).join(file);
        fs::create_dir_all(pipe.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&pipe);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let runs = list_all(&place);
        let problem = runs[0].problem.as_ref().map(ToString::to_string).unwrap();
        let line = format!("{} is a pipe, a device or a socket, not a file", pipe.display());
        assert!(runs.len() == 1 && problem.starts_with(&line), "{file}: {problem}");
    }
}

/// The text of a run may be prepared elsewhere; its token file comes first when a folder of tokens
/// is recognised.
#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_a_text_is_not_waited_for() {
    for file in ["train.bin", "manifest.json"] {
        let place = TempDir::new().unwrap();
        let path = run(&place, "a", 20, 1.5);
        let data = place.path().join("prepared/data");
        fs::create_dir_all(&data).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(data.join(file)).status().unwrap().success());
        fs::write(path.join("config.toml"), format!("max_steps = 20\ntext = [{data:?}]\n")).unwrap();
        let [summary] = &list(std::slice::from_ref(&path)).unwrap()[..] else { panic!("not one run") };
        assert_eq!(summary.problem.is_some(), file == "manifest.json", "{:?}", summary.problem);
    }
}

#[cfg(unix)]
#[test]
fn a_run_that_is_named_in_several_ways_is_one() {
    let place = TempDir::new().unwrap();
    let (path, other) = (run(&place, "named", 20, 1.5), run(&place, "other", 20, 2.0));
    let link = place.path().join("a");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let roundabout = place.path().join("other/../named");
    let listed = |folders: &[PathBuf]| {
        let mut paths: Vec<PathBuf> = list(folders).unwrap().into_iter().map(|run| run.path).collect();
        paths.sort();
        paths
    };
    assert_eq!(listed(&[place.path().to_owned()]), [path.clone(), other.clone()]);
    assert_eq!(listed(&[roundabout, link.clone(), path.clone(), other.clone()]), [path, other]);
    assert_eq!(listed(std::slice::from_ref(&link)), [link]);
}

#[cfg(unix)]
#[test]
fn a_link_is_not_followed() {
    let place = TempDir::new().unwrap();
    let path = run(&place, "a", 20, 1.5);
    fs::create_dir(place.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(place.path().join("elsewhere"), path.join("data")).unwrap();
    assert!(matches!(Removal::new(&path), Err(FolderError::NotOnlyRun { .. })));
}

#[test]
fn a_run_in_use_stays_and_all_of_another_goes() {
    let place = TempDir::new().unwrap();
    let path = run(&place, "a", 20, 1.5);
    for put_aside in ["damaged-step-00000010", "damaged-step-00000010-2", "superseded-step-00000015", ".unfinished-20"]
    {
        fs::create_dir_all(path.join("checkpoints").join(put_aside).join("ema")).unwrap();
    }
    // Left by a run that was killed while it prepared its text.
    fs::create_dir_all(path.join("data/.prepare-checkpoint")).unwrap();
    fs::write(path.join("data/.prepare-checkpoint/surveyed"), "half").unwrap();
    let in_use = RunFolder::open(&path).unwrap();
    assert!(matches!(Removal::new(&path), Err(FolderError::InUse(_))));
    drop(in_use);
    let removal = Removal::new(&path).unwrap();
    assert!(removal.bytes() > 7);
    removal.carry_out().unwrap();
    assert!(!path.exists());
}

#[test]
fn what_runs_write_beside_their_checkpoints_goes_with_them() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("a");
    let settings = "max_steps = 2\nsample_tokens = 2\nema_decay = 0.9\ntensorboard = true\n";
    small_run::train(small_run::begin(&path, settings));
    let run = RunFolder::open(&path).unwrap();
    fs::create_dir(run.file(REPORTS)).unwrap();
    for attempt in [1, 2] {
        fs::write(run.not_finite_report(2, attempt), "{}").unwrap();
    }
    drop(run);
    assert!(path.join("samples").is_dir() && path.join("tensorboard").is_dir());
    Removal::new(&path).unwrap().carry_out().unwrap();
    assert!(!path.exists());
}

/// A file added meanwhile stops the removal halfway, as a kill does.
#[test]
fn a_removal_that_was_cut_short_is_done_again() {
    for late in ["checkpoints/step-00000020/mine", "checkpoints/mine", "mine"] {
        let place = TempDir::new().unwrap();
        let path = run(&place, "a", 20, 1.5);
        let removal = Removal::new(&path).unwrap();
        fs::write(path.join(late), "mine").unwrap();
        removal.carry_out().unwrap_err();
        assert!(RunFolder::open(&path).is_err(), "nobody goes on with what is left");
        assert!(path.join(late).is_file());
        fs::remove_file(path.join(late)).unwrap();
        if path.read_dir().unwrap().next().is_some() {
            assert_eq!(list_all(&place)[0].state, State::HalfRemoved);
            Removal::new(&path).unwrap().carry_out().unwrap();
            assert!(!path.exists());
        }
    }
}

#[test]
fn a_run_that_has_not_begun_is_removed_also_when_that_was_cut_short() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("a");
    fs::create_dir(&path).unwrap();
    prepare_text(&path, "chars", &"one and two and three.\n".repeat(400));
    fs::write(path.join(LOCK), "").unwrap();
    let removal = Removal::new(&path).unwrap();
    fs::write(path.join("data/mine"), "mine").unwrap();
    removal.carry_out().unwrap_err();
    fs::remove_file(path.join("data/mine")).unwrap();
    // The state after a kill once the manifest is deleted, which says whose the files are.
    fs::write(path.join("data/val.bin"), "tokens").unwrap();
    assert_eq!(list_all(&place)[0].state, State::HalfRemoved);
    assert!(matches!(RunFolder::open(&path), Err(FolderError::NoRun(_))));
    Removal::new(&path).unwrap().carry_out().unwrap();
    assert!(!path.exists());
}
