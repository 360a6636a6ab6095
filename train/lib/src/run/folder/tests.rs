#![allow(clippy::unwrap_used)]
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

use ember_model::device::{DeviceChoice, select};

use super::*;
use crate::distributed::Alone;
use crate::run::report::Silent;
use crate::run::resume;

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_run_that_did_not_begin_leaves_no_folder_that_was_made_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let begun = RunFolder::create(&place("a/b/run")).unwrap();
    fs::create_dir(begun.file(SAMPLES)).unwrap();
    for name in [METRICS, CONFIG] {
        fs::write(begun.file(name), "").unwrap();
    }
    begun.forget();
    assert!(!place("a").exists());
    // Foreign folders and files stay.
    fs::create_dir(place("a")).unwrap();
    let [one, other] = ["a/b/one", "a/b/other"].map(|name| RunFolder::create(&place(name)).unwrap());
    one.forget();
    assert!(!place("a/b/one").exists() && place("a/b/other").exists());
    other.forget();
    assert!(!place("a/b/other").exists() && place("a/b").exists());
    RunFolder::create(&place("a/b")).unwrap().forget();
    assert!(place("a/b").exists());
}

#[test]
fn what_somebody_puts_into_the_folder_of_a_run_that_does_not_begin_stays() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::create(&folder.path().join("run")).unwrap();
    for name in [DATA, SAMPLES, TENSORBOARD] {
        fs::create_dir(run.file(name)).unwrap();
    }
    for name in [METRICS, CONFIG] {
        fs::write(run.file(name), "").unwrap();
    }
    // Meanwhile: notes, and another run.
    fs::write(run.file("notes.txt"), "mine").unwrap();
    fs::write(run.file(SAMPLES).join("mine.md"), "mine").unwrap();
    let other = RunFolder::create(&run.file("other")).unwrap();
    fs::create_dir_all(other.checkpoint(5)).unwrap();
    fs::write(other.file(CONFIG), "").unwrap();
    run.forget();
    assert_eq!(names(run.path()), ["notes.txt", "other", SAMPLES]);
    assert_eq!(names(&run.file(SAMPLES)), ["mine.md"]);
    assert_eq!(names(other.path()), [LOCK, CHECKPOINTS, CONFIG]);
    assert!(other.checkpoint(5).is_dir());
}

#[test]
fn a_run_whose_path_ends_in_no_name_has_that_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::create(&folder.path().join("mine")).unwrap();
    fs::create_dir(run.file(DATA)).unwrap();
    let inside_and_out = run.file(DATA).join("..");
    let names = [run.path(), &inside_and_out].map(|path| RunFolder::owned_elsewhere(path).name());
    assert_eq!(names, ["mine", "mine"]);
}

#[test]
fn runs_that_are_started_at_once_get_a_folder_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs/mine");
    let at_once = Barrier::new(8);
    let begin = || {
        at_once.wait();
        RunFolder::create_free(&path).unwrap()
    };
    let begun: Vec<RunFolder> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(begin)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let names: BTreeSet<_> = begun.iter().map(|run| run.path().to_owned()).collect();
    assert!(names.len() == 8 && names.contains(&path), "{names:?}");
}

#[test]
fn a_folder_of_somebody_s_is_no_run_after_one_that_was_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [path, lock] = ["", LOCK].map(|name| folder.path().join(name));
    let data = path.join(DATA);
    RunFolder::create(&path).unwrap().forget();
    assert!(!lock.exists());
    // Remains of the run itself are kept as a run that has not begun.
    let begun = RunFolder::create(&path).unwrap();
    fs::create_dir(&data).unwrap();
    begun.forget();
    drop(begun);
    assert!(lock.exists());
    // An older lock is not this run's, and older data is not a sign of a run.
    RunFolder::create(&path).unwrap().forget();
    assert!(lock.exists());
    fs::remove_file(&lock).unwrap();
    fs::write(data.join("train.bin"), "mine").unwrap();
    RunFolder::create(&path).unwrap().forget();
    assert!(!lock.exists() && data.join("train.bin").exists());
}

/// Not even a lock is left.
#[test]
fn a_folder_of_something_else_is_refused_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let [project, run] = ["project", "run"].map(|name| folder.path().join(name));
    for (folder, file) in [(&project, "notes.txt"), (&run, CONFIG)] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join(file), "mine").unwrap();
    }
    let [foreign, holds_run] = [&project, &run].map(|folder| RunFolder::create(folder).unwrap_err());
    assert!(matches!(&foreign, FolderError::Foreign { name, .. } if name == "notes.txt"), "{foreign}");
    assert!(matches!(&holds_run, FolderError::HoldsRun(_)), "{holds_run}");
    assert_eq!([names(&project), names(&run)], [["notes.txt"], [CONFIG]]);
}

#[test]
fn a_folder_that_was_moved_or_replaced_is_no_longer_this_process_s() {
    let folder = tempfile::tempdir().unwrap();
    let [here, elsewhere] = ["run", "elsewhere"].map(|name| folder.path().join(name));
    let run = RunFolder::create(&here).unwrap();
    run.ensure_there().unwrap();
    if cfg!(unix) {
        fs::rename(&here, &elsewhere).unwrap();
        assert!(matches!(run.ensure_there(), Err(FolderError::Gone(path)) if path == here));
        let other = RunFolder::create(&here).unwrap();
        assert!(run.ensure_there().is_err() && other.ensure_there().is_ok());
    }
}

