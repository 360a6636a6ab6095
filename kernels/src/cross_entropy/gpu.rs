//! Cross-entropy on a GPU: one pass over the logits for the loss, and a second that overwrites them
//! with their gradient, both in one kernel with one cube per row. No other tensor of the logits'
//! size is needed.
//!
//! The logits and their gradient have the type that the model computes in; every sum is float32, as
//! under PyTorch's autocast.

use super::{CrossEntropy, Scaled};
use crate::gpu::exponential::{exp, has_instruction};
use crate::gpu::finite::{LOWEST, is_finite};
use crate::gpu::launch::UNITS;
use crate::gpu::prelude::*;
use crate::gpu::sum::{cube_max, cube_sum};
use crate::gpu::tensor::vector_size;
use crate::gpu::tile::sum_of_lanes;

/// Largest vocabulary for a small cube; the units of a large cube would have few values each.
const SMALL_VOCABULARY: usize = 1024;
/// Maximum number of cubes of the kernel that scales a gradient; each loops over the values.
const SCALING_CUBES: u32 = 1024;

impl Operation<CubeBackend, 1, 2> for CrossEntropy {
    /// The gradient, in the logits' memory.
    type Kept = CubeTensor;

    fn forward(&self, [logits]: [CubeTensor; 1]) -> ([CubeTensor; 2], CubeTensor) {
        let logits = writable(in_rows(logits));
        (self.means(&logits, true), logits)
    }

    fn backward(&self, gradient: CubeTensor, dy: CubeTensor) -> [CubeTensor; 1] {
        [CubeBackend::scaled(gradient, dy)]
    }

    fn infer(&self, [logits]: [CubeTensor; 1]) -> [CubeTensor; 2] {
        self.means(&in_rows(logits), false)
    }
}

impl Scaled for CubeBackend {
    fn scaled(gradient: CubeTensor, dy: CubeTensor) -> CubeTensor {
        let gradient = writable(in_rows(gradient));
        let values = rows_and_width(&gradient)[0] * stride(&gradient);
        let (most, ..) = gradient.client.properties().hardware.max_cube_count;
        let cubes = values.div_ceil(UNITS as usize).min(SCALING_CUBES.min(most) as usize) as u32;
        let grid = Grid::new(&[&gradient], CubeCount::Static(cubes, 1, 1), CubeDim::new_1d(UNITS));
        // SAFETY: the kernel reads and writes only below the length of `gradient`.
        unsafe { launch!(multiply, grid, [&gradient, float32(dy)], values, elem(gradient.dtype)) };
        gradient
    }
}

/// The tensor with a single row stride; copied only if it has none.
fn in_rows(logits: CubeTensor) -> CubeTensor {
    if row_stride(&logits).is_some() { logits } else { contiguous(logits) }
}

/// Row stride, in numbers.
fn stride(logits: &CubeTensor) -> usize {
    row_stride(logits).unwrap_or_else(|| rows_and_width(logits)[1])
}

/// Vector width: 16 bytes on devices with PTX, if the rows are aligned; otherwise [`vector_size`].
fn logits_vector_size(logits: &CubeTensor) -> usize {
    let wide = 16 / logits.dtype.size();
    let begins = logits.handle.offset_start.unwrap_or(0).is_multiple_of(16);
    if begins && stride(logits).is_multiple_of(wide) && has_instruction(&logits.client) {
        return wide;
    }
    vector_size(stride(logits))
}

/// Compile-time configuration of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Whether the gradient overwrites the logits.
    with_gradient: bool,
    /// Units of a cube.
    units: u32,
    /// Vectors that a unit loads at once.
    each: usize,
    /// Whether the device has an instruction for exponentials.
    has_exp: bool,
}

