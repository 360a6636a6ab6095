//! Which class of transformers computes a model, and how that class's files hold our tensors.

use serde_json::Value;

use super::keys::{Keys, Read};
use super::{activation, gpt2, llama};
use super::{error::FolderError, tensor::Stored};
use crate::{GptConfig, NormKind, Positions};

/// The classes whose folders are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `GPT2LMHeadModel`.
    Gpt2,
    /// `LlamaForCausalLM`.
    Llama,
    /// `Qwen3ForCausalLM`: Llama with QK-norm.
    Qwen3,
}

impl Family {
    /// The class that computes exactly what a model of this shape computes, weight for weight.
    ///
    /// # Errors
    /// When there is none; the line names the two keys that do not go together and what to choose.
    pub fn of(config: &GptConfig) -> Result<Self, FolderError> {
        let learned = config.positions == Positions::Learned;
        let positions = if learned { "positions = learned" } else { "positions = rotary" };
        let alone = |given: &str, other: &str, choose: &str| {
            let all = match (learned, config.qk_norm) {
                (true, _) => "architecture = gpt2",
                (false, false) => "architecture = llama",
                (false, true) => "architecture = qwen3",
            };
            Err(FolderError::NoClass(format!(
                "{given} does not go with {other}: transformers has no such model to save it as; choose {choose}, or leave all \
                 parts to {all}"
            )))
        };
        let mlp = format!("mlp = {}", config.mlp.name());
        // GPT-2's class has no gate, the others always have one.
        let has_mlp = config.mlp.is_gated() != learned && activation::name(config.mlp).is_some();
        match config.norm {
            NormKind::RmsNorm if learned => alone("norm = rmsnorm", positions, "norm = layernorm"),
            _ if learned && !has_mlp => alone(&mlp, positions, "mlp = gelu"),
            _ if learned && config.qk_norm => alone("qk_norm = true", positions, "qk_norm = false"),
            _ if learned && config.n_kv_head != config.n_head => {
                let given = format!("n_kv_head = {} of {} heads", config.n_kv_head, config.n_head);
                alone(&given, positions, "positions = rotary")
            }
            _ if learned => Ok(Self::Gpt2),
            NormKind::LayerNorm => alone("norm = layernorm", positions, "norm = rmsnorm"),
            _ if !has_mlp => alone(&mlp, positions, "mlp = swiglu"),
            _ if config.qk_norm && config.bias => alone("qk_norm = true", "bias = true", "bias = false"),
            _ if config.qk_norm => Ok(Self::Qwen3),
            _ => Ok(Self::Llama),
        }
    }

    /// The family that a `config.json` names.
    pub(super) fn named(model_type: &str) -> Option<Self> {
        [Self::Gpt2, Self::Llama, Self::Qwen3].into_iter().find(|family| family.model_type() == model_type)
    }

    /// Its `model_type`.
    fn model_type(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::Llama => "llama",
            Self::Qwen3 => "qwen3",
        }
    }

    /// What people call it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Gpt2 => "GPT-2",
            Self::Llama => "Llama",
            Self::Qwen3 => "Qwen3",
        }
    }

    /// What the keys of its `config.json` say.
    pub(super) fn read(self, keys: &Keys) -> Read<GptConfig> {
        match self {
            Self::Gpt2 => gpt2::read(keys),
            Self::Llama | Self::Qwen3 => llama::read(keys),
        }
    }

    /// The `config.json` of a model.
    pub(super) fn json(self, config: &GptConfig, end_of_text: Option<u32>) -> Value {
        match self {
            Self::Gpt2 => gpt2::json(config, end_of_text),
            Self::Llama | Self::Qwen3 => llama::json(config, end_of_text),
        }
    }

    /// What its files put before the name of every tensor but the head's.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Gpt2 => "transformer.",
            Self::Llama | Self::Qwen3 => "model.",
        }
    }

    /// How its files hold our tensor `name` of that `shape`.
    pub(super) fn stored(self, config: &GptConfig, name: &str, shape: Vec<usize>) -> Stored {
        match self {
            Self::Gpt2 => Stored::whole(name, shape),
            Self::Llama | Self::Qwen3 => llama::stored(config, name, shape),
        }
    }

    /// Whether old files hold a tensor of this name that is no weight.
    pub(super) fn is_no_weight(self, name: &str) -> bool {
        match self {
            Self::Gpt2 => gpt2::is_causal_mask(name),
            Self::Llama | Self::Qwen3 => llama::is_table_of_angles(name),
        }
    }

    /// The shape of what its files hold. GPT-2's class has biases always: a model without saves
    /// zeros.
    pub(super) fn shape_on_disk(self, config: &GptConfig) -> GptConfig {
        GptConfig { bias: config.bias || self == Self::Gpt2, ..config.clone() }
    }
}
