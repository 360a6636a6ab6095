//! Reads the shape of a model from the keys of a file.

use super::keys::{Keys, Value};
use super::read::Tensors;
use crate::{Architecture, Shape, error::shown};

/// The shape of a file's model; some of it is known only from the tensors.
pub fn read(keys: &Keys, tensors: &Tensors) -> Result<Shape, String> {
    let architecture = architecture(keys)?;
    let name = architecture.name();
    check_supported_keys(keys, name)?;
    let key = |key: &str| format!("{name}.{key}");
    let size = |wanted: &str| {
        let size = keys.whole(&key(wanted)).and_then(|size| usize::try_from(size).ok());
        size.ok_or_else(|| format!("its key {} is missing or not a size", key(wanted)))
    };
    let size_or =
        |wanted: &str, default: usize| if keys.get(&key(wanted)).is_some() { size(wanted) } else { Ok(default) };
    let gpt2 = architecture == Architecture::Gpt2;
    let (n_embd, n_head) = (size("embedding_length")?, size("attention.head_count")?);
    let head_size = n_embd / n_head.max(1);
    let head_size = if gpt2 { head_size } else { size_or("attention.key_length", head_size)? };
    let rows = tensors.get("token_embd.weight").and_then(|table| table.sizes.get(1).copied());
    let epsilon = if gpt2 { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" };
    let shape = Shape {
        architecture,
        vocab_size: rows.ok_or("tensor token_embd.weight is missing or not a matrix")?,
        context_length: size("context_length")?,
        n_layer: size("block_count")?,
        n_head,
        n_kv_head: if gpt2 { n_head } else { size_or("attention.head_count_kv", n_head)? },
        head_size,
        n_embd,
        n_inner: size("feed_forward_length")?,
        norm_epsilon: real(keys, &key(epsilon))?.ok_or_else(|| format!("its key {} is missing", key(epsilon)))?,
        rope_theta: real(keys, &key("rope.freq_base"))?.unwrap_or(10_000.0),
        bias: gpt2 || tensors.get("blk.0.attn_q.bias").is_some(),
        tied_head: tensors.get("output.weight").is_none(),
        exact_gelu: false,
    };
    for (wanted, same_as) in [("attention.value_length", head_size), ("rope.dimension_count", head_size)] {
        if !gpt2 && size_or(wanted, same_as)? != same_as {
            return Err(format!(
                "{} is {}; only models where it is a head's width, {same_as}, are supported",
                key(wanted),
                size_or(wanted, same_as)?
            ));
        }
    }
    if shape.n_layer > tensors.count() {
        return Err(format!("it has {} tensors, but its keys say {} blocks", tensors.count(), shape.n_layer));
    }
    shape.check()?;
    Ok(shape)
}

/// The number under a key, if present.
fn real(keys: &Keys, key: &str) -> Result<Option<f64>, String> {
    let number = keys.real(key);
    match keys.get(key).is_some() && number.is_none() {
        true => Err(format!("its key {key} is not a number")),
        false => Ok(number),
    }
}

fn architecture(keys: &Keys) -> Result<Architecture, String> {
    let name = keys.text("general.architecture").unwrap_or_default();
    let known = [Architecture::Gpt2, Architecture::Llama, Architecture::Qwen3];
    known.into_iter().find(|known| known.name() == name).ok_or_else(|| {
        let name = shown(name);
        format!("its architecture is {name}; only \"gpt2\", \"llama\" and \"qwen3\" models can be opened")
    })
}

/// Rejects keys that change what llama.cpp computes.
fn check_supported_keys(keys: &Keys, name: &str) -> Result<(), String> {
    let scaling = keys.text(&format!("{name}.rope.scaling.type")).filter(|scaling| *scaling != "none");
    if let Some(scaling) = scaling {
        return Err(format!("its rotary positions are scaled ({}); only unscaled ones are supported", shown(scaling)));
    }
    let asks_for_more = |key: &str| Err(format!("its key {name}.{key} asks for an unsupported feature"));
    // Each of these is off if it is 0; a factor also if it is 1.
    let factors = ["logit_scale", "rope.scale_linear", "rope.scaling.factor"]; // the last also without a scaling type
    for key in ["expert_count", "attention.sliding_window", "attention.scale"].into_iter().chain(factors) {
        let is_off = match keys.get(&format!("{name}.{key}")) {
            None | Some(Value::Whole(0) | Value::Real(0.0)) => true,
            Some(Value::Real(1.0)) => factors.contains(&key),
            Some(_) => false,
        };
        if !is_off {
            return asks_for_more(key);
        }
    }
    // The defaults, which are the only supported values.
    let only = [
        ("attention.causal", Value::Flag(true)),
        ("rope.scaling.attn_factor", Value::Real(1.0)),
        ("rope.scaling.type", Value::Text("none")),
    ];
    for (key, value) in only {
        if keys.get(&format!("{name}.{key}")).is_some_and(|actual| actual != value) {
            return asks_for_more(key);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{header::Header, keys::Cursor};
    use super::*;

    /// The result of `ask` on a file whose only keys are written by `put`.
    fn asked<T>(put: impl FnOnce(&mut Header), ask: impl FnOnce(&Keys) -> T) -> T {
        let mut header = Header::default();
        put(&mut header);
        ask(&Keys::read(&mut Cursor::new(header.bytes()), header.count()).unwrap())
    }

    #[test]
    fn a_factor_of_attention_and_attention_to_what_follows_are_refused() {
        let refused = |put: &dyn Fn(&mut Header)| asked(put, |keys| check_supported_keys(keys, "llama"));
        refused(&|header| header.f32("llama.rope.scaling.attn_factor", 1.0)).unwrap();
        refused(&|header| header.bool("llama.attention.causal", true)).unwrap();
        let line = refused(&|header| header.f32("llama.rope.scaling.attn_factor", 2.0)).unwrap_err();
        assert_eq!(line, "its key llama.rope.scaling.attn_factor asks for an unsupported feature");
        refused(&|header| header.f32("llama.rope.scaling.attn_factor", 0.0)).unwrap_err();
        let line = refused(&|header| header.bool("llama.attention.causal", false)).unwrap_err();
        assert_eq!(line, "its key llama.attention.causal asks for an unsupported feature");
        refused(&|header| header.f32("llama.rope.scaling.factor", 2.0)).unwrap_err();
        refused(&|header| header.f32("llama.attention.scale", 0.0)).unwrap();
        refused(&|header| header.f32("llama.attention.scale", 1.0)).unwrap_err(); // in place of 1 / sqrt(head_size)
        refused(&|header| header.f32("llama.logit_scale", 1.0)).unwrap();
        refused(&|header| header.string("llama.rope.scaling.type", "none")).unwrap();
        refused(&|header| header.u32("llama.rope.scaling.type", 1)).unwrap_err();
    }

    #[test]
    fn a_number_that_is_a_text_is_refused() {
        let key = "llama.rope.freq_base";
        let line = asked(|header| header.string(key, "500000"), |keys| real(keys, key)).unwrap_err();
        assert_eq!(line, "its key llama.rope.freq_base is not a number");
        assert_eq!(asked(|header| header.f32(key, 5e5), |keys| real(keys, key)).unwrap(), Some(5e5));
        assert_eq!(asked(|_| {}, |keys| real(keys, key)).unwrap(), None);
    }
}