impl CrossEntropy {
    /// The two means over all rows of `logits`, which the gradient overwrites if `with_gradient`.
    fn means(&self, logits: &CubeTensor, with_gradient: bool) -> [CubeTensor; 2] {
        let [rows, vocab] = rows_and_width(logits);
        self.check_targets([rows, vocab]);
        let [objective, cross_entropy] = [0, 1].map(|_| unfilled(logits, [rows], DType::F32));
        let means = [0, 1].map(|_| unfilled(logits, [1], DType::F32));
        // For a large vocabulary, as many units as a cube may have, so that few rows are in
        // progress at once, and a row's second pass finds it in the cache.
        let most = logits.client.properties().hardware.max_units_per_cube.min(1024);
        let (units, at_once) = if vocab <= SMALL_VOCABULARY { (64, 2) } else { (1 << most.ilog2(), 16) };
        let (stride, vector) = (stride(logits), logits_vector_size(logits));
        let (each, has_exp) = ((at_once / vector).max(1), has_instruction(&logits.client));
        let form = Form { with_gradient, units, each, has_exp };
        let ids = logits.client.create_from_slice(u32::as_bytes(&self.targets));
        // SAFETY: one id for each row.
        let ids = unsafe { BufferArg::from_raw_parts(ids, rows) };
        let one_cube = Grid::cubes(&[&objective], 1, UNITS as usize);
        // SAFETY: every index is below the given lengths: `rows` rows of `vocab` logits at the
        // given stride, and `rows` values of each kind.
        unsafe {
            launch!(
                cross_entropy_rows,
                Grid::cubes(&[logits], rows, units as usize),
                vector,
                [logits, ids, &objective, &cross_entropy],
                rows,
                vocab,
                stride / vector,
                self.factor / rows as f32,
                self.objective.z_loss as f32,
                self.objective.label_smoothing as f32,
                form,
                elem(logits.dtype)
            );
            launch!(mean_of_rows, one_cube, [objective, cross_entropy, &means[0], &means[1]], rows, self.factor);
        }
        means
    }
}

/// One cube per row: computes the row's two losses; with `with_gradient` the row becomes `weight *
/// (softmax * (1 + 2 z ln(denominator)) - smoothed target)`.
///
/// Online softmax: the denominator is summed relative to the largest logit so far, so one read
/// suffices (Milakov and Gimelshein 2018, <https://arxiv.org/abs/1805.02867>, algorithm 3). A unit
/// loads several vectors at a time, to have several loads in flight. The padding after a row's last
/// logit is not changed.
#[allow(clippy::manual_div_ceil)] // CubeCL does not translate div_ceil
#[cube(launch_unchecked, address_type = "dynamic")]
fn cross_entropy_rows<F: Float, N: Size>(
    logits: &mut [Vector<F, N>],
    targets: &[u32],
    objective: &mut [f32],
    cross_entropy: &mut [f32],
    rows: usize,
    vocab: usize,
    stride: usize,
    weight: f32,
    z_loss: f32,
    smoothing: f32,
    #[comptime] form: Form,
    #[define(F)] _dtype: ElemType,
) {
    let (units, each, has_exp) = comptime!((form.units, form.each, form.has_exp));
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let start = row * stride;
    let vectors = (vocab + N::value() - 1) / N::value();
    let at_once = comptime!(units as usize * each);
    let blocks = (vectors + at_once - 1) / at_once;
    let (target, lane_of_target) = (targets[row] as usize / N::value(), targets[row] as usize % N::value());
    let mut of_target = f32::new(0.0);
    let near_target = Vector::<f32, N>::cast_from(logits[start + target]);
    #[unroll]
    for lane in 0..N::value() {
        of_target = select(lane == lane_of_target, near_target.extract(lane), of_target);
    }

    let mut largest = f32::new(LOWEST);
    let mut denominator = f32::new(0.0);
    let mut sums = Vector::<f32, N>::new(f32::new(0.0));
    let mut x = Array::<Vector<f32, N>>::new(each);
    for block in 0..blocks {
        let first = block * at_once + UNIT_POS as usize;
        #[unroll]
        for k in 0..each {
            let i = first + k * units as usize;
            x[k] = Vector::cast_from(logits[start + select(i < vectors, i, 0)]);
        }
        let mut top = largest;
        #[unroll]
        for k in 0..each {
            let i = first + k * units as usize;
            let mut counted = x[k];
            if (i + 1) * N::value() > vocab {
                let mut beyond = x[k];
                #[unroll]
                for lane in 0..N::value() {
                    if i * N::value() + lane >= vocab {
                        counted.insert(lane, f32::new(0.0));
                        beyond.insert(lane, f32::new(LOWEST));
                    }
                }
                x[k] = beyond;
            }
            sums += counted;
            #[unroll]
            for lane in 0..N::value() {
                top = f32::max(top, x[k].extract(lane));
            }
        }
        if top > largest {
            denominator *= exp(largest - top, has_exp);
            largest = top;
        }
        #[unroll]
        for k in 0..each {
            #[unroll]
            for lane in 0..N::value() {
                denominator += exp(x[k].extract(lane) - largest, has_exp);
            }
        }
    }
    let of_unit = largest;
    let largest = cube_max(of_unit, units);
    let denominator = cube_sum(denominator * exp(of_unit - largest, has_exp), units);
    let sum = cube_sum(sum_of_lanes::<N>(sums), units);
    let log_denominator = denominator.ln() + largest;

    if UNIT_POS == 0 {
        let loss = log_denominator - of_target;
        // The target's logit relative to the mean.
        let above_mean = of_target - sum / vocab as f32;
        // If any logit is not finite, neither is their sum.
        let all_finite = is_finite(sum);
        cross_entropy[row] = select(all_finite, loss, sum);
        let objective_loss = loss + smoothing * above_mean + z_loss * log_denominator * log_denominator;
        objective[row] = select(all_finite, objective_loss, sum);
    }
    if comptime!(form.with_gradient) {
        // Divides by the denominator instead of subtracting its logarithm in the exponent: with
        // large logits float32 represents the logarithm to 1e-6 or worse, and each probability
        // would have that error.
        let scale = weight * (f32::new(1.0) + f32::new(2.0) * z_loss * log_denominator) / denominator;
        let evenly = weight * smoothing / vocab as f32;
        let at_target = weight * (f32::new(1.0) - smoothing);
        for block in 0..blocks {
            let first = block * at_once + UNIT_POS as usize;
            #[unroll]
            for k in 0..each {
                let i = first + k * units as usize;
                x[k] = Vector::cast_from(logits[start + select(i < vectors, i, 0)]);
            }
            #[unroll]
            for k in 0..each {
                let i = first + k * units as usize;
                let mut gradient = x[k];
                #[unroll]
                for lane in 0..N::value() {
                    gradient.insert(lane, scale * exp(x[k].extract(lane) - largest, has_exp) - evenly);
                }
                if i == target {
                    #[unroll]
                    for lane in 0..N::value() {
                        let less = select(lane == lane_of_target, at_target, f32::new(0.0));
                        gradient.insert(lane, gradient.extract(lane) - less);
                    }
                }
                if (i + 1) * N::value() > vocab {
                    #[unroll]
                    for lane in 0..N::value() {
                        let is_logit = i * N::value() + lane < vocab;
                        gradient.insert(lane, select(is_logit, gradient.extract(lane), x[k].extract(lane)));
                    }
                }
                if i < vectors {
                    logits[start + i] = Vector::cast_from(gradient);
                }
            }
        }
    }
}

