//! `runs`: its table, and what `runs remove` deletes and keeps.

use std::fs::{self, File};

use serde_json::Value;

use super::{Place, SMALL, small_run};

/// Two finished runs on one text, tokenized by characters and by bytes, and an interrupted one.
fn three_runs() -> Place {
    let place = Place::new();
    place.train(&small_run(&place, "runs/chars", 20)).succeeds();
    place.train(&format!("{} --set tokenizer=bytes", small_run(&place, "runs/bytes", 5))).succeeds();
    place.train(&small_run(&place, "runs/cut", 10)).succeeds();
    let config = place.path("runs/cut/config.toml");
    let longer = fs::read_to_string(&config).unwrap().replace("max_steps = 10", "max_steps = 1500");
    fs::write(config, longer).unwrap();
    fs::create_dir(place.path("runs/somebodys")).unwrap();
    place
}

#[test]
fn the_list_tells_what_there_is_to_choose_from() {
    let place = three_runs();
    let rows = place.train("runs --format json").succeeds().json();
    let column = |key: &str| rows.iter().map(|row| row[key].clone()).collect::<Vec<_>>();
    assert_eq!(column("run"), ["cut", "bytes", "chars"], "the one trained last comes first");
    assert_eq!(column("path"), ["runs/cut", "runs/bytes", "runs/chars"]);
    assert_eq!(column("state"), ["interrupted", "finished", "finished"]);
    assert_eq!((column("step"), &rows[0]["max_steps"]), (vec![10.into(), 5.into(), 20.into()], &Value::from(1500)));
    assert_eq!(column("lowest"), [false, false, true]);
    assert_eq!(column("tokenizer"), ["chars", "bytes", "chars"]);
    for row in &rows {
        assert_eq!((&row["architecture"], &row["problem"]), (&Value::from("qwen3"), &Value::Null));
        assert!(row["best"]["val_loss"].as_f64() > Some(0.0));
        assert!(row["bits_per_byte"].as_f64() > Some(1.0) && row["parameters"].as_u64() > Some(10_000));
        assert!(row["bytes"].as_u64() > row["checkpoint_bytes"].as_u64() && row["trained"].as_f64() > Some(1e9));
    }

    let lock = File::create(place.path("runs/cut/.lock")).unwrap();
    lock.lock().unwrap();
    let ran = place.train("runs").succeeds();
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with("run    ") && lines[0].ends_with("size"), "{}", ran.out);
    assert!(lines[1].starts_with("cut    running   just now"), "{}", ran.out);
    assert!(lines[1].contains("10 of 1,500") && lines[3].contains("* "), "{}", ran.out);
    assert!(lines.iter().all(|line| line.chars().count() == lines[0].len()), "{}", ran.out);
    assert_eq!(ran.err, "* the lowest loss on its text\n");

    #[cfg(unix)]
    {
        let latest = place.path("runs/bytes/latest");
        fs::remove_file(&latest).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&latest).status().unwrap().success());
        let ran = place.train("runs").succeeds();
        let note = "bytes: runs/bytes/latest is a pipe, a device or a socket, not a file; ";
        assert!(ran.out.lines().count() == 4 && ran.err.starts_with(note), "{}{}", ran.out, ran.err);
    }

    // Runs outside runs/, and no runs at all.
    fs::rename(place.path("runs"), place.path("elsewhere")).unwrap();
    let rows = place.train("runs elsewhere elsewhere/chars --format json").succeeds().json();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[2]["run"], "elsewhere/chars");
    let ran = place.train("runs").succeeds();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", "there is no run here yet; `ember-train run` makes one\n"));
}

