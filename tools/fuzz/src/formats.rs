//! Model files of other projects.

use std::path::Path;
use std::sync::LazyLock;
use std::{fs, iter};

use ember_data::tokenizer::Tokenizer;
use ember_formats::{Source, hf};
use ember_model::folder::{StoredWeights, expected_tensors};

use crate::harness::{Harness, check_error, check_file_error};
use crate::{scratch, zip};

pub const HARNESSES: &[Harness] = &[
    Harness { name: "gguf", longest: 1 << 14, read: |bytes| model("model.gguf", &[("model.gguf", bytes)]) },
    Harness { name: "llama2c", longest: 1 << 14, read: |bytes| model("model.bin", &[("model.bin", bytes)]) },
    Harness { name: "llama2c-tokens", longest: 1 << 12, read: llama2c_tokens },
    Harness { name: "nanogpt", longest: 1 << 14, read: nanogpt },
    Harness { name: "nanogpt-meta", longest: 1 << 12, read: nanogpt_meta },
];

/// A minimal model of llama2.c, with 8 tokens.
const LLAMA2C: &[u8] = include_bytes!("../seeds/llama2c/v0.bin");

fn llama2c_tokens(bytes: &[u8]) {
    model("model.bin", &[("model.bin", LLAMA2C), ("tokenizer.bin", bytes)]);
}

/// A nanoGPT checkpoint saved by PyTorch, with 10 tokens. It is read at run time, since it lies in
/// another package and a package must contain all files that it is built from.
static NANOGPT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/tests/fixtures/nanogpt/ckpt.pt");
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
});

fn nanogpt_meta(bytes: &[u8]) {
    model("ckpt.pt", &[("ckpt.pt", &NANOGPT), ("meta.pkl", bytes)]);
}

/// A checkpoint, or only its pickle: most changes to an archive leave nothing to read.
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
    let path = scratch::folder(files).join(name);
    // The file extension determines the format, whatever the content, so there is always one.
    if let Some(source) = check_file_error(Source::open(&path)) {
        convert(&source.expect("the end of the name tells the format"), &path.with_extension("folder"));
    }
}

/// Converts to a model folder, as the programs do, and checks that the folder is complete.
fn convert(source: &Source, folder: &Path) {
    let Some(model) = check_file_error(source.model()) else { return };
    if check_error(hf::write(&model, None, folder)).is_none() {
        return;
    }
    let stored = check_file_error(StoredWeights::of(folder)).expect("what was written can be read");
    for (name, shape) in expected_tensors(&stored.config) {
        let values = check_file_error(stored.values(&name, &shape)).expect("every tensor was written");
        assert_eq!(values.len(), shape.iter().product::<usize>(), "{name}");
    }
    if let Some(tokenizer) = Tokenizer::is_in(folder).then(|| Tokenizer::from_folder(folder)) {
        check_file_error(tokenizer);
    }
}
