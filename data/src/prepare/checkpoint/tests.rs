#![allow(clippy::unwrap_used)]

use super::*;
use crate::prepare::{Dataset, HoldOut, Manifest, Silent, prepare, tests::tar_of};
use crate::random::mix;
use crate::tokenizer::Tokenizer;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Interrupts after a number of updates, and collects stages and notes.
#[derive(Default)]
struct Stop {
    updates_left: AtomicUsize,
    stages: Mutex<Vec<String>>,
    notes: Mutex<Vec<String>>,
}

impl Progress for Stop {
    fn update(&self, stage: &str, _done_bytes: u64, _total_bytes: Option<u64>) {
        self.updates_left.fetch_sub(1, Ordering::Relaxed);
        self.stages.lock().unwrap().push(stage.to_owned());
    }

    fn note(&self, line: &str) {
        self.notes.lock().unwrap().push(line.to_owned());
    }

    fn interrupted(&self) -> bool {
        self.updates_left.load(Ordering::Relaxed) == 0
    }
}

/// A folder of text, and the folder to prepare it into.
struct Place {
    folder: tempfile::TempDir,
    options: PrepareOptions,
}

fn prose(seed: u64, words: u64) -> String {
    let word = |place: u64| format!("w{} ", mix(seed << 32 | place) % 900);
    (0..words).map(word).collect()
}

/// JSON Lines of some megabytes; if `is_broken`, the last line is none.
fn lines(seed: u64, is_broken: bool) -> String {
    let line = |number: u64| format!("{{\"text\": \"{}\"}}\n", prose(seed + number, 10_000));
    (0..40).map(line).collect::<String>() + if is_broken { "no JSON" } else { "" }
}

impl Place {
    /// Small files and large ones, of one document and of many, compressed and broken ones.
    fn new(tokenizer: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        fs::create_dir(&text).unwrap();
        let write = |name: &str, content: &[u8]| fs::write(text.join(name), content).unwrap();
        for number in 0..8 {
            write(
                &format!("b{number}.txt"),
                format!("Write to me{number}@home.org. {}", prose(number, 200)).as_bytes(),
            );
        }
        let documents: Vec<String> = (0..12).map(|number| prose(100 + number, 15_000)).collect();
        write("a.txt", documents.join("<|endoftext|>").as_bytes());
        write("c.txt", "long é ".repeat(200_000).as_bytes());
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(prose(200, 100_000).as_bytes()).unwrap();
        write("d.txt.gz", &packed.finish().unwrap());
        write("b9.jsonl", b"{\"text\": \"one\"}\nno JSON");
        let options = PrepareOptions {
            inputs: vec![Input::Path(text)],
            tokenizer: tokenizer.parse().unwrap(),
            out: folder.path().join("out"),
            keep_every: Some(Duration::ZERO),
            ..PrepareOptions::default()
        };
        Self { folder, options }
    }

    fn text(&self, name: &str) -> PathBuf {
        self.folder.path().join("text").join(name)
    }

    /// Prepares until this many updates have come; returns the notes, too.
    fn stopped_after(&self, updates: usize) -> (Result<Manifest, Error>, Vec<String>) {
        let stop = Stop { updates_left: AtomicUsize::new(updates), ..Stop::default() };
        let prepared = prepare(&self.options, &stop);
        (prepared, stop.notes.into_inner().unwrap())
    }

