//! Llama and Qwen3 as transformers defines them: `LlamaConfig`, `Qwen3Config`, and the tensors of
//! their models.
//!
//! Their layers store weights `[out, in]`, and what is one product here (queries, keys and values;
//! gate and up projection) as several.

use serde_json::{Value, json};

use super::keys::{Keys, Read, activation, require};
use super::layout::TensorLayout;
use crate::{GptConfig, NormKind, Positions};

/// Qwen3's `model_type`; every other is Llama's.
const QWEN3: &str = "qwen3";

/// The shape that the keys describe, if this model can compute it.
///
/// `attention_dropout` is our dropout, which acts only in training.
pub fn read(keys: &Keys) -> Read<GptConfig> {
    let qwen3 = keys.get("model_type") == QWEN3;
    let [vocab, context, inner] = if qwen3 { [151_936, 32_768, 22_016] } else { [32_000, 2048, 11_008] };
    let n_head = keys.size("num_attention_heads", 32)?;
    let n_embd = keys.size("hidden_size", 4096)?;
    let mlp = keys.mlp("hidden_act", true)?;
    refuse_what_differs(keys)?;
    Ok(GptConfig {
        n_kv_head: keys.size_or_null("num_key_value_heads", if qwen3 { 32.min(n_head) } else { n_head })?,
        head_size: keys.size_or_null("head_dim", if qwen3 { 128 } else { n_embd / n_head.max(1) })?,
        n_inner: keys.size("intermediate_size", inner)?,
        positions: Positions::Rotary,
        rope_theta: rope_theta(keys)?,
        norm: NormKind::RmsNorm,
        norm_epsilon: keys.number("rms_norm_eps", 1e-6)?,
        mlp,
        qk_norm: qwen3,
        bias: if qwen3 { no_bias(keys)? } else { bias(keys)? },
        tied_head: keys.flag("tie_word_embeddings", false)?,
        dropout: keys.number("attention_dropout", 0.0)?,
        ..GptConfig::new(
            keys.size("vocab_size", vocab)?,
            keys.size("max_position_embeddings", context)?,
            keys.size("num_hidden_layers", 32)?,
            n_head,
            n_embd,
        )
    })
}

/// The base of the rotary angles: transformers 5 writes it into `rope_parameters`, older versions
/// beside it; `rope_scaling` is the older name of the object.
fn rope_theta(keys: &Keys) -> Read<f64> {
    let mut theta = keys.number("rope_theta", 10_000.0)?;
    for object in ["rope_parameters", "rope_scaling"] {
        let rope = keys.inside(object)?;
        for key in ["rope_type", "type"] {
            let kind = rope.get(key);
            require(kind.is_null() || kind == "default", || {
                format!("{object} has {key} {kind}; only \"default\" rotary positions are supported")
            })?;
        }
        refuse_partial(&rope)?;
        theta = rope.number("rope_theta", theta)?;
    }
    Ok(theta)
}

fn refuse_partial(keys: &Keys) -> Read<()> {
    let share = keys.number("partial_rotary_factor", 1.0)?;
    require(share == 1.0, || {
        format!("partial_rotary_factor is {share}; only models that rotate the whole head are supported")
    })
}

/// Checks that no linear layer of a Qwen3 adds a bias.
fn no_bias(keys: &Keys) -> Read<bool> {
    let attention = keys.flag("attention_bias", false)?;
    let wrong = || "attention_bias is true; only Qwen3 models where it is false are supported".to_owned();
    require(!attention, wrong).map(|()| false)
}

/// Whether all linear layers of a Llama add a bias, or none.
fn bias(keys: &Keys) -> Read<bool> {
    let (attention, mlp) = (keys.flag("attention_bias", false)?, keys.flag("mlp_bias", false)?);
    require(attention == mlp, || {
        format!(
            "attention_bias is {attention} and mlp_bias is {mlp}; only models where both are the same are supported"
        )
    })?;
    Ok(attention)
}

