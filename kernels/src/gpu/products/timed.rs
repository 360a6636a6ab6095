//! Autotuning of the runtime's kernels on devices without tensor cores. At the first of products
//! alike (of the same sizes, rounded up to powers of two), all kernels are timed, and their results
//! are compared with those of the rule's kernel. The fastest are kept on disk for the next process
//! on the same device.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io};

use burn::tensor::{DType, Device, FloatDType, Tensor};
use burn_cubecl::{CubeDevice, ops::reshape, tensor::CubeTensor};
use cubecl_environment::future::block_on;
use cubek::matmul::definition::MatmulSetupError;
use cubek::matmul::multi_level::Strategy;
use cubek::matmul::multi_level::routines::TileSizeSelection::{self, MaxTileSize, MinTileSize};
use cubek::matmul::multi_level::routines::batch::double_unit::DoubleUnitSelectionArgs;
use cubek::matmul::multi_level::routines::batch::simple_unit::SimpleUnitSelectionArgs;
use cubek::matmul::multi_level::routines::gemm::GemmStrategy;
use cubek::matmul::routine::BlueprintStrategy;
use ember_host::files::{read_whole, write_text};
use ember_host::panics::quietly;
use serde::{Deserialize, Serialize};

use super::rule::{self, launch};
use crate::gpu::tensor::{cube, from_cube, unfilled_like};

/// One of the runtime's kernels that need no tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kernel {
    /// Tiles in shared memory, as large as fit.
    Large,
    Small,
    /// The same with double buffering: the next tiles are loaded while these are multiplied.
    LargeAhead,
    SmallAhead,
    /// Without shared memory; subgroups add up partial sums.
    Subgroups,
    /// One unit per value.
    Plain,
    /// The rule's kernel: no other computes the same result.
    Rule,
}

/// The fastest kernel for each [`key`] of products.
type Fastest = BTreeMap<String, Kernel>;

/// What is known of one device.
struct Known {
    device: CubeDevice,
    fastest: Fastest,
    /// The file that keeps them, if any.
    file: Option<PathBuf>,
}

/// What is known of each device.
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

impl Known {
    /// The entry of a device, new if there is none.
    fn of<'a>(all: &'a mut Vec<Self>, device: &CubeDevice) -> &'a mut Self {
        let place = all.iter().position(|known| known.device == *device).unwrap_or_else(|| {
            all.push(Self { device: device.clone(), fastest: Fastest::new(), file: None });
            all.len() - 1
        });
        &mut all[place]
    }
}

/// More than the size of any file written here.
const MAX_BYTES: u64 = 1 << 20;

/// How long a kernel is timed, roughly; one that takes longer runs once.
const TARGET_TIME: Duration = Duration::from_millis(20);

/// Maximum number of runs of a kernel.
const MAX_RUNS: u128 = 20;

/// Numbers of two results that are compared at a time.
const AT_ONCE: usize = 1 << 22;

/// Uses the timings kept in `file` for `device`, a GPU, from now on, and adds new ones. The file is
/// for one device, with its driver, and one version of this program. A damaged file counts as
/// empty, and is replaced.
pub fn keep_in(device: &Device, file: &Path) {
    // Left empty, so that no kernel runs yet.
    let device = cube(Tensor::<1>::empty([1], &device.clone().inner())).device;
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = Known::of(&mut all, &device);
    (known.fastest, known.file) = (read(file).unwrap_or_default(), Some(file.to_owned()));
}

fn read(file: &Path) -> io::Result<Fastest> {
    Ok(serde_json::from_slice(&read_whole(file, MAX_BYTES)?)?)
}

/// `y = a b` by the fastest kernel, which is determined first if it is unknown.
pub(super) fn multiply(a: &CubeTensor, b: &CubeTensor, y: &CubeTensor) -> Result<(), MatmulSetupError> {
    let key = key(a, b, y);
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let Known { fastest, file, .. } = Known::of(&mut all, &a.device);
    if let Some(kernel) = fastest.get(&key) {
        // The kernel supported other sizes with the same key, but may not support these.
        return kernel.multiply(a, b, y).or_else(|_| rule::multiply(a, b, y));
    }
    rule::multiply(a, b, y)?;
    if quietly(|| is_comparable(y)) == Ok(true) {
        fastest.insert(key, find_fastest(a, b, y));
        if let Some(file) = file {
            // If this fails, the next process times the kernels again.
            let _ = write(fastest, file);
        }
    }
    Ok(())
}

