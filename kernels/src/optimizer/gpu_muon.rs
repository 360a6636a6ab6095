//! Muon on a GPU. Matrices of the same shape in all blocks are stepped together, or as many of them
//! as one buffer holds: some thirty launches for all of them, instead of some forty for each.

use std::collections::BTreeMap;

use burn::tensor::FloatDType;

use super::gpu::{CHUNK, EACH, SCALE, TAKEN, is_list_of, most_together};
use super::update::{MuonUpdate, SMALLEST_NORM, STEPS, X, X3, X5};
use crate::{gpu::launch::UNITS, gpu::prelude::*, gpu::products::batched_product, gpu::sum::cube_sum};

/// One matrix `[n_in, n_out]`, contiguous float32, with everything that its step reads and writes.
pub struct MuonStep {
    /// Changed in place.
    pub matrix: CubeTensor,
    /// The matrix's gradient, of the same length.
    pub gradient: CubeTensor,
    /// Its momentum, of the same length, changed in place.
    pub momentum: CubeTensor,
    /// Columns of each of the matrices that it consists of.
    pub widths: Vec<usize>,
}

impl MuonStep {
    /// Whether the fields are as their docs say, which the kernels rely on.
    fn is_consistent(&self) -> bool {
        let values = self.matrix.meta.shape()[0] * self.widths.iter().sum::<usize>();
        [&self.matrix, &self.gradient, &self.momentum].into_iter().all(|tensor| is_list_of(tensor, values))
    }
}

/// One step of Muon for each of `steps`; none if `decision` rejects the step. The clipping factor
/// is the decision's, not the update's.
///
/// # Panics
/// When a step is not as [`MuonStep`] describes it.
pub fn muon(steps: Vec<MuonStep>, decision: &CubeTensor, update: &MuonUpdate) {
    muon_in_buffers(decision.client.properties().memory.max_page_size, steps, decision, update);
}

/// As [`muon`], on a device whose kernels can bind buffers of at most `bytes`.
fn muon_in_buffers(bytes: u64, steps: Vec<MuonStep>, decision: &CubeTensor, update: &MuonUpdate) {
    let mut alike = BTreeMap::<_, Vec<MuonStep>>::new();
    for step in steps {
        assert!(step.is_consistent(), "a step whose tensors do not fit each other");
        let rows = step.matrix.meta.shape()[0];
        alike.entry((rows, step.widths.clone())).or_default().push(step);
    }
    for ((rows, widths), steps) in alike {
        let (columns, mut first) = (widths.iter().sum(), 0);
        for equal in widths.chunk_by(|a, b| a == b) {
            let parts = Parts { rows, columns, first, width: equal[0], count: equal.len() };
            for some in evenly(&steps, parts.most_matrices(bytes, dtype(update))) {
                step_parts(some, parts, decision, update);
            }
            first += parts.width * parts.count;
        }
    }
}

/// The type of the matrices between rounds.
fn dtype(update: &MuonUpdate) -> DType {
    if update.precision == FloatDType::BF16 { DType::BF16 } else { DType::F32 }
}

/// `all`, which are some, in as few pieces of at most `most` as possible. The pieces have nearly
/// equal lengths: products of few different batch sizes are few kernels to compile and to time.
fn evenly<T>(all: &[T], most: usize) -> impl Iterator<Item = &[T]> {
    let pieces = all.len().div_ceil(most);
    all.chunks(all.len().div_ceil(pieces))
}

/// Adjacent parts of one width, in each of some matrices.
#[derive(Clone, Copy)]
struct Parts {
    /// Rows of a matrix, and of a part.
    rows: usize,
    /// Columns of a matrix.
    columns: usize,
    /// First column of the parts in a matrix.
    first: usize,
    /// Columns of a part.
    width: usize,
    /// Parts in a matrix.
    count: usize,
}

impl Parts {
    /// Values of a part.
    const fn values(self) -> usize {
        self.rows * self.width
    }

    /// Cubes that share a part.
    const fn cubes(self) -> usize {
        self.values().div_ceil(CHUNK)
    }

    /// How many matrices' parts of type `dtype` fit into one buffer of `bytes`: at least one's,
    /// because a matrix is a parameter, which [`crate::limits`] has admitted.
    fn most_matrices(self, bytes: u64, dtype: DType) -> usize {
        let of_one = self.count * self.values() * dtype.size();
        (bytes / of_one.max(1) as u64).max(1) as usize
    }

