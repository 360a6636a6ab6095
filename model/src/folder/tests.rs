#![allow(clippy::unwrap_used)]

use half::{bf16, f16};
use proptest::prelude::*;
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::files::{read_json, write_json};
use super::*;
use ember_host::file_error::with_causes;

fn tiny() -> GptConfig {
    GptConfig::new(5, 4, 2, 2, 4)
}

/// Values that float16 and bfloat16 hold exactly, different from tensor to tensor: eighths between
/// -16 and 16.
fn exact_tensors(config: &GptConfig) -> Vec<NamedTensor> {
    let mut count = 0;
    let mut tensor = |(name, shape): (String, Vec<usize>)| {
        let mut value = || {
            count += 37;
            (count % 256) as f32 / 8.0 - 16.0
        };
        let values = (0..shape.iter().product::<usize>()).map(|_| value()).collect();
        NamedTensor { name, shape, values }
    };
    expected_tensors(config).into_iter().map(&mut tensor).collect()
}

pub(super) fn write_folder(config: &GptConfig, tensors: &[NamedTensor]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), config, None, &Settings::new(), tensors).unwrap();
    dir
}

pub(super) fn read_all(dir: &Path) -> Result<(GptConfig, Vec<NamedTensor>), FolderError> {
    let config = read_config(dir)?;
    let stored = StoredWeights::of(dir)?;
    let tensor = |(name, shape): (String, Vec<usize>)| {
        let values = stored.values(&name, &shape)?.into_owned();
        Ok(NamedTensor { name, shape, values })
    };
    let tensors = expected_tensors(&config).into_iter().map(tensor).collect::<Result<_, FolderError>>()?;
    Ok((config, tensors))
}

pub(super) fn error(dir: &Path) -> String {
    let message = with_causes(&read_all(dir).unwrap_err());
    assert!(!message.contains('\n'), "more than one line: {message}");
    message
}

/// Writes a safetensors file by the library, not by our own writer.
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

pub(super) fn change_config(dir: &Path, key: &str, value: Value) {
    let path = dir.join("config.json");
    let mut map = read_json(&path).unwrap();
    map.insert(key.to_owned(), value);
    write_json(&path, &map).unwrap();
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
        assert!(error(dir.path()).contains(&format!("tensor {name} belongs to no GPT-2")), "{}", error(dir.path()));
    }
    save(&path, Dtype::F32, &with("transformer.ln_f.bias"), same_name);
    assert!(error(dir.path()).contains("ln_f.bias is stored a second time"));
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
    assert!(error(dir.path()).contains("\"../elsewhere\" is no file name"));
    fs::write(&index, "{}").unwrap();
    assert!(error(dir.path()).contains("has no weight_map"));
}

#[test]
fn settings_that_cannot_be_computed_are_refused_by_name() {
    let dir = write_folder(&tiny(), &exact_tensors(&tiny()));
    let usual = read_json(&dir.path().join("config.json")).unwrap();
    for (key, value, words) in [
        (
            "model_type",
            json!("mistral"),
            "config.json: model_type is \"mistral\"; only \"gpt2\", \"llama\" and \"qwen3\"",
        ),
        ("model_type", json!(null), "model_type is missing"),
        ("activation_function", json!("relu"), "activation_function is \"relu\""),
        ("n_inner", json!(17), "tensor h.0.mlp.c_fc.weight is [4, 16], but config.json needs [4, 17]"),
        ("n_inner", json!(0), "n_inner is 0"),
        ("scale_attn_weights", json!(false), "scale_attn_weights is false"),
        ("scale_attn_by_inverse_layer_idx", json!(true), "scale_attn_by_inverse_layer_idx is true"),
        ("add_cross_attention", json!(true), "add_cross_attention is true"),
        ("quantization_config", json!({}), "quantization_config is set"),
        ("n_layer", json!(-1), "n_layer is -1; it must be a whole number"),
        ("n_layer", json!(0), "n_layer is 0"),
        ("n_head", json!(3), "n_head 3"),
        ("n_embd", json!("4"), "n_embd is \"4\"; it must be a whole number"),
        ("layer_norm_epsilon", json!([]), "layer_norm_epsilon is []; it must be a number"),
        ("tie_word_embeddings", json!(1), "tie_word_embeddings is 1; it must be true or false"),
    ] {
        change_config(dir.path(), key, value);
        assert!(error(dir.path()).contains(words), "{key}: {}", error(dir.path()));
        write_json(&dir.path().join("config.json"), &usual).unwrap();
    }
    for (key, value) in [("n_inner", json!(16)), ("activation_function", json!("gelu_pytorch_tanh"))] {
        change_config(dir.path(), key, value);
        read_all(dir.path()).unwrap();
    }
    fs::write(dir.path().join("config.json"), "{").unwrap();
    assert!(error(dir.path()).contains("config.json is not a JSON object"));
    fs::remove_file(dir.path().join("config.json")).unwrap();
    assert!(error(dir.path()).contains("holds no config.json"));
}

