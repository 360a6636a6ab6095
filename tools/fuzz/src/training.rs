//! The inputs of a run, and the files that it writes.

use ember_study::compare::{Axis, Record};
use ember_training::config::{DeviceKind, Settings, TextFacts};
use ember_training::run::report::{Row, jsonl};
use ember_training::run::runs;

use crate::harness::{Harness, check_error, check_file_error, one_line};
use crate::scratch;

pub const HARNESSES: &[Harness] = &[
    Harness { name: "recipe", longest: 1 << 12, read: recipe },
    Harness { name: "setting", longest: 1 << 8, read: setting },
    Harness { name: "metrics", longest: 1 << 12, read: metrics },
    Harness { name: "run-folder", longest: 1 << 12, read: run_folder },
];

/// Facts of a text of medium size.
const FACTS: TextFacts = TextFacts { train_tokens: 300_000, val_tokens: 30_000, vocab_size: 512 };

fn recipe(bytes: &[u8]) {
    let path = scratch::file("recipe.toml", bytes);
    if let Some(settings) = check_file_error(Settings::from_file(&path)) {
        resolve(settings);
    }
}

/// Resolves the settings for each kind of device, and checks errors and reasons.
fn resolve(settings: Settings) {
    check_error(settings.data());
    for device in [DeviceKind::Cpu, DeviceKind::Gpu] {
        let Some((_, reasons)) = check_error(settings.clone().resolve(&FACTS, device)) else { continue };
        reasons.iter().for_each(|reason| one_line(&reason.to_string()));
    }
}

fn setting(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let mut settings = Settings::default();
    for assignment in text.lines() {
        check_error(settings.set(assignment));
    }
    resolve(settings);
}

/// Checks that an accepted log can be truncated at a step and read again.
fn metrics(bytes: &[u8]) {
    let path = scratch::file("metrics.jsonl", bytes);
    let folder = path.parent().expect("it stands in a folder");
    if let Some(record) = check_file_error(Record::open(folder)) {
        for axis in [Axis::Step, Axis::Tokens, Axis::Time] {
            record.validation(axis);
            record.training(axis);
        }
        record.summary();
    }
    let Some(rows) = check_file_error(jsonl::read::<Row>(&path)) else { return };
    let Some(middle) = rows.get(rows.len() / 2).map(|row| row.step) else { return };
    check_file_error(jsonl::cut_back(&path, |row| row.step <= middle)).expect("a log that is read can be cut back");
    let kept = check_file_error(jsonl::read::<Row>(&path)).expect("what was kept can be read");
    assert_eq!(kept.len(), rows.iter().filter(|row| row.step <= middle).count());
}

/// The configuration and pointer files of a run folder that a user has edited.
fn run_folder(bytes: &[u8]) {
    let run = scratch::folder(&[
        ("config.toml", bytes),
        ("latest", bytes),
        ("best", bytes),
        ("metrics.jsonl", b"{\"step\":1,\"train_loss\":2.5}\n"),
    ]);
    check_error(runs::list(std::slice::from_ref(&run)));
    check_error(runs::named(&run));
    check_file_error(Record::open(&run));
}
