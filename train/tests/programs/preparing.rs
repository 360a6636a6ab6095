//! `prepare` killed, interrupted and repeated.

use std::{fs, io::Write, path::Path, process::Command, process::Stdio, time::Duration, time::Instant};

use super::{Place, Ran, text};

const LINE: &str = "prepare words --tokenizer bytes --keep-every 0";

/// Every file in a folder, with its name.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// Files of several megabytes, so that there is time to kill the program.
fn write_words(place: &Place) {
    for number in 0..6 {
        let documents: Vec<String> =
            (0..40).map(|document| format!("{number} {document} {}", text().repeat(8))).collect();
        place.write(&format!("words/{number}.txt"), documents.join("<|endoftext|>"));
    }
}

#[test]
fn a_prepare_that_is_killed_again_and_again_ends_in_the_same_bytes() {
    let place = Place::new();
    write_words(&place);
    let began = Instant::now();
    place.train(&format!("{LINE} --out whole")).succeeds();
    let whole = began.elapsed();
    let (mut kills, mut resumed) = (0, 0);
    for attempt in 1..100 {
        let mut command = place.command("ember-train", &format!("{LINE} --out killed"));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(f64::from(attempt * 7 % 10 + 1) / 40.0));
        if child.try_wait().unwrap().is_none() {
            kills += 1;
            child.kill().unwrap();
        }
        let ended = child.wait_with_output().unwrap();
        resumed += u32::from(String::from_utf8_lossy(&ended.stderr).contains("killed: resuming "));
        if ended.status.success() {
            break;
        }
        if place.path("killed").exists() {
            let refused = place.train("run killed --out run");
            assert_eq!(refused.code, Some(1));
            assert!(
                refused.err.lines().any(|line| line.starts_with("error: killed has no manifest.json: ")),
                "{}",
                refused.err
            );
        }
    }
    assert!(kills > 2 && resumed > 0, "{kills} kills, {resumed} times gone on");
    assert!(files(&place.path("killed")) == files(&place.path("whole")));
}

#[test]
fn an_interrupted_prepare_says_that_it_goes_on_and_where() {
    let place = Place::new();
    write_words(&place);
    place.train(&format!("{LINE} --out whole")).succeeds();
    let command = || place.command("ember-train", &format!("{LINE} --out stopped"));
    let child = command().spawn().unwrap();
    let kept = place.path("stopped/.prepare-checkpoint/survey");
    let began = Instant::now();
    while !kept.exists() && began.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    let line = "progress is kept in stopped; run the same command again to continue";
    assert!(ran.err.lines().any(|shown| shown == line), "{}", ran.err);
    let ran = Ran::from(command().output().unwrap()).succeeds();
    assert!(ran.err.contains("stopped: resuming the first pass in words/"), "{}", ran.err);
    assert!(files(&place.path("stopped")) == files(&place.path("whole")));
}

/// The limit on a file's size, of one or two MB depending on the shell's unit, stands for a full
/// disk: the training tokens exceed it, the records do not.
#[cfg(unix)]
#[test]
fn a_prepare_that_has_no_room_keeps_its_progress_and_what_was_there() {
    let place = Place::new();
    place.write("words/0.txt", text().repeat(100));
    place.train(&format!("{LINE} --out whole")).succeeds();
    place.write("before.txt", text());
    place.train("prepare before.txt --tokenizer chars --out tokens").succeeds();
    let before = files(&place.path("tokens"));
    let program = place.command("ember-train", "").get_program().to_owned();
    let script = format!("ulimit -f 2000; exec {} {LINE} --out tokens", program.display());
    let limited = Command::new("sh").args(["-c", &script]).current_dir(place.0.path()).output().unwrap();
    let ran = Ran::from(limited);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let line = "progress is kept in tokens; run the same command again to continue";
    assert!(ran.err.lines().any(|shown| shown == line), "{}", ran.err);
    let stays = |(name, content): &(String, Vec<u8>)| fs::read(place.path("tokens").join(name)).unwrap() == *content;
    assert!(before.iter().all(stays), "what was prepared before is lost");
    let ran = place.train(&format!("{LINE} --out tokens")).succeeds();
    assert!(ran.err.contains("tokens: resuming the encoding in words/"), "{}", ran.err);
    assert!(files(&place.path("tokens")) == files(&place.path("whole")));
}

#[cfg(unix)]
fn holds_unfinished(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .any(|entry| entry.file_name().to_string_lossy().starts_with(".unfinished") || holds_unfinished(&entry.path()))
}

/// Interrupted while it waits for more text from a pipe.
#[cfg(unix)]
#[test]
fn what_was_read_of_standard_input_is_gone_when_it_is_interrupted() {
    let place = Place::new();
    fs::create_dir(place.path("tmp")).unwrap();
    let unfinished = |folder: &str| holds_unfinished(&place.path(folder));
    for (arguments, folder) in [("look -", "tmp"), ("prepare - --out tokens", "tokens"), ("run - --out run", "run")] {
        let mut command = place.command("ember-train", arguments);
        let mut child = command.env("TMPDIR", place.path("tmp")).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(text().as_bytes()).unwrap();
        let began = Instant::now();
        while !unfinished(folder) && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let was_read = unfinished(folder);
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{arguments}");
        assert!(was_read && !unfinished(folder), "{arguments}");
        drop(input);
    }
    assert_eq!(fs::read_dir(place.path("tmp")).unwrap().count(), 0);
    assert!(!place.path("run").exists());
}
