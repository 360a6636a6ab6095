//! Folders of several families: the family for each shape, and reading back what was written.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::json;

use super::files::{read_json, write_json};
use super::tests::{change_config, error, read_all, write_folder};
use super::*;
use crate::{MlpKind, NormKind, Positions};

fn llama() -> GptConfig {
    GptConfig {
        n_kv_head: 2,
        n_inner: 7,
        positions: Positions::Rotary,
        norm: NormKind::RmsNorm,
        mlp: MlpKind::SwiGlu,
        bias: false,
        tied_head: false,
        ..GptConfig::new(5, 4, 2, 4, 8)
    }
}

/// All values differ, so that no two positions can be confused.
fn counted(config: &GptConfig) -> Vec<NamedTensor> {
    let mut count = 0.0;
    let mut tensor = |(name, shape): (String, Vec<usize>)| {
        let mut next = || {
            count += 1.0;
            count
        };
        let values = (0..shape.iter().product::<usize>()).map(|_| next()).collect();
        NamedTensor { name, shape, values }
    };
    expected_tensors(config).into_iter().map(&mut tensor).collect()
}

fn tensor<'a>(tensors: &'a [NamedTensor], name: &str) -> &'a NamedTensor {
    tensors.iter().find(|tensor| tensor.name == name).unwrap()
}

#[test]
fn one_product_of_ours_is_three_of_llamas_and_stands_the_other_way() {
    let (config, tensors) = (llama(), counted(&llama()));
    let dir = write_folder(&config, &tensors);
    let file = TensorFile::open(&dir.path().join("model.safetensors")).unwrap();
    assert_eq!(
        file.names()[..3],
        [
            "model.embed_tokens.weight",
            "model.layers.0.input_layernorm.weight",
            "model.layers.0.self_attn.q_proj.weight"
        ]
    );
    assert_eq!(file.names().last().unwrap(), "lm_head.weight");
    let joint = tensor(&tensors, "h.1.attn.c_attn.weight");
    let key = file.read("model.layers.1.self_attn.k_proj.weight").unwrap();
    assert_eq!((joint.shape.as_slice(), key.shape.as_slice()), ([8, 16].as_slice(), [4, 8].as_slice()));
    // The key's third output, from the sixth input: after the eight columns of the queries.
    assert_eq!(key.values[2 * 8 + 5], joint.values[5 * 16 + 8 + 2]);
    let gated = tensor(&tensors, "h.0.mlp.c_fc.weight");
    let up = file.read("model.layers.0.mlp.up_proj.weight").unwrap();
    assert_eq!((up.shape.as_slice(), up.values[3 * 8 + 1]), ([7, 8].as_slice(), gated.values[14 + 7 + 3]));
}

#[test]
fn a_gpt2_without_biases_stores_zeros_and_comes_back_without() {
    let config = GptConfig { bias: false, n_inner: 6, ..GptConfig::new(5, 4, 2, 2, 4) };
    let tensors = counted(&config);
    let dir = write_folder(&config, &tensors);
    let path = dir.path().join("model.safetensors");
    let zeros = TensorFile::open(&path).unwrap().read("transformer.h.1.mlp.c_fc.bias").unwrap();
    assert_eq!(zeros.values, [0.0; 6]);
    assert_eq!(read_all(dir.path()).unwrap(), (config.clone(), tensors.clone()));

    // A tool that does not know our key trained them.
    let with = GptConfig { bias: true, ..config };
    let trained = write_folder(&with, &counted(&with));
    fs::copy(trained.path().join("model.safetensors"), path).unwrap();
    assert_eq!(read_all(dir.path()).unwrap(), (with.clone(), counted(&with)));
}

