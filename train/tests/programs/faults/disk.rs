//! Disks that are full.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::{Place, Ran, SMALL, end_of, small_run, text, wait};
use super::{documented_line, run_to_go_on, saved};

/// `ember-train` with a limit on the size of files of 50 or 100 KB, depending on the shell's unit:
/// the weights exceed it, the logs do not.
fn limited(place: &Place, arguments: &str) -> Command {
    let program = place.command("ember-train", "").get_program().to_owned();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -f 100; exec {} {arguments}", program.display())]);
    command.current_dir(place.0.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_disk_that_is_full_at_a_save_costs_nothing_that_was_saved() {
    let place = Place::new();
    let (run, twin) = run_to_go_on(&place, "");
    let ran = Ran::from(limited(&place, "resume run --device cpu").output().unwrap());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    documented_line(
        &ran,
        &["could not save step ", "free some space and resume", "; the run continues and tries again later"],
    );
    documented_line(
        &ran,
        &["error: could not save step 40 (run/checkpoints/step-00000008 is intact; free some space and resume)"],
    );
    assert_eq!(saved(&run), ["step-00000008"]);
    place.train("resume run --device cpu").succeeds();
    assert!(end_of(&run) == end_of(&twin), "the resumed run ended in other numbers");
}

#[test]
fn a_disk_that_is_full_at_the_first_save_ends_the_run() {
    let place = Place::new();
    place.write("count.txt", text());
    // Outside the limit, since the tokens exceed it, too.
    place.train("prepare count.txt --out tokens --tokenizer chars").succeeds();
    let ran = Ran::from(limited(&place, &format!("run tokens --out run {SMALL} --set max_steps=40")).output().unwrap());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    documented_line(
        &ran,
        &["error: could not save step 7 (free some space and continue with `ember-train resume run`)"],
    );
    assert!(saved(&place.path("run")).is_empty());
    place.train("resume run --device cpu").succeeds();
}

#[test]
fn a_disk_that_is_full_at_a_requested_save_ends_the_run() {
    let place = Place::new();
    place.train(&small_run(&place, "run", 8)).succeeds();
    let length = || fs::metadata(place.path("run/metrics.jsonl")).unwrap().len();
    let before = length();
    // Nothing else is saved, and the log stays far below the limit.
    let resume = "resume run --device cpu --set max_steps=1000000 --set eval_interval=1000000 \
                  --set checkpoint_interval=1000000 --set sample_interval=0 --set log_interval=100";
    let child = limited(&place, resume).spawn().unwrap();
    let began = Instant::now();
    while length() <= before && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ran = wait(child);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let line = documented_line(
        &ran,
        &["error: could not save step ", " (run/checkpoints/step-00000008 is intact; free some space and resume)"],
    );
    assert!(line.contains("File too large"), "{line}");
    assert_eq!(saved(&place.path("run")), ["step-00000008"]);
    place.train("resume run --device cpu --set max_steps=16").succeeds();
}

#[cfg(target_os = "linux")]
#[test]
fn a_save_looks_for_room_first() {
    use std::io::Write;

    let place = Place::new();
    run_to_go_on(&place, "");
    // A 3 MB disk in a private mount namespace, if the system allows one to unprivileged users.
    let program = place.command("ember-train", "").get_program().to_owned();
    let script = format!(
        "mkdir small && mount -t tmpfs -o size=3m none small && cp -r run small/ && \
         dd if=/dev/zero of=small/fill bs=1k count=1700 2>/dev/null && exec {} resume small/run --device cpu",
        program.display()
    );
    let unshare =
        |script: &str| Command::new("unshare").args(["-rm", "sh", "-c", script]).current_dir(place.0.path()).output();
    if !unshare("mkdir tried && mount -t tmpfs none tried").is_ok_and(|tried| tried.status.success()) {
        // Not eprintln!, which the test harness would capture.
        writeln!(std::io::stderr(), "SKIPPED: no save was tried on a small disk, because none can be mounted").unwrap();
        return;
    }
    let ran = Ran::from(unshare(&script).unwrap());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    documented_line(&ran, &["could not save step ", "the disk is full: ", " are needed and ", " are free"]);
    let kept =
        "error: could not save step 40 (small/run/checkpoints/step-00000008 is intact; free some space and resume)";
    assert!(ran.err.contains(kept), "{}", ran.err);
}
