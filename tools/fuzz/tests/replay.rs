//! Runs the stored inputs again: the seeds, and the minimised inputs that once triggered a fault.
//! Does not need libFuzzer.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ember_fuzz::{harnesses, limits};

/// The folder of all inputs of this kind.
fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind)
}

fn inside(folder: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

/// Every reader keeps its guarantees within memory and time limits: if a fault ends the test, the
/// last line printed is its input's name.
#[test]
fn what_was_kept_is_read() {
    let mut read = 0;
    for harness in harnesses() {
        for file in ["seeds", "regressions"].iter().flat_map(|kind| inside(&folder(kind).join(harness.name))) {
            println!("{}", file.display());
            let input = fs::read(&file).unwrap();
            let begun = Instant::now();
            limits::within_memory(|| (harness.read)(&input));
            assert!(begun.elapsed() < limits::MAX_TIME, "{} took {:?}", file.display(), begun.elapsed());
            read += 1;
        }
    }
    assert!(read > 0);
}

#[test]
fn every_harness_has_inputs_to_begin_from_and_every_folder_its_harness() {
    let names: BTreeSet<&str> = harnesses().map(|harness| harness.name).collect();
    assert_eq!(names.len(), harnesses().count(), "two harnesses have one name");
    let of = |kind| -> BTreeSet<String> {
        let folders = inside(&folder(kind)).into_iter();
        folders.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of("seeds"), names.iter().map(|name| (*name).to_owned()).collect());
    assert!(of("regressions").iter().all(|name| names.contains(name.as_str())));
}