#[cfg(unix)]
#[test]
fn a_run_that_does_not_begin_leaves_one_that_began_at_its_path() {
    for existed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let [here, elsewhere] = ["run", "elsewhere"].map(|name| folder.path().join(name));
        if existed {
            fs::create_dir(&here).unwrap();
        }
        let run = RunFolder::create(&here).unwrap();
        fs::rename(&here, &elsewhere).unwrap();
        let other = RunFolder::create(&here).unwrap();
        run.forget();
        other.ensure_there().unwrap(); // it still has its lock
        fs::create_dir_all(other.checkpoint(5)).unwrap();
        for name in [METRICS, CONFIG] {
            fs::write(other.file(name), "").unwrap();
        }
        run.forget();
        assert_eq!(names(&here), [LOCK, CHECKPOINTS, CONFIG, METRICS]);
        assert!(other.checkpoint(5).is_dir());
        assert_eq!(names(&elsewhere), [LOCK]);
    }
}

#[test]
fn a_run_that_has_not_begun_is_told_from_a_folder_of_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let made = RunFolder::create(&folder.path().join("run")).unwrap();
    fs::create_dir(made.file(DATA)).unwrap();
    let path = made.path().to_owned();
    assert!(matches!(RunFolder::open(&path), Err(FolderError::InUse(_))));
    drop(made);
    assert!(matches!(RunFolder::open(&path), Err(FolderError::NotBegun(_))));
    assert!(matches!(RunFolder::open(folder.path()), Err(FolderError::NoRun(_))));
    // Foreign data, and a lock left by a kill.
    fs::write(path.join(DATA).join("train.bin"), "mine").unwrap();
    assert!(!is_run(&path) && matches!(RunFolder::open(&path), Err(FolderError::NoRun(_))));
}

#[test]
fn a_run_that_lost_its_configuration_is_told_from_a_folder_of_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir_all(path.join("checkpoints/mine")).unwrap();
    assert!(matches!(RunFolder::open(path), Err(FolderError::NoRun(_))));
    fs::create_dir(path.join("checkpoints/step-00000005")).unwrap();
    assert!(matches!(RunFolder::open(path), Err(FolderError::LostConfig(_))));
    // The presence of its text does not turn it into a run that never began.
    fs::create_dir(path.join("data")).unwrap();
    fs::write(path.join(LOCK), "").unwrap();
    assert!(matches!(RunFolder::open(path), Err(FolderError::LostConfig(_))));
    // A run whose removal has begun is not to be repaired.
    fs::write(path.join(REMOVING), "").unwrap();
    assert!(matches!(RunFolder::open(path), Err(FolderError::NoRun(_))));
}

#[test]
fn a_folder_of_somebody_s_is_no_run_after_one_was_to_be_resumed_there() {
    let folder = tempfile::tempdir().unwrap();
    let [config, lock] = [CONFIG, LOCK].map(|name| folder.path().join(name));
    fs::write(&config, "title = \"My site\"\n").unwrap();
    let selected = || select(DeviceChoice::Cpu).unwrap();
    assert!(resume(folder.path(), &[], selected(), None, &Alone, &mut Silent).is_err());
    assert!(config.exists() && !lock.exists() && !is_run(folder.path()));
    // An existing lock stays: the folder may be a run's with a damaged configuration.
    fs::write(&lock, "").unwrap();
    assert!(resume(folder.path(), &[], selected(), None, &Alone, &mut Silent).is_err());
    assert!(lock.exists());
}

#[test]
fn a_checkpoint_and_its_average_are_of_the_run_around_them() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("checkpoints/step-00000005");
    assert_eq!(run_of(&saved), None);
    fs::write(folder.path().join(CONFIG), "").unwrap();
    for checkpoint in [saved.clone(), saved.join("ema")] {
        assert_eq!(run_of(&checkpoint), Some(folder.path()));
    }
    assert_eq!(run_of(&saved.join("training")), None);
}

#[test]
fn every_damaged_checkpoint_of_a_step_stays() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::create(&folder.path().join("run")).unwrap();
    let names = ["damaged-step-00000008", "damaged-step-00000008-2", "damaged-step-00000008-3"];
    for name in names {
        fs::create_dir_all(run.checkpoint(8)).unwrap();
        fs::write(run.checkpoint(8).join("model.safetensors"), name).unwrap();
        run.point(Pointer::Best, 8).unwrap();
        assert_eq!(run.put_aside(&run.checkpoint(8), DAMAGED).unwrap(), run.checkpoints().join(name));
        assert_eq!(run.pointed(Pointer::Best).unwrap(), None);
    }
    for name in names {
        assert_eq!(fs::read_to_string(run.checkpoints().join(name).join("model.safetensors")).unwrap(), name);
    }
}

#[cfg(unix)]
#[test]
fn a_pointer_that_names_its_checkpoint_already_is_not_written_again() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::create(&folder.path().join("run")).unwrap();
    let point = |step| {
        fs::create_dir_all(run.checkpoint(step)).unwrap();
        run.point(Pointer::Latest, step).unwrap();
        assert_eq!(run.pointed(Pointer::Latest).unwrap(), Some(run.checkpoint(step)));
        fs::metadata(run.file(LATEST)).unwrap().ino()
    };
    let files = [1, 1, 2, 1].map(point);
    assert!(files[0] == files[1] && files[1] != files[2], "{files:?}");
}
