//! LayerNorm and RMSNorm on a GPU: a row is read once, into registers of the units that share it;
//! statistics are float32. Rows are those of a matrix, or the query and key heads inside a joint
//! projection, with one weight for queries and one for keys ([`crate::qk_norm`]).

use burn::tensor::FloatDType;
use burn_cubecl::kernel::slice;

use super::{LayerNorm, RmsNorm};
use crate::{gpu::prelude::*, gpu::sum::over_lanes, gpu::sum::sum_groups};

impl Operation<CubeBackend, 3> for LayerNorm {
    type Kept = [CubeTensor; 2];

    fn begins_branch(&self) -> bool {
        self.0.begins_branch
    }

    fn forward(&self, [x, weight, bias]: [CubeTensor; 3]) -> ([CubeTensor; 1], Self::Kept) {
        ([forward(x.clone(), weight.clone(), Some(bias), self.0.epsilon, self.0.to)], [x, weight])
    }

    fn backward(&self, kept: Self::Kept, dy: CubeTensor) -> [CubeTensor; 3] {
        with_halves(backward(kept, dy, None, self.0.epsilon, NormKind::Layer))
    }

    // The weights' gradients are never added to existing ones.
    fn backward_onto(&self, kept: Self::Kept, dy: CubeTensor, [dx, ..]: [Option<CubeTensor>; 3]) -> [CubeTensor; 3] {
        with_halves(backward(kept, dy, dx, self.0.epsilon, NormKind::Layer))
    }
}

impl Operation<CubeBackend, 2> for RmsNorm {
    type Kept = [CubeTensor; 2];

    fn begins_branch(&self) -> bool {
        self.0.begins_branch
    }

    fn forward(&self, [x, weight]: [CubeTensor; 2]) -> ([CubeTensor; 1], Self::Kept) {
        ([forward(x.clone(), weight.clone(), None, self.0.epsilon, self.0.to)], [x, weight])
    }

    fn backward(&self, kept: Self::Kept, dy: CubeTensor) -> [CubeTensor; 2] {
        backward(kept, dy, None, self.0.epsilon, NormKind::Rms)
    }

    fn backward_onto(&self, kept: Self::Kept, dy: CubeTensor, [dx, _]: [Option<CubeTensor>; 2]) -> [CubeTensor; 2] {
        backward(kept, dy, dx, self.0.epsilon, NormKind::Rms)
    }
}

fn with_halves([dx, sums]: [CubeTensor; 2]) -> [CubeTensor; 3] {
    let [dweight, dbias] = halves(sums);
    [dx, dweight, dbias]
}

/// The two halves of a one-dimensional tensor.
pub fn halves(list: CubeTensor) -> [CubeTensor; 2] {
    let half = list.meta.num_elements() / 2;
    [0, half].map(|first| slice(list.clone(), std::slice::from_ref(&(first..first + half))))
}

/// Maximum number of groups of rows in the backward: each sums the weights' gradient over its rows.
const MAX_GROUPS: usize = 1024;
/// Minimum number of rows of a group, so that there are far fewer sums than rows.
const MIN_ROWS: usize = 4;

/// Which norm a kernel computes: what a row is, and what the kernels' two parameters are.
///
/// | norm | a row | `weight` | `other` |
/// |---|---|---|---|
/// | `Layer` | a row of a matrix, minus its mean | its scale | its bias |
/// | `Rms` | a row of a matrix | its scale | never read |
/// | `RmsOfHeads` | a head in a joint projection | scale of query heads | scale of key heads |
///
/// Value heads, and in the backward their gradients, are copied as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// LayerNorm.
    Layer,
    /// RMSNorm.
    Rms,
    /// RMSNorm of query and key heads.
    RmsOfHeads,
}

impl NormKind {
    /// Whether the mean is subtracted from a row, and a bias added.
    pub fn is_layer(self) -> bool {
        self == Self::Layer
    }

    /// Whether rows are heads.
    pub fn is_of_heads(self) -> bool {
        self == Self::RmsOfHeads
    }

    /// Number of parameters: `weight`, and `other` if it is read.
    pub fn parameters(self) -> usize {
        match self {
            Self::Layer | Self::RmsOfHeads => 2,
            Self::Rms => 1,
        }
    }
}

