//! The output folder: written whole or not at all, and never a foreign one.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use super::*;
use crate::source::{Clean, ReadOptions};

#[test]
fn unfinished_folders_and_files_that_the_manifest_does_not_describe_are_refused() {
    let prepared = text(&many_documents(100), "chars");
    let out = prepared.folder.path().join("out");
    let error = || format!("{:#}", Dataset::open(&out).err().unwrap());
    for file in ["train.bin", "val.bin", "tokenizer.json", "manifest.json"] {
        let path = out.join(file);
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        // The manifest has no checksum of its own: if it can be parsed, it is trusted.
        if file != "manifest.json" {
            assert!(error().contains(file), "{}", error());
        }
        std::fs::remove_file(&path).unwrap();
        assert!(error().contains(file), "{}", error());
        std::fs::write(&path, whole).unwrap();
        assert!(Dataset::open(&out).is_ok());
    }
    let text = std::fs::read_to_string(out.join("manifest.json")).unwrap();
    std::fs::write(out.join("manifest.json"), text.replace("\"format_version\": 1", "\"format_version\": 9")).unwrap();
    assert!(error().contains("format version 9"));
    assert!(Dataset::open(Path::new("no/such/folder")).err().unwrap().to_string().contains("not a folder"));
}

#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for() {
    let prepared = text(&many_documents(100), "chars");
    let out = prepared.folder.path().join("out");
    let of_tokenizer = ["tokenizer.json", "tokenizer_config.json", "added_tokens.json", "chat_template.jinja"];
    for file in ["manifest.json", "train.bin", "val.bin"].into_iter().chain(of_tokenizer) {
        let path = out.join(file);
        let whole = std::fs::read(&path).ok();
        let _ = std::fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let line = ember_host::file_error::with_causes(&Dataset::open(&out).err().unwrap());
        let end = format!("{}: it is a pipe, a device or a socket, not a file", path.display());
        assert!(line.ends_with(&end), "{line}");
        std::fs::remove_file(&path).unwrap();
        whole.iter().for_each(|whole| std::fs::write(&path, whole).unwrap());
    }
    assert!(Dataset::open(&out).is_ok());
}

#[test]
fn an_end_of_text_that_is_no_longer_named_is_missed() {
    let named_beside = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/prompts/llama");
    let prepared = text("a cat and the dog on the moon", named_beside);
    assert_eq!(prepared.manifest.end_of_text, Some(2));
    let out = prepared.folder.path().join("out");
    std::fs::remove_file(out.join("tokenizer_config.json")).unwrap();
    let error = Dataset::open(&out).err().unwrap().to_string();
    assert!(error.contains("tokenizer_config.json does not belong to the manifest.json beside it"), "{error}");
}

/// Interrupts after this many updates.
struct StopAfter(AtomicUsize);

impl Progress for StopAfter {
    fn update(&self, _stage: &str, _done_bytes: u64, _total_bytes: Option<u64>) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

#[test]
fn an_interrupted_preparation_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.txt");
    std::fs::write(&path, many_documents(1000)).unwrap();
    let mut options = options(folder.path(), vec![Input::Path(path)], "chars");
    prepare(&options, &Silent).unwrap();
    options.seed = 1;
    for updates in 1.. {
        match prepare(&options, &StopAfter(AtomicUsize::new(updates))) {
            Ok(_) => {
                assert!(updates > 3, "each reading tells at its beginning and its end");
                break;
            }
            Err(error) => assert!(matches!(error, Error::Interrupted), "{error}"),
        }
        assert_eq!(Dataset::open(&options.out).unwrap().manifest.seed, 0, "after {updates} updates");
        let names = std::fs::read_dir(&options.out).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with('.')), "temporary files are gone");
    }
}

#[test]
fn the_fingerprint_follows_what_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.txt");
    std::fs::write(&path, "one").unwrap();
    let mut options = options(folder.path(), vec![Input::Path(path.clone())], "chars");
    let first = options.fingerprint().unwrap();
    options.out = folder.path().join("elsewhere");
    assert_eq!(options.fingerprint().unwrap(), first);
    options.seed = 1;
    assert_ne!(options.fingerprint().unwrap(), first);
    options.seed = 0;
    std::fs::write(&path, "other").unwrap();
    assert_ne!(options.fingerprint().unwrap(), first);
    // An edit that leaves the length as it was changes the time of modification.
    std::fs::write(&path, "two").unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_ne!(options.fingerprint().unwrap(), first);
}

#[test]
fn the_fingerprint_of_a_packed_archive_follows_the_archive_and_not_its_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar.gz");
    let mut packed = flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
    packed.write_all(&tar_of(&[("a.txt", b"one")])).unwrap();
    packed.finish().unwrap();
    let options = options(folder.path(), vec![Input::Path(path.clone())], "chars");
    let first = options.fingerprint().unwrap();
    assert_eq!(options.fingerprint().unwrap(), first);
    File::options().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_ne!(options.fingerprint().unwrap(), first);
}

