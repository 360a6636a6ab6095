//! Tokenizers, and a prepared text: its tokens and its manifest.

use std::path::Path;
use std::sync::LazyLock;

use ember_data::prepare::{Dataset, Input, PrepareOptions, Silent, prepare};
use ember_data::tokenizer::{SpecialTokens, Tokenizer, TokenizerChoice};
use ember_data::tokens::TokenFile;
use xxhash_rust::xxh3::xxh3_64;

use crate::harness::{Harness, clear, clear_file};
use crate::place;

pub const HARNESSES: &[Harness] = &[
    Harness { name: "tokenizer", longest: 1 << 13, read: tokenizer },
    Harness { name: "tokenizer-config", longest: 1 << 11, read: beside },
    Harness { name: "vocabulary-and-merges", longest: 1 << 12, read: pair },
    Harness { name: "tokens", longest: 1 << 12, read: tokens },
    Harness { name: "manifest", longest: 1 << 13, read: manifest },
];

/// What a tokenizer is tried on: letters, blanks, numbers, other scripts, a special token's name.
const TEXTS: [&str; 3] = ["", " The old lighthouse, 1923.\r\n\tDon't!", "маяк 灯台 e\u{301} 🦀<|endoftext|>\u{0}"];

/// A vocabulary of the kind that GPT-2 has.
const VOCABULARY: &[u8] = br#"{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}"#;

fn tokenizer(bytes: &[u8]) {
    uses(&place::folder(&[("tokenizer.json", bytes)]));
}

/// What stands beside a tokenizer: in `tokenizer_config.json` beside one file, and beside GPT-2's two.
fn beside(bytes: &[u8]) {
    uses(&place::folder(&[
        ("tokenizer.json", include_bytes!("../served/tokenizer.json")),
        ("tokenizer_config.json", bytes),
    ]));
    uses(&place::folder(&[("vocab.json", VOCABULARY), ("merges.txt", b"a b\n"), ("tokenizer_config.json", bytes)]));
}

/// GPT-2's two files, one behind the other with a line of `---` between them.
fn pair(bytes: &[u8]) {
    let between = b"\n---\n";
    let at = bytes.windows(between.len()).position(|window| window == between).unwrap_or(bytes.len());
    let (vocabulary, merges) = bytes.split_at(at);
    let merges = merges.get(between.len()..).unwrap_or_default();
    uses(&place::folder(&[("vocab.json", vocabulary), ("merges.txt", merges)]));
}

/// A tokenizer that is read makes ids of its vocabulary of any text, or says why not, and text of
/// any ids.
fn uses(folder: &Path) {
    let Some(tokenizer) = clear_file(Tokenizer::from_folder(folder)) else { return };
    for text in TEXTS {
        for special in [SpecialTokens::Text, SpecialTokens::Parse] {
            let Some(ids) = clear(tokenizer.encode_whole(text, special)) else { continue };
            assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()), "{ids:?}");
            clear(tokenizer.decode_text(&ids));
        }
    }
    let last = tokenizer.vocab_size() as u32 - 1;
    let ids = [0, 1, last, last.saturating_add(1), u32::MAX];
    clear(tokenizer.decode_text(&ids));
    for id in ids {
        tokenizer.token_bytes(id);
    }
    clear(tokenizer.to_json());
}

/// A token file as it is, and one whose checksums are right whatever stands in it.
fn tokens(bytes: &[u8]) {
    token_file(&place::file("train.bin", bytes));
    let mut right = bytes.to_vec();
    if let Some((header, payload)) = right.split_first_chunk_mut::<64>() {
        header[32..40].copy_from_slice(&xxh3_64(payload).to_le_bytes());
        let checksum = xxh3_64(&header[..40]);
        header[40..48].copy_from_slice(&checksum.to_le_bytes());
    }
    token_file(&place::file("train.bin", &right));
}

fn token_file(path: &Path) {
    let Some(file) = clear_file(TokenFile::open(path)) else { return };
    if clear_file(file.verify()).is_some() {
        let mut ids = Vec::new();
        clear_file(file.get(0..file.len(), &mut ids)).expect("a file that was verified can be read");
        assert_eq!(ids.len(), file.len());
    }
}

/// A text that is prepared once: what stands beside the manifest that is tried.
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
    if let Some(dataset) = clear_file(Dataset::open(&place::folder(&files))) {
        dataset.manifest.bits_per_byte(1.0);
        let _ = dataset.manifest.report.to_string();
    }
}
