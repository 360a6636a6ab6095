//! Disks that are full.

use std::process::Command;

use super::super::{Place, Ran, end_of};
use super::{documented_line, run_to_go_on, saved};

#[test]
fn a_disk_that_is_full_at_a_save_costs_nothing_that_was_saved() {
    let place = Place::new();
    let (run, twin) = run_to_go_on(&place, "");
    // A file size limit of 50 or 100 KB, depending on the shell's unit: the weights exceed it, the
    // logs do not.
    let program = place.command("ember-train", "").get_program().to_owned();
    let script = format!("ulimit -f 100; exec {} resume run --device cpu", program.display());
    let limited = Command::new("sh").args(["-c", &script]).current_dir(place.0.path()).output().unwrap();
    let ran = Ran::from(limited);
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

#[cfg(target_os = "linux")]
#[test]
fn a_save_looks_for_room_first() {
    let place = Place::new();
    let (run, _) = run_to_go_on(&place, "");
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
        return;
    }
    let ran = Ran::from(unshare(&script).unwrap());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    documented_line(&ran, &["could not save step ", "the disk is full: ", " are needed and ", " are free"]);
    assert!(run.is_dir());
}