#[test]
fn settings_that_cannot_be_computed_are_refused_by_name() {
    let dir = write_folder(&llama(), &counted(&llama()));
    let usual = read_json(&dir.path().join("config.json")).unwrap();
    for (key, value, words) in [
        ("model_type", json!("gemma"), "model_type is \"gemma\"; only"),
        ("model_type", json!("qwen3"), "q_norm.weight is missing"),
        ("hidden_act", json!("gelu"), "hidden_act is \"gelu\"; only models with \"silu\" are supported"),
        (
            "rope_parameters",
            json!({"rope_type": "llama3", "rope_theta": 5e5}),
            "rope_parameters has rope_type \"llama3\"",
        ),
        ("rope_scaling", json!({"type": "linear", "factor": 2.0}), "rope_scaling has type \"linear\""),
        ("rope_scaling", json!(2), "rope_scaling is 2; it must be an object"),
        ("rope_parameters", json!({"rope_theta": "big"}), "rope_theta is \"big\"; it must be a number"),
        ("rope_parameters", json!({"partial_rotary_factor": 0.5}), "partial_rotary_factor is 0.5"),
        ("partial_rotary_factor", json!(0.25), "partial_rotary_factor is 0.25"),
        ("attention_bias", json!(true), "attention_bias is true and mlp_bias is false"),
        ("use_sliding_window", json!(true), "use_sliding_window is true"),
        ("is_causal", json!(false), "is_causal is false; only models where it is true"),
        ("layer_types", json!(["full_attention", "sliding_attention"]), "layer_types has \"sliding_attention\""),
        ("quantization_config", json!({}), "quantization_config is set"),
        ("num_key_value_heads", json!(3), "n_head 4 is not a multiple of n_kv_head 3"),
        ("num_attention_heads", json!(0), "n_head is 0"),
        ("head_dim", json!(3), "head_dim is 3; rotary positions rotate pairs of values, so only models where it"),
        ("head_dim", json!(4), "tensor layers.0.self_attn.q_proj.weight is [8, 8], but config.json needs [16, 8]"),
        ("num_hidden_layers", json!(1), "is not part of a Llama language model of 1 layers"),
        ("hidden_size", json!("8"), "hidden_size is \"8\"; it must be a whole number"),
    ] {
        change_config(dir.path(), key, value);
        assert!(error(dir.path()).contains(words), "{key}: {}", error(dir.path()));
        write_json(&dir.path().join("config.json"), &usual).unwrap();
    }
    for (key, value) in [
        ("rope_scaling", json!({"rope_type": "default"})),
        ("head_dim", json!(null)),
        ("sliding_window", json!(4096)),
        ("layer_types", json!(["full_attention", "full_attention"])),
    ] {
        change_config(dir.path(), key, value);
        read_all(dir.path()).unwrap();
    }
}

#[test]
fn stored_frequencies_of_the_angles_are_passed_over_in_the_model_and_in_its_blocks() {
    let (config, tensors) = (llama(), counted(&llama()));
    let dir = write_folder(&config, &tensors);
    let path = dir.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let written = SafeTensors::deserialize(&bytes).unwrap();
    for name in ["model.rotary_emb.inv_freq", "model.layers.1.self_attn.rotary_emb.inv_freq"] {
        let frequency = TensorView::new(Dtype::F32, vec![1], &[0; 4]).unwrap();
        let views = written.iter().chain([(name, frequency)]);
        safetensors::serialize_to_file(views, None, &path).unwrap();
        assert_eq!(read_all(dir.path()).unwrap(), (config.clone(), tensors.clone()), "{name}");
    }
}

#[test]
fn the_base_of_the_angles_is_read_wherever_it_stands() {
    let dir = write_folder(&llama(), &counted(&llama()));
    let theta = || read_config(dir.path()).unwrap().rope_theta;
    assert_eq!(theta(), 10_000.0);
    change_config(dir.path(), "rope_parameters", json!(null));
    change_config(dir.path(), "rope_theta", json!(500_000));
    assert_eq!(theta(), 500_000.0);
    change_config(dir.path(), "rope_parameters", json!({"rope_type": "default", "rope_theta": 1e6}));
    assert_eq!(theta(), 1e6);
}

