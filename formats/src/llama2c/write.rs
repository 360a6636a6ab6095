//! Writes a model as a file of the first version, which `run.c` opens.

use std::{io, io::Write, path::Path};

use ember_host::output::{self, check_replaces, write_output};

use super::order::{Part, first, rotary_heads};
use super::{EPSILON, File, ROPE_THETA, TOKENIZER, tokens};
use crate::error::{FormatError, Result};
use crate::{Architecture, Model, NumberType, Shape, layout, numbers};

/// Writes a model to `path`, atomically, and its tokenizer to `tokenizer.bin` beside it.
///
/// # Errors
/// When llama2.c cannot compute such a model or express its tokenizer, a tensor cannot be read,
/// `path` is named as the tokenizer, another kind of file exists at `path`, the `tokenizer.bin`
/// beside it is neither this tokenizer nor that of the model being replaced, or a file cannot be
/// written.
pub fn write(model: &Model, path: &Path) -> Result<()> {
    check_file_name(path)?;
    let cannot = |what: String| FormatError::CannotSay { format: "llama2.c", what };
    check_supported(&model.shape).map_err(cannot)?;
    let tokenizer = model.tokenizer.as_ref().map(|tokenizer| tokens::bytes(tokenizer, model.shape.vocab_size));
    let tokenizer = tokenizer.transpose().map_err(cannot)?;
    let (is_model, has_tokenizer) = existing(path);
    check_replaces(path, "a model of llama2.c", |_| is_model)?;
    let tokenizer_path = path.with_file_name(TOKENIZER);
    if let Some(bytes) = &tokenizer {
        check_replaces(&tokenizer_path, "this model's tokenizer", |there| has_tokenizer || bytes.starts_with(there))?;
    }
    write_output(path, |out| {
        out.write_all(&header(&model.shape))?;
        first(&model.shape).into_iter().try_for_each(|part| write_part(model, part, out))
    })?;
    if let Some(bytes) = tokenizer {
        write_output(&tokenizer_path, |out| out.write_all(&bytes))?;
    }
    Ok(())
}

/// Rejects the tokenizer's file name, since the tokenizer would overwrite the model. Some file
/// systems ignore case.
fn check_file_name(path: &Path) -> Result<()> {
    if path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(TOKENIZER)) {
        let line = format!("cannot write {}: the model's tokenizer has that name; name another", path.display());
        return Err(output::Error::Refused(line).into());
    }
    Ok(())
}

/// Whether a model exists at `path`, and whether it opens together with the tokenizer beside it.
fn existing(path: &Path) -> (bool, bool) {
    File::open(path).map_or((false, false), |file| (file.shape_and_ranges().is_ok(), file.model().is_ok()))
}

/// Rejects models that `run.c` would compute differently.
fn check_supported(shape: &Shape) -> Result<(), String> {
    let name = shape.architecture.name();
    let Shape { norm_epsilon, rope_theta, head_size, n_head, n_embd, .. } = *shape;
    if shape.architecture != Architecture::Llama {
        return Err(format!("a model of the architecture {name}; it supports only llama"));
    }
    if shape.bias {
        return Err("biases".to_owned());
    }
    if shape.query_width() != n_embd {
        return Err(format!(
            "{n_head} heads of {head_size} in a width of {n_embd}; it takes equal shares of the width"
        ));
    }
    if rope_theta != ROPE_THETA {
        return Err(format!("rope_theta = {rope_theta}; it always uses {ROPE_THETA}"));
    }
    if norm_epsilon as f32 != EPSILON as f32 {
        return Err(format!("the norms' epsilon {norm_epsilon:e}; it always uses {EPSILON:e}"));
    }
    Ok(())
}

fn header(shape: &Shape) -> Vec<u8> {
    let Shape { vocab_size, context_length, n_layer, n_head, n_kv_head, n_embd, n_inner, tied_head, .. } = *shape;
    // `Shape::check` keeps every size far below.
    let number = |size: usize| i32::try_from(size).unwrap_or(i32::MAX);
    let vocabulary = if tied_head { number(vocab_size) } else { -number(vocab_size) };
    let numbers = [n_embd, n_inner, n_layer, n_head, n_kv_head].map(number);
    numbers.into_iter().chain([vocabulary, number(context_length)]).flat_map(i32::to_le_bytes).collect()
}

fn write_part(model: &Model, part: Part, out: &mut dyn Write) -> io::Result<()> {
    let shape = &model.shape;
    let Part::Tensor(name) = part else {
        return write_angles(shape, out);
    };
    let missing = || FormatError::CannotSay { format: "llama2.c", what: format!("a model without {name}") };
    let tensor = model.tensors.iter().find(|tensor| tensor.name == name).ok_or_else(missing);
    let tensor = tensor.map_err(io::Error::other)?;
    let values = tensor.values().map_err(io::Error::other)?;
    numbers::check(&name, NumberType::F32, &values).map_err(io::Error::other)?;
    match rotary_heads(shape, &name) {
        Some(heads) => write_values(&layout::paired(&values, heads, tensor.shape[1]), out),
        None => write_values(&values, out),
    }
}

fn write_values(values: &[f32], out: &mut dyn Write) -> io::Result<()> {
    numbers::write(values, |part, bytes| numbers::encode(NumberType::F32, part, bytes), out)
}

/// The tables of rotary angles, which `run.c` skips and older readers use.
fn write_angles(shape: &Shape, out: &mut dyn Write) -> io::Result<()> {
    let half = shape.head_size / 2;
    for function in [f32::cos, f32::sin] {
        for position in 0..shape.context_length {
            let angle = |pair: usize| position as f32 / (ROPE_THETA as f32).powf(pair as f32 / half as f32);
            let row: Vec<f32> = (0..half).map(|pair| function(angle(pair))).collect();
            write_values(&row, out)?;
        }
    }
    Ok(())
}
