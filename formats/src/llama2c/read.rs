//! Opens and reads a file.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Map;

use super::order::{Order, Part, first, rotary_heads, second};
use super::{EPSILON, HEADER, MAGIC, ROPE_THETA, TOKENIZER, tokens};
use crate::error::{FormatError, Result};
use crate::{Architecture, Model, NumberType, Shape, Tensor, layout, mapped::Mapped, names, numbers};

/// Byte range of each tensor.
type Ranges = HashMap<String, (usize, usize)>;

/// A file of llama2.c, memory-mapped, and the tokenizer beside it.
#[derive(Debug)]
pub struct File {
    weights: Mapped,
    tokenizer: Option<Mapped>,
}

impl File {
    /// Opens a file and the `tokenizer.bin` beside it, if it exists.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        let tokenizer_path = path.with_file_name(TOKENIZER);
        let tokenizer = tokenizer_path.is_file().then(|| Mapped::open(&tokenizer_path)).transpose()?;
        Ok(Self { weights: Mapped::open(path)?, tokenizer })
    }

    /// The files that are read.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        [Some(&self.weights), self.tokenizer.as_ref()].into_iter().flatten().map(Mapped::path)
    }

    /// The model; its tensors' values stay in the file until they are read.
    ///
    /// # Errors
    /// When the length of the file differs from its header, or its version is unknown.
    pub fn model(&self) -> Result<Model<'_>> {
        let (shape, ranges) = self.shape_and_ranges()?;
        let tensors = names::tensors(&shape).into_iter().map(|(name, sizes)| {
            let (from, to) = ranges[&name];
            tensor(&shape, name, sizes, &self.weights[from..to])
        });
        let tensors = tensors.collect();
        let wrong = |file: &Mapped, what| FormatError::unsupported(file.path(), what);
        let read = |file: &Mapped| tokens::read(file, shape.vocab_size).map_err(|what| wrong(file, what));
        let tokenizer = self.tokenizer.as_ref().map(read).transpose()?;
        Ok(Model { shape, tensors, tokenizer, generation: Map::new() })
    }

    /// The shape, and the byte range of each tensor.
    ///
    /// # Errors
    /// When the length of the file differs from its header, or its version is unknown; the
    /// tokenizer is not checked.
    pub(super) fn shape_and_ranges(&self) -> Result<(Shape, Ranges)> {
        let path = self.weights.path();
        let (shape, parts, start) = header(&self.weights).map_err(|what| FormatError::unsupported(path, what))?;
        let ranges = ranges(&shape, parts, start, self.weights.len()).map_err(|why| FormatError::damaged(path, why))?;
        Ok((shape, ranges))
    }
}

/// Parses the header: the shape, the order of the parts, and where they begin.
fn header(file: &[u8]) -> Result<(Shape, Order, usize), String> {
    let short = || format!("it has {} bytes, fewer than a header", file.len());
    if !file.starts_with(&MAGIC) {
        let sizes: [i32; SIZES] = integers(file).ok_or_else(short)?;
        return Ok((shape(sizes, sizes[VOCABULARY] > 0)?, first, size_of_val(&sizes)));
    }
    let [_, version]: [i32; 2] = integers(file).ok_or_else(short)?;
    if version != 1 {
        return Err(format!(
            "it is version {version} of llama2.c's format; only 0 and 1 can be read: export it again as version 1"
        ));
    }
    let (_, rest) = file.split_at(8); // the magic number and the version
    let sizes: [i32; SIZES] = integers(rest).filter(|_| file.len() >= HEADER).ok_or_else(short)?;
    let is_tied = rest[size_of_val(&sizes)] != 0;
    Ok((shape(sizes, is_tied)?, second, HEADER))
}

/// The leading integers of `bytes`, if there are enough.
fn integers<const N: usize>(bytes: &[u8]) -> Option<[i32; N]> {
    let integers: [[u8; 4]; N] = *bytes.as_chunks::<4>().0.first_chunk()?;
    Some(integers.map(i32::from_le_bytes))
}

/// Number of sizes in a header, and index of the vocabulary size.
const SIZES: usize = 7;
const VOCABULARY: usize = 5;

/// The shape given by the sizes of a header, in order. A negative vocabulary size carries a flag;
/// any other negative size is invalid.
fn shape(sizes: [i32; SIZES], tied_head: bool) -> Result<Shape, String> {
    let [n_embd, n_inner, n_layer, n_head, n_kv_head, _, context_length] =
        sizes.map(|size| usize::try_from(size).unwrap_or(0));
    let shape = Shape {
        architecture: Architecture::Llama,
        vocab_size: sizes[VOCABULARY].unsigned_abs() as usize,
        context_length,
        n_layer,
        n_head,
        n_kv_head,
        head_size: n_embd / n_head.max(1),
        n_embd,
        n_inner,
        norm_epsilon: EPSILON,
        rope_theta: ROPE_THETA,
        bias: false,
        tied_head,
        exact_gelu: false,
    };
    shape.check()?;
    if shape.query_width() != n_embd {
        return Err(format!("its {n_head} heads do not divide its width of {n_embd}"));
    }
    Ok(shape)
}

/// The tensors' byte ranges, in a file that must be exactly as long as its header implies.
fn ranges(shape: &Shape, parts: Order, start: usize, length: usize) -> Result<Ranges, String> {
    let announced = content_bytes(shape, parts) + start as u128;
    if announced != length as u128 {
        return Err(format!("its header needs {announced} bytes, but the file has {length}"));
    }
    let sizes: HashMap<String, Vec<usize>> = names::tensors(shape).into_iter().collect();
    let (mut ranges, mut at) = (HashMap::new(), start);
    for part in parts(shape) {
        match part {
            Part::Angles => at += 4 * shape.context_length * shape.head_size,
            Part::Tensor(name) => {
                let end = at + 4 * sizes[&name].iter().product::<usize>();
                ranges.insert(name, (at, end));
                at = end;
            }
        }
    }
    Ok(ranges)
}

/// Bytes after the header, computed without listing all blocks: each has the same size.
fn content_bytes(shape: &Shape, parts: Order) -> u128 {
    let with = |n_layer: usize| Shape { n_layer, ..shape.clone() };
    let values = |shape: &Shape| -> u128 {
        let count = |sizes: &Vec<usize>| sizes.iter().map(|&size| size as u128).product::<u128>();
        names::tensors(shape).iter().map(|(_, sizes)| count(sizes)).sum()
    };
    let (one, two) = (values(&with(1)), values(&with(2)));
    let angles = shape.context_length as u128 * shape.head_size as u128;
    let angles = if parts(&with(1)).contains(&Part::Angles) { angles } else { 0 };
    4 * (one + (two - one) * (shape.n_layer as u128 - 1) + angles)
}

fn tensor<'a>(shape: &Shape, name: String, sizes: Vec<usize>, bytes: &'a [u8]) -> Tensor<'a> {
    let (heads, columns) = (rotary_heads(shape, &name), sizes[1..].iter().product());
    Tensor::new(name, sizes, NumberType::F32, move || {
        let values = numbers::f32s(bytes);
        Ok(match heads {
            Some(heads) => layout::unpaired(&values, heads, columns).into(),
            None => values,
        })
    })
}
