//! GGUF's names and layouts for the tensors of a Hugging Face folder.

use crate::{Architecture, Shape};

/// How the rows of a matrix in a file relate to Hugging Face's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Identical.
    Same,
    /// Transposed: GPT-2's matrices are `[in, out]`, all matrices in a file `[out, in]`.
    Transposed,
    /// Reordered within each head: Llama's rotary positions rotate the pairs `(i, i + half)` of a
    /// head in Hugging Face's layout, and adjacent rows in a file.
    Paired { heads: usize },
}

/// The GGUF name of Hugging Face's tensor `name`, and its layout; `None` for a name that the model
/// class does not have.
pub fn gguf_name(shape: &Shape, name: &str) -> Option<(String, Layout)> {
    let name = name.strip_prefix("transformer.").or_else(|| name.strip_prefix("model.")).unwrap_or(name);
    let whole = |module: &str| match module {
        "wte" | "embed_tokens" => Some("token_embd"),
        "wpe" => Some("position_embd"),
        "ln_f" | "norm" => Some("output_norm"),
        "lm_head" => Some("output"),
        _ => None,
    };
    let (module, kind) = name.rsplit_once('.')?;
    let Some((layer, module)) = ["h.", "layers."].iter().find_map(|list| module.strip_prefix(list)?.split_once('.'))
    else {
        return Some((format!("{}.{kind}", whole(module)?), Layout::Same));
    };
    let (module, layout) = in_block(shape, module, kind)?;
    Some((format!("blk.{layer}.{module}.{kind}"), layout))
}

/// As [`gguf_name`], inside a block.
fn in_block(shape: &Shape, module: &str, kind: &str) -> Option<(&'static str, Layout)> {
    let matrix = if kind == "weight" { Layout::Transposed } else { Layout::Same };
    let paired =
        |heads| if shape.architecture == Architecture::Llama { Layout::Paired { heads } } else { Layout::Same };
    Some(match module {
        "ln_1" | "input_layernorm" => ("attn_norm", Layout::Same),
        "attn.c_attn" => ("attn_qkv", matrix),
        "attn.c_proj" => ("attn_output", matrix),
        "self_attn.q_proj" => ("attn_q", paired(shape.n_head)),
        "self_attn.k_proj" => ("attn_k", paired(shape.n_kv_head)),
        "self_attn.v_proj" => ("attn_v", Layout::Same),
        "self_attn.q_norm" => ("attn_q_norm", Layout::Same),
        "self_attn.k_norm" => ("attn_k_norm", Layout::Same),
        "self_attn.o_proj" => ("attn_output", Layout::Same),
        "ln_2" | "post_attention_layernorm" => ("ffn_norm", Layout::Same),
        "mlp.c_fc" => ("ffn_up", matrix),
        "mlp.c_proj" => ("ffn_down", matrix),
        "mlp.gate_proj" => ("ffn_gate", Layout::Same),
        "mlp.up_proj" => ("ffn_up", Layout::Same),
        "mlp.down_proj" => ("ffn_down", Layout::Same),
        _ => return None,
    })
}