#[test]
fn a_run_goes_when_it_is_sure_that_it_may() {
    let place = three_runs();
    let is_there = |name: &str| place.path(name).join("config.toml").is_file();
    // The subcommand is recognized after a flag, too.
    let ran = place.train("runs --quiet remove nobody --yes");
    assert!(ran.code == Some(1) && ran.err.contains("there is no run nobody"), "{}", ran.err);
    // No terminal to ask on, a run in use, or a foreign file: then no run is removed.
    let ran = place.train("runs remove cut chars");
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.starts_with("error: remove 2 runs, ") && ran.err.contains("--yes"), "{}", ran.err);
    let lock = File::create(place.path("runs/cut/.lock")).unwrap();
    lock.lock().unwrap();
    let ran = place.train("runs remove chars cut --yes");
    assert!(ran.code == Some(1) && ran.err.contains("runs/cut is in use by another ember-train"), "{}", ran.err);
    drop(lock);
    place.write("runs/cut/notes.txt", "mine");
    let ran = place.train("runs remove chars cut --yes");
    assert!(ran.code == Some(1) && ran.err.contains("notes.txt"), "{}", ran.err);
    assert!(["runs/chars", "runs/cut"].into_iter().all(is_there));

    fs::remove_file(place.path("runs/cut/notes.txt")).unwrap();
    let ran = place.train("runs remove cut runs/cut ./runs/cut chars --yes").succeeds();
    assert!(ran.out.starts_with("removed runs/chars, ") && ran.out.lines().count() == 2, "{}", ran.out);
    assert!(!place.path("runs/chars").exists() && !place.path("runs/cut").exists());
    assert!(is_there("runs/bytes") && place.path("runs/somebodys").is_dir() && place.path("count.txt").is_file());
    place.train("resume runs/bytes --device cpu").succeeds();
}

#[test]
fn the_text_that_another_run_learns_from_goes_only_with_that_run() {
    let place = Place::new();
    place.train(&small_run(&place, "runs/source", 5)).succeeds();
    place.train(&format!("run runs/source/data --out runs/dependent --set max_steps=5 {SMALL}")).succeeds();
    let ran = place.train("runs remove source --yes");
    let line = "error: runs/dependent learns from the text in runs/source and would lose it; to remove both, name both";
    assert!(ran.code == Some(1) && ran.err.starts_with(line), "{}", ran.err);
    assert!(place.path("runs/source/data/train.bin").is_file());
    place.train("runs remove dependent source --yes").succeeds();
    assert!(!place.path("runs/source").exists() && !place.path("runs/dependent").exists());
}

#[test]
fn a_path_is_the_run_there_and_no_other_of_its_name() {
    let place = Place::new();
    for out in ["runs/mine", "mine", "folder/mine"] {
        place.train(&small_run(&place, out, 5)).succeeds();
    }
    let left = || ["runs/mine", "mine", "folder/mine"].map(|run| place.path(run).exists());
    fs::create_dir(place.path("folder/runs")).unwrap();
    let mut elsewhere = place.command("ember-train", "runs remove ../mine --yes");
    super::Ran::from(elsewhere.current_dir(place.path("folder")).output().unwrap()).succeeds();
    assert_eq!(left(), [true, false, true]);
    place.train(&small_run(&place, "mine", 5)).succeeds();
    place.train("runs remove ./mine --yes").succeeds();
    assert_eq!(left(), [true, false, true]);
    place.train("runs remove mine --yes").succeeds();
    assert_eq!(left(), [false, false, true]);
}

#[cfg(unix)]
#[test]
fn a_link_to_a_run_goes_with_it() {
    let place = Place::new();
    for name in ["link", "link/"] {
        place.train(&small_run(&place, "run", 5)).succeeds();
        std::os::unix::fs::symlink("run", place.path("link")).unwrap();
        let ran = place.train(&format!("runs remove {name} --yes")).succeeds();
        let run = place.0.path().canonicalize().unwrap().join("run");
        let line = format!("removed link and the run that it links to, {}, ", run.display());
        assert!(ran.out.starts_with(&line), "{}", ran.out);
        assert!(!place.path("run").exists() && !place.path("link").is_symlink(), "{name}");
    }
}

/// It asks on a terminal, which `script` provides.
#[cfg(target_os = "linux")]
#[test]
fn on_a_terminal_it_asks() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let place = Place::new();
    place.train(&small_run(&place, "runs/count", 5)).succeeds();
    let answer = |answer: &str| {
        let program = super::programs().join("ember-train");
        let mut script = Command::new("script");
        script.args(["-qec", &format!("{} runs remove count", program.display()), "/dev/null"]);
        script.current_dir(place.0.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        super::wait(child).succeeds().out
    };
    let shown = answer("n\n");
    assert!(shown.contains("remove 1 run, ") && shown.contains("nothing was removed"), "{shown}");
    assert!(place.path("runs/count/config.toml").is_file());
    let shown = answer("y\n");
    assert!(shown.contains("removed runs/count, "), "{shown}");
    assert!(!place.path("runs/count").exists());
}
