//! Which adapters can train which shipped recipes: the program's own check under each adapter's
//! limits, recorded in `docs/adapters.md`, which `EMBER_BLESS=1` rewrites.
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
const GIB: u64 = 1 << 30;

/// Limits in the order of a report, as wgpu and the runtime see a driver's: a buffer is at most the
/// smallest of these sizes. On CUDA the runtime's own limit counts, a quarter of the memory.
const fn reported(shared_memory: usize, units: usize, buffers: usize, range: u64, allocation: u64) -> Limits {
    let least = if range < allocation { range } else { allocation };
    let buffer_bytes = if least < i32::MAX as u64 { least } else { i32::MAX as u64 };
    Limits { shared_memory, units, buffers, buffer_bytes, tensor_cores: false }
}

/// The reports of vulkan.gpuinfo.org that Khronos maintains, at this commit.
macro_rules! profiles {
    ($commit:literal, $path:literal) => {
        concat!("https://github.com/KhronosGroup/Vulkan-Profiles/blob/", $commit, "/profiles/", $path)
    };
}
macro_rules! of_2026 {
    ($path:literal) => {
        profiles!("910ea35629aa7ca7cb96335877e1abf253df704e", $path)
    };
}
macro_rules! layers {
    ($path:literal) => {
        concat!(
            "https://github.com/KhronosGroup/Vulkan-ValidationLayers/blob/15064d5b165c5eaf1c8a2fcf2245027943bf4a9e/tests/device_profiles/",
            $path
        )
    };
}