/// Rejects settings under which transformers computes what [`GptConfig`] cannot express.
fn refuse_what_differs(keys: &Keys) -> Read<()> {
    let sliding = keys.flag("use_sliding_window", false)?;
    let kinds = keys.get("layer_types").as_array();
    let other = kinds.and_then(|kinds| kinds.iter().find(|kind| *kind != "full_attention"));
    require(!sliding && other.is_none(), || {
        format!(
            "{}; only models with full attention in every layer are supported",
            other.map_or("use_sliding_window is true".into(), |kind| format!("layer_types has {kind}"))
        )
    })?;
    refuse_partial(keys)
}

/// The `config.json` of a model; with QK-norm it is a Qwen3.
pub fn json(config: &GptConfig, end_of_text: Option<u32>) -> Value {
    let (class, model_type) = if config.qk_norm { ("Qwen3ForCausalLM", QWEN3) } else { ("LlamaForCausalLM", "llama") };
    let mut keys = json!({
        "architectures": [class],
        "model_type": model_type,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        "hidden_size": config.n_embd,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_kv_head,
        "head_dim": config.head_size,
        "intermediate_size": config.n_inner,
        "hidden_act": activation(config.mlp),
        "rms_norm_eps": config.norm_epsilon,
        // `rope_theta` is for transformers before version 5, `rope_parameters` for version 5.
        "rope_theta": config.rope_theta,
        "rope_parameters": { "rope_type": "default", "rope_theta": config.rope_theta },
        "attention_bias": config.bias,
        "attention_dropout": config.dropout,
        "initializer_range": 0.02,
        "tie_word_embeddings": config.tied_head,
        "use_cache": true,
        // Written even when null: an absent key would mean Llama's own 1 and 2.
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        "dtype": "float32",
    });
    if !config.qk_norm {
        keys["mlp_bias"] = config.bias.into();
    }
    keys
}

/// How a file stores our tensor `name`.
pub fn layout(config: &GptConfig, name: &str, shape: Vec<usize>) -> TensorLayout {
    let Some((layer, name)) = name.strip_prefix("h.").and_then(|rest| rest.split_once('.')) else {
        return match name {
            "wte.weight" => TensorLayout::whole("embed_tokens.weight", shape),
            "ln_f.weight" => TensorLayout::whole("norm.weight", shape),
            other => TensorLayout::whole(other, shape), // The head.
        };
    };
    let (module, kind) = name.rsplit_once('.').unwrap_or((name, ""));
    let named = |module: &str| format!("layers.{layer}.{module}.{kind}");
    let heads = config.heads();
    let [q, kv, inner] = [heads.query_width(), heads.kv_width(), config.n_inner];
    let parts: &[(&str, usize)] = match module {
        "attn.c_attn" => &[("self_attn.q_proj", q), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv)],
        "attn.c_proj" => &[("self_attn.o_proj", config.n_embd)],
        "mlp.c_fc" => &[("mlp.gate_proj", inner), ("mlp.up_proj", inner)],
        "mlp.c_proj" => &[("mlp.down_proj", config.n_embd)],
        "ln_1" => return TensorLayout::whole(named("input_layernorm"), shape),
        "ln_2" => return TensorLayout::whole(named("post_attention_layernorm"), shape),
        "attn.q_norm" => return TensorLayout::whole(named("self_attn.q_norm"), shape),
        "attn.k_norm" => return TensorLayout::whole(named("self_attn.k_norm"), shape),
        other => return TensorLayout::whole(named(other), shape),
    };
    let transposed = shape.len() == 2;
    let n_in = shape.first().copied().filter(|_| transposed);
    let part = |&(module, width): &(&str, usize)| (named(module), [width].into_iter().chain(n_in).collect());
    TensorLayout { parts: parts.iter().map(part).collect(), transposed }
}
