//! Model files of other programs.

use std::path::Path;
use std::sync::LazyLock;
use std::{fs, iter};

use ember_data::tokenizer::Tokenizer;
use ember_formats::{Source, hf};
use ember_model::folder::{StoredWeights, expected_tensors};

use crate::harness::{Harness, clear, clear_file};
use crate::{place, zip};

pub const HARNESSES: &[Harness] = &[
    Harness { name: "gguf", longest: 1 << 14, read: |bytes| model("model.gguf", &[("model.gguf", bytes)]) },
    Harness { name: "llama2c", longest: 1 << 14, read: |bytes| model("model.bin", &[("model.bin", bytes)]) },
    Harness { name: "llama2c-tokens", longest: 1 << 12, read: llama2c_tokens },
    Harness { name: "nanogpt", longest: 1 << 14, read: nanogpt },
    Harness { name: "nanogpt-meta", longest: 1 << 12, read: nanogpt_meta },
];

/// The smallest model of llama2.c, of 8 tokens.
const LLAMA2C: &[u8] = include_bytes!("../seeds/llama2c/v0.bin");

fn llama2c_tokens(bytes: &[u8]) {
    model("model.bin", &[("model.bin", LLAMA2C), ("tokenizer.bin", bytes)]);
}

/// What PyTorch saved of nanoGPT, of 10 tokens. It lies in another package, so it is read where it is
/// needed: a package holds all that it is built from.
static NANOGPT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/tests/fixtures/nanogpt/ckpt.pt");
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
});

fn nanogpt_meta(bytes: &[u8]) {
    model("ckpt.pt", &[("ckpt.pt", &NANOGPT), ("meta.pkl", bytes)]);
}

/// A checkpoint, or the pickle in one: in an archive few changes leave anything to read.
fn nanogpt(bytes: &[u8]) {
    if bytes.starts_with(b"PK") {
        return model("ckpt.pt", &[("ckpt.pt", bytes)]);
    }
    let stored = zip::files_of(&NANOGPT);
    let others = stored
        .iter()
        .filter(|(name, _)| name != "ckpt/data.pkl")
        .map(|(name, content)| (name.as_str(), content.as_slice()));
    let whole: Vec<_> = iter::once(("ckpt/data.pkl", bytes)).chain(others).collect();
    model("ckpt.pt", &[("ckpt.pt", &zip::of(&whole))]);
}

fn model(name: &str, files: &[(&str, &[u8])]) {
    let path = place::folder(files).join(name);
    // A file named so is of this format, whatever it begins with, or of another of the three.
    if let Some(source) = clear_file(Source::open(&path)) {
        convert(&source.expect("the end of the name tells the format"), &path.with_extension("folder"));
    }
}

/// As the programs open such a file: by the folder that it becomes. What becomes one is one.
fn convert(source: &Source, folder: &Path) {
    let Some(model) = clear_file(source.model()) else { return };
    if clear(hf::write(&model, None, folder)).is_none() {
        return;
    }
    let stored = clear_file(StoredWeights::of(folder)).expect("what was written can be read");
    for (name, shape) in expected_tensors(&stored.config) {
        let values = clear_file(stored.values(&name, &shape)).expect("every tensor was written");
        assert_eq!(values.len(), shape.iter().product::<usize>(), "{name}");
    }
    if let Some(tokenizer) = Tokenizer::is_in(folder).then(|| Tokenizer::from_folder(folder)) {
        clear_file(tokenizer);
    }
}
