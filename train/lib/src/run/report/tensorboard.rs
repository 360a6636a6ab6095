//! Writes TensorBoard's event files, without a library: the two layers of framing are small.
//!
//! A file is a sequence of records (TensorFlow's
//! [TFRecord](https://www.tensorflow.org/tutorials/load_data/tfrecord): length, masked CRC-32C of
//! the length, content, masked CRC-32C of the content), each a protocol buffer `Event`
//! ([event.proto](https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto)).
//! Every session of a run writes its own file. That of a resumed session begins with a `SessionLog`
//! of status START; TensorBoard drops what earlier sessions wrote from its step on.

use std::fs::{self, File};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ember_host::file_error::At;

use super::append::AppendFile;
use super::metrics::Row;
use crate::error::{LogError, wants_room};
use crate::run::folder::EVENTS;

/// An open event file.
pub struct EventFile {
    pub(super) out: AppendFile,
}

impl EventFile {
    /// Creates a new file in `folder`, and the folder if needed. Steps from `first_step` on in
    /// earlier files of the folder no longer count. The `events` of earlier sessions come first, in
    /// a single write. What a full disk has no room for is pending.
    ///
    /// # Errors
    /// When the file cannot be created or written; the line names it.
    pub fn create(folder: &Path, first_step: u64, events: &Events) -> Result<Self, LogError> {
        fs::create_dir_all(folder).at("cannot create", folder)?;
        // TensorBoard reads the files of a folder in the order of their names, and only files with
        // such names. The clock may have been set back since the newest was created.
        let seconds = newest(folder).map_or(0, |newest| newest.saturating_add(1)).max(now() as u64);
        let name = |number: u64| format!("{EVENTS}{seconds:010}.ember.{}.{number}", std::process::id());
        let path = (0..).map(|number| folder.join(name(number))).find(|path| !path.exists()).unwrap_or_default();
        let file = File::options().append(true).create_new(true).open(&path).at("cannot create", &path)?;
        let mut beginning = Events::default();
        beginning.add(0, &bytes_field(3, b"brain.Event:2")); // file_version, which must come first
        if first_step > 0 {
            const START: u64 = 1;
            beginning.add(first_step, &bytes_field(7, &varint_field(1, START)));
        }
        beginning.0.extend_from_slice(&events.0);
        let mut file = Self { out: AppendFile::new(file, path) };
        match file.append(&beginning) {
            Err(LogError::Append { source, .. }) if wants_room(&source) => {}
            written => written?,
        }
        Ok(file)
    }

    /// Writes the numbers of a row.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn row(&mut self, row: &Row) -> Result<(), LogError> {
        let mut events = Events::default();
        events.row(row)?;
        self.append(&events)
    }

    /// Writes events, in a single write. If the disk is full, they are written with the next ones.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn append(&mut self, events: &Events) -> Result<(), LogError> {
        if events.0.is_empty() { Ok(()) } else { self.out.append(&events.0) }
    }

    /// Waits until all events are on the disk. On a full one, those since the last sync are pending.
    ///
    /// # Errors
    /// When they cannot be written; the line names the file.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.out.sync()
    }
}

/// Events that are written together, as the records of a file.
#[derive(Default)]
pub struct Events(Vec<u8>);

impl Events {
    /// Adds every number of a row, except the step, as a scalar.
    ///
    /// # Errors
    /// When the row cannot be represented in JSON.
    pub fn row(&mut self, row: &Row) -> Result<(), LogError> {
        let serde_json::Value::Object(keys) = serde_json::to_value(row)? else { return Ok(()) };
        let mut summary = Vec::new();
        for (key, value) in keys.iter().filter(|(key, _)| *key != "step") {
            let number = match value {
                serde_json::Value::Null => Some(f64::NAN), // JSON has null for numbers that are not finite
                serde_json::Value::Bool(is) => Some(f64::from(u8::from(*is))),
                value => value.as_f64(),
            };
            let scalar = number.map(|number| scalar(&format!("{}/{key}", group(key)), number as f32));
            summary.extend(scalar.unwrap_or_default());
        }
        if !summary.is_empty() {
            self.add(row.step, &bytes_field(5, &summary));
        }
        Ok(())
    }

    /// Adds a text as a Markdown code block, which TensorBoard shows unchanged.
    pub fn text(&mut self, step: u64, tag: &str, text: &str) {
        let block: String = text.lines().map(|line| format!("    {line}\n")).collect();
        self.add(step, &bytes_field(5, &text_value(tag, &block)));
    }

    fn add(&mut self, step: u64, what: &[u8]) {
        self.0.extend(record(&event(now(), step, what)));
    }
}

/// Whether an event file in `folder` has events. On a full disk a file may have stayed empty.
pub fn has_events(folder: &Path) -> bool {
    let is_empty = |name: &str| fs::metadata(folder.join(name)).is_ok_and(|file| file.len() == 0);
    names(folder).any(|name| name.starts_with(EVENTS) && !is_empty(&name))
}

/// The time in the name of the newest event file of `folder`, in seconds since 1970.
fn newest(folder: &Path) -> Option<u64> {
    let seconds = |name: String| name.strip_prefix(EVENTS)?.split('.').next()?.parse().ok();
    names(folder).filter_map(seconds).max()
}

