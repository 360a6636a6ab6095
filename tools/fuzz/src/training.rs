//! What decides a run, and what it leaves behind.

use ember_study::compare::{Axis, Record};
use ember_training::config::{DeviceKind, Settings, TextFacts};
use ember_training::run::report::{Row, jsonl};
use ember_training::run::runs;

use crate::harness::{Harness, clear, clear_file, one_line};
use crate::place;

pub const HARNESSES: &[Harness] = &[
    Harness { name: "recipe", longest: 1 << 12, read: recipe },
    Harness { name: "setting", longest: 1 << 8, read: setting },
    Harness { name: "metrics", longest: 1 << 12, read: metrics },
    Harness { name: "run-folder", longest: 1 << 12, read: run_folder },
];

/// A text of a middling size.
const FACTS: TextFacts = TextFacts { train_tokens: 300_000, val_tokens: 30_000, vocab_size: 512 };

fn recipe(bytes: &[u8]) {
    let path = place::file("recipe.toml", bytes);
    if let Some(settings) = clear_file(Settings::from_file(&path)) {
        resolve(settings);
    }
}

/// What is chosen is a configuration that could have been written.
fn resolve(settings: Settings) {
    clear(settings.data());
    for device in [DeviceKind::Cpu, DeviceKind::Gpu] {
        let Some((_, reasons)) = clear(settings.clone().resolve(&FACTS, device)) else { continue };
        reasons.iter().for_each(|reason| one_line(&reason.to_string()));
    }
}

fn setting(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let mut settings = Settings::default();
    for assignment in text.lines() {
        clear(settings.set(assignment));
    }
    resolve(settings);
}

/// A log that is read can be cut back to any step, and read again.
fn metrics(bytes: &[u8]) {
    let path = place::file("metrics.jsonl", bytes);
    let folder = path.parent().expect("it stands in a folder");
    if let Some(record) = clear_file(Record::open(folder)) {
        for axis in [Axis::Step, Axis::Tokens, Axis::Time] {
            record.validation(axis);
            record.training(axis);
        }
        record.summary();
    }
    let Some(rows) = clear_file(jsonl::read::<Row>(&path)) else { return };
    let Some(middle) = rows.get(rows.len() / 2).map(|row| row.step) else { return };
    clear_file(jsonl::cut_back(&path, |row| row.step <= middle)).expect("a log that is read can be cut back");
    let kept = clear_file(jsonl::read::<Row>(&path)).expect("what was kept can be read");
    assert_eq!(kept.len(), rows.iter().filter(|row| row.step <= middle).count());
}

/// The configuration and the pointers of a run whose folder somebody has edited.
fn run_folder(bytes: &[u8]) {
    let run = place::folder(&[
        ("config.toml", bytes),
        ("latest", bytes),
        ("best", bytes),
        ("metrics.jsonl", b"{\"step\":1,\"train_loss\":2.5}\n"),
    ]);
    clear(runs::list(std::slice::from_ref(&run)));
    clear(runs::named(&run));
    clear_file(Record::open(&run));
}