    fn argument(self) -> PlacesLaunch {
        PlacesLaunch::new(self.columns, self.first, self.width, self.count, self.values())
    }
}

/// Steps these parts of all the matrices, which fit into one buffer.
fn step_parts(steps: &[MuonStep], parts: Parts, decision: &CubeTensor, update: &MuonUpdate) {
    let dtype = dtype(update);
    let all = steps.len() * parts.count;
    let x = unfilled(decision, [all, parts.rows, parts.width], dtype);
    let sums = unfilled(decision, [all, parts.cubes()], DType::F32);
    let grid = |tensors: &[&CubeTensor], number: usize| Grid::cubes(tensors, number * parts.cubes(), UNITS as usize);

    for (some, before) in together(steps, &decision.client, 2) {
        let matrices = some.iter().map(|step| {
            let [gradient, momentum] = [&step.gradient, &step.momentum].map(|tensor| tensor.clone().into_buffer_arg());
            MomentumTensorsLaunch::new(gradient, momentum)
        });
        let grid = grid(&[&x, &some[0].matrix], some.len() * parts.count);
        let (places, matrices, decay, count) = (parts.argument(), matrices.collect(), update.momentum, some.len());
        // SAFETY: the kernel accesses only elements of the parts, `count` times as many as in one
        // matrix, and one sum for each of their cubes.
        unsafe {
            launch!(directions, grid, [decision, &x, &sums], matrices, places, before, decay, count, elem(dtype));
        }
    }
    // SAFETY: as above.
    unsafe { launch!(normalise, grid(&[&x], all), [&x, &sums], parts.values(), all, elem(dtype)) };
    let x = orthogonal(x);
    let step_size = update.step_size(parts.rows, parts.width);
    for (some, before) in together(steps, &decision.client, 1) {
        let matrices = some.iter().map(|step| MatrixTensorLaunch::new(step.matrix.clone().into_buffer_arg()));
        let grid = grid(&[&x, &some[0].matrix], some.len() * parts.count);
        let (places, matrices, keep, count) = (parts.argument(), matrices.collect(), update.keep, some.len());
        // SAFETY: as above.
        unsafe { launch!(apply, grid, [decision, &x], matrices, places, before, keep, step_size, count, elem(dtype)) };
    }
}

