//! Which class of transformers computes a model, and how that class's files store our tensors.

use serde_json::Value;

use super::keys::{Keys, Read, activation};
use super::{error::FolderError, gpt2, layout::TensorLayout, llama};
use crate::{GptConfig, NormKind, Positions};

/// A class whose folders can be read and written.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    model_type: &'static str,
    /// Its usual name.
    pub(super) title: &'static str,
    /// The prefix of every tensor's name but the head's.
    pub(super) prefix: &'static str,
    /// Reads a shape from the keys of its `config.json`.
    pub(super) read: fn(&Keys) -> Read<GptConfig>,
    /// Makes the `config.json` of a model.
    pub(super) json: fn(&GptConfig, Option<u32>) -> Value,
    /// How its files store our tensor of this name and shape.
    pub(super) layout: fn(&GptConfig, &str, Vec<usize>) -> TensorLayout,
    /// Whether a tensor of this name in an old file is not a weight.
    pub(super) is_no_weight: fn(&str) -> bool,
    /// Whether its models always have biases, so that one without saves zeros.
    pub(super) always_has_biases: bool,
}

/// `GPT2LMHeadModel`.
const GPT2: Family = Family {
    model_type: "gpt2",
    title: "GPT-2",
    prefix: "transformer.",
    read: gpt2::read,
    json: gpt2::json,
    layout: |_, name, shape| TensorLayout::whole(name, shape),
    // The masks that transformers before version 4.31 stored in every block.
    is_no_weight: |name| name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"),
    always_has_biases: true,
};

/// `LlamaForCausalLM`.
const LLAMA: Family = Family {
    model_type: "llama",
    title: "Llama",
    prefix: "model.",
    read: llama::read,
    json: llama::json,
    layout: llama::layout,
    // The frequencies of the rotary angles that transformers before version 4.33 stored in every
    // block, and some tools once in the model.
    is_no_weight: |name| name.ends_with("rotary_emb.inv_freq"),
    always_has_biases: false,
};

/// `Qwen3ForCausalLM`: Llama with QK-norm.
const QWEN3: Family = Family { model_type: "qwen3", title: "Qwen3", ..LLAMA };

impl Family {
    /// The class that computes exactly what a model of this shape computes, weight for weight.
    ///
    /// # Errors
    /// When there is none; the line names the two keys that conflict and what to choose.
    pub fn of(config: &GptConfig) -> Result<Self, FolderError> {
        let learned = config.positions == Positions::Learned;
        let rms_norm = config.norm == NormKind::RmsNorm;
        // GPT-2's class has no gate, the others always have one.
        let has_mlp = config.mlp.is_gated() != learned && activation(config.mlp).is_some();
        let positions = if learned { "positions = learned" } else { "positions = rotary" };
        let mlp = format!("mlp = {}", config.mlp.name());
        let refuse = |given: &str, other: &str, choose: &str| {
            let architecture = config.architecture();
            Err(FolderError::NoClass(format!(
                "{given} does not go with {other}: no GPT-2, Llama or Qwen3 model has both; choose {choose}, or set only \
                 architecture = {architecture}"
            )))
        };
        if learned {
            if rms_norm {
                refuse("norm = rmsnorm", positions, "norm = layernorm")
            } else if !has_mlp {
                refuse(&mlp, positions, "mlp = gelu")
            } else if config.qk_norm {
                refuse("qk_norm = true", positions, "qk_norm = false")
            } else if config.n_kv_head != config.n_head {
                let given = format!("n_kv_head = {} of {} heads", config.n_kv_head, config.n_head);
                refuse(&given, positions, "positions = rotary")
            } else {
                Ok(GPT2)
            }
        } else if !rms_norm {
            refuse("norm = layernorm", positions, "norm = rmsnorm")
        } else if !has_mlp {
            refuse(&mlp, positions, "mlp = swiglu")
        } else if config.qk_norm && config.bias {
            refuse("qk_norm = true", "bias = true", "bias = false")
        } else if config.qk_norm {
            Ok(QWEN3)
        } else {
            Ok(LLAMA)
        }
    }

    /// The family that a `config.json` names.
    pub(super) fn named(model_type: &str) -> Option<Self> {
        [GPT2, LLAMA, QWEN3].into_iter().find(|family| family.model_type == model_type)
    }

    /// The shape that its files store.
    pub(super) fn shape_on_disk(self, config: &GptConfig) -> GptConfig {
        GptConfig { bias: config.bias || self.always_has_biases, ..config.clone() }
    }
}
