//! Which adapters train which of the shipped recipes: decided by the program's own check under each
//! adapter's limits, and kept in `docs/adapters.md`, which `EMBER_BLESS=1` writes anew.
#![cfg(any(feature = "wgpu", feature = "cuda"))]
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use burn::tensor::FloatDType;
use ember_kernels::limits::{Limits, Use};
use ember_model::GptConfig;
use ember_training::config::{DeviceKind, Settings, TextFacts};

const KIB: usize = 1 << 10;
const MIB: u64 = 1 << 20;

const fn limits(shared_memory: usize, units: usize, buffers: usize, buffer_bytes: u64) -> Limits {
    Limits { shared_memory, units, buffers, buffer_bytes, tensor_cores: false }
}

/// Adapters and the limits that they are known to have at least, with the source.
const ADAPTERS: &[(&str, Limits, &str)] = &[
    ("Apple M1 and later (Metal)", limits(32 * KIB, 1024, 9, 1024 * MIB), "wgpu, `m1`"),
    ("Intel UHD 600, Iris Xe", limits(32 * KIB, 1024, 16, 512 * MIB), "wgpu, `i1`"),
    ("Intel Arc", limits(32 * KIB, 1024, 16, 512 * MIB), "wgpu, `i1`"),
    ("AMD RDNA2 (RX 6000)", limits(32 * KIB, 1024, 16, 1024 * MIB), "wgpu, `a1`"),
    ("AMD RDNA3 (RX 7000)", limits(32 * KIB, 1024, 16, 1024 * MIB), "wgpu, `a1`"),
    ("NVIDIA Turing (RTX 20)", limits(48 * KIB, 1024, 16, 1024 * MIB), "wgpu, `n1`"),
    ("NVIDIA Ampere, Ada (RTX 30, 40)", limits(48 * KIB, 1024, 16, 1024 * MIB), "wgpu, `n1`"),
    (
        "NVIDIA Hopper (CUDA)",
        limits(227 * KIB, 1024, 1024, 1 << 37),
        "CUDA C++ Programming Guide, compute capability 9.0",
    ),
    ("Adreno 610", limits(16 * KIB, 256, 8, 128 * MIB), "gpuweb issue 2832; else what WebGPU guarantees"),
    ("Adreno 540", limits(32 * KIB, 1024, 4, 128 * MIB), "gpuweb issue 4235; else what WebGPU guarantees"),
    ("Mali, Windows' software adapter", limits(16 * KIB, 256, 8, 128 * MIB), "what WebGPU guarantees"),
];

/// The recipes, and the vocabulary that each meets.
const RECIPES: &[(&str, usize)] = &[
    ("stories-cpu", 1073),
    ("shakespeare-char", 65),
    ("shakespeare-char-cpu", 65),
    ("shakespeare-char-llama-cpu", 65),
    ("gpt2-124m", 50257),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn shape(recipe: &str, vocab_size: usize) -> GptConfig {
    let settings = Settings::from_recipe(recipe.as_ref()).unwrap();
    let facts = TextFacts { train_tokens: 1_000_000, val_tokens: 100_000, vocab_size };
    settings.resolve(&facts, DeviceKind::Gpu).unwrap().0.shape(vocab_size)
}

/// What becomes of a recipe under an adapter's limits.
fn cell(limits: &Limits, shape: &GptConfig) -> String {
    match (limits.check(shape.demand(Use::Training(FloatDType::F32))), limits.small_tiles(shape.head_size)) {
        (Err(error), _) => format!("refused: {error}"),
        (Ok(()), Some(slower)) => format!("runs slower: {slower}"),
        (Ok(()), None) => "runs".to_owned(),
    }
}

#[test]
fn the_table_of_adapters_is_what_the_program_decides() {
    let mut page = String::from(
        "# Adapters and recipes\n\nWhich GPUs train which of the shipped recipes: each cell is what the program's own check says under \
         limits that the\nadapter is known to have at least (`train/lib/tests/adapters.rs` writes and checks this page). \"wgpu\" are the \
         classes in which\nwgpu 30 sorts adapters by their limits (`wgpu-core/src/limits.rs`). Memory and speed are not judged here, and none \
         of these adapters\nwas at hand: `ember-train devices --check` says what yours does.\n\n| adapter | limits | from |",
    );
    RECIPES.iter().for_each(|(recipe, _)| write!(page, " {recipe} |").unwrap());
    page.push_str("\n|---|---|---|");
    RECIPES.iter().for_each(|_| page.push_str("---|"));
    for (name, limits, source) in ADAPTERS {
        let Limits { shared_memory, units, buffers, buffer_bytes, .. } = limits;
        let (shared, largest) = (shared_memory >> 10, buffer_bytes >> 20);
        write!(page, "\n| {name} | {shared} KiB, {units} units, {buffers} buffers, {largest} MiB | {source} |")
            .unwrap();
        RECIPES.iter().for_each(|(recipe, vocab)| write!(page, " {} |", cell(limits, &shape(recipe, *vocab))).unwrap());
    }
    page.push('\n');
    let path = root().join("docs/adapters.md");
    if std::env::var_os("EMBER_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(page, std::fs::read_to_string(&path).unwrap_or_default());
}
