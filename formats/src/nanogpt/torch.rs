//! Reads the files of `torch.save`: a zip with a pickle and the bytes of its tensors.

use std::collections::HashMap;

use rawzip::{CompressionMethod, ZipArchive};

use super::pickle::{Pickle, Value};
use crate::NumberType;

/// An archive of torch's; nothing is copied.
pub struct Archive<'a> {
    file: &'a [u8],
    /// Byte range of each file in the zip, by its path within the archive's single folder.
    ranges: HashMap<String, (usize, usize)>,
}

impl<'a> Archive<'a> {
    /// Reads the zip's directory.
    pub fn open(file: &'a [u8]) -> Result<Self, String> {
        let damaged = |error: rawzip::Error| format!("as a zip: {error}");
        let archive = ZipArchive::from_slice(file).map_err(damaged)?;
        let mut ranges = HashMap::new();
        let mut entries = archive.entries();
        while let Some(entry) = entries.next_entry().map_err(damaged)? {
            let name = String::from_utf8_lossy(entry.file_path().as_bytes()).into_owned();
            if entry.compression_method() != CompressionMethod::STORE {
                return Err(format!("{name} is compressed, which torch.save never does"));
            }
            let (from, to) = archive.get_entry(entry.wayfinder()).map_err(damaged)?.compressed_data_range();
            let range = usize::try_from(from)
                .ok()
                .zip(usize::try_from(to).ok())
                .filter(|(from, to)| from <= to && *to <= file.len());
            let range = range.ok_or_else(|| format!("{name} extends beyond the file"))?;
            let inner = name.split_once('/').map_or(name.clone(), |(_, inner)| inner.to_owned());
            if ranges.insert(inner, range).is_some() {
                return Err(format!("it has two files {name}"));
            }
        }
        Ok(Self { file, ranges })
    }

    /// The parsed pickle.
    pub fn pickle(&self) -> Result<Pickle, String> {
        let (from, to) = self.ranges.get("data.pkl").ok_or("it holds no data.pkl; give what torch.save wrote")?;
        let order = self.ranges.get("byteorder").map(|(from, to)| &self.file[*from..*to]);
        if order.is_some_and(|order| order != b"little") {
            return Err("its numbers are not little-endian".to_owned());
        }
        Pickle::read(&self.file[*from..*to])
    }

    /// The tensor described by a record of a pickle.
    pub fn tensor(&self, pickle: &Pickle, record: &Value) -> Result<Record<'a>, String> {
        let wrong = || "a tensor of its pickle is not as torch.save writes it".to_owned();
        // The arguments of `_rebuild_tensor_v2`; of the storage's id only the class and the file's
        // name matter.
        let Value::Tensor(arguments) = record else { return Err(wrong()) };
        let arguments = pickle.tuple(pickle.value(*arguments)).ok_or_else(wrong)?;
        let [storage, offset, sizes, strides, ..] = arguments.as_slice() else { return Err(wrong()) };
        let Value::Persistent(id) = storage else { return Err(wrong()) };
        let id = pickle.tuple(pickle.value(*id)).ok_or_else(wrong)?;
        let [_, Value::Global(class), Value::Text(key), ..] = id.as_slice() else { return Err(wrong()) };
        let (kind, bytes) = match class.as_str() {
            "torch.FloatStorage" => (NumberType::F32, 4),
            "torch.HalfStorage" => (NumberType::F16, 2),
            "torch.BFloat16Storage" => (NumberType::Bf16, 2),
            other => return Err(format!("a weight is in a {other}; only float32, float16 and bfloat16 can be read")),
        };
        let sizes = sizes_of(pickle, sizes).ok_or_else(wrong)?;
        if !is_contiguous(&sizes, &sizes_of(pickle, strides).ok_or_else(wrong)?) {
            return Err("a weight is not contiguous; save the checkpoint again".to_owned());
        }
        let file = *self
            .ranges
            .get(&format!("data/{key}"))
            .ok_or_else(|| format!("the file data/{} is missing", key.escape_default()))?;
        let Value::Whole(offset) = offset else { return Err(wrong()) };
        let Some(range) = value_range(file, *offset, &sizes, bytes) else {
            let (from, to) = file;
            return Err(format!("a weight of the sizes {sizes:?} extends beyond its file of {} bytes", to - from));
        };
        Ok(Record { sizes, kind, range, bytes: &self.file[range.0..range.1] })
    }
}

/// A tensor of the archive.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// Outermost dimension first.
    pub sizes: Vec<usize>,
    pub kind: NumberType,
    /// Byte range in the whole file.
    pub range: (usize, usize),
    pub bytes: &'a [u8],
}

/// The byte range of a tensor whose first value has index `offset` among the values in bytes
/// `from..to`; `None` if it exceeds that range.
fn value_range((from, to): (usize, usize), offset: i64, sizes: &[usize], value_bytes: usize) -> Option<(usize, usize)> {
    let start = usize::try_from(offset).ok()?.checked_mul(value_bytes)?.checked_add(from)?;
    let count = sizes.iter().try_fold(1usize, |count, size| count.checked_mul(*size))?;
    let end = start.checked_add(count.checked_mul(value_bytes)?)?;
    (end <= to).then_some((start, end))
}

fn sizes_of(pickle: &Pickle, value: &Value) -> Option<Vec<usize>> {
    let size = |value: &Value| if let Value::Whole(size) = value { usize::try_from(*size).ok() } else { None };
    pickle.tuple(value)?.into_iter().map(size).collect()
}

/// Whether the values are in row-major order without gaps.
fn is_contiguous(sizes: &[usize], strides: &[usize]) -> bool {
    let mut step = 1;
    let in_order = sizes.iter().zip(strides).rev().all(|(size, stride)| {
        let fits = *size == 1 || *stride == step;
        step = step.saturating_mul(*size);
        fits
    });
    in_order && sizes.len() == strides.len()
}
