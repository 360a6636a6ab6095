//! Opens and reads a file.

use std::{collections::HashMap, path::Path};

use super::keys::{Cursor, Keys};
use super::names::{Layout, gguf_name};
use super::stored::{Kind, Stored};
use super::{ALIGNMENT, MAGIC, sampling, shape, vocabulary};
use crate::error::{FormatError, Result};
use crate::{Model, Shape, Tensor, layout, mapped::Mapped, names};

/// A GGUF file, memory-mapped.
#[derive(Debug)]
pub struct File(Mapped);

impl File {
    /// Opens a file without reading any of it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self(Mapped::open(path)?))
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The model; its tensors' values stay in the file until they are read.
    ///
    /// # Errors
    /// When the file is damaged, or its model, number types or tokenizer are not supported.
    pub fn model(&self) -> Result<Model<'_>> {
        let damaged = |why: String| FormatError::damaged(self.0.path(), why);
        let unsupported = |what: String| FormatError::unsupported(self.0.path(), what);
        let mut from = Cursor::new(&self.0);
        let (tensor_count, key_count) = begin(&mut from).map_err(unsupported)?;
        let keys = Keys::read(&mut from, key_count).map_err(damaged)?;
        let alignment = alignment(&keys).map_err(damaged)?;
        let mut listed = Vec::new();
        for _ in 0..tensor_count {
            listed.push(TensorEntry::read(&mut from, alignment).map_err(damaged)?);
        }
        listed.iter().try_for_each(|tensor| tensor.kind.check_readable(tensor.name)).map_err(unsupported)?;
        let values = self.0.get((from.at() as u64).next_multiple_of(alignment) as usize..).unwrap_or_default();
        let tensors = Tensors::placed(listed, alignment, values).map_err(damaged)?;
        let shape = shape::read(&keys, &tensors).map_err(unsupported)?;
        let tokenizer = vocabulary::read(&keys, shape.vocab_size).map_err(unsupported)?;
        let mut found = Vec::new();
        for (name, sizes) in names::tensors(&shape) {
            found.push(tensors.tensor(&shape, name, sizes).map_err(unsupported)?);
        }
        if tensors.count() != found.len() {
            let known: Vec<String> =
                found.iter().filter_map(|tensor| Some(gguf_name(&shape, &tensor.name)?.0)).collect();
            let other = tensors.names().find(|name| !known.iter().any(|known| known == name)).unwrap_or_default();
            let name = shape.architecture.name();
            return Err(unsupported(format!("tensor {other} is not part of a supported {name} model")));
        }
        Ok(Model { shape, tensors: found, tokenizer, generation: sampling::read(&keys) })
    }
}

/// Reads the fixed header: how many tensors and keys follow.
fn begin(from: &mut Cursor) -> Result<(u64, u64), String> {
    let is_gguf = from.take(MAGIC.len() as u64).is_ok_and(|magic| magic == MAGIC);
    if !is_gguf {
        return Err("it does not begin with GGUF; give a GGUF file".to_owned());
    }
    match from.u32()? {
        2 | 3 => Ok((from.u64()?, from.u64()?)),
        version if matches!(version.swap_bytes(), 2 | 3) => {
            Err("it is big-endian; only little-endian GGUF files can be read: get the model as one".to_owned())
        }
        version => Err(format!("it is GGUF version {version}; only 2 and 3 can be read: convert the model again")),
    }
}

/// The alignment of tensor data.
fn alignment(keys: &Keys) -> Result<u64, String> {
    let alignment = keys.whole("general.alignment").unwrap_or(ALIGNMENT as u64);
    let is_one = alignment.is_power_of_two() && alignment <= 1 << 20;
    if is_one { Ok(alignment) } else { Err(format!("its alignment is {alignment}")) }
}

/// The tensors of a file by name.
pub struct Tensors<'a>(HashMap<&'a str, Stored<'a>>);