/// The names of the files in a folder; none if it cannot be read.
fn names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// The group under which TensorBoard shows a key.
fn group(key: &str) -> &'static str {
    match key {
        "learning_rate" | "grad_norm" | "clipped" => "optimizer",
        "skipped" | "spike" | "window" => "guard",
        "entropy_floor" | "bits_per_byte" => "loss",
        _ if key.ends_with("loss") => "loss",
        _ => "cost",
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// `Event { wall_time = 1, step = 2, what }`.
fn event(wall_time: f64, step: u64, what: &[u8]) -> Vec<u8> {
    const EIGHT_BYTES_OF_FIELD_1: u8 = 1 << 3 | 1;
    [&[EIGHT_BYTES_OF_FIELD_1][..], &wall_time.to_le_bytes(), &varint_field(2, step), what].concat()
}

/// `Summary { value = 1 }` of `Value { tag = 1, simple_value = 2 }`.
fn scalar(tag: &str, number: f32) -> Vec<u8> {
    const FOUR_BYTES_OF_FIELD_2: u8 = 2 << 3 | 5;
    bytes_field(1, &[&bytes_field(1, tag.as_bytes())[..], &[FOUR_BYTES_OF_FIELD_2], &number.to_le_bytes()].concat())
}

/// `Summary { value = 1 }` of `Value { tag = 1, tensor = 8, metadata = 9 }`: one string, of the
/// plug-in "text".
fn text_value(tag: &str, text: &str) -> Vec<u8> {
    const DT_STRING: u64 = 7;
    const DATA_CLASS_TENSOR: u64 = 2;
    let shape = bytes_field(2, &varint_field(1, 1)); // one dimension, of size 1
    let tensor = [varint_field(1, DT_STRING), bytes_field(2, &shape), bytes_field(8, text.as_bytes())].concat();
    let metadata = [bytes_field(1, &bytes_field(1, b"text")), varint_field(4, DATA_CLASS_TENSOR)].concat();
    let value = [bytes_field(1, tag.as_bytes()), bytes_field(8, &tensor), bytes_field(9, &metadata)].concat();
    bytes_field(1, &value)
}

/// A protocol buffer field with a whole number.
fn varint_field(field: u64, number: u64) -> Vec<u8> {
    [varint(field << 3), varint(number)].concat()
}

/// A protocol buffer field with bytes, a text or another message.
fn bytes_field(field: u64, content: &[u8]) -> Vec<u8> {
    [&varint(field << 3 | 2)[..], &varint(content.len() as u64), content].concat()
}

/// A variable-length integer: seven bits per byte, lowest first; the eighth bit says that more
/// follow.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A TFRecord.
fn record(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    [&length[..], &masked_crc(&length).to_le_bytes(), content, &masked_crc(content).to_le_bytes()].concat()
}

/// TFRecord's checksum: a CRC of data that holds CRCs would be weak, so the stored ones are masked.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What the Python package `tensorboard` writes for `Event(wall_time=1.5, step=300,
    /// summary=...)` of a scalar `a` = 2.5.
    #[test]
    fn a_scalar_has_the_bytes_of_tensorboard() {
        let record = record(&event(1.5, 300, &bytes_field(5, &scalar("a", 2.5))));
        let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, SCALAR);
    }

    /// As above, for `Event(wall_time=1.5, step=7, summary=...)` of the text "b" under the tag `t`.
    #[test]
    fn a_text_has_the_bytes_of_tensorboard() {
        let record = record(&event(1.5, 7, &bytes_field(5, &text_value("t", "b"))));
        let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, TEXT);
    }

    const SCALAR: &str = "1800000000000000a37f4b2209000000000000f83f10ac022a0a0a080a0161150000204065a7342d";
    const TEXT: &str = "2b00000000000000861bc34b09000000000000f83f10072a1e0a1c0a0174420b08071204120208014201624a0a0a060a04746578742002a449934f";

    #[test]
    fn each_session_has_a_file_and_the_later_name_sorts_behind() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!has_events(folder.path()));
        fs::write(folder.path().join(format!("{EVENTS}1.host.1.0")), "").unwrap();
        assert!(!has_events(folder.path()), "the file is empty");
        EventFile::create(folder.path(), 0, &Events::default()).unwrap();
        let mut second = EventFile::create(folder.path(), 8, &Events::default()).unwrap();
        second.row(&Row { step: 9, train_loss: Some(1.0), ..Row::default() }).unwrap();
        assert!(has_events(folder.path()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        let content = fs::read(second.out.path()).unwrap();
        assert!(content.windows(15).any(|window| window == b"loss/train_loss"));
    }

    #[test]
    fn a_file_that_is_made_after_the_clock_was_set_back_sorts_behind_too() {
        let folder = tempfile::tempdir().unwrap();
        let ahead = now() as u64 + 1_000_000;
        for other in [format!("{ahead}.host.1.0"), "999.host.1.0".to_owned(), "of-no-time".to_owned()] {
            fs::write(folder.path().join(format!("{EVENTS}{other}")), "").unwrap();
        }
        let create = |step| EventFile::create(folder.path(), step, &Events::default()).unwrap();
        let made = [1, 2].map(|step| create(step).out.path().to_owned());
        let [first, second] = made.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
        assert!(first.starts_with(&format!("{EVENTS}{}.ember.", ahead + 1)), "{first}");
        assert!(second > first, "{first} {second}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn events_wait_until_the_disk_has_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut events = EventFile::create(folder.path(), 0, &Events::default()).unwrap();
        let row = |step| Row { step, train_loss: Some(1.0), ..Row::default() };
        events.row(&row(1)).unwrap();
        let disk = std::mem::replace(&mut events.out.file, File::options().append(true).open("/dev/full").unwrap());
        assert!(crate::error::Error::from(events.row(&row(2)).unwrap_err()).is_full_disk());
        assert!(events.row(&row(3)).is_err(), "/dev/full cannot be cut");
        events.out.file = disk;
        events.sync().unwrap();
        let content = fs::read(events.out.path()).unwrap();
        assert_eq!(content.windows(15).filter(|window| *window == b"loss/train_loss").count(), 3);
    }
}
