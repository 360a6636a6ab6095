//! Writes the keys of a file and their values; `keys.rs` reads them.

use super::value_kind::Kind;

/// Keys and values, serialized one after the other.
#[derive(Default)]
pub struct Header {
    bytes: Vec<u8>,
    count: u64,
}

impl Header {
    /// The serialized keys and values.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of keys.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn u32(&mut self, key: &str, value: u32) {
        self.key(key, Kind::U32);
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn i32(&mut self, key: &str, value: i32) {
        self.key(key, Kind::I32);
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn f32(&mut self, key: &str, value: f32) {
        self.key(key, Kind::F32);
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn bool(&mut self, key: &str, value: bool) {
        self.key(key, Kind::Bool);
        self.bytes.push(value.into());
    }

    pub fn string(&mut self, key: &str, value: &str) {
        self.key(key, Kind::String);
        put_text(&mut self.bytes, value);
    }

    pub fn i32s(&mut self, key: &str, values: &[i32]) {
        self.array(key, Kind::I32, values.len());
        self.bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    pub fn f32s(&mut self, key: &str, values: &[f32]) {
        self.array(key, Kind::F32, values.len());
        self.bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    pub fn strings<'a>(&mut self, key: &str, values: impl ExactSizeIterator<Item = &'a str>) {
        self.array(key, Kind::String, values.len());
        values.for_each(|value| put_text(&mut self.bytes, value));
    }

    fn array(&mut self, key: &str, items: Kind, count: usize) {
        self.key(key, Kind::Array);
        self.bytes.extend((items as u32).to_le_bytes());
        self.bytes.extend((count as u64).to_le_bytes());
    }

    fn key(&mut self, key: &str, kind: Kind) {
        self.count += 1;
        put_text(&mut self.bytes, key);
        self.bytes.extend((kind as u32).to_le_bytes());
    }
}

/// Appends a string preceded by its length in bytes.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
