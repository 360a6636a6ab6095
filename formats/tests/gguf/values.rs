//! The values in a written file: rounded once, in the type and order that llama.cpp expects.

use std::path::Path;

use ember_formats::{Model, NumberType, Shape, gguf, hf};

use super::{KINDS, folder, shape};

/// A llama with biases and without a row of 32 values, from the model's own tests.
fn biased() -> hf::Folder {
    let shape = Shape {
        vocab_size: 29,
        context_length: 24,
        n_layer: 2,
        n_head: 3,
        n_kv_head: 3,
        head_size: 4,
        n_embd: 12,
        n_inner: 17,
        rope_theta: 300.0,
        bias: true,
        tied_head: true,
        ..shape("llama")
    };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures/llama/biased");
    hf::Folder::open(&dir, shape, None, Vec::new()).unwrap()
}

/// Asserts that each value was rounded once, to this many significant bits; float16's smallest
/// values are multiples of 2^-24.
fn assert_rounded(read: &Model, before: &Model, bits: i32) {
    assert_eq!(read.tensors.len(), before.tensors.len());
    for (read, before) in read.tensors.iter().zip(&before.tensors) {
        assert_eq!((&read.name, &read.shape), (&before.name, &before.shape));
        for (got, want) in read.values().unwrap().iter().zip(before.values().unwrap().iter()) {
            let allowed = want.abs() * 2f32.powi(-bits) + 2f32.powi(-25);
            assert!((got - want).abs() <= allowed, "{}: {got} for {want}", read.name);
        }
    }
}

/// Asserts that the matrices read from a GGUF file are stored as `kind`; vectors and learned
/// positions are float32 in every file.
fn assert_stored(read: &Model, kind: NumberType) {
    for tensor in &read.tensors {
        let is_vector = tensor.shape.len() == 1 || tensor.name.ends_with("wpe.weight");
        assert_eq!(tensor.stored, if is_vector { NumberType::F32 } else { kind }, "{}", tensor.name);
    }
}

#[test]
fn half_precision_rounds_each_value_once() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.gguf");
    for kind in KINDS {
        let folder = folder(kind);
        let before = folder.model().unwrap();
        for (number, bits) in [(NumberType::F16, 11), (NumberType::Bf16, 8)] {
            gguf::write(&before, number, "test", &path).unwrap();
            let file = gguf::File::open(&path).unwrap();
            assert_stored(&file.model().unwrap(), number);
            assert_rounded(&file.model().unwrap(), &before, bits);

            let again = out.path().join(format!("{kind}-{}", number.name()));
            hf::write(&before, Some(number), &again).unwrap();
            let again = hf::Folder::open(&again, shape(kind), None, Vec::new()).unwrap();
            assert!(again.model().unwrap().tensors.iter().all(|tensor| tensor.stored == number));
            assert_rounded(&again.model().unwrap(), &before, bits);
        }
    }
}

/// A block of Q8_0 or Q4_0 is 32 values of one row.
#[test]
fn matrices_whose_rows_are_no_whole_blocks_become_float16() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.gguf");
    let folder = biased();
    let before = folder.model().unwrap();
    for number in [NumberType::Q8_0, NumberType::Q4_0] {
        gguf::write(&before, number, "test", &path).unwrap();
        let file = gguf::File::open(&path).unwrap();
        assert_stored(&file.model().unwrap(), NumberType::F16);
        assert_rounded(&file.model().unwrap(), &before, 11);
    }
}

/// Transformers rotates the rows `(i, i + half)` of a head as a pair, llama.cpp adjacent ones, and
/// their biases with them; reading would hide what writing does, since it is its inverse.
#[test]
fn the_biases_of_queries_and_keys_are_written_in_llama_cpp_s_order() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.gguf");
    let folder = biased();
    let model = folder.model().unwrap();
    gguf::write(&model, NumberType::F32, "test", &path).unwrap();
    let written = std::fs::read(&path).unwrap();
    for module in ["q_proj", "k_proj"] {
        let name = format!("model.layers.0.self_attn.{module}.bias");
        let bias = model.tensors.iter().find(|tensor| tensor.name == name).unwrap().values().unwrap();
        let heads = [[0_usize, 2, 1, 3], [4, 6, 5, 7], [8, 10, 9, 11]];
        let expected: Vec<u8> = heads.iter().flatten().flat_map(|&row| bias[row].to_le_bytes()).collect();
        assert!(written.windows(expected.len()).any(|window| window == expected), "{name}");
    }
}
