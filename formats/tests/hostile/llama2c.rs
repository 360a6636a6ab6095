//! llama2.c files with wrong contents.

use proptest::prelude::*;

use super::{all_refused, all_refused_beside, fixture, opened};

/// The file with another number as the header's `at`-th.
fn with(bytes: &[u8], at: usize, number: i32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[4 * at..4 * at + 4].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
fn liars_are_refused() {
    let (first, second) = (fixture("llama2c/v0/model.bin"), fixture("llama2c/v1/model.bin"));
    let mut files = Vec::new();
    for (name, file, header) in [("v0", &first, 0), ("v1", &second, 2)] {
        for length in [0, 3, 4, 8, 27, 28, 35, 36, 37, 255, 256, 257, 300, 5000, file.len() - 4, file.len() - 1] {
            files.push((format!("{name} cut to {length} bytes"), file[..length].to_vec()));
        }
        files.push((format!("{name} with more behind"), [file.as_slice(), &[0; 4]].concat()));
        for size in 0..7 {
            for number in [0, -1, 1 << 20, i32::MAX, i32::MIN] {
                if (name, size, number) == ("v1", 6, 1 << 20) {
                    continue; // the context length changes none of the contents
                }
                files.push((format!("{name}, size {size} is {number}"), with(file, header + size, number)));
            }
        }
    }
    for version in [0, 2, 3, -1, i32::MAX] {
        files.push((format!("version {version}"), with(&second, 1, version)));
    }
    all_refused("model.bin", files);
}

/// A token in the format of `tokenizer.bin`.
fn token(text: &[u8]) -> Vec<u8> {
    [&0f32.to_le_bytes()[..], &(text.len() as u32).to_le_bytes(), text].concat()
}

#[test]
fn tokenizers_that_lie_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.bin");
    std::fs::write(&model, fixture("llama2c/v0/model.bin")).unwrap();
    let good = fixture("llama2c/v0/tokenizer.bin");
    let last = good.len() - 1; // the one byte of its last token
    let mut files = Vec::new();
    let mut add = |what: &str, bytes: Vec<u8>| files.push((what.to_owned(), bytes));
    for length in [0, 1, 3, 4, 5, 7, 8, 11, 12, 13, 16, 17, 29, 30, 43, 44, 100, 1000, 3627, 3628, last - 8, last] {
        add(&format!("cut to {length} bytes"), good[..length].to_vec());
    }
    for length in [0, 4, 6, 1 << 10, (1 << 10) + 1, 1 << 16, 1 << 20, i32::MAX, i32::MIN, -1] {
        add(&format!("a first token of {length} bytes"), with(&good, 2, length));
        let before = [&good[..last - 4], &length.to_le_bytes(), &good[last..]].concat();
        add(&format!("a last token of {length} bytes"), before);
    }
    let at = |text: &[u8]| good.windows(text.len()).position(|window| window == text).unwrap();
    for (what, place, byte) in [
        ("no <unk>", 12, b'x'),
        ("no <s>", at(b"<s>") + 1, b't'),
        ("no line around <s>", at(b"<s>") - 1, b' '),
        ("no </s>", at(b"</s>") + 2, b't'),
        ("no first byte", at(b"<0x00>") + 4, b'1'),
        ("a byte of no digits", at(b"<0xFF>") + 4, b'G'),
        ("no text in the first", 12, 0xff),
        ("no text in the last", last, 0xff),
        ("half a character", last, 0xc3),
        ("two tokens alike", last, b'j'),
    ] {
        let mut file = good.clone();
        file[place] = byte;
        add(what, file);
    }
    for (what, more) in [
        ("a byte more", vec![0]),
        ("a score more", vec![0; 4]),
        ("a length more", vec![0; 7]),
        ("an empty token more", token(b"")),
        ("a token more", token(b"zz")),
        ("a hundred thousand more", token(b"").repeat(100_000)),
        ("the same tokens again", good[4..].to_vec()),
    ] {
        add(what, [good.as_slice(), &more].concat());
    }
    for (what, bytes) in [
        ("nothing but zeros", vec![0; 4 + 8 * 340]),
        ("nothing but ones", vec![0xff; 4096]),
        ("a tokenizer.json", br#"{"model": {"type": "BPE"}}"#.to_vec()),
        ("a model", fixture("llama2c/v1/model.bin")),
    ] {
        add(what, bytes);
    }
    all_refused_beside(&model, "tokenizer.bin", files);
}

/// Each token of one repeated letter can be merged from all shorter ones: a thousand tokens in half
/// a million ways, which would take six hundred times the file's bytes.
#[test]
fn tokens_that_can_be_made_in_ever_so_many_ways_are_refused() {
    const LONGEST: usize = 1 << 10;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let runs = (1..=LONGEST).map(|length| token(&vec![b'a'; length]));
    let own = &fixture("llama2c/v0/tokenizer.bin")[4..3628]; // the special tokens and the bytes
    std::fs::write(path("tokenizer.bin"), [&[0; 4], own, &runs.collect::<Vec<_>>().concat()].concat()).unwrap();
    let rows = 259 + LONGEST as i32;
    let sizes = [2, 1, 1, 1, 1, rows, 1];
    let values = 2 * rows + 3 * 2 + 4 * 4 + 3 * 2 + 2; // embedding, norms, attention, MLP, rotary tables
    let model = sizes.into_iter().chain(std::iter::repeat_n(0, values as usize)).flat_map(i32::to_le_bytes);
    std::fs::write(path("model.bin"), model.collect::<Vec<u8>>()).unwrap();
    let line = opened(&path("model.bin"), &path("tokenizer.bin"), "runs of a letter").unwrap_err();
    assert!(line.contains("ways"), "{line}");
}

proptest! {
    /// With a few numbers changed: an error's line or a model, and memory in proportion to the
    /// file's size.
    #[test]
    fn damage_is_survived(
        version in prop::sample::select(vec!["v0", "v1"]),
        damage in prop::collection::vec((0usize..9, prop_oneof![0i32..2000, any::<i32>()]), 1..4),
    ) {
        let mut bytes = fixture(&format!("llama2c/{version}/model.bin"));
        for (at, number) in damage {
            bytes = with(&bytes, at, number);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.bin");
        std::fs::write(&path, bytes).unwrap();
        let _ = opened(&path, &path, "damaged");
    }
}