    /// The output files, by name.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let Ok(entries) = fs::read_dir(&self.options.out) else { return BTreeMap::new() };
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())).collect()
    }

    /// The files of an uninterrupted call, and the stages it reports.
    fn whole(&self) -> (BTreeMap<String, Vec<u8>>, Vec<String>) {
        let stop = Stop::default();
        let _ = prepare(&self.options, &stop);
        let files = self.files();
        let _ = fs::remove_dir_all(&self.options.out);
        (files, stop.stages.into_inner().unwrap())
    }

    /// Interrupts at the end of a stage; returns the notes.
    fn stopped_at_end_of(&self, stage: &str) -> Vec<String> {
        let (_, stages) = self.whole();
        let updates = 1 + stages.iter().rposition(|reported| reported == stage).unwrap();
        let (prepared, notes) = self.stopped_after(updates);
        assert!(matches!(prepared, Err(Error::Interrupted)));
        notes
    }

    /// Interrupts at every possible moment and resumes to the end: the files must be the same.
    fn check_everywhere(&self) {
        let (whole, stages) = self.whole();
        let updates = stages.len();
        assert_eq!(
            whole.keys().collect::<Vec<_>>(),
            ["manifest.json", "tokenizer.json", "tokenizer_config.json", "train.bin", "val.bin"]
        );
        let mut resumed = BTreeMap::<String, u64>::new();
        for stop in 1..=updates {
            assert!(matches!(self.stopped_after(stop).0, Err(Error::Interrupted)), "after {stop} of {updates}");
            let (prepared, notes) = self.stopped_after(0);
            prepared.unwrap();
            assert!(self.files() == whole, "after {stop} of {updates}: {notes:?}");
            for note in notes {
                *resumed.entry(note).or_default() += 1;
            }
            fs::remove_dir_all(&self.options.out).unwrap();
        }
        let of =
            |what: &str| resumed.iter().filter(|(note, _)| note.contains(what)).map(|(_, count)| count).sum::<u64>();
        assert!(of("resuming the first pass in") >= 2 && of("resuming the encoding in") >= 2, "{resumed:?}");
    }
}

#[test]
fn interrupted_anywhere_and_gone_on_with_is_the_same_to_the_byte() {
    Place::new("bpe:300").check_everywhere();
    let mut other = Place::new("bytes");
    other.options.mask = true;
    other.options.hold_out = HoldOut::Last;
    other.check_everywhere();
}

/// A large file that is broken after its middle makes the first pass start again without it.
#[test]
fn interrupted_in_a_spoilt_reading_too() {
    let mut place = Place::new("chars");
    place.options.out = place.text("out"); // within the text's folder, where it must not be read as text
    fs::write(place.text("b99.jsonl"), lines(400, true)).unwrap();
    fs::remove_file(place.text("c.txt")).unwrap();
    assert!(prepare(&place.options, &Silent).unwrap().left_out.iter().any(|one| one.name.ends_with("b99.jsonl")));
    fs::remove_dir_all(&place.options.out).unwrap();
    place.check_everywhere();
}

#[test]
fn interrupted_in_an_archive_compressed_as_a_whole_too() {
    let mut place = Place::new("bytes");
    let packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut archive = tar::Builder::new(packed);
    archive.append_dir_all("text", place.folder.path().join("text")).unwrap();
    let path = place.folder.path().join("text.tar.gz");
    fs::write(&path, archive.into_inner().unwrap().finish().unwrap()).unwrap();
    place.options.inputs = vec![Input::Path(path)];
    place.check_everywhere();
}

/// As in a tar archive to which a file was added twice.
#[test]
fn interrupted_with_two_files_of_one_name_too() {
    let place = Place::new("bytes");
    let (bad, good) = (lines(400, true), lines(500, false));
    fs::write(place.text("z.tar"), tar_of(&[("one.jsonl", bad.as_bytes()), ("one.jsonl", good.as_bytes())])).unwrap();
    fs::remove_file(place.text("c.txt")).unwrap();
    let manifest = prepare(&place.options, &Silent).unwrap();
    let of_archive = manifest.sources.iter().filter(|source| source.name.ends_with("z.tar/one.jsonl"));
    let text = good.len() - 40 * "{\"text\": \"\"}\n".len();
    assert_eq!(of_archive.map(|source| source.bytes).collect::<Vec<_>>(), [text as u64]);
    fs::remove_dir_all(&place.options.out).unwrap();
    place.check_everywhere();
}