#[test]
fn a_gpt2_that_sees_what_comes_is_refused() {
    let config = GptConfig::new(5, 4, 2, 2, 4);
    let dir = write_folder(&config, &counted(&config));
    change_config(dir.path(), "is_causal", json!(true));
    read_all(dir.path()).unwrap();
    change_config(dir.path(), "is_causal", json!(false));
    assert!(error(dir.path()).contains("config.json: is_causal is false; only models where it is true"));
}

/// In transformers the other name takes precedence if both exist.
#[test]
fn gpt2_s_sizes_are_read_by_either_name() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = json!({
        "model_type": "gpt2", "n_head": 2, "num_attention_heads": 4, "hidden_size": 64, "num_hidden_layers": 3,
        "max_position_embeddings": 32,
    });
    write_json(&dir.path().join("config.json"), &sizes).unwrap();
    let read = read_config(dir.path()).unwrap();
    assert_eq!(read, GptConfig { dropout: 0.1, ..GptConfig::new(50257, 32, 3, 4, 64) });
    change_config(dir.path(), "num_attention_heads", json!("4"));
    assert!(error(dir.path()).contains("num_attention_heads is \"4\"; it must be a whole number"));
}

#[test]
fn a_qwen3_needs_no_key_that_has_a_default() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.json"), r#"{"model_type": "qwen3"}"#).unwrap();
    let config = read_config(dir.path()).unwrap();
    assert_eq!((config.head_size, config.n_kv_head, config.n_inner, config.vocab_size), (128, 32, 22_016, 151_936));
    assert!(config.qk_norm && !config.bias && !config.tied_head);
    fs::write(dir.path().join("config.json"), r#"{"model_type": "llama", "num_attention_heads": 16}"#).unwrap();
    let config = read_config(dir.path()).unwrap();
    assert_eq!((config.head_size, config.n_kv_head, config.n_inner, config.norm_epsilon), (256, 16, 11_008, 1e-6));
}

prop_compose! {
    /// Any shape that a model can have, whether a class computes it or not.
    fn any_shape()(
        sizes in (1usize..9, 1usize..9, 1usize..3, 1usize..4, 1usize..4), size in 1usize..4, inner in 1usize..9, c in 1usize..9,
        switches: [bool; 6], theta in 2.0f64..1e6,
    ) -> GptConfig {
        let (vocab_size, context_length, n_layer, n_kv_head, served) = sizes;
        let [rotary, rms, gated, qk_norm, bias, tied_head] = switches;
        let (n_head, head_size) = (n_kv_head * served, if rotary { 2 * size } else { size });
        GptConfig {
            n_kv_head,
            head_size,
            n_inner: inner,
            positions: if rotary { Positions::Rotary } else { Positions::Learned },
            rope_theta: if rotary { theta } else { 10_000.0 },
            norm: if rms { NormKind::RmsNorm } else { NormKind::LayerNorm },
            mlp: if gated { MlpKind::SwiGlu } else { MlpKind::Gelu },
            qk_norm,
            bias,
            tied_head,
            ..GptConfig::new(vocab_size, context_length, n_layer, n_head, if rotary { c } else { n_head * head_size })
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// A shape has a class and is read back unchanged from its folder, or is refused in one line
    /// before anything is written.
    #[test]
    fn a_shape_comes_back_or_is_refused(config in any_shape()) {
        prop_assert!(config.validate().is_ok());
        let values: usize = expected_tensors(&config).iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        prop_assert_eq!(values, config.parameters());
        match Family::of(&config) {
            Ok(_) => {
                let dir = write_folder(&config, &counted(&config));
                prop_assert_eq!(read_all(dir.path()).unwrap(), (config.clone(), counted(&config)));
            }
            Err(error) => {
                let line = error.to_string();
                prop_assert!(line.contains("does not go with") && line.contains("choose") && !line.contains('\n'), "{}", line);
            }
        }
    }
}
