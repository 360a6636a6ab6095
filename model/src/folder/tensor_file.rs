//! One safetensors file, read and written one tensor at a time.
//!
//! The format: eight bytes with the header's length (little endian), the header (a JSON object:
//! name to dtype, shape and byte range), then the values. Files are mapped into memory: float32 is
//! used in place, and nothing is copied twice. The price is that truncating a file while it is
//! being read ends the process: our programs with a line, on Linux, others by a signal. Programs
//! that save a model, ours included, write a new file and rename it.

#![allow(unsafe_code)] // maps files

use std::io::{self, BufWriter, IntoInnerError, Write};
use std::{borrow::Cow, fs::File, path::Path, path::PathBuf};

use ember_host::file_error::At;
use half::{bf16, f16};
use memmap2::Mmap;
use rayon::prelude::*;
use safetensors::{Dtype, tensor::Metadata};
use serde_json::{Map, Value, json};

use super::error::{FolderError, Result};

/// A tensor between disk and model: its values in row-major order, always float32 in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// GPT-2's name without prefix, such as `h.0.attn.c_attn.weight`.
    pub name: String,
    /// Sizes from the outermost dimension to the innermost; matrices are `[in, out]`, as GPT-2's
    /// are.
    pub shape: Vec<usize>,
    /// As many values as the product of `shape`.
    pub values: Vec<f32>,
}

/// Longest header that is accepted, in bytes; the `safetensors` library has the same limit.
const LONGEST_HEADER_BYTES: u64 = 100_000_000;

/// An open safetensors file whose header has been checked against the file's length.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    map: Mmap,
    header: Metadata,
    /// Where the values begin, in bytes from the start of the file.
    values_start: usize,
}

impl TensorFile {
    /// Opens a file and reads its header, no values yet.
    ///
    /// # Errors
    /// When the file cannot be read, is truncated, or is no safetensors file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).at("cannot open", path)?;
        // SAFETY: the bytes may change while they are read; whatever they become, they are either
        // numbers or checked.
        let map = unsafe { Mmap::map(&file) }.at("cannot read", path)?;
        if map.starts_with(b"version ") {
            let what = "is a Git LFS pointer and not the weights; fetch them with `git lfs pull`";
            return Err(FolderError::damaged(path, what));
        }
        let Some((header_bytes, rest)) = map.split_first_chunk::<8>() else {
            return Err(damaged(path, "it is shorter than any safetensors file"));
        };
        let header_bytes = u64::from_le_bytes(*header_bytes);
        if header_bytes > LONGEST_HEADER_BYTES || header_bytes > rest.len() as u64 {
            return Err(damaged(path, "its header is truncated or invalid"));
        }
        let (text, values) = rest.split_at(header_bytes as usize);
        let header: Metadata = serde_json::from_slice(text).map_err(|error| damaged(path, &error.to_string()))?;
        let (needed, stored) = (header.data_len(), values.len());
        if needed != stored {
            return Err(damaged(path, &format!("its header says {needed} bytes of values, but {stored} follow")));
        }
        let values_start = map.len() - stored;
        Ok(Self { path: path.to_owned(), map, header, values_start })
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the tensors, in the order of their values in the file.
    pub fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// Shape of a tensor, if there is one of that name.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.header.info(name).map(|info| info.shape.as_slice())
    }

    /// Reads one tensor; float64, float16 and bfloat16 become float32.
    ///
    /// # Errors
    /// When there is no such tensor, or it does not hold floating-point numbers.
    pub fn read(&self, name: &str) -> Result<NamedTensor> {
        let shape = self.shape(name).unwrap_or_default().to_vec();
        Ok(NamedTensor { name: name.to_owned(), shape, values: self.values(name)?.into_owned() })
    }

    /// The values of one tensor: borrowed from the file if they are float32, else converted.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn values(&self, name: &str) -> Result<Cow<'_, [f32]>> {
        let Some(info) = self.header.info(name) else {
            return Err(FolderError::damaged(&self.path, format!("holds no tensor {name}")));
        };
        let (start, end) = info.data_offsets;
        let Some(values) = decode(info.dtype, &self.map[self.values_start..][start..end]) else {
            let what = format!(
                "tensor {name} holds {} numbers; only F32, F16, BF16 and F64 can be read: save the model as one of them",
                info.dtype
            );
            return Err(FolderError::mismatch(&self.path, what));
        };
        Ok(values)
    }
}