/// What was read of it before the interruption must not stay in the text.
#[test]
fn a_file_that_has_become_unreadable_since_the_interruption_is_left_out_as_a_whole() {
    let place = Place::new("bytes");
    let documents: Vec<String> = (0..60).map(|number| prose(300 + number, 15_000)).collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(documents.join("<|endoftext|>").as_bytes()).unwrap();
    let mut packed = packed.finish().unwrap();
    let path = place.text("a0.txt.gz");
    fs::write(&path, &packed).unwrap();
    let changed = fs::metadata(&path).unwrap().modified().unwrap();
    assert!(matches!(place.stopped_after(4).0, Err(Error::Interrupted)));
    packed[10..40].fill(0xff); // after gzip's header, and as long as before
    fs::write(&path, &packed).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(changed).unwrap();
    let (prepared, notes) = place.stopped_after(0);
    let manifest = prepared.unwrap();
    assert!(notes[0].contains("resuming the first pass in") && notes[0].ends_with("a0.txt.gz"), "{notes:?}");
    assert!(manifest.left_out.iter().any(|one| one.name.ends_with("a0.txt.gz")));
    let files = place.files();
    fs::remove_dir_all(&place.options.out).unwrap();
    assert!(files == place.whole().0);
}

/// As the program prepares a text anew, with its progress beside the old result.
#[test]
fn what_was_prepared_before_stays_beside_the_progress_that_is_kept() {
    let place = Place::new("bytes");
    let (whole, stages) = place.whole();
    let before = PrepareOptions { seed: 1, keep_every: None, ..place.options.clone() };
    prepare(&before, &Silent).unwrap();
    let seed = || Dataset::open(&place.options.out).unwrap().manifest.seed;
    for stop in 1..=stages.len() {
        let _ = fs::remove_dir_all(place.options.out.join(CHECKPOINT)); // begin anew
        assert!(matches!(place.stopped_after(stop).0, Err(Error::Interrupted)), "after {stop} of {}", stages.len());
        assert_eq!(seed(), 1, "after {stop} of {}", stages.len());
    }
    prepare(&place.options, &Silent).unwrap();
    assert!(seed() == 0 && place.files() == whole);
}

#[test]
fn interrupted_again_and_again() {
    let place = Place::new("bytes");
    let (whole, stages) = place.whole();
    let mut calls = 0;
    // A call must get beyond the part of its current file that it reads again.
    while let (Err(error), _) = place.stopped_after(5) {
        assert!(matches!(error, Error::Interrupted), "{error}");
        calls += 1;
        assert!(calls < stages.len(), "no call gets any further");
    }
    assert!(place.files() == whole && calls > 1);
}

#[test]
fn of_another_text_other_settings_or_another_version_nothing_is_gone_on_with() {
    type Change = fn(&mut Place);
    let changes: [Change; 5] = [
        |place| {
            fs::write(place.text("b0.txt"), "Something else, and it is longer than it was before. ".repeat(9)).unwrap()
        },
        |place| {
            // As long as before: only its time of modification tells it from the text that was read.
            let text = fs::read_to_string(place.text("b0.txt")).unwrap().replace("Write", "Wrote");
            fs::write(place.text("b0.txt"), text).unwrap();
            let file = fs::File::options().write(true).open(place.text("b0.txt")).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        },
        |place| place.options.seed = 1,
        |place| fs::write(place.options.out.join(CHECKPOINT).join(OWNER), "another version").unwrap(),
        |place| {
            // This version, from before the records had their current form.
            let owner = format!("{} {}", place.options.fingerprint().unwrap(), env!("CARGO_PKG_VERSION"));
            fs::write(place.options.out.join(CHECKPOINT).join(OWNER), owner).unwrap();
        },
    ];
    for change in changes {
        let mut place = Place::new("bytes");
        place.stopped_at_end_of("encoding");
        change(&mut place);
        let (prepared, notes) = place.stopped_after(0);
        prepared.unwrap();
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.ends_with("or another version of this program; starting over"), "{note}");
        let files = place.files();
        fs::remove_dir_all(&place.options.out).unwrap();
        assert!(files == place.whole().0);
    }
}

