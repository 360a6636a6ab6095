//! Files of llama2.c that lie.

use std::path::Path;

use proptest::prelude::*;

use super::{all_refused, fixture, opened};

/// The file with another number as its header's `at`-th.
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
                    continue; // how far it looks back changes nothing that stands in it
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

#[test]
fn tokenizers_that_lie_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.bin");
    std::fs::write(&model, fixture("llama2c/v0/model.bin")).unwrap();
    let good = fixture("llama2c/v0/tokenizer.bin");
    let mut files = Vec::new();
    for length in [0, 1, 3, 4, 7, 11, 12, 13, 40, 100, 1000, good.len() - 1] {
        files.push((format!("cut to {length} bytes"), good[..length].to_vec()));
    }
    for length in [0, 4, 6, 1 << 10, 1 << 20, i32::MAX, -1] {
        files.push((format!("a first token of {length} bytes"), with(&good, 2, length)));
    }
    let with_byte = |at: usize, byte: u8| {
        let mut file = good.clone();
        file[at] = byte;
        file
    };
    files.push(("no <unk>".to_owned(), with_byte(12, b'x')));
    files.push(("no text".to_owned(), with_byte(12, 0xff)));
    files.push(("more tokens".to_owned(), [good.as_slice(), &[0, 0, 0, 0, 1, 0, 0, 0, b'z']].concat()));
    for (what, bytes) in files {
        std::fs::write(folder.path().join("tokenizer.bin"), bytes).unwrap();
        let line = super::read_all(&model).unwrap_err();
        assert!(line.contains("tokenizer.bin") && !line.contains('\n'), "{what}: {line}");
    }
}

proptest! {
    /// Whatever stands in a few places: a line or a model, and never more memory than the file bears
    /// out.
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
        let _ = opened(Path::new(&path), "damaged");
    }
}
