//! Tokenizers, and a prepared text's tokens and manifest.

use std::path::Path;
use std::sync::LazyLock;

use ember_data::prepare::{Dataset, Input, PrepareOptions, Silent, prepare};
use ember_data::tokenizer::{SpecialTokens, Tokenizer, TokenizerChoice};
use ember_data::tokens::TokenFile;
use xxhash_rust::xxh3::xxh3_64;

use crate::harness::{Harness, check_error, check_file_error};
use crate::scratch;

pub const HARNESSES: &[Harness] = &[
    Harness { name: "tokenizer", longest: 1 << 13, read: tokenizer },
    Harness { name: "tokenizer-config", longest: 1 << 11, read: tokenizer_config },
    Harness { name: "vocabulary-and-merges", longest: 1 << 12, read: vocabulary_and_merges },
    Harness { name: "tokens", longest: 1 << 12, read: tokens },
    Harness { name: "manifest", longest: 1 << 13, read: manifest },
];

/// Texts to encode: letters, blanks, numbers, other scripts, a special token's name.
const TEXTS: [&str; 3] = ["", " The old lighthouse, 1923.\r\n\tDon't!", "маяк 灯台 e\u{301} 🦀<|endoftext|>\u{0}"];

/// A vocabulary in GPT-2's format.
const VOCABULARY: &[u8] = br#"{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}"#;

fn tokenizer(bytes: &[u8]) {
    use_tokenizer(&scratch::folder(&[("tokenizer.json", bytes)]));
}

/// A `tokenizer_config.json` beside a `tokenizer.json`, and beside GPT-2's two files.
fn tokenizer_config(bytes: &[u8]) {
    use_tokenizer(&scratch::folder(&[
        ("tokenizer.json", include_bytes!("../served/tokenizer.json")),
        ("tokenizer_config.json", bytes),
    ]));
    use_tokenizer(&scratch::folder(&[
        ("vocab.json", VOCABULARY),
        ("merges.txt", b"a b\n"),
        ("tokenizer_config.json", bytes),
    ]));
}

/// GPT-2's two files, one after the other, separated by a line `---`.
fn vocabulary_and_merges(bytes: &[u8]) {
    let between = b"\n---\n";
    let at = bytes.windows(between.len()).position(|window| window == between).unwrap_or(bytes.len());
    let (vocabulary, merges) = bytes.split_at(at);
    let merges = merges.get(between.len()..).unwrap_or_default();
    use_tokenizer(&scratch::folder(&[("vocab.json", vocabulary), ("merges.txt", merges)]));
}

/// Checks that an accepted tokenizer encodes any text to ids of its vocabulary, or returns an
/// error, and decodes any ids.
fn use_tokenizer(folder: &Path) {
    let Some(tokenizer) = check_file_error(Tokenizer::from_folder(folder)) else { return };
    for text in TEXTS {
        for special in [SpecialTokens::Text, SpecialTokens::Parse] {
            let Some(ids) = check_error(tokenizer.encode_whole(text, special)) else { continue };
            assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()), "{ids:?}");
            check_error(tokenizer.decode_text(&ids));
        }
    }
    let last = tokenizer.vocab_size() as u32 - 1;
    let ids = [0, 1, last, last.saturating_add(1), u32::MAX];
    check_error(tokenizer.decode_text(&ids));
    for id in ids {
        tokenizer.token_bytes(id);
    }
    check_error(tokenizer.to_json());
}

/// A token file as it is, and the same with corrected checksums.
fn tokens(bytes: &[u8]) {
    token_file(&scratch::file("train.bin", bytes));
    let mut right = bytes.to_vec();
    if let Some((header, payload)) = right.split_first_chunk_mut::<64>() {
        header[32..40].copy_from_slice(&xxh3_64(payload).to_le_bytes());
        let checksum = xxh3_64(&header[..40]);
        header[40..48].copy_from_slice(&checksum.to_le_bytes());
    }
    token_file(&scratch::file("train.bin", &right));
}

fn token_file(path: &Path) {
    let Some(file) = check_file_error(TokenFile::open(path)) else { return };
    if check_file_error(file.verify()).is_some() {
        let mut ids = Vec::new();
        check_file_error(file.get(0..file.len(), &mut ids)).expect("a file that was verified can be read");
        assert_eq!(ids.len(), file.len());
    }
}

/// The files beside the manifest under test, from a text that is prepared once.
static PREPARED: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
    let place = tempfile::tempdir().expect("a temporary folder can be made");
    let text = place.path().join("text.txt");
    std::fs::write(&text, "The old lighthouse stood on the cliff for many years.\n".repeat(20))
        .expect("and written to");
    let (inputs, out) = (vec![Input::Path(text)], place.path().join("data"));
    let options =
        PrepareOptions { inputs, out: out.clone(), tokenizer: TokenizerChoice::Bytes, ..PrepareOptions::default() };
    prepare(&options, &Silent).expect("the text can be prepared");
    ["train.bin", "val.bin", "tokenizer.json"].map(|name| std::fs::read(out.join(name)).expect("it was written"))
});

fn manifest(bytes: &[u8]) {
    let [train, val, tokenizer] = &*PREPARED;
    let files = [("train.bin", train), ("val.bin", val), ("tokenizer.json", tokenizer)];
    let files: Vec<(&str, &[u8])> =
        files.map(|(name, content)| (name, content.as_slice())).into_iter().chain([("manifest.json", bytes)]).collect();
    if let Some(dataset) = check_file_error(Dataset::open(&scratch::folder(&files))) {
        dataset.manifest.bits_per_byte(1.0);
        let _ = dataset.manifest.report.to_string();
    }
}
