//! Reads the keys of a file and their values without copying.

use std::collections::HashMap;

use super::value_kind::Kind;
use crate::error::shown;

/// Reads bytes front to back, with bounds checks.
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.at..];
        let taken = usize::try_from(count).ok().and_then(|count| rest.get(..count));
        let taken = taken.ok_or_else(|| format!("{count} bytes are announced, but only {} follow", rest.len()))?;
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N as u64)?.as_chunks::<N>().0[0])
    }

    pub fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    /// A string preceded by its length.
    pub fn text(&mut self) -> Result<&'a str, String> {
        let length = self.u64()?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| "a text in its header is not UTF-8".to_owned())
    }
}

/// The value of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Whole(u64),
    Real(f64),
    Flag(bool),
    Text(&'a str),
    List(List<'a>),
}

/// An array of values of one type, as bytes of the file that have been validated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct List<'a> {
    kind: Kind,
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// Reads a value of this type. A negative integer cannot be a size and is read as a real.
    fn read(kind: Kind, from: &mut Cursor<'a>) -> Result<Self, String> {
        let signed = |value: i64| u64::try_from(value).map_or(Self::Real(value as f64), Self::Whole);
        Ok(match kind {
            Kind::U8 => Self::Whole(from.array::<1>()?[0].into()),
            Kind::I8 => signed(i8::from_le_bytes(from.array()?).into()),
            Kind::U16 => Self::Whole(u16::from_le_bytes(from.array()?).into()),
            Kind::I16 => signed(i16::from_le_bytes(from.array()?).into()),
            Kind::U32 => Self::Whole(from.u32()?.into()),
            Kind::I32 => signed(i32::from_le_bytes(from.array()?).into()),
            // Reparsed from its decimal digits: 1e-5 is meant where float32 has 9.99999974e-6.
            Kind::F32 => Self::Real(f32::from_le_bytes(from.array()?).to_string().parse().unwrap_or(f64::NAN)),
            Kind::Bool => Self::Flag(from.array::<1>()?[0] != 0),
            Kind::String => Self::Text(from.text()?),
            Kind::Array => Self::List(List::read(from)?),
            Kind::U64 => Self::Whole(from.u64()?),
            Kind::I64 => signed(i64::from_le_bytes(from.array()?)),
            Kind::F64 => Self::Real(f64::from_le_bytes(from.array()?)),
        })
    }
}

impl<'a> List<'a> {
    fn read(from: &mut Cursor<'a>) -> Result<Self, String> {
        let (number, count) = (from.u32()?, from.u64()?);
        let start = from.at;
        let kind = Kind::of(number).ok_or_else(|| format!("its header has a list of the unknown type {number}"))?;
        match kind.bytes() {
            Some(size) => _ = from.take(count.saturating_mul(size))?,
            None if kind == Kind::Array => return Err("its header has a list of lists".to_owned()),
            None => {
                for _ in 0..count {
                    from.text()?; // fails at the end of the file, whatever the count
                }
            }
        }
        Ok(Self { kind, count: count as usize, bytes: &from.bytes[start..from.at] })
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Iterates over the values.
    pub fn values(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let (mut from, kind) = (Cursor::new(self.bytes), self.kind);
        (0..self.count).map_while(move |_| Value::read(kind, &mut from).ok())
    }
}

/// All keys of a file.
pub struct Keys<'a>(HashMap<&'a str, Value<'a>>);

impl<'a> Keys<'a> {
    /// Reads `count` keys.
    pub fn read(from: &mut Cursor<'a>, count: u64) -> Result<Self, String> {
        let mut keys = HashMap::new();
        for _ in 0..count {
            let key = from.text()?;
            let number = from.u32()?;
            let kind =
                Kind::of(number).ok_or_else(|| format!("its header has a value of the unknown type {number}"))?;
            if keys.insert(key, Value::read(kind, from)?).is_some() {
                return Err(format!("its header has the key {} twice", shown(key)));
            }
        }
        Ok(Self(keys))
    }

    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.0.get(key).copied()
    }

    pub fn text(&self, key: &str) -> Option<&'a str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub fn whole(&self, key: &str) -> Option<u64> {
        match self.get(key) {
            Some(Value::Whole(number)) => Some(number),
            _ => None,
        }
    }

    pub fn real(&self, key: &str) -> Option<f64> {
        match self.get(key) {
            Some(Value::Real(number)) => Some(number),
            Some(Value::Whole(number)) => Some(number as f64),
            _ => None,
        }
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key) {
            Some(Value::Flag(flag)) => Some(flag),
            _ => None,
        }
    }

    pub fn list(&self, key: &str) -> Option<List<'a>> {
        match self.get(key) {
            Some(Value::List(list)) => Some(list),
            _ => None,
        }
    }

    /// The strings of a list; empty if there is no such list.
    pub fn texts(&self, key: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let list = self.list(key).into_iter().flat_map(|list| list.values());
        list.filter_map(|value| if let Value::Text(text) = value { Some(text) } else { None })
    }
}
