//! A file, opened.

use std::{collections::HashMap, path::Path};

use super::keys::{Cursor, Keys, Read};
use super::names::{Layout, place};
use super::stored::Stored;
use super::{ALIGNMENT, MAGIC, shape, vocabulary};
use crate::error::{FormatError, Result};
use crate::{Model, Tensor, layout, mapped::Mapped, names};

/// A GGUF file, mapped.
#[derive(Debug)]
pub struct File(Mapped);

impl File {
    /// Opens a file, of which nothing is read yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self(Mapped::open(path)?))
    }

    /// The model, whose tensors stand in the file.
    ///
    /// # Errors
    /// When the file is damaged, or holds a model, numbers or a tokenizer that is not known here.
    pub fn model(&self) -> Result<Model<'_>> {
        let damaged = |why: String| FormatError::damaged(self.0.path(), why);
        let unsupported = |what: String| FormatError::unsupported(self.0.path(), what);
        let mut from = Cursor::new(&self.0);
        let (tensor_count, key_count) = begin(&mut from).map_err(unsupported)?;
        let keys = Keys::read(&mut from, key_count).map_err(damaged)?;
        let tensors = Tensors::read(&mut from, tensor_count, &keys, &self.0).map_err(damaged)?;
        let shape = shape::read(&keys, &tensors).map_err(unsupported)?;
        let tokenizer = vocabulary::read(&keys, shape.vocab_size).map_err(unsupported)?;
        let mut found = Vec::new();
        for (name, sizes) in names::tensors(&shape) {
            found.push(tensors.tensor(&shape, name, sizes).map_err(unsupported)?);
        }
        if tensors.count() != found.len() {
            let known: Vec<String> = found.iter().filter_map(|tensor| Some(place(&shape, &tensor.name)?.0)).collect();
            let other = tensors.names().find(|name| !known.iter().any(|known| known == name)).unwrap_or_default();
            return Err(unsupported(format!("tensor {other} belongs to no {} known here", shape.architecture.name())));
        }
        Ok(Model { shape, tensors: found, tokenizer })
    }
}

/// Reads what comes before the keys: how many tensors and keys follow.
fn begin(from: &mut Cursor) -> Read<(u64, u64)> {
    let is_gguf = from.take(MAGIC.len() as u64).is_ok_and(|magic| magic == MAGIC);
    if !is_gguf {
        return Err("it does not begin with GGUF; give a GGUF file".to_owned());
    }
    match from.u32()? {
        2 | 3 => Ok((from.u64()?, from.u64()?)),
        version => {
            Err(format!("it is of version {version} of GGUF, of which 2 and 3 are known; convert the model again"))
        }
    }
}

/// The tensors of a file by name.
pub struct Tensors<'a>(HashMap<&'a str, Stored<'a>>);

impl<'a> Tensors<'a> {
    /// Reads `count` tensors' names, sizes and places, and finds their values, which follow in
    /// `file`.
    fn read(from: &mut Cursor<'a>, count: u64, keys: &Keys, file: &'a [u8]) -> Read<Self> {
        let alignment = keys.whole("general.alignment").unwrap_or(ALIGNMENT as u64);
        if !alignment.is_power_of_two() || alignment > 1 << 20 {
            return Err(format!("its alignment is {alignment}"));
        }
        let mut listed = Vec::new();
        for _ in 0..count {
            listed.push(Listed::read(from, alignment)?);
        }
        let values = file.get((from.at() as u64).next_multiple_of(alignment) as usize..).unwrap_or_default();
        listed.sort_by_key(|tensor| tensor.from);
        if let Some([tensor, next]) = listed.array_windows().find(|[tensor, next]| tensor.to > next.from) {
            return Err(format!("the values of {} and {} overlap", tensor.name, next.name));
        }
        let mut tensors = HashMap::new();
        for Listed { name, sizes, kind, from, to } in listed {
            let bytes =
                usize::try_from(from).ok().zip(usize::try_from(to).ok()).and_then(|(from, to)| values.get(from..to));
            let bytes = bytes.ok_or_else(|| format!("the values of {name} end at byte {to} of {}", values.len()))?;
            if tensors.insert(name, Stored { sizes, kind, bytes }).is_some() {
                return Err(format!("there are two tensors {name}"));
            }
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

    /// What Hugging Face calls `name`, of these sizes from the outermost.
    fn tensor(&self, shape: &crate::Shape, name: String, sizes: Vec<usize>) -> Read<Tensor<'a>> {
        let (stored_name, layout) = place(shape, &name).ok_or_else(|| format!("{name} has no name in GGUF"))?;
        let stored = self.get(&stored_name).ok_or_else(|| format!("tensor {stored_name} is missing"))?.clone();
        let mut expected = sizes.clone();
        if layout != Layout::Transposed {
            expected.reverse();
        }
        if stored.sizes != expected {
            return Err(format!("tensor {stored_name} is {:?}, but its keys need {expected:?}", stored.sizes));
        }
        stored.kind.known(&stored_name)?;
        let columns = sizes[1..].iter().product::<usize>();
        let held_as = stored.kind.plain();
        Ok(Tensor::new(name, sizes, held_as, move || {
            let values = stored.values();
            Ok(match layout {
                Layout::Same => values,
                Layout::Transposed => layout::transposed(&values, stored.sizes[0]).into(),
                Layout::Paired { heads } => layout::in_halves(&values, heads, columns).into(),
            })
        }))
    }
}

/// A tensor as the list before the values has it.
struct Listed<'a> {
    name: &'a str,
    /// From the innermost dimension.
    sizes: Vec<usize>,
    kind: super::stored::Kind,
    /// Where its values begin and end, in bytes from where all begin.
    from: u64,
    to: u64,
}

impl<'a> Listed<'a> {
    fn read(from: &mut Cursor<'a>, alignment: u64) -> Read<Self> {
        let name = from.text()?;
        let dimensions = from.u32()?;
        if !(1..=4).contains(&dimensions) {
            return Err(format!("tensor {name} has {dimensions} dimensions"));
        }
        let sizes: Vec<u64> = (0..dimensions).map(|_| from.u64()).collect::<Read<_>>()?;
        let kind = super::stored::Kind::of(from.u32()?);
        let start = from.u64()?;
        let bytes = kind.bytes(&sizes).ok_or_else(|| format!("tensor {name} has the sizes {sizes:?}"))?;
        let to = start.checked_add(bytes).filter(|_| start.is_multiple_of(alignment));
        let to = to.ok_or_else(|| format!("the values of {name} begin at byte {start}"))?;
        Ok(Self { name, sizes: sizes.into_iter().map(|size| size as usize).collect(), kind, from: start, to })
    }
}