fn write(fastest: &Fastest, file: &Path) -> io::Result<()> {
    fs::create_dir_all(file.parent().unwrap_or(Path::new("")))?;
    write_text(file, &serde_json::to_string_pretty(fastest)?).map_err(io::Error::other)
}

/// The key of products that share a fastest kernel: the batch size and the matrix sizes, rounded up
/// to powers of two, the types, and which factors are transposed.
fn key(a: &CubeTensor, b: &CubeTensor, y: &CubeTensor) -> String {
    let size = |tensor: &CubeTensor, from_last: usize| {
        let shape = tensor.meta.shape();
        shape[shape.num_dims() - from_last]
    };
    let [m, k, n] = [size(a, 2), size(a, 1), size(b, 1)];
    let count = y.meta.shape().num_elements() / (m * n).max(1);
    let [count, m, k, n] = [count, m, k, n].map(usize::next_power_of_two);
    let mark = |tensor: &CubeTensor| if tensor.meta.strides().last() == Some(&1) { "" } else { "'" };
    format!("{count} of {m}x{k}{} by {k}x{n}{}, {:?} to {:?}", mark(a), mark(b), a.dtype, y.dtype)
}

/// The fastest kernel whose result agrees with `y`.
fn find_fastest(a: &CubeTensor, b: &CubeTensor, y: &CubeTensor) -> Kernel {
    let timed = Kernel::TIMED.into_iter().filter_map(|kernel| Some((kernel, time(kernel, a, b, y)?)));
    timed.min_by_key(|(_, took)| *took).map_or(Kernel::Rule, |(kernel, _)| kernel)
}

/// How long a product takes; `None` if the kernel does not support it, or computes something else.
fn time(kernel: Kernel, a: &CubeTensor, b: &CubeTensor, reference: &CubeTensor) -> Option<Duration> {
    let y = unfilled_like(reference);
    // The first run compiles the kernel. If the driver refuses it (no subgroups, for example),
    // reading the result fails.
    kernel.multiply(a, b, &y).ok()?;
    if quietly(|| agrees(&y, reference)) != Ok(true) {
        return None;
    }
    let run = |times: u32| {
        let began = Instant::now();
        for _ in 0..times {
            kernel.multiply(a, b, &y).ok()?;
        }
        block_on(y.client.sync()).ok()?;
        Some(began.elapsed() / times)
    };
    let once = run(1)?;
    let times = (TARGET_TIME.as_nanos() / once.as_nanos().max(1)).clamp(1, MAX_RUNS) as u32;
    if times == 1 { Some(once) } else { run(times) }
}

/// Whether two results agree up to rounding.
fn agrees(y: &CubeTensor, reference: &CubeTensor) -> bool {
    let allowed = if reference.dtype == DType::F32 { 1e-4 } else { 2e-2 };
    let most = |values: Tensor<1>| values.abs().max().into_scalar::<f32>();
    let mut pairs = pieces(y).zip(pieces(reference));
    pairs.all(|(y, expected)| most(y - expected.clone()) <= allowed * most(expected))
}

/// Whether other results can be compared with this one. Not if any number is not finite, as in a
/// step with too large a loss scale, or if all are zero.
fn is_comparable(reference: &CubeTensor) -> bool {
    let sum: f32 = pieces(reference).map(|piece| piece.abs().sum().into_scalar::<f32>()).sum();
    sum > 0.0 && sum.is_finite()
}

/// A result in float32; in pieces, because memory may be short.
fn pieces(y: &CubeTensor) -> impl Iterator<Item = Tensor<1>> {
    let count = y.meta.shape().num_elements();
    let y = from_cube::<1>(reshape(y.clone(), [count].into()));
    (0..count).step_by(AT_ONCE).map(move |from| {
        let piece = y.clone().slice(from..count.min(from + AT_ONCE));
        piece.cast(FloatDType::F32)
    })
}

impl Kernel {
    const TIMED: [Self; 6] =
        [Self::Large, Self::Small, Self::LargeAhead, Self::SmallAhead, Self::Subgroups, Self::Plain];