#[test]
fn killed_while_the_files_are_put_in_their_place() {
    const IN_ORDER: [&str; 5] = ["train.bin", "val.bin", "tokenizer.json", "tokenizer_config.json", "manifest.json"];
    let place = Place::new("bytes");
    place.stopped_at_end_of("encoding");
    let (out, kept) = (&place.options.out, place.options.out.join(CHECKPOINT));
    let records = [OWNER, "surveyed"].map(|name| (name, fs::read(kept.join(name)).unwrap()));
    let (whole, _) = place.whole();
    for put in 0..=IN_ORDER.len() {
        fs::create_dir_all(&kept).unwrap();
        records.iter().for_each(|(name, record)| fs::write(kept.join(name), record).unwrap());
        for (number, name) in IN_ORDER.into_iter().enumerate() {
            let folder = if number < put { out } else { &kept };
            fs::write(folder.join(name), &whole[name]).unwrap();
        }
        let resumed = Stop::default();
        prepare(&place.options, &resumed).unwrap();
        assert!(resumed.stages.into_inner().unwrap().is_empty(), "the text was read again");
        assert!(place.files() == whole, "{put} files were in their place");
        fs::remove_dir_all(out).unwrap();
    }
}

/// Tokens of different tokenizers must not be mixed, even if both were saved under one file name.
#[test]
fn of_another_tokenizer_nothing_is_encoded_on() {
    let mut place = Place::new("bytes");
    let file = place.folder.path().join("characters");
    fs::create_dir(&file).unwrap();
    let save = |more: &str| {
        let characters = ('a'..='z').chain("0123456789 .@WlLé".chars()).chain(more.chars()).collect();
        Tokenizer::chars(&characters, true).unwrap().save(&file).unwrap();
    };
    save("+");
    place.options.tokenizer = file.to_str().unwrap().parse().unwrap();
    for other in ["~", "!$%&"] {
        save(other);
        let (whole, _) = place.whole();
        save("+");
        place.stopped_at_end_of("encoding");
        save(other);
        let (prepared, notes) = place.stopped_after(0);
        prepared.unwrap();
        assert!(notes.iter().any(|note| note.contains("encoding starts over")), "{notes:?}");
        assert!(place.files() == whole);
        fs::remove_dir_all(&place.options.out).unwrap();
    }
}

#[test]
fn what_is_damaged_is_done_again() {
    let place = Place::new("bytes");
    let (whole, _) = place.whole();
    let damages: [fn(&mut Vec<u8>); 3] = [
        |bytes| bytes.truncate(bytes.len() / 4),
        |bytes| {
            let place = bytes.len() / 4;
            bytes[place] ^= 1;
        },
        Vec::clear,
    ];
    let records =
        [("survey", "reading"), ("surveyed", "encoding"), ("encoding", "encoding"), ("train.bin", "encoding")];
    for (name, stage) in records {
        for damage in damages {
            place.stopped_at_end_of(stage);
            let path = place.options.out.join(CHECKPOINT).join(name);
            let mut bytes = fs::read(&path).unwrap();
            damage(&mut bytes);
            fs::write(&path, bytes).unwrap();
            let (prepared, notes) = place.stopped_after(0);
            prepared.unwrap();
            assert!(notes[0].ends_with("is damaged; its part of the work is repeated"), "{notes:?}");
            assert!(place.files() == whole, "{name}");
            fs::remove_dir_all(&place.options.out).unwrap();
        }
    }
}

#[test]
fn a_damaged_record_is_saved_anew() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_owned();
    let options = PrepareOptions { out, keep_every: Some(Duration::ZERO), ..PrepareOptions::default() };
    let mut checkpoint = Checkpoint::open(&options, "", &Silent).unwrap();
    checkpoint.save_once(Record::Surveyed, &1u64).unwrap();
    fs::write(checkpoint.file("surveyed"), "damaged").unwrap();
    assert_eq!(checkpoint.load::<u64>(Record::Surveyed), None);
    checkpoint.save_once(Record::Surveyed, &2u64).unwrap();
    assert_eq!(checkpoint.load::<u64>(Record::Surveyed), Some(2));
}

