//! A whole folder, written and read; and shared code for the tests of its parts.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use super::files::{read_json, write_json};
use super::*;
use ember_host::file_error::with_causes;

pub(super) fn tiny() -> GptConfig {
    GptConfig::new(5, 4, 2, 2, 4)
}

/// Values that are exact in float16 and bfloat16, different from tensor to tensor: eighths between
/// -16 and 16.
pub(super) fn exact_tensors(config: &GptConfig) -> Vec<NamedTensor> {
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

pub(super) fn change_config(dir: &Path, key: &str, value: Value) {
    let path = dir.join("config.json");
    let mut map = read_json(&path).unwrap();
    map.insert(key.to_owned(), value);
    write_json(&path, &map).unwrap();
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any shape and any bits, including NaN and negative zero, are read back unchanged.
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

    /// A file truncated anywhere, or with any byte of its header changed, gives an error or the
    /// same tensors, never a panic.
    #[test]
    fn cut_and_scrambled_files_are_errors(place in 0usize..4000, change in 1u8..) {
        let dir = write_folder(&tiny(), &exact_tensors(&tiny()));
        let path = dir.path().join("model.safetensors");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..place.min(whole.len() - 1)]).unwrap();
        prop_assert!(error(dir.path()).contains("is truncated or damaged"));
        let header = 8 + u64::from_le_bytes(*whole.first_chunk().unwrap()) as usize;
        let mut scrambled = whole;
        scrambled[place % header] ^= change;
        fs::write(&path, scrambled).unwrap();
        match read_all(dir.path()) {
            Ok((_, tensors)) => {
                prop_assert_eq!(tensors, exact_tensors(&tiny()));
            }
            Err(error) => {
                let message = with_causes(&error);
                prop_assert!(message.contains("model.safetensors"), "{}", message);
            }
        }
    }
}

/// Places and sizes that contradict each other.
#[test]
fn weights_that_lie_are_refused() {
    let dir = write_folder(&tiny(), &exact_tensors(&tiny()));
    let path = dir.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(*whole.first_chunk().unwrap()) as usize;
    let (header, values) = whole[8..].split_at(length);
    let honest = std::str::from_utf8(header).unwrap();
    for (truth, lie) in [
        ("[80,144]", "[0,64]"),   // overlaps the tensor before
        ("[80,144]", "[84,148]"), // leaves a gap
        ("[0,80]", "[80,0]"),
        ("[5,4]", "[6,4]"),
        ("[5,4]", "[4611686018427387909,4]"), // 20 values modulo 2^64
        ("\"F32\"", "\"F64\""),
        ("wpe.weight", "wte.weight"), // which is there already
    ] {
        let header = honest.replacen(truth, lie, 1);
        assert_ne!(header, honest, "{truth} is not in it");
        fs::write(&path, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), values].concat()).unwrap();
        let line = error(dir.path());
        assert!(line.contains("model.safetensors is truncated or damaged"), "{lie}: {line}");
    }
}

/// Folders written by transformers; the model's tests check what it computes from them.
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
