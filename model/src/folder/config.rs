//! `config.json`: transformers' `GPT2Config`, and what of it can be computed here.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use super::{read_json, write_json};
use crate::GptConfig;

const FILE: &str = "config.json";

/// Reads `dir/config.json`; an absent key has `GPT2Config`'s default, as in transformers.
///
/// `resid_pdrop` stands for the three dropout probabilities: they act in training alone, which has one setting.
pub fn read(dir: &Path) -> Result<GptConfig> {
    let path = dir.join(FILE);
    if !path.exists() {
        bail!("{} holds no {FILE}; give a checkpoint folder or a Hugging Face folder of a GPT-2 model", dir.display());
    }
    let keys = Keys { map: read_json(&path)? };
    keys.config().with_context(|| path.display().to_string())
}

/// Writes `dir/config.json` so that `AutoModelForCausalLM` builds the same model.
pub fn write(dir: &Path, config: &GptConfig, end_of_text: Option<u32>) -> Result<()> {
    let value = json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.context_length,
        "n_ctx": config.context_length,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": null,
        "activation_function": "gelu_new",
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
    write_json(&dir.join(FILE), &value)
}

/// The keys of a `config.json`.
struct Keys {
    map: Map<String, Value>,
}

impl Keys {
    fn config(&self) -> Result<GptConfig> {
        match self.map.get("model_type").and_then(Value::as_str) {
            Some("gpt2") => {}
            Some(other) => bail!("model_type is \"{other}\"; only \"gpt2\" models can be opened"),
            None => bail!("model_type is missing; a GPT-2 model has \"model_type\": \"gpt2\""),
        }
        let mut config = GptConfig::new(
            self.size("vocab_size", 50257)?,
            self.size("n_positions", 1024)?,
            self.size("n_layer", 12)?,
            self.size("n_head", 12)?,
            self.size("n_embd", 768)?,
        );
        config.dropout = self.number("resid_pdrop", 0.1)?;
        config.norm_epsilon = self.number("layer_norm_epsilon", 1e-5)?;
        config.tied_head = self.flag("tie_word_embeddings", true)?;
        self.refuse_what_differs(&config)?;
        config.validate()?;
        Ok(config)
    }

    /// Refuses every setting under which transformers would compute something else than [`crate::GptConfig`] can say.
    /// (`reorder_and_upcast_attn` may be either: in float32 it changes nothing but the order of rounding.)
    fn refuse_what_differs(&self, config: &GptConfig) -> Result<()> {
        if let Some(activation) = self.map.get("activation_function") {
            // Two names of the same function; "gelu" is another, by up to 5e-4.
            let known = activation == "gelu_new" || activation == "gelu_pytorch_tanh";
            ensure!(
                known,
                "activation_function is {activation}; only \"gelu_new\" (the tanh form of GELU) can be computed"
            );
        }
        let n_inner = self.map.get("n_inner").unwrap_or(&Value::Null);
        ensure!(
            n_inner.is_null() || *n_inner == 4 * config.n_embd,
            "n_inner is {n_inner}; only 4 * n_embd = {} (or null) can be computed",
            4 * config.n_embd
        );
        for (key, needed) in
            [("scale_attn_weights", true), ("scale_attn_by_inverse_layer_idx", false), ("add_cross_attention", false)]
        {
            let value = self.flag(key, needed)?;
            ensure!(value == needed, "{key} is {value}; only models where it is {needed} can be computed");
        }
        let quantization = self.map.get("quantization_config").unwrap_or(&Value::Null);
        ensure!(
            quantization.is_null(),
            "quantization_config is set; only plain float32, float16 or bfloat16 weights can be read, save the model as one"
        );
        Ok(())
    }

    fn size(&self, key: &str, default: usize) -> Result<usize> {
        let Some(value) = self.map.get(key) else { return Ok(default) };
        let size = value.as_u64().and_then(|n| usize::try_from(n).ok());
        size.with_context(|| format!("{key} is {value}; it must be a whole number of at least 1"))
    }

    fn number(&self, key: &str, default: f64) -> Result<f64> {
        let Some(value) = self.map.get(key) else { return Ok(default) };
        value.as_f64().with_context(|| format!("{key} is {value}; it must be a number"))
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        let Some(value) = self.map.get(key) else { return Ok(default) };
        value.as_bool().with_context(|| format!("{key} is {value}; it must be true or false"))
    }
}