/// Compile-time configuration of a norm kernel: the norm, and how units share a row's vectors. A
/// row of 96 vectors, for example, is shared by 64 units, and `each` is 2: unit 5 has vectors 5 and
/// 69, unit 40 has vector 40 alone. A cube has 64 units, so it processes one such row at once; of
/// rows with 16 units, four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// The norm.
    pub norm: NormKind,
    /// Square root of the number of units that share a row.
    pub side: usize,
    /// Most vectors per unit.
    pub each: usize,
    /// Whether the backward adds to an existing gradient of the input.
    pub adds: bool,
}

impl Share {
    /// For rows of `vectors` vectors: few units for short rows, so that none is idle.
    pub fn of(vectors: usize, norm: NormKind) -> Self {
        let side = match vectors {
            0..=32 => 4,
            33..=256 => 8,
            _ => 16,
        };
        Self { norm, side, each: vectors.div_ceil(side * side).max(1), adds: false }
    }

    /// Units that share a row.
    pub fn lanes(self) -> usize {
        self.side * self.side
    }

    /// Units of a cube.
    pub fn units(self) -> usize {
        self.lanes().max(64)
    }

    /// Rows that a cube processes at once.
    pub fn rows(self) -> usize {
        self.units() / self.lanes()
    }

    /// Divides `rows` into groups, each of which is summed separately: returns the rows per group,
    /// the cubes, and the groups.
    pub fn groups(self, rows: usize) -> (usize, usize, usize) {
        let steps = rows.div_ceil(MAX_GROUPS).max(MIN_ROWS);
        let cubes = rows.div_ceil(steps * self.rows()).max(1);
        (steps, cubes, cubes * self.rows())
    }
}

/// Layout of the rows.
#[derive(CubeLaunch, CubeType, Clone, Copy)]
pub struct Layout {
    /// Rows that the kernel visits.
    rows: usize,
    /// Vectors in a row.
    width: usize,
    /// If rows are heads: heads of a position that the kernel visits, which are all, or all but the
    /// values if these stay in place.
    visited: usize,
    /// Query heads, which come first.
    queries: usize,
    /// Query and key heads.
    normed: usize,
    /// All heads of a position, values included.
    all: usize,
}

/// Subtracts a LayerNorm's mean from `values`, in place, then returns the reciprocal of the row's
/// root mean square. `values` are this unit's vectors of the row; those beyond `width` are
/// arbitrary.
#[cube]
fn centre_and_scale<N: Size>(
    values: &mut Array<Vector<f32, N>>,
    scratch: &mut Shared<[f32]>,
    width: usize,
    epsilon: f32,
    #[comptime] share: Share,
) -> Vector<f32, N> {
    let (lanes, side, units) = comptime!((share.lanes(), share.side, share.units()));
    let lane = UNIT_POS as usize % lanes;
    let size = f32::cast_from(width * N::value());
    if comptime!(share.norm.is_layer()) {
        let mut sum = Vector::<f32, N>::new(f32::new(0.0));
        #[unroll]
        for i in 0..share.each {
            if i * lanes + lane < width {
                sum += values[i];
            }
        }
        let mean = over_lanes(sum.vector_sum(), scratch, side, units) / size;
        #[unroll]
        for i in 0..share.each {
            values[i] -= Vector::new(mean);
        }
    }
    let mut squares = Vector::<f32, N>::new(f32::new(0.0));
    #[unroll]
    for i in 0..share.each {
        if i * lanes + lane < width {
            squares += values[i] * values[i];
        }
    }
    let mean_square = over_lanes(squares.vector_sum(), scratch, side, units) / size;
    Vector::new(f32::new(1.0) / (mean_square + epsilon).sqrt())
}

