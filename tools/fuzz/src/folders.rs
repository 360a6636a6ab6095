//! A model folder: weights, their index, configuration.

use std::path::Path;

use ember_decoding::config::{FolderSettings, GenerationConfig, Knobs};
use ember_model::folder::{StoredWeights, TensorFile, expected_tensors, read_config, read_end_tokens};
use ember_model::folder::{verify_checksums, verify_checksums_for_inference};

use crate::harness::{Harness, check_error, check_file_error};
use crate::scratch;

pub const HARNESSES: &[Harness] = &[
    Harness { name: "safetensors", longest: 1 << 14, read: safetensors },
    Harness { name: "safetensors-index", longest: 1 << 13, read: index },
    Harness { name: "config", longest: 1 << 12, read: config },
    Harness { name: "generation-config", longest: 1 << 12, read: generation_config },
    Harness { name: "checksums", longest: 1 << 12, read: checksums },
];

/// A tied GPT-2 of one layer, 4 wide, with 5 tokens and a context of 6.
const CONFIG: &[u8] = include_bytes!("../seeds/config/smallest.json");
const WEIGHTS: &[u8] = include_bytes!("../seeds/safetensors/smallest.safetensors");

fn safetensors(bytes: &[u8]) {
    let folder = scratch::folder(&[("config.json", CONFIG), ("model.safetensors", bytes)]);
    if let Some(file) = check_file_error(TensorFile::open(&folder.join("model.safetensors"))) {
        for name in file.names() {
            if let Some(tensor) = check_file_error(file.read(&name)) {
                assert_eq!(tensor.values.len(), tensor.shape.iter().product::<usize>(), "{name}");
            }
        }
    }
    weights(&folder);
}

/// Checks that accepted weights have every tensor complete.
fn weights(folder: &Path) {
    let Some(stored) = check_file_error(StoredWeights::of(folder)) else { return };
    for (name, shape) in expected_tensors(&stored.config) {
        if let Some(values) = check_file_error(stored.values(&name, &shape)) {
            assert_eq!(values.len(), shape.iter().product::<usize>(), "{name}");
        }
    }
}

fn index(bytes: &[u8]) {
    let files = [("config.json", CONFIG), ("model.safetensors.index.json", bytes), ("a.safetensors", WEIGHTS)];
    weights(&scratch::folder(&files));
}

fn config(bytes: &[u8]) {
    let folder = scratch::folder(&[("config.json", bytes)]);
    check_file_error(read_end_tokens(&folder));
    check_file_error(read_config(&folder));
    weights(&scratch::folder(&[("config.json", bytes), ("model.safetensors", WEIGHTS)]));
}

fn generation_config(bytes: &[u8]) {
    let folder = scratch::folder(&[("config.json", CONFIG), ("generation_config.json", bytes)]);
    check_file_error(read_end_tokens(&folder));
    let Some(settings) = check_file_error(FolderSettings::read(&folder)) else { return };
    check_error(settings.check_vocabulary(5));
    if let Some((config, _)) = check_error(GenerationConfig::resolve(&Knobs::default(), &settings)) {
        check_error(config.check(5));
    }
}

fn checksums(bytes: &[u8]) {
    let folder = scratch::folder(&[("config.json", CONFIG), ("model.safetensors", WEIGHTS), ("checksums.json", bytes)]);
    check_file_error(verify_checksums(&folder));
    check_file_error(verify_checksums_for_inference(&folder));
}