/// Chunks of as many matrices as one launch takes, with `buffers` buffers each; with the number of
/// matrices before each chunk.
fn together<'a>(
    steps: &'a [MuonStep],
    client: &Client,
    buffers: usize,
) -> impl Iterator<Item = (&'a [MuonStep], usize)> + use<'a> {
    let most = most_together(client, buffers);
    steps.chunks(most).enumerate().map(move |(number, some)| (some, number * most))
}

/// Orthogonalises the matrices `[count, rows, columns]`, of norm 1, by the Newton-Schulz iteration,
/// which brings their singular values near 1.
fn orthogonal(mut x: CubeTensor) -> CubeTensor {
    let (dtype, is_tall) = (x.dtype, x.meta.shape()[1] > x.meta.shape()[2]);
    for _ in 0..STEPS {
        let transposed = transposed(x.clone());
        // The Gram matrix of the shorter side is the smaller one.
        let [left, right] = if is_tall { [&transposed, &x] } else { [&x, &transposed] };
        let gram = batched_product(left, right, dtype);
        let polynomial = combined(X5, batched_product(&gram, &gram, dtype), X3, &gram);
        let [left, right] = if is_tall { [&x, &polynomial] } else { [&polynomial, &x] };
        let product = batched_product(left, right, dtype);
        drop(transposed);
        x = combined(X, x, 1.0, &product);
    }
    x
}

/// Transposes each matrix of a contiguous batch.
fn transposed(mut x: CubeTensor) -> CubeTensor {
    let [count, rows, columns] = [0, 1, 2].map(|i| x.meta.shape()[i]);
    *x.meta = Metadata::new([count, columns, rows], [rows * columns, 1, columns]);
    x
}

/// `a x + b y`, in place of `x`, which nothing else uses.
fn combined(a: f32, x: CubeTensor, b: f32, y: &CubeTensor) -> CubeTensor {
    let (grid, vector, vectors) = Grid::vectors(&x);
    // SAFETY: the kernel checks every index against `vectors`.
    unsafe { launch!(combine, grid, vector, [&x, y], a, b, vectors, elem(x.dtype)) };
    x
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn combine<T: Float, N: Size>(
    x: &mut [Vector<T, N>],
    y: &[Vector<T, N>],
    a: f32,
    b: f32,
    vectors: usize,
    #[define(T)] _type: ElemType,
) {
    if ABSOLUTE_POS < vectors {
        let of_x = Vector::new(a) * Vector::<f32, N>::cast_from(x[ABSOLUTE_POS]);
        let of_y = Vector::new(b) * Vector::<f32, N>::cast_from(y[ABSOLUTE_POS]);
        x[ABSOLUTE_POS] = Vector::cast_from(of_x + of_y);
    }
}

/// [`Parts`] as a kernel argument.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Places {
    columns: usize,
    first: usize,
    width: usize,
    count: usize,
    values: usize,
}

#[cube]
impl Places {
    /// Index in a matrix of value number `i` of part `part`.
    fn within(&self, part: usize, i: usize) -> usize {
        i / self.width * self.columns + self.first + part * self.width + i % self.width
    }
}

#[derive(CubeType, CubeLaunch)]
struct MomentumTensors {
    gradient: Box<[f32]>,
    momentum: Box<[f32]>,
}

/// Updates the momentum of `count` matrices, and writes the directions of their parts after those
/// of the `before` earlier matrices, with the sum of squares of each chunk.
#[cube(launch_unchecked, address_type = "dynamic")]
fn directions<T: Float>(
    decision: &[f32],
    x: &mut [T],
    sums: &mut [f32],
    mut matrices: Sequence<MomentumTensors>,
    places: Places,
    before: usize,
    decay: f32,
    #[comptime] count: usize,
    #[define(T)] _type: ElemType,
) {
    let chunks = places.values.div_ceil(CHUNK);
    let (number, chunk) = (CUBE_POS / chunks, CUBE_POS % chunks);
    let (matrix, part) = (number / places.count, number % places.count);
    let first_part = before * places.count;
    let scale = decision[SCALE];
    let is_taken = decision[TAKEN] == f32::new(1.0);
    let mut square = f32::new(0.0);
    #[unroll]
    for t in 0..count {
        if matrix == t {
            let tensors = matrices.index_mut(t);
            for k in 0..EACH {
                let i = chunk * CHUNK + k * UNITS as usize + UNIT_POS as usize;
                if i < places.values {
                    let at = places.within(part, i);
                    let share = (f32::new(1.0) - decay) * (tensors.gradient[at] * scale);
                    let momentum = decay * tensors.momentum[at] + share;
                    // Nesterov: the momentum as if this gradient were applied once more.
                    let direction = decay * momentum + share;
                    if is_taken {
                        tensors.momentum[at] = momentum;
                    }
                    square += direction * direction;
                    x[(first_part + number) * places.values + i] = T::cast_from(direction);
                }
            }
        }
    }
    let square = cube_sum(square, UNITS);
    if UNIT_POS == 0 && matrix < count {
        sums[first_part * chunks + CUBE_POS] = square;
    }
}

/// Divides each of `count` parts by its norm, so that no singular value is above 1.
#[cube(launch_unchecked, address_type = "dynamic")]
fn normalise<T: Float>(x: &mut [T], sums: &[f32], values: usize, count: usize, #[define(T)] _type: ElemType) {
    let chunks = values.div_ceil(CHUNK);
    let (number, chunk) = (CUBE_POS / chunks, CUBE_POS % chunks);
    let mut square = f32::new(0.0);
    if number < count {
        let mut i = UNIT_POS as usize;
        while i < chunks {
            square += sums[number * chunks + i];
            i += UNITS as usize;
        }
    }
    let norm = f32::max(cube_sum(square, UNITS).sqrt(), f32::new(SMALLEST_NORM));
    for k in 0..EACH {
        let i = chunk * CHUNK + k * UNITS as usize + UNIT_POS as usize;
        if number < count && i < values {
            let at = number * values + i;
            x[at] = T::cast_from(f32::cast_from(x[at]) / norm);
        }
    }
}

#[derive(CubeType, CubeLaunch)]
struct MatrixTensor {
    matrix: Box<[f32]>,
}

/// Moves `count` matrices along the orthogonal directions `x` of their parts.
#[cube(launch_unchecked, address_type = "dynamic")]
fn apply<T: Float>(
    decision: &[f32],
    x: &[T],
    mut matrices: Sequence<MatrixTensor>,
    places: Places,
    before: usize,
    keep: f32,
    step_size: f32,
    #[comptime] count: usize,
    #[define(T)] _type: ElemType,
) {
    if decision[TAKEN] != f32::new(1.0) {
        terminate!();
    }
    let chunks = places.values.div_ceil(CHUNK);
    let (number, chunk) = (CUBE_POS / chunks, CUBE_POS % chunks);
    let (matrix, part) = (number / places.count, number % places.count);
    #[unroll]
    for t in 0..count {
        if matrix == t {
            let tensors = matrices.index_mut(t);
            for k in 0..EACH {
                let i = chunk * CHUNK + k * UNITS as usize + UNIT_POS as usize;
                if i < places.values {
                    let at = places.within(part, i);
                    let direction = f32::cast_from(x[(before * places.count + number) * places.values + i]);
                    tensors.matrix[at] = tensors.matrix[at] * keep - step_size * direction;
                }
            }
        }
    }
}

#[cfg(all(test, feature = "autodiff"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::{Device, Tensor};
    use ember_host::panics::quietly;

    use super::*;
    use crate::gpu::testing::{gpu, largest_difference, random, values};
    use crate::optimizer::muon as muon_on_cpu;

    const ROWS: usize = 12;
    const WIDTHS: [usize; 3] = [8, 8, 5];
    const UPDATE: MuonUpdate =
        MuonUpdate { momentum: 0.9, learning_rate: 0.02, keep: 0.99, scale: 0.5, precision: FloatDType::F32 };

    fn decision(device: &Device) -> CubeTensor {
        cube(Tensor::<1>::from_floats([1.0, 1.0, UPDATE.scale, 1.0], device))
    }

    fn step([matrix, gradient, momentum]: [CubeTensor; 3]) -> MuonStep {
        MuonStep { matrix, gradient, momentum, widths: WIDTHS.to_vec() }
    }

    /// Three matrices in buffers for one, for two and for all of them.
    #[test]
    fn matrices_that_no_buffer_holds_together_are_stepped_alike() {
        let Some(device) = gpu() else { return };
        let random = |seed| random::<2>([ROWS, WIDTHS.iter().sum()], seed, &Device::flex());
        let before: Vec<[Tensor<2>; 3]> = (0..3).map(|i| [0, 1, 2].map(|j| random(3 * i + j))).collect();
        let there = |tensor: &Tensor<2>| cube(Tensor::<2>::from_data(tensor.clone().into_data(), &device));
        let of_first_two_parts = (2 * 8 * ROWS * size_of::<f32>()) as u64;
        for bytes in [1, 2 * of_first_two_parts, u64::MAX] {
            let tensors: Vec<[CubeTensor; 3]> = before.iter().map(|one| one.each_ref().map(there)).collect();
            muon_in_buffers(bytes, tensors.iter().cloned().map(step).collect(), &decision(&device), &UPDATE);
            for ([matrix, _, momentum], before) in tensors.into_iter().zip(&before) {
                let [matrix_before, gradient, momentum_before] = before.clone();
                let expected = muon_on_cpu(matrix_before, gradient, momentum_before, &WIDTHS, UPDATE);
                for (got, expected) in [matrix, momentum].into_iter().zip(expected) {
                    let error = largest_difference(&values(from_cube::<2>(got)), &values(expected));
                    assert!(error < 1e-4, "{error} in buffers of {bytes}");
                }
            }
        }
    }

    #[test]
    fn a_buffer_holds_as_many_matrices_as_fit_and_at_least_one() {
        let parts = Parts { rows: 1024, columns: 4096, first: 0, width: 4096, count: 1 };
        assert_eq!(parts.most_matrices(128 << 20, DType::F32), 8);
        assert_eq!(parts.most_matrices(128 << 20, DType::BF16), 16);
        assert_eq!(parts.most_matrices(1, DType::F32), 1);
        let lengths = |count, most| evenly(&vec![0; count], most).map(<[_]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(12, 8), [6, 6]);
        assert_eq!(lengths(13, 8), [7, 6]);
        assert_eq!([lengths(12, 12), lengths(12, usize::MAX)], [[12], [12]]);
    }

    #[test]
    fn tensors_that_do_not_fit_each_other_are_refused() {
        let Some(device) = gpu() else { return };
        let zeros = |columns| cube(Tensor::<2>::zeros([ROWS, columns], &device));
        for [matrix, gradient] in [[21, 20], [20, 21], [22, 22]] {
            let steps = vec![step([zeros(matrix), zeros(gradient), zeros(21)])];
            assert!(quietly(|| muon(steps, &decision(&device), &UPDATE)).is_err());
        }
    }
}