    /// `y = a b`.
    fn multiply(self, a: &CubeTensor, b: &CubeTensor, y: &CubeTensor) -> Result<(), MatmulSetupError> {
        let staged = |tile_size: TileSizeSelection| {
            Strategy::SimpleUnit(BlueprintStrategy::Inferred(SimpleUnitSelectionArgs { tile_size }))
        };
        let ahead = |tile_size: TileSizeSelection| {
            Strategy::DoubleUnit(BlueprintStrategy::Inferred(DoubleUnitSelectionArgs { tile_size }))
        };
        let strategy = match self {
            Self::Large => staged(MaxTileSize),
            Self::Small => staged(MinTileSize),
            Self::LargeAhead => ahead(MaxTileSize),
            Self::SmallAhead => ahead(MinTileSize),
            Self::Subgroups => Strategy::Gemm(BlueprintStrategy::Inferred(GemmStrategy { target_num_planes: None })),
            Self::Plain => Strategy::Naive,
            Self::Rule => return rule::multiply(a, b, y),
        };
        launch(strategy, a, b, y)
    }
}

#[cfg(all(test, feature = "autodiff"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::gpu::tensor::{unfilled, with_width};
    use crate::gpu::tensor_cores::has_tensor_cores;
    use crate::gpu::testing::{gpu, largest_difference, random, values};

    #[test]
    fn what_was_found_is_known_again_and_a_damaged_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("products/card.json");
        let found =
            Fastest::from([("1 of 1x2 by 2x1".to_owned(), Kernel::SmallAhead), ("else".to_owned(), Kernel::Plain)]);
        write(&found, &file).unwrap();
        assert_eq!(read(&file).unwrap(), found);
        for damaged in [&b""[..], b"{\"1 of 1x2 by 2x1\": \"fas", b"{\"else\": \"unheard_of\"}", &[0xff; 99]] {
            fs::write(&file, damaged).unwrap();
            assert!(read(&file).is_err());
        }
        write(&found, &file).unwrap();
        assert_eq!(read(&file).unwrap(), found);
    }

    #[test]
    fn the_fastest_is_found_once_for_products_alike() {
        let Some(device) = gpu() else { return };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("card.json");
        keep_in(&device, &file);
        for [m, k, n] in [[70, 40, 100], [100, 60, 65], [1, 64, 64]] {
            let [a, b] = [([m, k], 1), ([k, n], 2)].map(|(shape, seed)| random::<2>(shape, seed, &Device::flex()));
            let [a_there, b_there] =
                [&a, &b].map(|factor| cube(Tensor::<2>::from_data(factor.clone().into_data(), &device)));
            if has_tensor_cores(&a_there.client) {
                return;
            }
            let expected = values(a.matmul(b));
            let y = unfilled(&a_there, with_width(&a_there, n), DType::F32);
            multiply(&a_there, &b_there, &y).unwrap();
            assert!(largest_difference(&values(from_cube::<2>(y)), &expected) < 1e-4);
        }
        let kept: Vec<String> = read(&file).unwrap().into_keys().collect();
        assert_eq!(kept, ["1 of 128x64 by 64x128, F32 to F32", "1 of 1x64 by 64x64, F32 to F32"]);
    }

    /// Any kernel, or none, would agree with it, and the choice is kept for good.
    #[test]
    fn a_result_that_tells_nothing_decides_nothing() {
        let Some(device) = gpu() else { return };
        let finite = random::<2>([33, 70], 3, &device);
        let with = |number: f32| {
            let one = Tensor::<2>::full([1, 1], number, &device);
            cube(finite.clone().slice_assign([32..33, 69..70], one))
        };
        assert!(is_comparable(&with(9.0)));
        assert!(!is_comparable(&with(f32::INFINITY)) && !is_comparable(&with(f32::NAN)));
        assert!(!is_comparable(&cube(finite.clone() * 0.0)));
    }

    #[test]
    fn a_result_that_is_wrong_anywhere_is_noticed() {
        let Some(device) = gpu() else { return };
        let reference = random::<2>([33, 70], 3, &device);
        let wrong = reference.clone().slice_assign([32..33, 69..70], Tensor::<2>::full([1, 1], 9.0, &device));
        let agrees = |y: Tensor<2>| agrees(&cube(y), &cube(reference.clone()));
        assert!(agrees(reference.clone() + 1e-6));
        assert!(!agrees(wrong));
        assert!(!agrees(reference.clone() * f32::NAN));
        // If no kernel agrees, the rule's choice stays: it is not timed again at every step.
        let [a, b] = [[33, 5], [5, 70]].map(|shape| cube(random::<2>(shape, 4, &device)));
        assert_eq!(find_fastest(&a, &b, &cube(reference * f32::NAN)), Kernel::Rule);
    }
}
