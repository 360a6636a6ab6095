//! A run and the terminal that it is shown on.

use std::fs::File;
use std::io::Read;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{Place, SMALL, text};

/// A terminal of 40 lines: what reads what is shown on it, and the screen for a program.
fn terminal() -> (File, File) {
    let reader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    fcntl_setfd(&reader, FdFlags::CLOEXEC).unwrap(); // the program does not hold it
    grantpt(&reader).unwrap();
    unlockpt(&reader).unwrap();
    let path = ptsname(&reader, Vec::new()).unwrap().into_string().unwrap();
    tcsetwinsize(&reader, Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (reader.into(), File::options().read(true).write(true).open(path).unwrap())
}

#[test]
fn a_run_lives_on_when_its_terminal_is_gone() {
    let place = Place::new();
    place.write("count.txt", text());
    let (mut reader, screen) = terminal();
    let mut command = place.command("ember-train", &format!("run count.txt --out run {SMALL} --set max_steps=300"));
    command.env("TERM", "xterm").stdin(screen.try_clone().unwrap()).stdout(screen.try_clone().unwrap()).stderr(screen);
    let mut run = command.spawn().unwrap();
    // The dashboard is there when it has taken a screen of its own.
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("\u{1b}[?1049h") {
        let mut more = [0; 4096];
        let count = reader.read(&mut more).unwrap();
        shown.extend_from_slice(&more[..count]);
    }
    drop(reader);
    assert!(run.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(place.path("run/latest")).unwrap().trim(), "step-00000300");
}
