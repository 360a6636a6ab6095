//! `config.json`: a shape in Hugging Face's words.

use serde_json::{Value, json};

use crate::{Architecture, Shape};

/// What transformers calls GELU by the error function.
const EXACT: &str = "gelu";

/// The shape that the keys say; what is absent is as transformers has it. The line of an error says
/// which key is wrong.
pub fn read(keys: &Value) -> Result<Shape, String> {
    let keys = Keys(keys);
    match keys.0["model_type"].as_str() {
        Some("gpt2") => gpt2(&keys),
        Some("llama") => llama(&keys, Architecture::Llama),
        Some("qwen3") => llama(&keys, Architecture::Qwen3),
        _ => Err(format!("model_type is {}; only gpt2, llama and qwen3 are known", keys.0["model_type"])),
    }
}

/// Each size has two names, of which transformers takes the second where both are there.
fn gpt2(keys: &Keys) -> Result<Shape, String> {
    let n_embd = keys.size("hidden_size", keys.size("n_embd", 768)?)?;
    let n_head = keys.size("num_attention_heads", keys.size("n_head", 12)?)?;
    Ok(Shape {
        architecture: Architecture::Gpt2,
        vocab_size: keys.size("vocab_size", 50257)?,
        context_length: keys.size("max_position_embeddings", keys.size("n_positions", 1024)?)?,
        n_layer: keys.size("num_hidden_layers", keys.size("n_layer", 12)?)?,
        n_head,
        n_kv_head: n_head,
        head_size: n_embd / n_head.max(1),
        n_embd,
        n_inner: keys.size("n_inner", 4 * n_embd)?,
        norm_epsilon: keys.number("layer_norm_epsilon", 1e-5),
        rope_theta: 10_000.0,
        bias: true,
        tied_head: keys.0["tie_word_embeddings"] != false,
        exact_gelu: keys.0["activation_function"] == EXACT,
    })
}

fn llama(keys: &Keys, architecture: Architecture) -> Result<Shape, String> {
    let qwen3 = architecture == Architecture::Qwen3;
    let [vocab, context, inner] = if qwen3 { [151_936, 32_768, 22_016] } else { [32_000, 2048, 11_008] };
    let (n_embd, n_head) = (keys.size("hidden_size", 4096)?, keys.size("num_attention_heads", 32)?);
    Ok(Shape {
        architecture,
        vocab_size: keys.size("vocab_size", vocab)?,
        context_length: keys.size("max_position_embeddings", context)?,
        n_layer: keys.size("num_hidden_layers", 32)?,
        n_head,
        n_kv_head: keys.size("num_key_value_heads", if qwen3 { 32.min(n_head) } else { n_head })?,
        head_size: keys.size("head_dim", if qwen3 { 128 } else { n_embd / n_head.max(1) })?,
        n_embd,
        n_inner: keys.size("intermediate_size", inner)?,
        norm_epsilon: keys.number("rms_norm_eps", 1e-6),
        rope_theta: rope_theta(keys),
        bias: keys.0["attention_bias"] == true,
        tied_head: keys.0["tie_word_embeddings"] == true,
        exact_gelu: false,
    })
}

/// The base of the angles: beside the other keys, or in one of two objects, of which `rope_scaling` is
/// the older name.
fn rope_theta(keys: &Keys) -> f64 {
    let objects = ["rope_parameters", "rope_scaling"];
    objects
        .iter()
        .fold(keys.number("rope_theta", 10_000.0), |theta, object| Keys(&keys.0[object]).number("rope_theta", theta))
}

struct Keys<'a>(&'a Value);

impl Keys<'_> {
    fn size(&self, key: &str, default: usize) -> Result<usize, String> {
        let value = &self.0[key];
        let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
        let size = if value.is_null() { Some(default) } else { size };
        size.ok_or_else(|| format!("{key} is {value}; it must be a whole number of at least 1"))
    }

    fn number(&self, key: &str, default: f64) -> f64 {
        self.0[key].as_f64().unwrap_or(default)
    }
}

/// The keys of a shape, with the token that begins a text and those that end one.
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
    // Said even where there is none: an absent key would mean the class's own.
    keys["bos_token_id"] = begin.into();
    keys["eos_token_id"] = end;
    keys
}

fn gpt2_json(shape: &Shape) -> Value {
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_positions": shape.context_length,
        "n_ctx": shape.context_length,
        "n_embd": shape.n_embd,
        "n_layer": shape.n_layer,
        "n_head": shape.n_head,
        "n_inner": shape.n_inner,
        "activation_function": if shape.exact_gelu { EXACT } else { "gelu_new" },
        "layer_norm_epsilon": shape.norm_epsilon,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    })
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
        // For transformers before version 5, and for it.
        "rope_theta": shape.rope_theta,
        "rope_parameters": { "rope_type": "default", "rope_theta": shape.rope_theta },
        "attention_bias": shape.bias,
        "mlp_bias": shape.bias,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_base_of_the_angles_is_read_wherever_it_stands() {
        let base = |key: &str, value: Value| {
            let mut keys = json!({ "model_type": "llama", "rope_theta": 20_000.0 });
            keys[key] = value;
            read(&keys).unwrap().rope_theta
        };
        assert_eq!(base("rope_scaling", Value::Null), 20_000.0);
        assert_eq!(base("rope_parameters", json!({ "rope_theta": 5e5 })), 5e5);
        assert_eq!(base("rope_scaling", json!({ "rope_type": "default", "rope_theta": 1e6 })), 1e6);
    }

    #[test]
    fn gpt2_s_sizes_are_read_by_either_name() {
        let keys = json!({
            "model_type": "gpt2", "n_head": 2, "num_attention_heads": 4, "hidden_size": 64, "num_hidden_layers": 3,
            "max_position_embeddings": 32,
        });
        let Shape { n_head, n_embd, n_inner, n_layer, context_length, .. } = read(&keys).unwrap();
        assert_eq!([n_head, n_embd, n_inner, n_layer, context_length], [4, 64, 256, 3, 32]);
    }
}