/// Computes `factor` times the mean of `objective`, and the mean of `cross_entropy`, with one cube.
#[cube(launch_unchecked, address_type = "dynamic")]
fn mean_of_rows(
    objective: &[f32],
    cross_entropy: &[f32],
    objective_mean: &mut [f32],
    cross_entropy_mean: &mut [f32],
    rows: usize,
    factor: f32,
) {
    let mut sums = Array::<f32>::new(2usize);
    sums[0] = f32::new(0.0);
    sums[1] = f32::new(0.0);
    let mut row = UNIT_POS as usize;
    while row < rows {
        sums[0] += objective[row];
        sums[1] += cross_entropy[row];
        row += CUBE_DIM as usize;
    }
    let of_objective = cube_sum(sums[0], UNITS);
    let of_cross_entropy = cube_sum(sums[1], UNITS);
    if UNIT_POS == 0 {
        objective_mean[0] = factor * of_objective / rows as f32;
        cross_entropy_mean[0] = of_cross_entropy / rows as f32;
    }
}

/// Multiplies in place, unless the factor is 1, which the host need not know.
#[cube(launch_unchecked, address_type = "dynamic")]
fn multiply<F: Float>(values: &mut [F], factor: &[f32], count: usize, #[define(F)] _dtype: ElemType) {
    let factor = factor[0];
    if factor != f32::new(1.0) {
        let mut i = ABSOLUTE_POS;
        while i < count {
            values[i] = F::cast_from(f32::cast_from(values[i]) * factor);
            i += CUBE_COUNT * CUBE_DIM as usize;
        }
    }
}