#[test]
fn absent_keys_have_gpt2s_defaults() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.json"), r#"{"model_type": "gpt2"}"#).unwrap();
    let gpt2 = GptConfig { dropout: 0.1, ..GptConfig::new(50257, 1024, 12, 12, 768) };
    assert_eq!(read_config(dir.path()).unwrap(), gpt2);
}

#[test]
fn end_tokens_come_from_the_first_file_that_speaks_of_them() {
    let config = tiny();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let end = || read_end_tokens(path).map_err(|e| e.to_string());
    assert_eq!(end(), Ok(vec![]));
    write(path, &config, Some(2), &Settings::new(), &exact_tensors(&config)).unwrap();
    assert_eq!(end(), Ok(vec![2]));
    fs::write(path.join("generation_config.json"), r#"{"eos_token_id": [3, 4]}"#).unwrap();
    assert_eq!(end(), Ok(vec![3, 4]));
    fs::write(path.join("generation_config.json"), r#"{"eos_token_id": null}"#).unwrap();
    assert_eq!(end(), Ok(vec![]));
    fs::write(path.join("generation_config.json"), "{}").unwrap();
    assert_eq!(end(), Ok(vec![2]), "config.json is asked next");
    fs::write(path.join("generation_config.json"), r#"{"eos_token_id": -1}"#).unwrap();
    assert!(end().unwrap_err().contains("eos_token_id is -1"));
}

#[test]
fn the_folder_says_how_tokens_are_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let written = |settings: Value| {
        config::write_generation(dir.path(), Some(2), settings.as_object().unwrap()).unwrap();
        Value::Object(read_json(&dir.path().join("generation_config.json")).unwrap())
    };
    assert_eq!(written(json!({})), json!({"bos_token_id": 2, "eos_token_id": 2, "top_k": 0}));
    assert_eq!(
        written(json!({"do_sample": true, "top_p": 0.5})),
        json!({"bos_token_id": 2, "eos_token_id": 2, "top_k": 0, "do_sample": true, "top_p": 0.5})
    );
    assert_eq!(read_opening(dir.path()).unwrap(), Some(2));
    assert_eq!(written(json!({"bos_token_id": 1})), json!({"bos_token_id": 1, "eos_token_id": 2, "top_k": 0}));
    assert_eq!(read_opening(dir.path()).unwrap(), Some(1));
    fs::remove_file(dir.path().join("generation_config.json")).unwrap();
    assert_eq!(read_opening(dir.path()).unwrap(), None);
}

#[test]
fn writing_refuses_what_is_not_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let config = tiny();
    let refusal = |change: fn(&mut Vec<NamedTensor>)| {
        let mut tensors = exact_tensors(&config);
        change(&mut tensors);
        with_causes(&write(dir.path(), &config, None, &Settings::new(), &tensors).unwrap_err())
    };
    assert!(refusal(|t| drop(t.pop())).contains("tensor ln_f.bias [4] was not given"));
    assert!(refusal(|t| t[2].shape = vec![2, 2]).contains("tensor h.0.ln_1.weight [4] was not given"));
    assert!(refusal(|t| t[2].values.truncate(3)).contains("tensor h.0.ln_1.weight [4] has 3 values"));
    let extra = |t: &mut Vec<NamedTensor>| t.push(NamedTensor { name: "h.2.ln_1.bias".into(), ..t[3].clone() });
    assert!(refusal(extra).contains("h.2.ln_1.bias is not one of this model's"));

    let mut shuffled = exact_tensors(&config);
    shuffled.reverse();
    write(dir.path(), &config, None, &Settings::new(), &shuffled).unwrap();
    assert_eq!(read_all(dir.path()).unwrap().1, exact_tensors(&config), "the order given does not matter");
}

#[test]
fn damage_and_loss_are_found_by_checksum() {
    let dir = write_folder(&tiny(), &exact_tensors(&tiny()));
    let path = dir.path();
    let found = || verify_checksums(path).map_err(|e| e.to_string());
    assert_eq!(found(), Ok(()), "a downloaded folder has no checksums");
    fs::create_dir(path.join("training")).unwrap();
    fs::write(path.join("training/state.json"), "{}").unwrap();
    write_checksums(path).unwrap();
    fs::write(path.join("notes.txt"), "a file of the user's own").unwrap();
    assert_eq!(found(), Ok(()));
    let list: Value = serde_json::from_str(&fs::read_to_string(path.join("checksums.json")).unwrap()).unwrap();
    assert_eq!(list["training/state.json"]["bytes"], 2);
    assert_eq!(list.as_object().unwrap().len(), 3);
    fs::write(path.join("generation_config.json"), "{}").unwrap();
    assert_eq!(found(), Ok(()), "how it is written with is the user's to edit");

    fs::write(path.join("training/state.json"), "[]").unwrap();
    assert!(found().unwrap_err().contains("state.json is damaged"));
    fs::remove_dir_all(path.join("training")).unwrap();
    assert!(found().unwrap_err().contains("state.json is missing"));
    verify_checksums_for_inference(path).unwrap();

    let weights = path.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, &bytes).unwrap();
    let message = verify_checksums_for_inference(path).unwrap_err().to_string();
    assert!(message.contains("model.safetensors is damaged"), "{message}");
    fs::write(path.join("checksums.json"), "{").unwrap();
    assert!(found().unwrap_err().contains("checksums.json is damaged"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any shape and any bits, NaN and negative zero among them, come back as they were.
    #[test]
    fn a_folder_comes_back_bit_for_bit(
        sizes in (1usize..9, 1usize..9, 1usize..4, 1usize..4, 1usize..4),
        (dropout_permille, tied_head) in (0u16..900, any::<bool>()),
        mut bits in any::<u32>(),
    ) {
        let (vocab_size, context_length, n_layer, n_head, head_size) = sizes;
        let config = GptConfig {
            dropout: f64::from(dropout_permille) / 1000.0,
            tied_head,
            ..GptConfig::new(vocab_size, context_length, n_layer, n_head, n_head * head_size)
        };
        let mut tensors = exact_tensors(&config);
        for value in tensors.iter_mut().flat_map(|tensor| &mut tensor.values) {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *value = f32::from_bits(bits);
        }
        let dir = write_folder(&config, &tensors);
        let (read, back) = read_all(dir.path()).unwrap();
        prop_assert_eq!(read, config);
        let as_bits = |tensors: &[NamedTensor]| {
            tensors.iter().flat_map(|t| &t.values).map(|value| value.to_bits()).collect::<Vec<_>>()
        };
        prop_assert_eq!(as_bits(&back), as_bits(&tensors));
    }

    /// A file cut anywhere, or with any byte of its header changed, is an error or the same names,
    /// never a panic.
    #[test]
    fn cut_and_scrambled_files_are_errors(place in 0usize..4000, change in 1u8..) {
        let dir = write_folder(&tiny(), &exact_tensors(&tiny()));
        let path = dir.path().join("model.safetensors");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..place.min(whole.len() - 1)]).unwrap();
        prop_assert!(error(dir.path()).contains("is truncated or damaged"));
        let mut scrambled = whole;
        let place = place % scrambled.len();
        scrambled[place] ^= change;
        fs::write(&path, scrambled).unwrap();
        if let Err(error) = read_all(dir.path()) {
            let message = with_causes(&error);
            prop_assert!(message.contains("model.safetensors"), "{}", message);
        }
    }
}

