//! The optimizer's arithmetic on a GPU: kernels that process many tensors per launch, because most
//! of a model's tensors are so small that a separate launch would cost more than the work.
//!
//! The kernels read from device memory whether the step is taken, and how the gradient is scaled
//! ([`decide`]), so the host need not wait for either.

use burn::tensor::Tensor;

use super::update::Update;
use crate::{gpu::finite::is_finite, gpu::launch::UNITS, gpu::prelude::*, gpu::sum::cube_sum};

/// Values of a tensor per unit.
pub(super) const EACH: usize = 8;
/// Values of a tensor per cube.
pub(super) const CHUNK: usize = UNITS as usize * EACH;
/// Values of a tensor per unit in kernels with one sum per cube: more, so that few sums remain to
/// be added up.
const EACH_SUMMED: usize = 64;
/// Values of a tensor per cube in these kernels.
const CHUNK_SUMMED: usize = UNITS as usize * EACH_SUMMED;
/// Maximum number of parameters in one launch. The kernel's code is unrolled over them, so more of
/// them take longer to compile.
const MAX_TOGETHER: usize = 16;
/// Buffers of a launch other than the parameters', including the runtime's own.
const OTHER_BUFFERS: u32 = 4;

/// Index in a decision of the mean loss.
pub const LOSS: usize = 0;
/// Index in a decision of the gradient's norm.
pub const NORM: usize = 1;
/// Index in a decision of the gradient's factor.
pub const SCALE: usize = 2;
/// Index in a decision of a 1 if the step is taken, else 0.
pub const TAKEN: usize = 3;
/// Values of a decision.
pub const VALUES: usize = 4;

/// One parameter, contiguous float32, with everything that its step reads and writes.
pub struct AdamWStep {
    /// Changed in place.
    pub parameter: CubeTensor,
    /// The parameter's gradient, of the same length.
    pub gradient: CubeTensor,
    /// First and second moment, changed in place.
    pub moments: [CubeTensor; 2],
    /// Factor of weight decay for the parameter.
    pub keep: f32,
}

/// The tensor, to change in place: a copy if something else holds it too.
pub fn own<const D: usize>(values: Tensor<D>) -> CubeTensor {
    writable(float32(cube(values)))
}

/// Whether the tensor is `values` float32 numbers without gaps, as the kernels access it.
pub(super) fn is_list_of(tensor: &CubeTensor, values: usize) -> bool {
    tensor.dtype == DType::F32 && tensor.meta.num_elements() == values && tensor.is_contiguous()
}

impl AdamWStep {
    /// Whether the fields are as their docs say, which the kernel relies on.
    fn is_consistent(&self) -> bool {
        let values = self.parameter.meta.num_elements();
        let [first, second] = &self.moments;
        [&self.parameter, &self.gradient, first, second].into_iter().all(|tensor| is_list_of(tensor, values))
    }
}

/// One step of AdamW for each of `steps`; does nothing if `decision` rejects the step.
///
/// # Panics
/// When a step is not as [`AdamWStep`] describes it.
pub fn adamw(steps: Vec<AdamWStep>, decision: CubeTensor, update: Update) {
    assert!(steps.iter().all(AdamWStep::is_consistent), "a step whose tensors do not fit each other");
    let argument = |step: AdamWStep, first_cube, values| {
        let ([first, second], keep) = (step.moments, step.keep);
        let [parameter, gradient, first, second] =
            [step.parameter, step.gradient, first, second].map(CubeTensor::into_buffer_arg);
        AdamWTensorsLaunch::new(parameter, gradient, first, second, first_cube, values, keep)
    };
    let Update { beta1, beta2, epsilon, step_size, root_correction, .. } = update;
    let groups = groups::<_, AdamWTensors>(steps, [4, CHUNK], |step| &step.parameter, argument);
    for (grid, tensors, [count, _]) in groups {
        // SAFETY: the kernel reads and writes each tensor below its number of values, and two
        // values of the decision.
        unsafe {
            launch!(adamw_kernel, grid, [&decision], tensors, beta1, beta2, epsilon, step_size, root_correction, count);
        }
    }
}

/// Moves each average towards its weights by the fraction `share`, in place; does nothing if
/// `decision` rejects the step.
///
/// # Panics
/// When the two of a pair are not contiguous float32 of the same length.
pub fn follow(pairs: Vec<[CubeTensor; 2]>, decision: CubeTensor, share: f32) {
    let fit = |pair: &[CubeTensor; 2]| pair.iter().all(|tensor| is_list_of(tensor, pair[0].meta.num_elements()));
    assert!(pairs.iter().all(fit), "an average of another length than its weights");
    let argument = |pair: [CubeTensor; 2], first_cube, values| {
        let [average, weights] = pair.map(CubeTensor::into_buffer_arg);
        AverageTensorsLaunch::new(average, weights, first_cube, values)
    };
    let groups = groups::<_, AverageTensors>(pairs, [2, CHUNK], |[average, _]| average, argument);
    for (grid, tensors, [count, _]) in groups {
        // SAFETY: the kernel reads and writes each tensor below its number of values, and one value
        // of the decision.
        unsafe { launch!(average_kernel, grid, [&decision], tensors, share, count) };
    }
}

