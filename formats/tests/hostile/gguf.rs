//! GGUF files with wrong contents.

use proptest::prelude::*;

use super::{all_refused, fixture, opened, opened_alone};

/// The position of `text`.
fn find(bytes: &[u8], text: &str) -> usize {
    bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap()
}

/// The file with the bytes at `at` replaced.
fn with(bytes: &[u8], at: usize, other: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + other.len()].copy_from_slice(other);
    bytes
}

/// The file with another u32 as the value of a key.
fn with_key(bytes: &[u8], key: &str, value: u32) -> Vec<u8> {
    with(bytes, find(bytes, key) + key.len() + 4, &value.to_le_bytes())
}

/// The position of a tensor's sizes, after its name and number of dimensions.
fn sizes_of(bytes: &[u8], tensor: &str) -> usize {
    find(bytes, tensor) + tensor.len() + 4
}

/// The file with a scaling factor for rotary positions, but without a scaling type; and with a
/// meaningless key that pads both to 64 bytes, so that the values stay aligned.
fn scaled(bytes: &[u8]) -> Vec<u8> {
    let key = |name: &str| [&(name.len() as u64).to_le_bytes()[..], name.as_bytes()].concat();
    let factor = [&key("llama.rope.scaling.factor")[..], &6u32.to_le_bytes(), &4f32.to_le_bytes()].concat();
    let nothing = [&key("ten.letter")[..], &0u32.to_le_bytes(), &[0]].concat();
    assert_eq!(factor.len() + nothing.len(), 64);
    let keys = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) + 2;
    [&bytes[..16], &keys.to_le_bytes(), &factor, &nothing, &bytes[24..]].concat()
}

/// The file with its head named as the embedding, which has the same sizes; four bytes of the
/// padding before the values make room for the longer name.
fn with_two_embeddings(bytes: &[u8]) -> Vec<u8> {
    let head = find(bytes, "\u{d}\0\0\0\0\0\0\0output.weight");
    let after = head + 8 + "output.weight".len();
    let end = after + 4 + 16 + 4 + 8;
    assert_eq!(bytes[end..end + 4], [0_u8; 4]);
    [&bytes[..head], &17u64.to_le_bytes(), b"token_embd.weight", &bytes[after..end], &bytes[end + 4..]].concat()
}

/// Each would be opened, or be refused for something else, without the check that is meant.
#[test]
fn a_lie_is_refused_for_what_it_is() {
    let file = fixture("llama/f32.gguf");
    let name = find(&file, "blk.0.attn_v.weight");
    let place = sizes_of(&file, "blk.0.attn_k.weight") + 20;
    for (lie, reason) in [
        (with_two_embeddings(&file), "there are two tensors token_embd.weight"),
        (with(&file, name, b"blk.0.attn_x.weight"), "tensor blk.0.attn_v.weight is missing"),
        (with(&file, place, &32u64.to_le_bytes()), "begin at byte 32, but the next free byte is 5504"),
        (with(&file, find(&file, "llama"), b"mamba"), "its architecture is \"mamba\""),
        (with(&file, find(&file, "gpt2"), b"bert"), "its tokenizer is of the type \"bert\""),
        (scaled(&file), "its key llama.rope.scaling.factor asks for an unsupported feature"),
    ] {
        let line = opened_alone("model.gguf", &lie).unwrap_err();
        assert!(line.contains(reason), "{line}");
    }
}

