//! A run and its terminal.

use std::fs::File;
use std::io::Read;
#[cfg(target_os = "linux")]
use std::process::{Child, Command};
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{Place, SMALL, text};
#[cfg(target_os = "linux")]
use super::{small_run, wait};

/// A terminal of 40 lines: the end that reads the output, and the screen for a program.
fn terminal() -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    // No program inherits it, not even one that another test starts just now.
    #[cfg(target_os = "linux")]
    let flags = flags | OpenptFlags::CLOEXEC;
    let reader = openpt(flags).unwrap();
    fcntl_setfd(&reader, FdFlags::CLOEXEC).unwrap(); // elsewhere there is no such flag
    grantpt(&reader).unwrap();
    unlockpt(&reader).unwrap();
    let path = ptsname(&reader, Vec::new()).unwrap().into_string().unwrap();
    tcsetwinsize(&reader, Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (reader.into(), File::options().read(true).write(true).open(path).unwrap())
}

/// Waits until a program has switched to the alternate screen.
fn await_screen(reader: &mut File) {
    shown_until(reader, "\u{1b}[?1049h");
}

/// What a program shows, read until this is part of it.
fn shown_until(reader: &mut File, end: &str) -> String {
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains(end) {
        let mut more = [0; 4096];
        let count = reader.read(&mut more).unwrap();
        shown.extend_from_slice(&more[..count]);
    }
    String::from_utf8_lossy(&shown).into_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_is_dimmed_where_no_colour_is_wanted() {
    let place = Place::new();
    let row = |step: u64, text: &str| {
        format!("{{\"step\": {step}, \"prompt_index\": 0, \"prompt\": \"\", \"text\": \"{text}\", \"tokens\": 3}}\n")
    };
    place.write("run/samples/samples.jsonl", row(1, "a cat") + &row(2, "a car"));
    for (no_colour, last_line) in [("", "    \u{1b}[2ma ca\u{1b}[22mr\r\n"), ("1", "    a car\r\n")] {
        let (mut reader, screen) = terminal();
        let mut command = place.command("ember-train", "timeline run");
        let mut timeline = command.env("NO_COLOR", no_colour).stdout(screen).spawn().unwrap();
        drop(command); // no other process holds the screen
        let shown = shown_until(&mut reader, "r\r\n");
        assert!(shown.contains(last_line), "{shown:?}");
        assert!(timeline.wait().unwrap().success());
    }
}

#[test]
fn a_run_lives_on_when_its_terminal_is_gone() {
    let place = Place::new();
    place.write("count.txt", text());
    let (mut reader, screen) = terminal();
    let mut command = place.command("ember-train", &format!("run count.txt --out run {SMALL} --set max_steps=300"));
    command.env("TERM", "xterm").stdin(screen.try_clone().unwrap()).stdout(screen.try_clone().unwrap()).stderr(screen);
    let mut run = command.spawn().unwrap();
    await_screen(&mut reader); // the dashboard's
    drop(reader);
    assert!(run.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(place.path("run/latest")).unwrap().trim(), "step-00000300");
}

/// Starts a program on this terminal, after these words of shell. `setsid -c` makes it the
/// controlling terminal, so that the process gets its hangup.
#[cfg(target_os = "linux")]
fn start_on(screen: File, place: &Place, first: &str, program: &Command) -> Child {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{first} exec setsid -c \"$@\"")).arg("sh");
    command.arg(program.get_program()).args(program.get_args()).current_dir(place.path("")).env("TERM", "xterm");
    command.stdin(screen.try_clone().unwrap()).stdout(screen.try_clone().unwrap()).stderr(screen).spawn().unwrap()
}

/// Whether the tests run with hangups ignored, as under `nohup`: a shell cannot undo that for what
/// it starts.
#[cfg(target_os = "linux")]
fn are_hangups_ignored() -> bool {
    Command::new("sh").args(["-c", "kill -HUP $$"]).status().unwrap().success()
}

/// Under `nohup`, hangups are ignored.
#[cfg(target_os = "linux")]
#[test]
fn a_run_whose_terminal_is_closed_saves_and_ends_unless_hangups_are_ignored() {
    for (first, steps, code) in [("", 1_000_000, 130), ("trap '' HUP;", 300, 0)] {
        if first.is_empty() && are_hangups_ignored() {
            println!("SKIPPED: a run whose terminal is closed, since hangups are ignored here");
            continue;
        }
        let place = Place::new();
        // Nothing is saved before the end.
        let run = format!(
            "{} --set eval_interval=1000000 --set checkpoint_interval=1000000",
            small_run(&place, "run", steps)
        );
        let program = place.command("ember-train", &run);
        let (mut reader, screen) = terminal();
        let child = start_on(screen, &place, first, &program);
        await_screen(&mut reader); // the dashboard's
        drop(reader);
        assert_eq!(wait(child).code, Some(code), "{first}");
        let saved = std::fs::read_dir(place.path("run/checkpoints")).unwrap().map(|entry| entry.unwrap().file_name());
        let latest = std::fs::read_to_string(place.path("run/latest")).unwrap();
        assert_eq!(saved.collect::<Vec<_>>(), [latest.trim()], "{first}");
    }
}

/// Even if hangups are ignored, as under `nohup`.
#[cfg(target_os = "linux")]
#[test]
fn what_is_shown_on_a_terminal_alone_ends_with_it() {
    let place = Place::new();
    place.train(&small_run(&place, "runs/count", 5)).succeeds();
    let (mut reader, screen) = terminal();
    let program = place.command("ember-generate", "explain one --device cpu --max-new-tokens 2 --tui");
    let mut run = start_on(screen, &place, "trap '' HUP;", &program);
    await_screen(&mut reader);
    drop(reader);
    let until = Instant::now() + Duration::from_secs(20);
    while run.try_wait().unwrap().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let ended = run.try_wait().unwrap();
    run.kill().unwrap();
    assert!(ended.is_some(), "it goes on without a terminal");
}
