//! The shape that the keys of a file say.

use super::keys::{Keys, Read, Value};
use super::read::Tensors;
use crate::{Architecture, Shape, error::shown};

/// The shape of a file's model, of which some is told by its tensors alone.
pub fn read(keys: &Keys, tensors: &Tensors) -> Read<Shape> {
    let architecture = architecture(keys)?;
    let name = architecture.name();
    refuse_what_differs(keys, name)?;
    let key = |key: &str| format!("{name}.{key}");
    let size = |wanted: &str| {
        let size = keys.whole(&key(wanted)).and_then(|size| usize::try_from(size).ok());
        size.ok_or_else(|| format!("its key {} is missing or no size", key(wanted)))
    };
    let or = |wanted: &str, default: usize| if keys.get(&key(wanted)).is_some() { size(wanted) } else { Ok(default) };
    let real = |wanted: &str, default: f64| keys.real(&key(wanted)).unwrap_or(default);
    let gpt2 = architecture == Architecture::Gpt2;
    let (n_embd, n_head) = (size("embedding_length")?, size("attention.head_count")?);
    let head_size = n_embd / n_head.max(1);
    let head_size = if gpt2 { head_size } else { or("attention.key_length", head_size)? };
    let rows = tensors.get("token_embd.weight").and_then(|table| table.sizes.get(1).copied());
    let epsilon = if gpt2 { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" };
    let shape = Shape {
        architecture,
        vocab_size: rows.ok_or("tensor token_embd.weight is missing or no matrix")?,
        context_length: size("context_length")?,
        n_layer: size("block_count")?,
        n_head,
        n_kv_head: if gpt2 { n_head } else { or("attention.head_count_kv", n_head)? },
        head_size,
        n_embd,
        n_inner: size("feed_forward_length")?,
        norm_epsilon: keys.real(&key(epsilon)).ok_or_else(|| format!("its key {} is missing", key(epsilon)))?,
        rope_theta: real("rope.freq_base", 10_000.0),
        bias: gpt2 || tensors.get("blk.0.attn_q.bias").is_some(),
        tied_head: tensors.get("output.weight").is_none(),
        exact_gelu: false,
    };
    for (wanted, same_as) in [("attention.value_length", head_size), ("rope.dimension_count", head_size)] {
        if !gpt2 && or(wanted, same_as)? != same_as {
            return Err(format!(
                "{} is {}; only models where it is a head's width, {same_as}, can be computed",
                key(wanted),
                or(wanted, same_as)?
            ));
        }
    }
    if shape.n_layer > tensors.count() {
        return Err(format!("it has {} tensors, and its keys say {} blocks", tensors.count(), shape.n_layer));
    }
    shape.check()?;
    Ok(shape)
}

fn architecture(keys: &Keys) -> Read<Architecture> {
    let name = keys.text("general.architecture").unwrap_or_default();
    let known = [Architecture::Gpt2, Architecture::Llama, Architecture::Qwen3];
    known.into_iter().find(|known| known.name() == name).ok_or_else(|| {
        let name = shown(name);
        format!("its architecture is {name}; only \"gpt2\", \"llama\" and \"qwen3\" models can be opened")
    })
}

/// Refuses keys under which llama.cpp computes something else.
fn refuse_what_differs(keys: &Keys, name: &str) -> Read<()> {
    let scaling = keys.text(&format!("{name}.rope.scaling.type")).filter(|scaling| *scaling != "none");
    if let Some(scaling) = scaling {
        return Err(format!(
            "its rotary positions are scaled ({}); only models where they are not can be computed",
            shown(scaling)
        ));
    }
    let others = [
        "expert_count",
        "attention.sliding_window",
        "attention.scale",
        "logit_scale",
        "rope.scale_linear",
        "rope.scaling.factor", // without a kind it scales, too
    ];
    for key in others {
        let key = format!("{name}.{key}");
        let is_set = |value: &Value| !matches!(value, Value::Whole(0) | Value::Real(0.0 | 1.0));
        if keys.get(&key).as_ref().is_some_and(is_set) {
            return Err(format!("its key {key} asks for what is not computed here"));
        }
    }
    Ok(())
}