/// An adapter, its driver, its limits, and the report that has them.
type Adapter = (&'static str, &'static str, Limits, &'static str);

#[rustfmt::skip] // one a line
const ADAPTERS: &[Adapter] = &[
    ("Apple M1", "MoltenVK 1.4.1, macOS 26.5", reported(32 * KIB, 1024, 31, 4 * GIB - 1, 4 * GIB),
        of_2026!("LunarG/VP_LUNARG_desktop_baseline_2026/vp_gpuinfo_apple_m1_0_2_2209_macos_26_5_1.json")),
    ("Intel UHD 620", "Mesa 23.1.7", reported(64 * KIB, 1024, 65_535, 4 * GIB - 1, 15_538_538_496),
        profiles!("d6c99097cd2401500a995341282453268b08fb18", "VP_LUNARG_desktop_baseline_2024/vp_gpuinfo_intel_r__uhd_graphics_620__whl_gt2__23_1_7_arch_unknown.json")),
    ("Intel Iris Xe", "Mesa 26.1.3", reported(48 * KIB, 1024, 201_326_592, 4 * GIB - 1, 12_409_119_744),
        of_2026!("LunarG/VP_LUNARG_desktop_baseline_2026/vp_gpuinfo_intel_r__iris_r__xe_graphics__tgl_gt2__26_1_3_void_unknown.json")),
    ("Intel Arc A770", "Intel 101.8801, Windows 11", reported(48 * KIB, 1024, 33_554_432, 1_073_741_820, 4_294_901_760),
        of_2026!("LunarG/VP_LUNARG_desktop_max_2026/vp_gpuinfo_intel_r__arc_tm__a770_graphics_0_406_609_windows_11.json")),
    ("AMD RX 6600 (RDNA2)", "Mesa 23.3", reported(64 * KIB, 1024, 8_388_606, 4 * GIB - 1, 4_294_967_292),
        of_2026!("LunarG/VP_LUNARG_desktop_max_2024/vp_gpuinfo_amd_radeon_rx_6600__radv_navi23__23_2_99_endeavouros_unknown.json")),
    ("AMD RX 7800 XT (RDNA3)", "AMD 24.1.1, Windows 11", reported(32 * KIB, 1024, 4_294_967_295, 4 * GIB - 1, 2 * GIB),
        of_2026!("LunarG/VP_LUNARG_desktop_baseline_2024/vp_gpuinfo_amd_radeon_rx_7800_xt_2_0_294_windows_11.json")),
    ("NVIDIA RTX 2060 (Turing)", "NVIDIA 537.59, Windows 11", reported(48 * KIB, 1024, 1_048_576, 4 * GIB - 1, 4_292_870_144),
        of_2026!("LunarG/VP_LUNARG_desktop_max_2024/vp_gpuinfo_nvidia_geforce_rtx_2060_537_59_0_0_windows_11.json")),
    ("NVIDIA RTX 3060 Ti (Ampere)", "NVIDIA 517.22, Windows 10", reported(48 * KIB, 1024, 1_048_576, 4 * GIB - 1, 4_292_870_144),
        profiles!("5b9d11f0f2ced67a05812ba774eae21d77cc4cfd", "VP_LUNARG_desktop_max_2022/vp_gpuinfo_nvidia_geforce_rtx_3060_ti_517_22_0_0_windows_10.json")),
    ("NVIDIA RTX 4070 (Ada)", "NVIDIA 551.61, Windows 11", reported(48 * KIB, 1024, 1_048_576, 4 * GIB - 1, 4_292_870_144),
        profiles!("e1cf59d9b90616e13de59519db7a0f8ec86f0cda", "VP_LUNARG_desktop_baseline_2023/vp_gpuinfo_nvidia_geforce_rtx_4070_551_61_0_0_windows_11.json")),
    ("NVIDIA RTX 5090 (Blackwell)", "NVIDIA 610.43.02, FreeBSD", reported(48 * KIB, 1024, 1_048_576, 4 * GIB - 1, 1024 * GIB),
        profiles!("5b6f14512692d2e84d85f511f11cead11e58c2ec", "LunarG/VP_LUNARG_desktop_baseline_2026/vp_gpuinfo_nvidia_geforce_rtx_5090_610_43_2_0_freebsd_15_1.json")),
    ("NVIDIA H200 (Hopper)", "CUDA, compute capability 9.0", Limits { shared_memory: 227 * KIB, units: 1024, buffers: 1024, buffer_bytes: 141 * GIB / 4, tensor_cores: true },
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/"),
    ("Mali-G78 (Pixel 6)", "Arm r36p0, Android 13", reported(32 * KIB, 512, 500_000, 268_435_456, 7_951_626_240),
        layers!("pixel_6_mali.json")),
    ("an Adreno of 2021", "Qualcomm 512.502, Android 12", reported(32 * KIB, 512, 524_288, 536_870_912, GIB),
        layers!("pixel_6_adreno.json")),
    ("Adreno 610", "shared memory by its reports, else what WebGPU guarantees", reported(16 * KIB, 256, 8, 128 * MIB, 256 * MIB),
        "https://github.com/gpuweb/gpuweb/issues/2832"),
    ("Adreno 540", "buffers by its reports, else what WebGPU guarantees", reported(32 * KIB, 1024, 4, 128 * MIB, 256 * MIB),
        "https://github.com/gpuweb/gpuweb/issues/4235"),
    ("the least", "what WebGPU guarantees", reported(16 * KIB, 256, 8, 128 * MIB, 256 * MIB),
        "https://www.w3.org/TR/webgpu/#limits"),
];

/// The configuration without any settings.
const DEFAULT: &str = "the default";

/// The recipes, each with its vocabulary size.
const RECIPES: &[(&str, usize)] = &[
    (DEFAULT, 4096),
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
    let settings =
        if recipe == DEFAULT { Settings::default() } else { Settings::from_recipe(recipe.as_ref()).unwrap() };
    let facts = TextFacts { train_tokens: 1_000_000, val_tokens: 100_000, vocab_size };
    settings.resolve(&facts, DeviceKind::Gpu).unwrap().0.shape(vocab_size)
}

/// The verdict on a recipe under an adapter's limits.
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
        "# Adapters and recipes\n\n\
         Which GPUs can train the default configuration and each recipe: every cell is the program's own check under the limits that an\n\
         adapter reports, as wgpu passes them on (`train/lib/tests/adapters.rs` writes and checks this page; most reports are from\n\
         vulkan.gpuinfo.org, as Khronos maintains them). Memory and speed are not judged, and none of these adapters was at hand:\n\
         `ember-train devices --check` tests yours. Another driver may report other limits for the same adapter.\n\n\
         | adapter | driver | limits |",
    );
    RECIPES.iter().for_each(|(recipe, _)| write!(page, " {recipe} |").unwrap());
    page.push_str("\n|---|---|---|");
    RECIPES.iter().for_each(|_| page.push_str("---|"));
    for (name, driver, limits, source) in ADAPTERS {
        let Limits { shared_memory, units, buffers, buffer_bytes, .. } = limits;
        let (shared, largest) = (shared_memory >> 10, buffer_bytes >> 20);
        let limits_of = format!("[{shared} KiB, {units} units, {buffers} buffers, {largest} MiB]({source})");
        write!(page, "\n| {name} | {driver} | {limits_of} |").unwrap();
        RECIPES.iter().for_each(|(recipe, vocab)| write!(page, " {} |", cell(limits, &shape(recipe, *vocab))).unwrap());
    }
    page.push('\n');
    let path = root().join("docs/adapters.md");
    if std::env::var_os("EMBER_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(page, std::fs::read_to_string(&path).unwrap_or_default());
}
