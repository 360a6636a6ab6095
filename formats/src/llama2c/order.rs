//! The order of the values in a file.

use crate::Shape;

/// A contiguous part of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A tensor by Hugging Face's name, of a block or of the model.
    Tensor(String),
    /// The cosines and then the sines of the rotary angles, `positions * head_size / 2` of each.
    Angles,
}

/// The parts after the header of a model of this shape.
pub type Order = fn(&Shape) -> Vec<Part>;

/// The parts after a header of the first version.
pub fn first(shape: &Shape) -> Vec<Part> {
    let mut parts = vec![whole("model.embed_tokens")];
    parts.extend(blocks(shape, &["input_layernorm"]));
    parts.extend(blocks(shape, &ATTENTION));
    parts.extend(blocks(shape, &["post_attention_layernorm"]));
    parts.extend(blocks(shape, &MLP));
    parts.extend([whole("model.norm"), Part::Angles]);
    with_head(parts, shape)
}

/// The parts after a header of the second version.
pub fn second(shape: &Shape) -> Vec<Part> {
    let mut parts = blocks(shape, &["input_layernorm", "post_attention_layernorm"]);
    parts.extend([whole("model.norm"), whole("model.embed_tokens")]);
    parts.extend(blocks(shape, &ATTENTION));
    parts.extend(blocks(shape, &MLP));
    with_head(parts, shape)
}

/// `wq`, `wk`, `wv` and `wo`.
const ATTENTION: [&str; 4] = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"];

/// `w1`, `w2` and `w3`.
const MLP: [&str; 3] = ["mlp.gate_proj", "mlp.down_proj", "mlp.up_proj"];

/// Each of these modules for all blocks, one module after the other.
fn blocks(shape: &Shape, modules: &[&str]) -> Vec<Part> {
    let layers = |module| (0..shape.n_layer).map(move |layer| whole(&format!("model.layers.{layer}.{module}")));
    modules.iter().flat_map(layers).collect()
}

fn whole(module: &str) -> Part {
    Part::Tensor(format!("{module}.weight"))
}

fn with_head(mut parts: Vec<Part>, shape: &Shape) -> Vec<Part> {
    if !shape.tied_head {
        parts.push(whole("lm_head"));
    }
    parts
}

/// The number of heads in a tensor whose rows are ordered differently from Hugging Face's, which
/// are those with rotary positions.
pub fn rotary_heads(shape: &Shape, name: &str) -> Option<usize> {
    match name.rsplit('.').nth(1)? {
        "q_proj" => Some(shape.n_head),
        "k_proj" => Some(shape.n_kv_head),
        _ => None,
    }
}
