//! One safetensors file, read and written a tensor at a time.
//!
//! The format: eight bytes with the header's length (little endian), the header (a JSON object: name to dtype, shape and
//! byte range), then the values. Files are read with ordinary reads and not mapped into memory, so a file that shrinks
//! while it is open is an error and not a signal.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, IntoInnerError, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::{Map, Value, json};

use super::{NamedTensor, cannot_write};

/// Longest header that is taken for one, in bytes; the `safetensors` library has the same limit.
const LONGEST_HEADER_BYTES: u64 = 100_000_000;

/// An open safetensors file whose header has been checked against the file's length.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    header: Metadata,
    /// Where the values begin, in bytes from the start of the file.
    values_start: u64,
}

impl TensorFile {
    /// Opens a file and reads its header, no values yet.
    ///
    /// # Errors
    /// When the file cannot be read, is truncated, or is no safetensors file.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let file_bytes = file.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();

        let mut start = Vec::new();
        (&mut file).take(8).read_to_end(&mut start).with_context(|| format!("cannot read {}", path.display()))?;
        if start.starts_with(b"version ") {
            bail!("{} is a Git LFS pointer and not the weights; fetch them with `git lfs pull`", path.display());
        }
        let header_bytes = match <[u8; 8]>::try_from(start.as_slice()) {
            Ok(length) => u64::from_le_bytes(length),
            Err(_) => return Err(damaged(path, "it is shorter than any safetensors file")),
        };
        if header_bytes > LONGEST_HEADER_BYTES || header_bytes > file_bytes - 8 {
            return Err(damaged(path, "its header is cut short or was never one"));
        }
        let mut text = vec![0; header_bytes as usize];
        file.read_exact(&mut text).with_context(|| format!("cannot read {}", path.display()))?;
        let header: Metadata = serde_json::from_slice(&text).map_err(|error| damaged(path, &error.to_string()))?;

        let values_start = 8 + header_bytes;
        let (needed, stored) = (header.data_len() as u64, file_bytes - values_start);
        if needed != stored {
            return Err(damaged(path, &format!("its header announces {needed} bytes of values and {stored} follow")));
        }
        Ok(Self { path: path.to_owned(), file, header, values_start })
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
    /// When there is no such tensor, it does not hold floating-point numbers, or the file cannot be read.
    pub fn read(&self, name: &str) -> Result<NamedTensor> {
        let info = self.header.info(name).with_context(|| format!("{} holds no tensor {name}", self.path.display()))?;
        let bytes =
            self.bytes(info).with_context(|| format!("cannot read tensor {name} of {}", self.path.display()))?;
        let Some(values) = decode(info.dtype, &bytes) else {
            bail!(
                "{}: tensor {name} holds {} numbers; only F32, F16, BF16 and F64 can be read, save the model as one of them",
                self.path.display(),
                info.dtype
            );
        };
        Ok(NamedTensor { name: name.to_owned(), shape: info.shape.clone(), values })
    }

    fn bytes(&self, info: &TensorInfo) -> std::io::Result<Vec<u8>> {
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0; end - start];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.values_start + start as u64))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

fn damaged(path: &Path, why: &str) -> anyhow::Error {
    anyhow::anyhow!("{} is truncated or damaged ({why}); copy or download it again", path.display())
}

fn decode(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    fn each<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32) -> Option<Vec<f32>> {
        let (values, rest) = bytes.as_chunks::<N>();
        rest.is_empty().then(|| values.iter().map(|bytes| value(*bytes)).collect())
    }
    match dtype {
        Dtype::F32 => each(bytes, f32::from_le_bytes),
        Dtype::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()),
        Dtype::BF16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        Dtype::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
        _ => None,
    }
}

/// Writes tensors as float32 into one safetensors file and waits until it is on the disk.
///
/// # Errors
/// When the file cannot be written, two tensors share a name, or a tensor's values are not as many as its shape says.
pub fn write_tensors<'a>(path: &Path, tensors: impl IntoIterator<Item = &'a NamedTensor>) -> Result<()> {
    let entry = |tensor: &'a NamedTensor| Entry {
        name: tensor.name.clone(),
        shape: tensor.shape.clone(),
        values: Box::new(|| Cow::Borrowed(&tensor.values)),
    };
    write_entries(path, tensors.into_iter().map(entry).collect())
}

/// A tensor to write, whose values may be made when their turn comes.
pub struct Entry<'a> {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Box<dyn Fn() -> Cow<'a, [f32]> + 'a>,
}

/// As [`write_tensors`], with the values of one tensor at a time.
pub fn write_entries(path: &Path, entries: Vec<Entry>) -> Result<()> {
    let header = header(&entries).with_context(|| path.display().to_string())?;
    let write = || -> Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&header)?;
        for Entry { name, shape, values } in entries {
            let values = values();
            let count = values.len();
            ensure!(count == shape.iter().product::<usize>(), "tensor {name} {shape:?} has {count} values");
            write_values(&mut file, &values)?;
        }
        Ok(file.into_inner().map_err(IntoInnerError::into_error)?.sync_all()?)
    };
    write().with_context(|| cannot_write(path))
}

/// The length and the header, padded with spaces so that the values begin at a multiple of eight bytes.
fn header(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut map = Map::new();
    // transformers refuses a file that does not say which framework's conventions it follows.
    map.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
    let mut start = 0;
    for Entry { name, shape, .. } in entries {
        let end = start + 4 * shape.iter().product::<usize>();
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] });
        ensure!(map.insert(name.clone(), entry).is_none(), "there are two tensors {name}");
        start = end;
    }
    let mut text = Value::Object(map).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok([&(text.len() as u64).to_le_bytes(), text.as_slice()].concat())
}

fn write_values(file: &mut impl Write, values: &[f32]) -> std::io::Result<()> {
    const VALUES_AT_A_TIME: usize = 1 << 16;
    let mut bytes = Vec::with_capacity(4 * VALUES_AT_A_TIME.min(values.len()));
    for part in values.chunks(VALUES_AT_A_TIME) {
        bytes.clear();
        bytes.extend(part.iter().flat_map(|value| value.to_le_bytes()));
        file.write_all(&bytes)?;
    }
    Ok(())
}