fn damaged(path: &Path, why: &str) -> FolderError {
    FolderError::damaged(path, format!("is truncated or damaged ({why}); copy or download it again"))
}

fn decode(dtype: Dtype, bytes: &[u8]) -> Option<Cow<'_, [f32]>> {
    fn each<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32 + Sync) -> Option<Cow<'_, [f32]>> {
        let (values, rest) = bytes.as_chunks::<N>();
        rest.is_empty().then(|| values.par_iter().map(|bytes| value(*bytes)).collect::<Vec<_>>().into())
    }
    match dtype {
        Dtype::F32 => in_place(bytes).map(Cow::Borrowed).or_else(|| each(bytes, f32::from_le_bytes)),
        Dtype::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()),
        Dtype::BF16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        Dtype::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
        _ => None,
    }
}

/// Reinterprets bytes as float32 values, if they are aligned and the processor is little endian
/// like the file.
fn in_place(bytes: &[u8]) -> Option<&[f32]> {
    if cfg!(target_endian = "little") { bytemuck::try_cast_slice(bytes).ok() } else { None }
}

/// Writes tensors as float32 into one safetensors file and waits until it is on the disk.
///
/// # Errors
/// When the file cannot be written, two tensors share a name, or a tensor's values are not as many
/// as its shape says.
pub fn write_tensors<'a>(path: &Path, tensors: impl IntoIterator<Item = &'a NamedTensor>) -> Result<()> {
    let entry = |tensor: &'a NamedTensor| Entry {
        name: tensor.name.clone(),
        shape: tensor.shape.clone(),
        values: Box::new(|| Cow::Borrowed(&tensor.values)),
    };
    write_entries(path, tensors.into_iter().map(entry).collect())
}

/// A tensor to write, whose values may be computed when they are needed.
pub struct Entry<'a> {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Box<dyn Fn() -> Cow<'a, [f32]> + 'a>,
}

/// As [`write_tensors`], computing the values of one tensor at a time.
pub fn write_entries(path: &Path, entries: Vec<Entry>) -> Result<()> {
    let header = header(&entries).map_err(|what| FolderError::mismatch(path, what))?;
    let write = || {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&header)?;
        for Entry { name, shape, values } in &entries {
            let values = values();
            let count = values.len();
            if count != shape.iter().product::<usize>() {
                return Err(io::Error::other(format!("tensor {name} {shape:?} has {count} values")));
            }
            write_values(&mut file, &values)?;
        }
        file.into_inner().map_err(IntoInnerError::into_error)?.sync_all()
    };
    write().map_err(FolderError::write(path))
}

/// The length and the header, padded with spaces so that the values begin at a multiple of eight
/// bytes.
fn header(entries: &[Entry]) -> Result<Vec<u8>, String> {
    let mut map = Map::new();
    // transformers refuses a file that does not say which framework's conventions it follows.
    map.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
    let mut start = 0;
    for Entry { name, shape, .. } in entries {
        let end = start + 4 * shape.iter().product::<usize>();
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] });
        if map.insert(name.clone(), entry).is_some() {
            return Err(format!("there are two tensors {name}"));
        }
        start = end;
    }
    let mut text = Value::Object(map).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok([&(text.len() as u64).to_le_bytes(), text.as_slice()].concat())
}

fn write_values(file: &mut impl Write, values: &[f32]) -> io::Result<()> {
    const VALUES_AT_A_TIME: usize = 1 << 16;
    let mut bytes = Vec::with_capacity(4 * VALUES_AT_A_TIME.min(values.len()));
    for part in values.chunks(VALUES_AT_A_TIME) {
        bytes.clear();
        bytes.extend(part.iter().flat_map(|value| value.to_le_bytes()));
        file.write_all(&bytes)?;
    }
    Ok(())
}