#[cfg(unix)]
#[test]
fn progress_is_kept_where_a_disk_fails_and_not_where_a_file_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_owned();
    let options = PrepareOptions { out, keep_every: Some(Duration::ZERO), ..PrepareOptions::default() };
    let (eio, enoent) = (5, 2);
    for (code, is_kept) in [(eio, true), (enoent, false)] {
        let mut checkpoint = Checkpoint::open(&options, "", &Silent).unwrap();
        checkpoint.save(Record::Survey, &0).unwrap();
        let source = io::Error::from_raw_os_error(code);
        let error = crate::source::Error::from(FileError { doing: "cannot read", path: "a.txt".into(), source });
        checkpoint.close(&Err::<(), Error>(error.into())).unwrap();
        assert_eq!(is_begun(&options.out), is_kept);
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_what_was_kept_is_not_waited_for() {
    let place = Place::new("bytes");
    let (whole, _) = place.whole();
    let resumed_beside_a_pipe = |name: &str| {
        place.stopped_at_end_of("encoding");
        let path = place.options.out.join(CHECKPOINT).join(name);
        let _ = fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        place.stopped_after(0)
    };
    let repeated = "is damaged; its part of the work is repeated";
    for (name, note) in [
        (OWNER, "starting over"),
        ("surveyed", repeated),
        ("encoding", repeated),
        ("manifest.json", "resuming the encoding in"),
    ] {
        let (prepared, notes) = resumed_beside_a_pipe(name);
        prepared.unwrap();
        assert!(notes[0].contains(note), "{name}: {notes:?}");
        assert!(place.files() == whole, "{name}");
        fs::remove_dir_all(&place.options.out).unwrap();
    }
    let (refused, _) = resumed_beside_a_pipe("train.bin");
    let line = ember_host::file_error::with_causes(&refused.unwrap_err());
    assert!(line.ends_with("train.bin: it is a pipe, a device or a socket, not a file"), "{line}");
}

#[test]
fn nothing_is_left_where_a_text_is_refused_after_all() {
    let mut place = Place::new("bytes");
    let characters = ('a'..='z').chain("0123456789 .@WlLé".chars()).collect();
    let tokenizer = place.folder.path().join("characters");
    fs::create_dir(&tokenizer).unwrap();
    Tokenizer::chars(&characters, true).unwrap().save(&tokenizer).unwrap();
    place.options.tokenizer = tokenizer.to_str().unwrap().parse().unwrap();
    fs::write(place.text("z.txt"), "A line in which Ω is not known.").unwrap();
    place.stopped_at_end_of("encoding");
    assert!(place.options.out.join(CHECKPOINT).is_dir());
    let (refused, notes) = place.stopped_after(0);
    assert!(refused.unwrap_err().to_string().contains("'Ω' once") && notes[0].contains("resuming"), "{notes:?}");
    assert!(!place.options.out.exists());
}

#[test]
fn a_record_is_due_after_the_interval_and_later_where_saving_is_slow() {
    let folder = tempfile::tempdir().unwrap();
    let [hour, millisecond, nanosecond] =
        [Duration::from_secs(3600), Duration::from_millis(1), Duration::from_nanos(1)];
    // Every save is slow beside a nanosecond, and none beside an hour.
    for (every, is_due, wait) in [
        (hour, false, hour..=hour),
        (millisecond, true, millisecond..=MAX_SELDOM * millisecond),
        (nanosecond, true, MAX_SELDOM * nanosecond..=MAX_SELDOM * nanosecond),
    ] {
        let out = folder.path().to_owned();
        let options = PrepareOptions { out, keep_every: Some(every), ..PrepareOptions::default() };
        let mut checkpoint = Checkpoint::open(&options, "", &Silent).unwrap();
        let opened = checkpoint.last;
        std::thread::sleep(2 * millisecond);
        assert_eq!(checkpoint.is_due(), is_due, "{every:?}");
        checkpoint.save(Record::Survey, &0).unwrap();
        assert!(checkpoint.last > opened && wait.contains(&checkpoint.wait), "{every:?}: {:?}", checkpoint.wait);
    }
}

#[test]
fn where_nothing_is_to_be_kept_nothing_is() {
    let mut place = Place::new("bytes");
    place.options.keep_every = None;
    let notes = place.stopped_at_end_of("encoding");
    assert!(notes.is_empty() && !place.options.out.exists(), "{notes:?}");
    let inputs = vec![Input::Stdin];
    let piped = PrepareOptions { inputs, keep_every: Some(Duration::ZERO), ..place.options.clone() };
    fs::create_dir(&piped.out).unwrap();
    assert!(!Checkpoint::open(&piped, "", &Silent).unwrap().is_due());
}