/// Sums of squares of the gradients, one per chunk, in a fixed order.
pub fn sums_of_squares(gradients: Vec<CubeTensor>) -> Option<CubeTensor> {
    let chunks: usize = gradients.iter().map(|gradient| gradient.meta.num_elements().div_ceil(CHUNK_SUMMED)).sum();
    let sums = unfilled(gradients.first()?, [chunks], DType::F32);
    let mut before = 0;
    let argument = |gradient: CubeTensor, first_cube, values| {
        GradientTensorLaunch::new(gradient.into_buffer_arg(), first_cube, values)
    };
    let groups = groups::<_, GradientTensor>(gradients, [1, CHUNK_SUMMED], |gradient| gradient, argument);
    for (grid, tensors, [count, cubes]) in groups {
        // SAFETY: the kernel reads each tensor below its number of values, and writes one sum for
        // each chunk.
        unsafe { launch!(squares_kernel, grid, [&sums], tensors, before, cubes, count) };
        before += cubes;
    }
    Some(sums)
}

/// The decision on a step, from the `losses` of its passes, one value each, and the gradients'
/// sums of squares. The step is rejected if its loss or norm is not finite, or if `halted` is not
/// 0; `halted` is set to 1 if the step is rejected. `grad_clip` limits the norm; 0 means no limit.
pub fn decide(losses: CubeTensor, sums: CubeTensor, halted: CubeTensor, grad_clip: f32) -> CubeTensor {
    let (losses, count) = (float32(losses.clone()), losses.meta.num_elements());
    let decision = unfilled(&losses, [VALUES], DType::F32);
    let (chunks, grid) = (sums.meta.num_elements(), Grid::cubes(&[&losses], 1, UNITS as usize));
    // SAFETY: the kernel reads `chunks` sums and `count` losses, and reads and writes `halted` and
    // the decision within their sizes.
    unsafe { launch!(decide_kernel, grid, [sums, losses, halted, &decision], chunks, count, grad_clip) };
    decision
}

/// Maximum number of parameters of one launch, with `buffers` buffers each.
pub(super) fn most_together(client: &Client, buffers: usize) -> usize {
    let bindings = client.properties().hardware.max_bindings.saturating_sub(OTHER_BUFFERS);
    (bindings as usize / buffers).clamp(1, MAX_TOGETHER)
}

/// Divides the work into launches as large as allowed; each item has `buffers` buffers, and cubes
/// of `chunk` values. Returns for each launch the grid, the kernel's arguments, and the numbers of
/// items and cubes. `length` gives a tensor of an item's length; `argument` gets an item, the
/// number of its first cube and its number of values.
fn groups<T, A: LaunchArg>(
    work: Vec<T>,
    [buffers, chunk]: [usize; 2],
    length: impl Fn(&T) -> &CubeTensor,
    argument: impl Fn(T, usize, usize) -> A::RuntimeArg,
) -> Vec<(Grid, SequenceArg<A>, [usize; 2])> {
    let Some(client) = work.first().map(|one| length(one).client.clone()) else { return Vec::new() };
    let most = most_together(&client, buffers);
    let (mut work, mut groups) = (work.into_iter(), Vec::new());
    while work.len() > 0 {
        let group: Vec<T> = work.by_ref().take(most).collect();
        let lengths: Vec<_> = group.iter().map(&length).collect();
        let cubes = lengths.iter().map(|tensor| tensor.meta.num_elements().div_ceil(chunk)).sum();
        let (grid, count) = (Grid::cubes(&lengths, cubes, UNITS as usize), group.len());
        let mut first = 0;
        let tensors = group.into_iter().map(|one| {
            let values = length(&one).meta.num_elements();
            let first_cube = first;
            first += values.div_ceil(chunk);
            argument(one, first_cube, values)
        });
        groups.push((grid, tensors.collect(), [count, cubes]));
    }
    groups
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

#[cube(launch_unchecked, address_type = "dynamic")]
fn adamw_kernel(
    decision: &[f32],
    mut tensors: Sequence<AdamWTensors>,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    step_size: f32,
    root_correction: f32,
    #[comptime] count: usize,
) {
    if decision[TAKEN] != f32::new(1.0) {
        terminate!();
    }
    let scale = decision[SCALE];
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

#[cube(launch_unchecked, address_type = "dynamic")]
fn average_kernel(decision: &[f32], mut tensors: Sequence<AverageTensors>, share: f32, #[comptime] count: usize) {
    if decision[TAKEN] != f32::new(1.0) {
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

#[cube(launch_unchecked, address_type = "dynamic")]
fn squares_kernel(
    sums: &mut [f32],
    tensors: Sequence<GradientTensor>,
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

/// Computes the decision, with one cube.
#[cube(launch_unchecked, address_type = "dynamic")]
fn decide_kernel(
    sums: &[f32],
    losses: &[f32],
    halted: &mut [f32],
    decision: &mut [f32],
    chunks: usize,
    count: usize,
    grad_clip: f32,
) {
    let mut square = f32::new(0.0);
    let mut i = UNIT_POS as usize;
    while i < chunks {
        square += sums[i];
        i += UNITS as usize;
    }
    let norm = cube_sum(square, UNITS).sqrt();
    if UNIT_POS == 0 {
        let mut loss = f32::new(0.0);
        for pass in 0..count {
            loss += losses[pass];
        }
        loss /= count as f32;
        // The same formula as clip_scale on the host.
        let mut scale = f32::new(1.0);
        if grad_clip > f32::new(0.0) {
            let limited = grad_clip / (norm + f32::new(1e-6));
            scale = select(limited < scale, limited, scale);
        }
        let taken = is_finite(loss) && is_finite(norm) && halted[0] == f32::new(0.0);
        decision[LOSS] = loss;
        decision[NORM] = norm;
        decision[SCALE] = scale;
        decision[TAKEN] = select(taken, f32::new(1.0), f32::new(0.0));
        halted[0] = select(taken, f32::new(0.0), f32::new(1.0));
    }
}
