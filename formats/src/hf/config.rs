//! `config.json`: a shape as Hugging Face's keys.

use serde_json::{Value, json};

use crate::{Architecture, Shape};

/// Ember's own key in GPT-2's `config.json`: if it is false, the biases are zeros that were never
/// trained. Other programs preserve it.
const BIAS: &str = "ember_bias";

/// The keys for a shape, with the begin token and end tokens of texts.
pub fn json(shape: &Shape, begin: Option<u32>, end_tokens: &[u32]) -> Value {
    let end = match end_tokens {
        [] => Value::Null,
        [end] => json!(end),
        several => json!(several),
    };
    let mut keys = match shape.architecture {
        Architecture::Gpt2 => gpt2_json(shape),
        Architecture::Llama | Architecture::Qwen3 => llama_json(shape),
    };
    keys["vocab_size"] = shape.vocab_size.into();
    keys["tie_word_embeddings"] = shape.tied_head.into();
    // Null is written explicitly: an absent key would mean the class's default.
    keys["bos_token_id"] = begin.into();
    keys["eos_token_id"] = end;
    keys
}

fn gpt2_json(shape: &Shape) -> Value {
    let mut keys = json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_positions": shape.context_length,
        "n_ctx": shape.context_length,
        "n_embd": shape.n_embd,
        "n_layer": shape.n_layer,
        "n_head": shape.n_head,
        "n_inner": shape.n_inner,
        "activation_function": if shape.exact_gelu { "gelu" } else { "gelu_new" },
        "layer_norm_epsilon": shape.norm_epsilon,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    });
    if !shape.bias {
        keys[BIAS] = false.into();
    }
    keys
}

fn llama_json(shape: &Shape) -> Value {
    let qwen3 = shape.architecture == Architecture::Qwen3;
    json!({
        "architectures": [if qwen3 { "Qwen3ForCausalLM" } else { "LlamaForCausalLM" }],
        "model_type": shape.architecture.name(),
        "max_position_embeddings": shape.context_length,
        "hidden_size": shape.n_embd,
        "num_hidden_layers": shape.n_layer,
        "num_attention_heads": shape.n_head,
        "num_key_value_heads": shape.n_kv_head,
        "head_dim": shape.head_size,
        "intermediate_size": shape.n_inner,
        "hidden_act": "silu",
        "rms_norm_eps": shape.norm_epsilon,
        // For transformers before version 5, and from it on.
        "rope_theta": shape.rope_theta,
        "rope_parameters": { "rope_type": "default", "rope_theta": shape.rope_theta },
        "attention_bias": shape.bias,
        "mlp_bias": shape.bias,
    })
}
