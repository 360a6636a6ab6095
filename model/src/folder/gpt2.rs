//! GPT-2 as transformers defines it: `GPT2Config` and the tensors of `GPT2LMHeadModel`, whose names
//! and shapes are ours.

use serde_json::{Value, json};

use super::keys::{Keys, Read, activation, require};
use crate::GptConfig;

/// Our own key: the class always has biases, and preserves a key that it does not know. If this is
/// false, they are zeros that were never trained.
const BIAS: &str = "ember_bias";

/// The shape that the keys describe, if this model can compute it.
///
/// `resid_pdrop` stands for the three dropout probabilities: they act only in training, which has
/// one setting.
pub fn read(keys: &Keys) -> Read<GptConfig> {
    let mut config = GptConfig::new(
        keys.size("vocab_size", 50257)?,
        size(keys, ["n_positions", "max_position_embeddings"], 1024)?,
        size(keys, ["n_layer", "num_hidden_layers"], 12)?,
        size(keys, ["n_head", "num_attention_heads"], 12)?,
        size(keys, ["n_embd", "hidden_size"], 768)?,
    );
    config.n_inner = keys.size_or_null("n_inner", config.n_inner)?;
    config.dropout = keys.number("resid_pdrop", 0.1)?;
    config.norm_epsilon = keys.number("layer_norm_epsilon", 1e-5)?;
    config.tied_head = keys.flag("tie_word_embeddings", true)?;
    config.bias = keys.flag(BIAS, true)?;
    config.mlp = keys.mlp("activation_function", false)?;
    refuse_what_differs(keys)?;
    Ok(config)
}

/// A size under either name (`attribute_map`); if both are present, transformers takes the second.
fn size(keys: &Keys, [name, other]: [&str; 2], default: usize) -> Read<usize> {
    keys.size(other, keys.size(name, default)?)
}

/// Rejects settings under which transformers computes what [`GptConfig`] cannot express.
/// (`reorder_and_upcast_attn` may be either: in float32 it only changes the order of rounding.)
fn refuse_what_differs(keys: &Keys) -> Read<()> {
    for (key, needed) in
        [("scale_attn_weights", true), ("scale_attn_by_inverse_layer_idx", false), ("add_cross_attention", false)]
    {
        let value = keys.flag(key, needed)?;
        require(value == needed, || format!("{key} is {value}; only models where it is {needed} are supported"))?;
    }
    Ok(())
}

/// The `config.json` of a model.
pub fn json(config: &GptConfig, end_of_text: Option<u32>) -> Value {
    let usual_width = config.n_inner == 4 * config.n_embd;
    let mut keys = json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.context_length,
        "n_ctx": config.context_length,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": (!usual_width).then_some(config.n_inner),
        "activation_function": activation(config.mlp),
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        "layer_norm_epsilon": config.norm_epsilon,
        "initializer_range": 0.02,
        "scale_attn_weights": true,
        "scale_attn_by_inverse_layer_idx": false,
        "reorder_and_upcast_attn": false,
        "add_cross_attention": false,
        "tie_word_embeddings": config.tied_head,
        "use_cache": true,
        // Written even when null: an absent key would mean GPT-2's own 50256.
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        "dtype": "float32",
    });
    if !config.bias {
        keys[BIAS] = false.into();
    }
    keys
}