impl<'a> Tensors<'a> {
    /// The tensors of a list. Their values must fill the rest of the file without gaps, as every
    /// GGUF reader requires.
    fn placed(listed: Vec<TensorEntry<'a>>, alignment: u64, values: &'a [u8]) -> Result<Self, String> {
        let (mut tensors, mut at) = (HashMap::new(), 0);
        for TensorEntry { name, sizes, kind, start, end } in listed {
            if start != at {
                return Err(format!("the values of {name} begin at byte {start}, but the next free byte is {at}"));
            }
            let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
            let bytes = range.and_then(|(start, end)| values.get(start..end));
            let bytes = bytes.ok_or_else(|| format!("the values of {name} end at byte {end} of {}", values.len()))?;
            if tensors.insert(name, Stored { sizes, kind, bytes }).is_some() {
                return Err(format!("there are two tensors {name}"));
            }
            at = end.next_multiple_of(alignment); // not much beyond the end of the file
        }
        if (values.len() as u64) > at {
            return Err(format!("{} bytes follow the last tensor", values.len() as u64 - at));
        }
        Ok(Self(tensors))
    }

    pub fn get(&self, name: &str) -> Option<&Stored<'a>> {
        self.0.get(name)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().copied()
    }

    /// Hugging Face's tensor `name` with these sizes, outermost first.
    fn tensor(&self, shape: &Shape, name: String, sizes: Vec<usize>) -> Result<Tensor<'a>, String> {
        let (stored_name, layout) = gguf_name(shape, &name).ok_or_else(|| format!("{name} has no name in GGUF"))?;
        let stored = self.get(&stored_name).ok_or_else(|| format!("tensor {stored_name} is missing"))?.clone();
        let mut expected = sizes.clone();
        if layout != Layout::Transposed {
            expected.reverse();
        }
        if stored.sizes != expected {
            return Err(format!("tensor {stored_name} is {:?}, but its keys need {expected:?}", stored.sizes));
        }
        let columns = sizes[1..].iter().product::<usize>();
        Ok(Tensor::new(name, sizes, stored.kind.plain(), move || {
            let values = stored.values();
            Ok(match layout {
                Layout::Same => values,
                Layout::Transposed => layout::transposed(&values, stored.sizes[0]).into(),
                Layout::Paired { heads } => layout::unpaired(&values, heads, columns).into(),
            })
        }))
    }
}

/// Longest tensor name, in bytes; llama.cpp allows 63.
const LONGEST_NAME: usize = 200;

/// An entry of the tensor list that precedes the values.
struct TensorEntry<'a> {
    name: &'a str,
    /// Innermost dimension first.
    sizes: Vec<usize>,
    kind: Kind,
    /// Byte range of its values, relative to the start of all values.
    start: u64,
    end: u64,
}

impl<'a> TensorEntry<'a> {
    fn read(from: &mut Cursor<'a>, alignment: u64) -> Result<Self, String> {
        let name = from.text()?;
        if name.len() > LONGEST_NAME {
            return Err(format!("a tensor's name has {} bytes", name.len()));
        }
        let dimensions = from.u32()?;
        if !(1..=4).contains(&dimensions) {
            return Err(format!("tensor {name} has {dimensions} dimensions"));
        }
        let sizes: Vec<u64> = (0..dimensions).map(|_| from.u64()).collect::<Result<_, String>>()?;
        let kind = Kind::of(from.u32()?);
        let start = from.u64()?;
        let bytes = kind.bytes(&sizes).ok_or_else(|| format!("tensor {name} has the sizes {sizes:?}"))?;
        let end = start.checked_add(bytes).filter(|_| start.is_multiple_of(alignment));
        let end = end.ok_or_else(|| format!("the values of {name} begin at byte {start}"))?;
        Ok(Self { name, sizes: sizes.into_iter().map(|size| size as usize).collect(), kind, start, end })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_of_the_other_byte_order_is_called_that() {
        let line = begin(&mut Cursor::new(b"GGUF\0\0\0\x03")).unwrap_err();
        assert!(line.starts_with("it is big-endian; "), "{line}");
    }
}
