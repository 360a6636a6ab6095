//! The environment of a program: paths, pipes and signals, and lists with one wrong line.

use serde_json::{Value, json};

use super::{Place, Ran, small_run};

fn trained() -> Place {
    let place = Place::new();
    place.train(&small_run(&place, "runs/count", 5)).succeeds();
    place
}

fn text(place: &Place, arguments: &str) -> Ran {
    place.generate(&format!("text --device cpu {arguments}"))
}

#[test]
fn one_bad_prompt_costs_the_others_nothing() {
    let place = trained();
    let long = "one and then two. ".repeat(3); // 54 characters; the context holds 32
    place.write("prompts.txt", format!("one and\ncaf\u{e9}\nthen\n{long}\ntwo\n"));
    let ran = text(&place, "--prompts prompts.txt --max-new-tokens 4 --overflow error --strategy greedy --format json");
    assert_eq!(ran.code, Some(1));
    let indices: Vec<Value> = ran.json().iter().map(|row| row["prompt_index"].clone()).collect();
    assert_eq!(indices, [0, 2, 4]);
    let lines: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(lines[0].starts_with("error: prompts.txt:2: "), "{lines:?}");
    assert!(lines[1].starts_with("error: prompts.txt:4: the context holds 32 tokens"), "{lines:?}");
    assert!(lines[2].starts_with("error: 2 of 5 prompts could not be continued"), "{lines:?}");
    // Each text is the same as alone: random streams are numbered by position in the file.
    place.write("whole.txt", "one and\ntwo\nthen\ntwo\ntwo\n");
    let ask = |file: &str| format!("--prompts {file} --max-new-tokens 4 --temperature 1 --seed 3 --format json");
    let (some, whole) = (text(&place, &ask("prompts.txt")), text(&place, &ask("whole.txt")).succeeds());
    assert_eq!(some.json()[1]["ids"], whole.json()[2]["ids"]);
    // An error in the arguments concerns all prompts, and is reported once.
    let wrong = text(&place, "--prompts whole.txt --strategy exact --max-new-tokens 3 --logit-bias 3=1");
    assert_eq!((wrong.code, wrong.err.matches("error: ").count()), (Some(2), 1), "{}", wrong.err);
}