#[test]
fn every_option_changes_the_fingerprint() {
    let folder = folder_of(&[("a.txt", b"one")]);
    let asked = options(folder.path(), vec![Input::Path(folder.path().join("texts/a.txt"))], "chars");
    // With a new option this does not compile: it belongs in the list below, unless, like the last
    // three, it changes nothing of what is prepared.
    let PrepareOptions {
        inputs: _,
        reading: ReadOptions { field: _, encoding: _, clean: _ },
        tokenizer: _,
        val_fraction: _,
        hold_out: _,
        mask: _,
        seed: _,
        out: _,
        keep_every: _,
        describe: _,
    } = &asked;
    let changes: [fn(&mut PrepareOptions); 10] = [
        |options| options.inputs.push(Input::Stories { count: 1 }),
        |options| options.reading.field = "body".to_owned(),
        |options| options.reading.encoding = Some(encoding_rs::UTF_8),
        |options| options.reading.clean = Clean::All,
        |options| options.reading.clean = Clean::Off,
        |options| options.tokenizer = "bytes".parse().unwrap(),
        |options| options.val_fraction = 0.2,
        |options| options.hold_out = HoldOut::Last,
        |options| options.mask = true,
        |options| options.seed = 1,
    ];
    let mut fingerprints = BTreeSet::from([asked.fingerprint().unwrap()]);
    for change in changes {
        let mut changed = asked.clone();
        change(&mut changed);
        assert!(fingerprints.insert(changed.fingerprint().unwrap()), "{changed:?}");
    }
}

#[test]
fn a_text_that_is_refused_costs_nothing_that_was_prepared_before() {
    let Prepared { folder, manifest, .. } = text(&many_documents(100), "chars");
    let folder = folder.path();
    let no_utf8 = ["é".as_bytes(), &b"a".repeat(3_000_000), b"\xe9"].concat();
    for (content, tokenizer, expected) in [
        (&no_utf8[..], "chars", "is not UTF-8 text: byte 3000002"),
        (b" \n", "chars", "the text is empty"),
        (b"two words", folder.join("text.txt").to_str().unwrap(), "is not a tokenizer.json"),
    ] {
        let path = folder.join("refused.txt");
        std::fs::write(&path, content).unwrap();
        let refused = options(folder, vec![Input::Path(path)], tokenizer);
        let error = prepare(&refused, &Silent).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(Dataset::open(&refused.out).unwrap().manifest.fingerprint, manifest.fingerprint);
    }
}

#[test]
fn a_text_that_is_in_use_is_not_replaced() {
    let Prepared { folder, data, .. } = text(&many_documents(100), "chars");
    let again = options(folder.path(), vec![Input::Path(folder.path().join("text.txt"))], "bytes");
    let error = prepare(&again, &Silent).unwrap_err().to_string();
    assert!(error.contains("train.bin is in use, perhaps by a run that trains on it"), "{error}");
    drop(data);
    prepare(&again, &Silent).unwrap();
}

#[test]
fn a_folder_that_is_not_ours_is_never_written_into() {
    let folder = folder_of(&[("a.txt", &b"Once upon a time. ".repeat(50)[..]), ("model/tokenizer.json", b"{}")]);
    let texts = folder.path().join("texts");
    let mut options = options(folder.path(), vec![Input::Path(texts.join("a.txt"))], "chars");
    for foreign in [texts.join("model"), texts.clone()] {
        options.out = foreign;
        let error = prepare(&options, &Silent).unwrap_err().to_string();
        assert!(error.contains("holds other files") && error.contains("new or empty"), "{error}");
    }
    assert_eq!(std::fs::read(texts.join("model/tokenizer.json")).unwrap(), b"{}");
    assert_eq!(std::fs::read_dir(&texts).unwrap().count(), 2);
    // The program may replace output that it wrote before, complete or not.
    options.out = folder.path().join("out");
    prepare(&options, &Silent).unwrap();
    prepare(&options, &Silent).unwrap();
    std::fs::remove_file(options.out.join("manifest.json")).unwrap();
    prepare(&options, &Silent).unwrap();
    // It is not read as text either.
    options.inputs = vec![Input::Path(options.out.clone())];
    let error = prepare(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("is a prepared text already"), "{error}");
    assert!(Dataset::open(&options.out).is_ok(), "and is as it was");
}

#[cfg(unix)]
#[test]
fn two_processes_never_prepare_into_one_folder() {
    let folder = folder_of(&[("a.txt", &b"Once upon a time. ".repeat(50)[..])]);
    let options = options(folder.path(), vec![Input::Path(folder.path().join("texts/a.txt"))], "chars");
    std::fs::create_dir(&options.out).unwrap();
    let other = File::open(&options.out).unwrap();
    other.lock().unwrap();
    let error = prepare(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("another process is preparing a text into"), "{error}");
    drop(other);
    prepare(&options, &Silent).unwrap();
}

#[test]
fn a_folder_inside_the_text_can_be_prepared_into_again_and_again() {
    let folder = folder_of(&[("a.txt", &b"Once upon a time. ".repeat(50)[..])]);
    let texts = folder.path().join("texts");
    let mut options = options(folder.path(), vec![Input::Path(texts.clone())], "chars");
    options.out = texts.join("prepared");
    let first = prepare(&options, &Silent).unwrap();
    for unfinished in [false, true] {
        if unfinished {
            std::fs::remove_file(options.out.join("manifest.json")).unwrap();
        }
        let again = prepare(&options, &Silent).unwrap();
        assert_eq!(
            (again.sources, again.train, again.val),
            (first.sources.clone(), first.train.clone(), first.val.clone())
        );
        assert!(again.report.to_string().contains("Left out: 1 prepared text: "));
    }
}
