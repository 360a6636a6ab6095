//! Every kind of bad input gets one clear line, recorded word for word in `docs/bad-input.md` with
//! the command and the exit code. After a change of wording, `EMBER_BLESS=1 cargo test --release -p
//! ember-train --test programs bad_input` rewrites the page; review the diff.

mod cases;
mod files;

use std::fmt::Write as _;
use std::path::Path;

use ember_host::files::checksum;

use super::{Place, SMALL, root};
use cases::CASES;

#[test]
fn bad_input_gets_the_line_that_the_page_shows() {
    let place = Place::new();
    files::set_up(&place);
    let before = listing(place.0.path());
    let mut page = String::from(
        "# Bad input, and the line it gets\n\nWritten and checked by `train/tests/programs/bad_input.rs`. `SMALL` stands for the settings of a \
         small run, `EMPTY` for an empty\nargument. Exit code 1: it failed. 2: the arguments are wrong.\n\n\
         | typed | exit | line |\n|---|---|---|\n",
    );
    for (program, arguments) in CASES {
        let expanded = arguments.replace("SMALL", SMALL);
        let mut command = place.command(program, "");
        command.args(
            expanded
                .split_whitespace()
                .map(|word| if word == "EMPTY" { String::new() } else { word.replace('~', " ") }),
        );
        let ran = super::Ran::from(command.output().unwrap());
        let typed = format!("{program} {arguments}");
        assert!(matches!(ran.code, Some(1 | 2)), "{typed}: exit {:?}\n{}\n{}", ran.code, ran.out, ran.err);
        let errors: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("error: ")).collect();
        let [line] = errors[..] else { panic!("{typed}: not one line of error in\n{}", ran.err) };
        assert_eq!(ran.err.lines().last(), Some(line), "{typed}: more below the line");
        for never in ["panicked", "RUST_BACKTRACE", "internal error", "backtrace"] {
            assert!(!ran.err.contains(never), "{typed}: {}", ran.err);
        }
        assert_eq!(before, listing(place.0.path()), "{typed}: left files behind, changed some or took some away");
        writeln!(page, "| `{typed}` | {} | {} |", ran.code.unwrap(), line.replace('|', "\\|")).unwrap();
    }
    let path = root().join("docs/bad-input.md");
    if std::env::var_os("EMBER_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    for (now, kept) in page.lines().zip(kept.lines()) {
        assert_eq!(now, kept, "docs/bad-input.md shows another line");
    }
    assert_eq!(page.lines().count(), kept.lines().count());
}

/// Every file below a folder, except lock files, with its checksum.
fn listing(folder: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with(".lock") {
                found.push((path.display().to_string(), checksum(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