/// Other users could write into a common folder.
#[test]
fn without_a_cache_of_the_user_no_file_is_converted() {
    let place = Place::new();
    place.write("a.gguf", std::fs::read(super::root().join("formats/tests/fixtures/llama/f32.gguf")).unwrap());
    let mut command = place.command("ember-generate", "score one --from a.gguf --device cpu");
    for name in ["HOME", "USERPROFILE", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    let ran = Ran::from(command.output().unwrap());
    let line = "error: a.gguf: it has to be converted, and neither HOME nor XDG_CACHE_HOME says where to; set ";
    assert!(ran.code == Some(1) && ran.err.starts_with(line), "{}", ran.err);
}

#[test]
fn many_sequences_of_several_prompts_go_part_by_part() {
    let place = trained();
    place.write("prompts.txt", "one\ntwo and\n");
    let ask =
        "--prompts prompts.txt --temperature 1 --seed 2 --num-return-sequences 70 --max-new-tokens 2 --format json";
    let ran = text(&place, &format!("{ask} --trace trace.jsonl")).succeeds();
    let places = |row: &Value| (row["prompt_index"].as_u64().unwrap(), row["sequence_index"].as_u64().unwrap());
    let in_order: Vec<(u64, u64)> = (0..2).flat_map(|prompt| (0..70).map(move |sequence| (prompt, sequence))).collect();
    assert_eq!(ran.json().iter().map(places).collect::<Vec<_>>(), in_order);
    let trace = std::fs::read_to_string(place.path("trace.jsonl")).unwrap();
    let header: Value = serde_json::from_str(trace.lines().next().unwrap()).unwrap();
    assert_eq!(header["batches"], json!([[[0], 0, 64], [[0], 64, 6], [[1], 0, 64], [[1], 64, 6]]));
    place.generate("replay trace.jsonl --device cpu").succeeds();
}

#[test]
fn a_header_that_no_run_writes_is_refused_in_a_line() {
    let place = trained();
    for (strategy, key, wrong) in [
        ("exact", "max_new_tokens", json!(0)),
        ("sample", "num_return_sequences", json!(0)),
        ("sample", "suppress_tokens", json!([9999])),
        ("sample", "logprobs", json!(9999)),
    ] {
        let trace = format!("{strategy}-{key}.jsonl");
        text(&place, &format!("one --strategy {strategy} --max-new-tokens 3 --trace {trace}")).succeeds();
        let lines = std::fs::read_to_string(place.path(&trace)).unwrap();
        let (header, rest) = lines.split_once('\n').unwrap();
        let mut header: Value = serde_json::from_str(header).unwrap();
        header["config"][key] = wrong;
        place.write("changed.jsonl", format!("{header}\n{rest}"));
        let ran = place.generate("replay changed.jsonl --device cpu");
        assert_eq!(ran.code, Some(1), "{key}: {}", ran.err);
        assert!(ran.err.contains("changed.jsonl: line 1") && ran.err.contains("the file was changed"), "{}", ran.err);
    }
}

#[test]
fn an_error_before_the_first_word_leaves_standard_output_empty() {
    let place = trained();
    let ran = text(&place, "one --strategy exact --max-new-tokens 3 --logit-bias 3=1");
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
}

#[cfg(unix)]
#[test]
fn outputs_follow_links_and_devices_stay_devices() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let place = trained();
    let knobs = "one --strategy greedy --max-new-tokens 2";
    place.write("far/knobs.json", "{\"do_sample\": true}");
    symlink(place.path("far/knobs.json"), place.path("knobs.json")).unwrap();
    text(&place, &format!("{knobs} --save-config knobs.json")).succeeds();
    assert!(place.path("knobs.json").symlink_metadata().unwrap().is_symlink());
    assert!(std::fs::read_to_string(place.path("far/knobs.json")).unwrap().contains("max_new_tokens"));
    text(&place, &format!("{knobs} --save-config /dev/null --trace /dev/null")).succeeds();
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    // To standard output, for a shell's pipe.
    for name in ["/dev/stdout", "-"] {
        let ran = text(&place, &format!("{knobs} --save-config {name}")).succeeds();
        assert!(ran.out.contains("max_new_tokens"), "{}", ran.out);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_page_on_standard_output_has_it_to_itself() {
    let place = trained();
    place.write("generated.txt", "one and then two.\n");
    let (page, picture) = (["<!doctype html>", "</html>"], ["<svg ", "</svg>"]);
    for (arguments, [begins, ends], expected) in [
        ("share runs/count --skip-copied --html /dev/stdout", page, "writes in any browser"),
        ("compare runs/count --svg /dev/stdout", picture, "count"),
        ("timeline runs/count --html /dev/stdout", page, "step 5"),
        ("copied generated.txt runs/count --html /dev/stdout", page, "the marked text is in"),
        ("look count.txt --html /dev/stdout", page, "the page is in"),
        ("look count.txt --html -", page, "the page is in"),
        ("compare runs/count --svg -", picture, "count"),
    ] {
        let ran = place.train(arguments).succeeds();
        let out = ran.out.trim();
        assert!(out.to_lowercase().starts_with(begins) && out.ends_with(ends), "{arguments}: {out}");
        assert_eq!(out.matches(ends).count(), 1, "{arguments}");
        assert!(ran.err.contains(expected), "{arguments}: {}", ran.err);
    }
    // The answer as JSON would go there, too.
    for (arguments, flag) in [
        ("share runs/count --skip-copied --format json --html /dev/stdout", "--html"),
        ("compare runs/count --log --format json --svg /dev/stdout", "--svg"),
        ("look count.txt --format json --html -", "--html"),
    ] {
        let ran = place.train(arguments);
        let line = format!("error: --format json and {flag} both write to standard output; ");
        assert!(ran.code == Some(2) && ran.out.is_empty() && ran.err.starts_with(&line), "{arguments}: {}", ran.err);
    }
}

/// As the shell does for `nohup`, so that a program outlives its terminal.
#[cfg(unix)]
#[test]
fn a_hangup_that_is_ignored_at_the_start_stays_ignored() {
    use std::process::{Command, Stdio};
    use std::time::Duration;
    let place = trained();
    let long = "text one --device cpu --strategy greedy --max-new-tokens 1000000 --quiet";
    let program = place.command("ember-generate", long);
    let arguments: Vec<_> = program.get_args().map(|argument| argument.to_str().unwrap()).collect();
    let shell = format!("trap '' HUP; exec {} {}", program.get_program().display(), arguments.join(" "));
    let mut shell =
        Command::new("sh").arg("-c").arg(shell).current_dir(place.path("")).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = shell.stdout.take().unwrap();
    std::io::Read::read_exact(&mut out, &mut [0; 9]).unwrap(); // it is generating
    let reader = std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let send = |signal: &str| Command::new("kill").args([signal, &shell.id().to_string()]).status().unwrap();
    send("-HUP");
    std::thread::sleep(Duration::from_millis(500));
    send("-KILL");
    // `None`: SIGKILL ended it; SIGHUP would have ended it with an exit code.
    assert_eq!(shell.wait().unwrap().code(), None);
    reader.join().unwrap().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_or_named_is_said() {
    use std::os::unix::ffi::OsStrExt;
    let place = trained();
    for arguments in ["text one", "text one --format json", "score one~and", "explain one --format json"] {
        let mut command = place.command("ember-generate", &format!("{arguments} --device cpu"));
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ran = Ran::from(command.stdout(full).output().unwrap());
        assert!(ran.code == Some(1) && ran.err.contains("cannot write to standard output: "), "{}", ran.err);
    }
    for arguments in ["runs", "--help", "run --help", "--version"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ran = Ran::from(place.command("ember-train", arguments).stdout(full).output().unwrap());
        let line = "error: cannot write to standard output: No space";
        assert!(ran.code == Some(1) && ran.err.contains(line), "{arguments}: {}", ran.err);
    }
    // Nobody can create a file in /sys; this is reported before the text is read.
    let ran = place.train("plan missing.txt --device cpu --out /sys/plan.toml");
    let line = "--out is /sys/plan.toml; cannot write /sys/plan.toml: ";
    assert!(ran.code == Some(2) && ran.err.contains(line), "{}", ran.err);
    let mut command = place.command("ember-train", "plan missing.txt --device cpu");
    let ran = Ran::from(command.current_dir("/sys").output().unwrap());
    let line = "plan.toml: cannot write the recipe; choose another --out: cannot write plan.toml: ";
    assert!(ran.code == Some(1) && ran.err.contains(line), "{}", ran.err);
    // A folder whose name is not UTF-8.
    let folder = place.path("").join(std::ffi::OsStr::from_bytes(b"run-\xff"));
    std::fs::rename(place.path("runs/count"), &folder).unwrap();
    let run = |arguments: &str| {
        let mut command = place.command("ember-generate", arguments);
        Ran::from(command.arg("--from").arg(&folder).args(["--device", "cpu"]).output().unwrap())
    };
    let ran = run("text one --trace trace.jsonl");
    assert!(ran.code == Some(1) && ran.err.contains("which is not UTF-8 text; rename it"), "{}", ran.err);
    assert!(!place.path("trace.jsonl").exists());
    let mut command = place.command("ember-generate", "convert --to gguf --format json --out");
    let ran = Ran::from(command.arg(folder.join("model.gguf")).arg(&folder).output().unwrap());
    assert_eq!(ran.succeeds().json()[0]["to"], "gguf");
}

#[cfg(unix)]
#[test]
fn who_has_no_place_for_temporary_files_is_told_what_names_one() {
    let place = Place::new();
    place.write("count.txt", super::text());
    for arguments in ["look count.txt", "plan count.txt --device cpu", "verify-resume count.txt --device cpu"] {
        let mut command = place.command("ember-train", arguments);
        let ran = Ran::from(command.env("TMPDIR", place.path("nowhere")).output().unwrap());
        let line = "error: cannot create a temporary folder; set TMPDIR to a folder that you may write into: ";
        assert!(ran.code == Some(1) && ran.err.contains(line), "{}", ran.err);
    }
}

#[test]
fn a_batch_that_no_memory_holds_is_refused() {
    let place = Place::new();
    let ran = place.generate("bench --shape 2x2x32x65x64 --batch 1,4294967295 --device cpu");
    assert!(
        ran.code == Some(2) && ran.err.contains("GB of memory are free; lower --batch, --prompt or --new-tokens"),
        "{}",
        ran.err
    );
    // A context shorter than the default lengths can be measured.
    place.generate("bench --shape 2x2x32x65x16 --repeats 1 --device cpu").succeeds();
}

/// A pipe without a writer: a blocked read checks no flag, and the first signal still ends the
/// program.
#[cfg(unix)]
#[test]
fn a_first_signal_ends_what_never_looks() {
    use std::process::Command;
    use std::time::Duration;
    let place = trained();
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    for arguments in ["text --prompts pipe", "text one --grammar pipe", "replay pipe", "score --choices pipe"] {
        let child = place.command("ember-generate", arguments).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        assert_eq!(super::wait(child).code, Some(130), "{arguments}");
    }
}