// The parameters `weight` and `other` are those of [`NormKind`].
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn forward_rows<X: Float, O: Float, N: Size>(
    x: &[Vector<X, N>],
    weight: &[Vector<f32, N>],
    other: &[Vector<f32, N>],
    y: &mut [Vector<O, N>],
    layout: Layout,
    epsilon: f32,
    #[comptime] share: Share,
    #[define(X, O)] _types: [ElemType; 2],
) {
    let lanes = comptime!(share.lanes());
    let mut scratch = Shared::<[f32]>::new_slice(comptime!(2 * share.units()));
    let unit = UNIT_POS as usize;
    let row = CUBE_POS * comptime!(share.rows()) + unit / lanes;
    let lane = unit % lanes;
    let mut head = 0usize;
    let mut first = row * layout.width;
    if comptime!(share.norm.is_of_heads()) {
        head = row % layout.visited;
        first = (row / layout.visited * layout.all + head) * layout.width;
    }

    let mut values = Array::<Vector<f32, N>>::new(share.each);
    #[unroll]
    for i in 0..share.each {
        let column = i * lanes + lane;
        if row < layout.rows && column < layout.width {
            values[i] = Vector::cast_from(x[first + column]);
        }
    }
    let scale = centre_and_scale::<N>(&mut values, &mut scratch, layout.width, epsilon, share);
    #[unroll]
    for i in 0..share.each {
        let column = i * lanes + lane;
        if row < layout.rows && column < layout.width {
            let mut value = values[i];
            if comptime!(share.norm.is_of_heads()) {
                if head < layout.queries {
                    value *= scale * weight[column];
                } else if head < layout.normed {
                    value *= scale * other[column];
                }
            } else {
                value = value * scale * weight[column];
            }
            if comptime!(share.norm.is_layer()) {
                value += other[column];
            }
            y[first + column] = Vector::cast_from(value);
        }
    }
}

// With h the normalised row and g = dy * weight: dx = (g - mean(g) - h * mean(g * h)) / standard
// deviation; without mean(g) for RMSNorm. A group's sums are the gradient of `weight`, followed by
// that of the forward's `other` if it is read.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn backward_rows<X: Float, D: Float, N: Size>(
    x: &[Vector<X, N>],
    weight: &[Vector<f32, N>],
    other: &[Vector<f32, N>],
    dy: &[Vector<D, N>],
    dx: &mut [Vector<X, N>],
    sums: &mut [Vector<f32, N>],
    layout: Layout,
    steps: usize,
    epsilon: f32,
    #[comptime] share: Share,
    #[define(X, D)] _types: [ElemType; 2],
) {
    let lanes = comptime!(share.lanes());
    let (side, units) = comptime!((share.side, share.units()));
    let mut scratch = Shared::<[f32]>::new_slice(comptime!(2 * share.units()));
    let unit = UNIT_POS as usize;
    let group = CUBE_POS * comptime!(share.rows()) + unit / lanes;
    let lane = unit % lanes;
    let width = layout.width;
    let size = f32::cast_from(width * N::value());

    let mut dweight = Array::<Vector<f32, N>>::new(share.each);
    let mut dother = Array::<Vector<f32, N>>::new(share.each);
    for step in 0..steps {
        let row = group * steps + step;
        let mut head = 0usize;
        let mut first = row * width;
        if comptime!(share.norm.is_of_heads()) {
            head = row % layout.visited;
            first = (row / layout.visited * layout.all + head) * width;
        }
        let mut h = Array::<Vector<f32, N>>::new(share.each);
        let mut g = Array::<Vector<f32, N>>::new(share.each);
        #[unroll]
        for i in 0..share.each {
            let column = i * lanes + lane;
            h[i] = Vector::new(f32::new(0.0));
            g[i] = Vector::new(f32::new(0.0));
            if row < layout.rows && column < width {
                h[i] = Vector::cast_from(x[first + column]);
                g[i] = Vector::cast_from(dy[first + column]);
            }
        }
        let scale = centre_and_scale::<N>(&mut h, &mut scratch, width, epsilon, share);

        let mut sum_g = Vector::<f32, N>::new(f32::new(0.0));
        let mut sum_gh = Vector::<f32, N>::new(f32::new(0.0));
        #[unroll]
        for i in 0..share.each {
            let column = i * lanes + lane;
            h[i] *= scale;
            if column < width {
                if comptime!(share.norm.is_of_heads()) {
                    if head < layout.queries {
                        dweight[i] += g[i] * h[i];
                        g[i] *= weight[column];
                    } else if head < layout.normed {
                        dother[i] += g[i] * h[i];
                        g[i] *= other[column];
                    }
                } else {
                    dweight[i] += g[i] * h[i];
                    dother[i] += g[i];
                    g[i] *= weight[column];
                    sum_g += g[i];
                }
                sum_gh += g[i] * h[i];
            }
        }
        let mut mean_g = f32::new(0.0);
        if comptime!(share.norm.is_layer()) {
            mean_g = over_lanes(sum_g.vector_sum(), &mut scratch, side, units) / size;
        }
        let mean_gh = over_lanes(sum_gh.vector_sum(), &mut scratch, side, units) / size;
        #[unroll]
        for i in 0..share.each {
            let column = i * lanes + lane;
            if row < layout.rows && column < width {
                let mut value = g[i];
                if comptime!(!share.norm.is_of_heads()) || head < layout.normed {
                    value = scale * (g[i] - Vector::new(mean_g) - h[i] * Vector::new(mean_gh));
                }
                if comptime!(share.adds) {
                    value += Vector::cast_from(dx[first + column]);
                }
                dx[first + column] = Vector::cast_from(value);
            }
        }
    }
    let parameters = comptime!(share.norm.parameters());
    #[unroll]
    for i in 0..share.each {
        let column = i * lanes + lane;
        if column < width {
            sums[group * parameters * width + column] = dweight[i];
            if comptime!(parameters == 2) {
                sums[(group * parameters + 1) * width + column] = dother[i];
            }
        }
    }
}

