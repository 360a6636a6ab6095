//! Writes a model as a GGUF file.

use std::{borrow::Cow, io, io::Write, path::Path};

use ember_host::output::{check_replaces, write_output};

use super::blocks::{block, encode, file_type, number};
use super::header::{Header, put_text};
use super::names::{Layout, gguf_name};
use super::{ALIGNMENT, MAGIC, VERSION, sampling, tokens};
use crate::error::{FormatError, Result};
use crate::{Architecture, Model, NumberType, Shape, Tensor, layout, numbers};

/// Writes a model to `path`, its matrices as `kind`, atomically; `name` is the model's name in the
/// file.
///
/// Vectors and learned positions stay float32, as llama.cpp requires. A matrix whose rows are not a
/// multiple of 32 values cannot be Q8_0 or Q4_0 and becomes F16. In a Q4_0 file the embedding and
/// the head are Q8_0, since they affect every token.
///
/// # Errors
/// When GGUF cannot express the tokenizer, a tensor cannot be read or has a value that its type
/// cannot hold, the file cannot be written, or another kind of file exists at `path`.
pub fn write(model: &Model, kind: NumberType, name: &str, path: &Path) -> Result<()> {
    check_replaces(path, "a GGUF", |bytes| bytes.starts_with(MAGIC))?;
    let header = header(model, kind, name)?;
    let (tensors, list) = plan(model, kind)?;
    write_output(path, |out| {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&(tensors.len() as u64).to_le_bytes())?;
        out.write_all(&header.count().to_le_bytes())?;
        out.write_all(header.bytes())?;
        out.write_all(&list)?;
        let before = MAGIC.len() + 4 + 8 + 8 + header.bytes().len() + list.len();
        out.write_all(&vec![0; before.next_multiple_of(ALIGNMENT) - before])?;
        for tensor in &tensors {
            let values = tensor.values().map_err(io::Error::other)?;
            numbers::check(&tensor.tensor.name, tensor.kind, &values).map_err(io::Error::other)?;
            write_values(out, &values, tensor.kind)?;
        }
        Ok(())
    })?;
    Ok(())
}

/// The keys that describe the model.
fn header(model: &Model, kind: NumberType, name: &str) -> Result<Header> {
    let Shape { architecture, norm_epsilon, rope_theta, .. } = model.shape;
    let Shape { vocab_size, context_length, n_layer, n_head, n_kv_head, head_size, n_embd, n_inner, .. } = model.shape;
    let mut header = Header::default();
    header.string("general.architecture", architecture.name());
    header.string("general.name", name);
    header.u32("general.file_type", file_type(kind));
    if matches!(kind, NumberType::Q8_0 | NumberType::Q4_0) {
        header.u32("general.quantization_version", 2); // of ggml's blocks, since 2023
    }
    sampling::write(&model.generation, &mut header);
    let key = |key: &str| format!("{}.{key}", architecture.name());
    let mut size = |name: &str, size: usize| {
        // `Shape::check` keeps every size far below.
        header.u32(&key(name), u32::try_from(size).unwrap_or(u32::MAX));
    };
    size("vocab_size", vocab_size);
    size("context_length", context_length);
    size("embedding_length", n_embd);
    size("block_count", n_layer);
    size("feed_forward_length", n_inner);
    size("attention.head_count", n_head);
    if architecture == Architecture::Gpt2 {
        header.f32(&key("attention.layer_norm_epsilon"), norm_epsilon as f32);
    } else {
        size("attention.head_count_kv", n_kv_head);
        size("attention.key_length", head_size);
        size("attention.value_length", head_size);
        size("rope.dimension_count", head_size);
        header.f32(&key("attention.layer_norm_rms_epsilon"), norm_epsilon as f32);
        header.f32(&key("rope.freq_base"), rope_theta as f32);
    }
    match &model.tokenizer {
        Some(tokenizer) => tokens::write(tokenizer, vocab_size, &mut header)?,
        None => header.string("tokenizer.ggml.model", "none"), // ids in, ids out
    }
    Ok(header)
}

/// A tensor to be written.
struct Planned<'m, 'a> {
    tensor: &'m Tensor<'a>,
    layout: Layout,
    kind: NumberType,
}

impl<'a> Planned<'_, 'a> {
    /// The values in the file's layout.
    fn values(&self) -> Result<Cow<'a, [f32]>> {
        let values = self.tensor.values()?;
        let columns = self.tensor.shape[1..].iter().product();
        Ok(match self.layout {
            Layout::Same => values,
            Layout::Transposed => layout::transposed(&values, columns).into(),
            Layout::Paired { heads } => layout::paired(&values, heads, columns).into(),
        })
    }
}

/// The tensors to be written, and the serialized list of them that precedes their values.
fn plan<'m, 'a>(model: &'m Model<'a>, kind: NumberType) -> Result<(Vec<Planned<'m, 'a>>, Vec<u8>)> {
    let (mut planned, mut list, mut at) = (Vec::new(), Vec::new(), 0);
    for tensor in &model.tensors {
        let (name, layout) = gguf_name(&model.shape, &tensor.name)
            .ok_or_else(|| FormatError::CannotSay { format: "GGUF", what: format!("a tensor {}", tensor.name) })?;
        let mut sizes = tensor.shape.clone();
        if layout != Layout::Transposed {
            sizes.reverse(); // innermost dimension first
        }
        let kind = tensor_type(&name, &sizes, kind);
        put_text(&mut list, &name);
        list.extend((sizes.len() as u32).to_le_bytes());
        list.extend(sizes.iter().flat_map(|&size| (size as u64).to_le_bytes()));
        list.extend(number(kind).to_le_bytes());
        list.extend((at as u64).to_le_bytes());
        at += encoded_bytes(sizes.iter().product(), kind).next_multiple_of(ALIGNMENT);
        planned.push(Planned { tensor, layout, kind });
    }
    Ok((planned, list))
}

/// The type of a tensor in a file of mostly `kind`; sizes are innermost first.
fn tensor_type(name: &str, sizes: &[usize], kind: NumberType) -> NumberType {
    let is_vector = sizes.len() == 1 || name.starts_with("position_embd");
    let is_table = name.starts_with("token_embd") || name.starts_with("output.");
    match kind {
        _ if is_vector => NumberType::F32,
        _ if !sizes[0].is_multiple_of(block(kind).0) => NumberType::F16,
        NumberType::Q4_0 if is_table => NumberType::Q8_0,
        kind => kind,
    }
}

fn encoded_bytes(count: usize, kind: NumberType) -> usize {
    let (values, bytes) = block(kind);
    count / values * bytes
}

/// Writes values, with zero padding up to the next tensor.
fn write_values(out: &mut dyn Write, values: &[f32], kind: NumberType) -> io::Result<()> {
    numbers::write(values, |part, bytes| encode(kind, part, bytes), out)?;
    let written = encoded_bytes(values.len(), kind);
    out.write_all(&vec![0; written.next_multiple_of(ALIGNMENT) - written])
}