#[test]
fn liars_are_refused() {
    let file = fixture("llama/f32.gguf");
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |what: &str, bytes: Vec<u8>| files.push((what.to_owned(), bytes));
    for length in [0, 3, 4, 8, 15, 16, 23, 24, 31, 40, 60, 100, 200, 500, 900, 1200, 1500, 1800, 5000, file.len() - 1] {
        add(&format!("cut to {length} bytes"), file[..length].to_vec());
    }
    add("another magic", with(&file, 0, b"GGML"));
    for version in [0, 1, 4, u32::MAX] {
        add("another version", with(&file, 4, &version.to_le_bytes()));
    }
    for count in [0, 1, 10, 11, 13, 14, 1 << 20, u64::MAX / 2, u64::MAX] {
        add(&format!("{count} tensors"), with(&file, 8, &count.to_le_bytes()));
        add(&format!("{count} keys"), with(&file, 16, &count.to_le_bytes()));
    }
    for length in [0u64, 1 << 20, 1 << 40, u64::MAX] {
        add("a wrong length of the first key", with(&file, 24, &length.to_le_bytes()));
        let tokens = find(&file, "tokenizer.ggml.tokens") + "tokenizer.ggml.tokens".len() + 8;
        add("a wrong number of tokens", with(&file, tokens, &(length + 1000 * u64::from(length == 0)).to_le_bytes()));
    }
    for (key, values) in [
        ("llama.context_length", vec![0, u32::MAX]),
        ("llama.embedding_length", vec![0, 31, u32::MAX]),
        ("llama.block_count", vec![0, 2, 1 << 30, u32::MAX]),
        ("llama.feed_forward_length", vec![0, 65, u32::MAX]),
        ("llama.attention.head_count", vec![0, 3, 1 << 27, u32::MAX]),
        ("llama.attention.head_count_kv", vec![0, 3, u32::MAX]),
        ("llama.attention.key_length", vec![0, 7, u32::MAX]),
        ("llama.attention.value_length", vec![0, 4]),
    ] {
        for value in values {
            // Another key begins with "head_count"; the byte after the name distinguishes them.
            let key = if key.ends_with("head_count") { format!("{key}\u{4}") } else { key.to_owned() };
            let file = match key.strip_suffix('\u{4}') {
                Some(short) => with(&file, find(&file, &key) + short.len() + 4, &value.to_le_bytes()),
                None => with_key(&file, &key, value),
            };
            add(&format!("{key} is {value}"), file);
        }
    }
    for size in [0u64, 1, 31, 1 << 32, 1 << 62, u64::MAX] {
        add("a wrong size", with(&file, sizes_of(&file, "blk.0.attn_k.weight"), &size.to_le_bytes()));
    }
    let tensor = sizes_of(&file, "blk.0.attn_k.weight");
    for dimensions in [0u32, 1, 3, 5, 1 << 16, u32::MAX] {
        add("a wrong number of dimensions", with(&file, tensor - 4, &dimensions.to_le_bytes()));
    }
    for kind in [12u32, 14, 99, u32::MAX] {
        add("another type", with(&file, tensor + 16, &kind.to_le_bytes()));
    }
    for place in [1u64, 31, 32, 1 << 40, u64::MAX - 31, u64::MAX] {
        add("another place", with(&file, tensor + 20, &place.to_le_bytes()));
    }
    let name = find(&file, "blk.0.attn_v.weight");
    add("two tensors of one name", with(&file, name, b"blk.0.attn_k.weight"));
    add("a name that is no text", with(&file, name, &[0xff; 4]));
    let long = [&file[..56], &5000u64.to_le_bytes(), &[b'x'; 5000], &file[69..]].concat();
    add("a long architecture", long);
    all_refused("model.gguf", files);
}

proptest! {
    /// With a few bytes changed anywhere: an error's line or a model, and memory in proportion to
    /// the file's size.
    #[test]
    fn damage_is_survived(
        name in prop::sample::select(vec!["f32.gguf", "q8_0.gguf", "q4_0.gguf"]),
        kind in prop::sample::select(vec!["gpt2", "llama", "qwen3"]),
        damage in prop::collection::vec((0usize..2400, any::<[u8; 4]>()), 1..6),
        cut in prop::option::of(0usize..2400),
    ) {
        let mut bytes = fixture(&format!("{kind}/{name}"));
        for (at, other) in damage {
            bytes[at..at + 4].copy_from_slice(&other);
        }
        bytes.truncate(cut.unwrap_or(bytes.len()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, bytes).unwrap();
        let _ = opened(&path, &path, "damaged");
    }
}