/// Each row of a float32 `x` `[..., n]` divided by its root mean square and scaled, in type `to`;
/// with a `bias`, the mean is subtracted first and the bias added last. `weight` and `bias` are
/// `[n]`.
fn forward(x: CubeTensor, weight: CubeTensor, bias: Option<CubeTensor>, epsilon: f32, to: FloatDType) -> CubeTensor {
    let (x, weight) = (contiguous(x), contiguous(weight));
    let [rows, width, vector] = rows_of_vectors(&x);
    let y = unfilled(&x, x.meta.shape().clone(), to.into());
    let share = Share::of(width, if bias.is_some() { NormKind::Layer } else { NormKind::Rms });
    let (grid, layout) = (Grid::cubes(&[&x, &y], rows.div_ceil(share.rows()), share.units()), all_rows(rows, width));
    let types = [DType::F32, to.into()].map(elem);
    // Without a bias this argument is never read.
    let bias = bias.map_or_else(|| weight.clone(), contiguous);
    // SAFETY: the kernel checks every index against `rows` and `width`.
    unsafe {
        launch!(forward_rows, grid, vector, [x, weight, bias, &y], layout, epsilon, share, types);
    }
    y
}

/// The gradient of `x`, added to `dx` if given, and those of the weights in one tensor: of `weight`
/// and, for LayerNorm, of `bias`.
fn backward(
    kept: [CubeTensor; 2],
    dy: CubeTensor,
    dx: Option<CubeTensor>,
    epsilon: f32,
    norm: NormKind,
) -> [CubeTensor; 2] {
    let ([x, weight], dy) = (kept.map(contiguous), contiguous(dy));
    let (weight, [rows, width, vector]) = (&weight, rows_of_vectors(&x));
    let share = Share { adds: dx.is_some(), ..Share::of(width, norm) };
    let dx = dx.map_or_else(|| unfilled(&x, x.meta.shape().clone(), DType::F32), |dx| writable(float32(dx)));
    let (steps, cubes, groups) = share.groups(rows);
    let sums = unfilled(&x, [groups, norm.parameters() * width * vector], DType::F32);
    let (grid, layout) = (Grid::cubes(&[&x, &dx, &sums], cubes, share.units()), all_rows(rows, width));
    let types = [DType::F32, dy.dtype].map(elem);
    // SAFETY: the kernel checks every index against `rows` and `width`; `sums` has a row for each
    // group.
    unsafe {
        launch!(backward_rows, grid, vector, [x, weight, weight, dy, &dx, &sums], layout, steps, epsilon, share, types);
    }
    [dx, sum_groups(sums)]
}

/// The layout of the rows of a matrix.
fn all_rows(rows: usize, width: usize) -> LayoutLaunch {
    LayoutLaunch::new(rows, width, 1, 1, 1, 1)
}
