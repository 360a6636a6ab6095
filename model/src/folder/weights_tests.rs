//! Weights in a folder: names, types and files that are read, and the errors for wrong ones.
#![allow(clippy::unwrap_used)]

use half::{bf16, f16};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;

use super::files::write_json;
use super::tests::{change_config, error, exact_tensors, read_all, tiny, write_folder};
use super::*;

/// Writes a safetensors file with the library, not with our own writer.
fn save(path: &Path, dtype: Dtype, tensors: &[NamedTensor], rename: impl Fn(&str) -> String) {
    let encode = |values: &[f32]| -> Vec<u8> {
        match dtype {
            Dtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Dtype::F64 => values.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect(),
            Dtype::F16 => values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
            Dtype::BF16 => values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
            Dtype::I32 => values.iter().flat_map(|v| (*v as i32).to_le_bytes()).collect(),
            _ => unreachable!(),
        }
    };
    let bytes: Vec<_> = tensors.iter().map(|t| (rename(&t.name), t.shape.clone(), encode(&t.values))).collect();
    let views = bytes.iter().map(|(name, shape, data)| (name, TensorView::new(dtype, shape.clone(), data).unwrap()));
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn same_name(name: &str) -> String {
    name.to_owned()
}

#[test]
fn the_expected_tensors_are_all_the_parameters() {
    for tied_head in [true, false] {
        let config = GptConfig { tied_head, ..GptConfig::new(33, 16, 3, 2, 8) };
        let values: usize = expected_tensors(&config).iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        assert_eq!(values, config.parameters());
    }
    let names: Vec<_> = expected_tensors(&tiny()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names[..4], ["wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias"]);
    assert_eq!(names[25..], ["h.1.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"]);
}

#[test]
fn our_file_is_a_safetensors_file_with_transformers_names() {
    let config = GptConfig { tied_head: false, ..tiny() };
    let tensors = exact_tensors(&config);
    let dir = write_folder(&config, &tensors);
    let bytes = fs::read(dir.path().join("model.safetensors")).unwrap();
    let (header_bytes, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header_bytes % 8, 0);
    assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
    assert_eq!(header.offset_keys()[0], "transformer.wte.weight");
    assert_eq!(header.offset_keys().last().unwrap(), "lm_head.weight");
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor("transformer.h.1.mlp.c_fc.weight").unwrap();
    let stored: Vec<f32> = view.data().chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(view.shape(), [4, 16]);
    let expected = tensors.iter().find(|tensor| tensor.name == "h.1.mlp.c_fc.weight").unwrap();
    assert_eq!(stored, expected.values);
}

#[test]
fn every_precision_prefix_and_split_gives_the_same_tensors() {
    for (dtype, prefix, tied_head) in [
        (Dtype::F32, "", true),
        (Dtype::F16, "transformer.", true),
        (Dtype::BF16, "", false),
        (Dtype::F64, "transformer.", false),
    ] {
        let config = GptConfig { tied_head, ..tiny() };
        let tensors = exact_tensors(&config);
        let dir = write_folder(&config, &tensors);
        let single = dir.path().join("model.safetensors");
        let rename = |name: &str| if name == "lm_head.weight" { same_name(name) } else { format!("{prefix}{name}") };
        save(&single, dtype, &tensors, rename);
        assert_eq!(read_all(dir.path()).unwrap(), (config.clone(), tensors.clone()), "{dtype} {prefix} one file");

        fs::remove_file(single).unwrap();
        let mut weight_map = serde_json::Map::new();
        for (i, part) in tensors.chunks(10).enumerate() {
            let shard = format!("model-{i}.safetensors");
            save(&dir.path().join(&shard), dtype, part, rename);
            weight_map.extend(part.iter().map(|tensor| (rename(&tensor.name), json!(shard))));
        }
        write_json(&dir.path().join("model.safetensors.index.json"), &json!({ "weight_map": weight_map })).unwrap();
        assert_eq!(read_all(dir.path()).unwrap(), (config, tensors), "{dtype} {prefix} sharded");

        fs::remove_file(dir.path().join("model-1.safetensors")).unwrap();
        assert!(error(dir.path()).contains("cannot open"), "{}", error(dir.path()));
    }
}

#[test]
fn the_head_is_tied_exactly_when_transformers_ties_it() {
    let config = tiny();
    let tensors = exact_tensors(&config);
    let dir = write_folder(&config, &tensors);
    let path = dir.path().join("model.safetensors");
    let head = |values: Vec<f32>| NamedTensor { name: "lm_head.weight".into(), shape: vec![5, 4], values };

    let mut copied = tensors.clone();
    copied.push(head(tensors[0].values.clone()));
    save(&path, Dtype::F32, &copied, same_name);
    assert_eq!(
        read_all(dir.path()).unwrap(),
        (config.clone(), tensors.clone()),
        "a copy of the embedding is passed over"
    );

    let only_head: Vec<_> = copied[1..].to_vec();
    save(&path, Dtype::F32, &only_head, same_name);
    assert_eq!(read_all(dir.path()).unwrap(), (config.clone(), tensors.clone()), "the head alone is the embedding too");
    change_config(dir.path(), "tie_word_embeddings", json!(false));
    assert!(error(dir.path()).contains("wte.weight is missing"));
    save(&path, Dtype::F32, &tensors, same_name);
    assert!(error(dir.path()).contains("lm_head.weight is missing"));

    change_config(dir.path(), "tie_word_embeddings", json!(true));
    let mut different = tensors.clone();
    different.push(head(vec![0.5; 20]));
    save(&path, Dtype::F32, &different, same_name);
    let untied = GptConfig { tied_head: false, ..config };
    assert_eq!(read_all(dir.path()).unwrap(), (untied, different), "a different head is a head");
}

#[test]
fn stored_causal_masks_are_passed_over_and_other_strangers_refused() {
    let tensors = exact_tensors(&tiny());
    let dir = write_folder(&tiny(), &tensors);
    let path = dir.path().join("model.safetensors");
    let stranger = |name: &str| NamedTensor { name: name.into(), shape: vec![1], values: vec![1.0] };
    let with = |name: &str| tensors.iter().cloned().chain([stranger(name)]).collect::<Vec<_>>();
    for mask in ["h.0.attn.bias", "transformer.h.1.attn.masked_bias"] {
        save(&path, Dtype::F32, &with(mask), same_name);
        assert_eq!(read_all(dir.path()).unwrap().1, tensors);
    }
    for name in ["score.weight", "h.2.ln_1.weight", "h.0.crossattention.c_attn.weight"] {
        save(&path, Dtype::F32, &with(name), same_name);
        assert!(error(dir.path()).contains(&format!("tensor {name} is not part of a GPT-2")), "{}", error(dir.path()));
    }
    save(&path, Dtype::F32, &with("transformer.ln_f.bias"), same_name);
    assert!(error(dir.path()).contains("ln_f.bias is stored twice"));
}

#[test]
fn wrong_weights_are_named() {
    let tensors = exact_tensors(&tiny());
    let dir = write_folder(&tiny(), &tensors);
    let path = dir.path().join("model.safetensors");

    save(&path, Dtype::F32, &tensors[..tensors.len() - 1], same_name);
    assert!(error(dir.path()).contains("model.safetensors: tensor ln_f.bias is missing"));
    save(&path, Dtype::I32, &tensors, same_name);
    assert!(error(dir.path()).contains("wte.weight holds I32 numbers; only F32"));
    save(&path, Dtype::F32, &tensors, same_name);
    change_config(dir.path(), "vocab_size", json!(6));
    assert!(error(dir.path()).contains("wte.weight is [5, 4], but config.json needs [6, 4]"));
    change_config(dir.path(), "vocab_size", json!(5));
    change_config(dir.path(), "n_layer", json!(200_000_000));
    assert!(error(dir.path()).contains("h.2.ln_1.weight is missing"), "an absurd number of layers costs nothing");

    fs::write(&path, "version https://git-lfs.github.com/spec/v1\n").unwrap();
    assert!(error(dir.path()).contains("git lfs pull"));
    fs::remove_file(&path).unwrap();
    assert!(error(dir.path()).contains("holds no model.safetensors"));
    fs::write(dir.path().join("pytorch_model.bin"), "").unwrap();
    assert!(error(dir.path()).contains("convert it: python -c"));
    let index = dir.path().join("model.safetensors.index.json");
    fs::write(&index, r#"{"weight_map": {"wte.weight": "../elsewhere"}}"#).unwrap();
    assert!(error(dir.path()).contains("\"../elsewhere\" is not a file name"));
    fs::write(&index, "{}").unwrap();
    assert!(error(dir.path()).contains("has no weight_map"));
}
