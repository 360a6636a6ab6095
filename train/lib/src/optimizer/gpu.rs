//! The optimizer's arithmetic on a GPU: kernels that take many tensors in one launch, since most of a model's tensors are so small
//! that a launch of their own would cost more than the work.
//!
//! Whether a step is taken, and how far the gradient is scaled down, the kernels read from the device
//! ([`super::verdict::Verdict`]): the host need not know yet.

use burn::tensor::{DType, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;
use ember_model::kernels::gpu::tensor::{float32, unfilled};

use super::kernel::Update;
use super::verdict::{SCALE, TAKEN, Verdict};
use crate::gpu::{UNITS, cube, cube_sum};

/// Values of a tensor that one unit takes, and that a cube takes.
const EACH: usize = 8;
/// See [`EACH`].
const CHUNK: usize = UNITS as usize * EACH;
/// The same where a cube leaves but one sum behind: more values, so that few sums are left to be added up.
const EACH_SUMMED: usize = 64;
/// See [`EACH_SUMMED`].
const CHUNK_SUMMED: usize = UNITS as usize * EACH_SUMMED;
/// Tensors of a parameter in one launch at most. Each takes a stretch of code, so more of them compile longer.
const MOST_TOGETHER: usize = 16;
/// Buffers that a launch has beside those of the parameters, the runtime's own among them.
const OTHER_BUFFERS: u32 = 4;

/// One parameter, contiguous float32, with all that its step reads and writes.
pub(super) struct AdamWStep {
    /// Changed in place.
    pub parameter: CubeTensor,
    /// As long.
    pub gradient: CubeTensor,
    /// First and second moment, changed in place.
    pub moments: [CubeTensor; 2],
    /// What weight decay leaves of the parameter.
    pub keep: f32,
}

/// The tensor as kernels change it in place: a copy where somebody else holds it too.
pub(super) fn own<const D: usize>(values: Tensor<D>) -> CubeTensor {
    let values = float32(cube(values));
    if values.can_mut() { values } else { values.copy() }
}

/// One step of AdamW for each of `steps` along the gradient that `verdict` is about; none where it says so.
pub(super) fn adamw(steps: Vec<AdamWStep>, verdict: &Verdict, update: Update) {
    launch_together(
        steps,
        4,
        CHUNK,
        |step| &step.parameter,
        |client, group, cubes, first_cubes| {
            let count = group.len();
            let mut tensors = SequenceArg::new();
            for (AdamWStep { parameter, gradient, moments: [first, second], keep }, first_cube) in
                group.into_iter().zip(first_cubes)
            {
                let values = parameter.meta.num_elements();
                tensors.push(AdamWTensorsLaunch::new(
                    parameter.into_buffer_arg(),
                    gradient.into_buffer_arg(),
                    first.into_buffer_arg(),
                    second.into_buffer_arg(),
                    first_cube,
                    values,
                    keep,
                ));
            }
            // SAFETY: the kernel reads and writes each tensor below its number of values, and two values of the verdict.
            unsafe {
                adamw_kernel::launch_unchecked(
                    client,
                    cubes,
                    CubeDim::new_1d(UNITS),
                    tensors,
                    cube(verdict.values()).into_buffer_arg(),
                    update.beta1,
                    update.beta2,
                    update.epsilon,
                    update.step_size,
                    update.root_correction,
                    count,
                );
            }
        },
    );
}

/// Lets each average go towards its weights by `share` of the way, in place; not where `verdict` says that no step was taken.
pub(super) fn follow(pairs: Vec<[CubeTensor; 2]>, verdict: &Verdict, share: f32) {
    launch_together(
        pairs,
        2,
        CHUNK,
        |[average, _]| average,
        |client, group, cubes, first_cubes| {
            let count = group.len();
            let mut tensors = SequenceArg::new();
            for ([average, weights], first_cube) in group.into_iter().zip(first_cubes) {
                let values = average.meta.num_elements();
                let (average, weights) = (average.into_buffer_arg(), weights.into_buffer_arg());
                tensors.push(AverageTensorsLaunch::new(average, weights, first_cube, values));
            }
            // SAFETY: the kernel reads and writes each tensor below its number of values, and one value of the verdict.
            unsafe {
                average_kernel::launch_unchecked(
                    client,
                    cubes,
                    CubeDim::new_1d(UNITS),
                    tensors,
                    cube(verdict.values()).into_buffer_arg(),
                    share,
                    count,
                );
            }
        },
    );
}

/// The sums of the squares of stretches of the gradients, one after another in a fixed order.
pub(super) fn sums_of_squares(gradients: Vec<CubeTensor>) -> Option<CubeTensor> {
    let chunks: usize = gradients.iter().map(|gradient| gradient.meta.num_elements().div_ceil(CHUNK_SUMMED)).sum();
    let sums = unfilled(gradients.first()?, [chunks], DType::F32);
    let mut before = 0;
    launch_together(
        gradients,
        1,
        CHUNK_SUMMED,
        |gradient| gradient,
        |client, group, cubes, first_cubes| {
            let count = group.len();
            let mut tensors = SequenceArg::new();
            let mut used = 0;
            for (gradient, first_cube) in group.into_iter().zip(first_cubes) {
                let values = gradient.meta.num_elements();
                used += values.div_ceil(CHUNK_SUMMED);
                tensors.push(GradientTensorLaunch::new(gradient.into_buffer_arg(), first_cube, values));
            }
            // SAFETY: the kernel reads each tensor below its number of values, and writes a sum for each chunk that there is.
            unsafe {
                squares_kernel::launch_unchecked(
                    client,
                    cubes,
                    CubeDim::new_1d(UNITS),
                    tensors,
                    sums.clone().into_buffer_arg(),
                    before,
                    used,
                    count,
                );
            }
            before += used;
        },
    );
    Some(sums)
}

/// Calls `launch` for groups as large as a launch may be, each tensor's work of `buffers` buffers and in cubes of `chunk`
/// values: with the group, its cubes, and the first cube of each. `length` gives a tensor as long as the work.
fn launch_together<T>(
    mut work: Vec<T>,
    buffers: u32,
    chunk: usize,
    length: impl Fn(&T) -> &CubeTensor,
    mut launch: impl FnMut(&Client, Vec<T>, CubeCount, Vec<usize>),
) {
    let Some(client) = work.first().map(|one| length(one).client.clone()) else { return };
    let bindings = client.properties().hardware.max_bindings.saturating_sub(OTHER_BUFFERS);
    let together = ((bindings / buffers) as usize).clamp(1, MOST_TOGETHER);
    while !work.is_empty() {
        let rest = work.split_off(together.min(work.len()));
        let group = std::mem::replace(&mut work, rest);
        let mut cubes = 0;
        let first_cubes = group
            .iter()
            .map(|one| {
                let first = cubes;
                cubes += length(one).meta.num_elements().div_ceil(chunk);
                first
            })
            .collect();
        let dim = CubeDim::new_1d(UNITS);
        let count = cubecl::calculate_cube_count_elemwise(&client, cubes * UNITS as usize, dim);
        launch(&client, group, count, first_cubes);
    }
}

#[derive(CubeType, CubeLaunch)]
struct AdamWTensors {
    parameter: Box<[f32]>,
    gradient: Box<[f32]>,
    first: Box<[f32]>,
    second: Box<[f32]>,
    first_cube: usize,
    values: usize,
    keep: f32,
}

#[cube(launch_unchecked)]
fn adamw_kernel(
    mut tensors: Sequence<AdamWTensors>,
    verdict: &[f32],
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    step_size: f32,
    root_correction: f32,
    #[comptime] count: usize,
) {
    if verdict[TAKEN] != f32::new(1.0) {
        terminate!();
    }
    let scale = verdict[SCALE];
    let one = f32::new(1.0);
    #[unroll]
    for t in 0..count {
        let tensor = tensors.index_mut(t);
        let first_cube = tensor.first_cube;
        let values = tensor.values;
        if CUBE_POS >= first_cube && (CUBE_POS - first_cube) * CHUNK < values {
            let start = (CUBE_POS - first_cube) * CHUNK + UNIT_POS as usize;
            let keep = tensor.keep;
            for k in 0..EACH {
                let i = start + k * UNITS as usize;
                if i < values {
                    let g = tensor.gradient[i] * scale;
                    let first = beta1 * tensor.first[i] + (one - beta1) * g;
                    let second = beta2 * tensor.second[i] + (one - beta2) * g * g;
                    let step = step_size * first / (second.sqrt() / root_correction + epsilon);
                    tensor.first[i] = first;
                    tensor.second[i] = second;
                    tensor.parameter[i] = tensor.parameter[i] * keep - step;
                }
            }
        }
    }
}

#[derive(CubeType, CubeLaunch)]
struct AverageTensors {
    average: Box<[f32]>,
    weights: Box<[f32]>,
    first_cube: usize,
    values: usize,
}

#[cube(launch_unchecked)]
fn average_kernel(mut tensors: Sequence<AverageTensors>, verdict: &[f32], share: f32, #[comptime] count: usize) {
    if verdict[TAKEN] != f32::new(1.0) {
        terminate!();
    }
    #[unroll]
    for t in 0..count {
        let tensor = tensors.index_mut(t);
        let first_cube = tensor.first_cube;
        let values = tensor.values;
        if CUBE_POS >= first_cube && (CUBE_POS - first_cube) * CHUNK < values {
            let start = (CUBE_POS - first_cube) * CHUNK + UNIT_POS as usize;
            for k in 0..EACH {
                let i = start + k * UNITS as usize;
                if i < values {
                    let average = tensor.average[i];
                    tensor.average[i] = average + share * (tensor.weights[i] - average);
                }
            }
        }
    }
}

#[derive(CubeType, CubeLaunch)]
struct GradientTensor {
    gradient: Box<[f32]>,
    first_cube: usize,
    values: usize,
}

#[cube(launch_unchecked)]
fn squares_kernel(
    tensors: Sequence<GradientTensor>,
    sums: &mut [f32],
    before: usize,
    used: usize,
    #[comptime] count: usize,
) {
    let mut sum = f32::new(0.0);
    #[unroll]
    for t in 0..count {
        let tensor = tensors.index(t);
        let first_cube = tensor.first_cube;
        let values = tensor.values;
        if CUBE_POS >= first_cube && (CUBE_POS - first_cube) * CHUNK_SUMMED < values {
            let start = (CUBE_POS - first_cube) * CHUNK_SUMMED + UNIT_POS as usize;
            for k in 0..EACH_SUMMED {
                let i = start + k * UNITS as usize;
                if i < values {
                    let g = tensor.gradient[i];
                    sum += g * g;
                }
            }
        }
    }
    let sum = cube_sum(sum, UNITS);
    if UNIT_POS == 0 && CUBE_POS < used {
        sums[before + CUBE_POS] = sum;
    }
}
