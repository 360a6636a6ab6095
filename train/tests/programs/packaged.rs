//! Files that packages ship with the programs: completions and manual pages.

use super::{Place, Ran};

/// Bash's completions for the last word of a command line.
#[cfg(unix)]
fn proposed(place: &Place, program: &str, words: &[&str]) -> Vec<String> {
    use std::process::Command;
    place.write("completions", place.run(program, "completions bash").succeeds().out);
    // Bash passes the function the program, the last word and the word before it.
    let script = r#"source completions; function=$(complete -p "$1"); function=${function#* -F }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "${function%% *}" "$1" "${@: -1}" "${@: -2:1}"; printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    bash.current_dir(place.path("")).args(["-c", script, "bash", program]).args(words);
    Ran::from(bash.output().unwrap()).succeeds().out.lines().map(str::to_owned).collect()
}

#[cfg(unix)]
#[test]
fn a_shell_completes_commands_and_flags() {
    let place = Place::new();
    assert_eq!(proposed(&place, "ember-train", &["ru"]), ["run", "runs"]);
    assert_eq!(proposed(&place, "ember-train", &["run", "--min"]), ["--minutes"]);
    assert_eq!(proposed(&place, "ember-train", &["first"]), [""], "a hidden command is proposed");
    assert_eq!(proposed(&place, "ember-generate", &["sc"]), ["score"]);
    assert_eq!(proposed(&place, "ember-generate", &["text", "--format", ""]), ["text", "json"]);
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new();
    for (program, commands) in [("ember-train", ["run", "runs-remove"]), ("ember-generate", ["text", "serve"])] {
        place.run(program, "man-pages share/man").succeeds();
        for page in commands.map(|command| format!("{program}-{command}")).iter().chain([&program.to_owned()]) {
            let text = std::fs::read_to_string(place.path(&format!("share/man/{page}.1"))).unwrap();
            assert!(text.contains(&format!(".TH {page} 1")) && text.contains("\\-\\-device"), "{page}: {text}");
        }
        assert!(!place.path(&format!("share/man/{program}-man-pages.1")).exists(), "a hidden command has a page");
    }
    place.write("file", "");
    let ran = place.train("man-pages file/pages");
    assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 1), "{}", ran.err);
    assert!(ran.err.starts_with("error: cannot create file/pages: "), "{}", ran.err);
}