/// Folders that transformers itself wrote; what it computes from them is the model's test, not
/// ours.
#[test]
fn folders_by_transformers_are_read() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for (name, config) in [
        ("a", GptConfig::new(33, 16, 2, 2, 16)),
        ("b", GptConfig::new(67, 24, 3, 3, 36)),
        ("tied-f16-unprefixed", GptConfig::new(29, 12, 2, 2, 12)),
        ("untied-bf16-sharded", GptConfig { tied_head: false, ..GptConfig::new(29, 12, 2, 2, 12) }),
    ] {
        let (read, tensors) = read_all(&fixtures.join(name)).unwrap();
        assert_eq!(read, config, "{name}");
        let found: Vec<_> = tensors.iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect();
        assert_eq!(found, expected_tensors(&config), "{name}");
        let scale = tensors.iter().find(|tensor| tensor.name == "ln_f.weight").unwrap();
        let mean = scale.values.iter().sum::<f32>() / scale.values.len() as f32;
        assert!((0.6..1.4).contains(&mean), "{name}: drawn around 1, read with a mean of {mean}");
    }
    let reference = TensorFile::open(&fixtures.join("a.safetensors")).unwrap();
    assert_eq!(reference.shape("logits"), Some([4, 16, 33].as_slice()));
    assert!(reference.read("logits").unwrap().values.iter().all(|value| value.is_finite()));
}

/// A list of checksums may come from a stranger.
#[cfg(unix)]
#[test]
fn a_list_that_names_what_is_not_in_its_folder_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::os::unix::fs::symlink("/dev/zero", path.join("zero")).unwrap();
    for (name, what) in
        [("/dev/zero", "not in its folder"), ("../x", "not in its folder"), ("zero", "not an ordinary file")]
    {
        let list = format!("{{{name:?}:{{\"bytes\":1,\"xxh3\":\"0000000000000000\"}}}}");
        fs::write(path.join("checksums.json"), list).unwrap();
        let refused = verify_checksums(path).unwrap_err().to_string();
        assert!(refused.contains(what) && refused.contains(name), "{refused}");
    }
}
