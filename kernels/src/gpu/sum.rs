//! Sums in an order that depends on the sizes alone, so that the bits repeat whatever the order of
//! execution.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::gpu::launch::{Grid, launch};
use crate::gpu::tensor::{elem, rows_and_width, unfilled, vector_size};

/// The sum of `value` over the `side * side` units that share a row, returned to each of them.
/// `scratch` has two values for each of the cube's `units`.
#[cube]
pub fn over_lanes(value: f32, scratch: &mut Shared<[f32]>, #[comptime] side: usize, #[comptime] units: usize) -> f32 {
    let unit = UNIT_POS as usize;
    let lanes = comptime!(side * side);
    let lane = unit % lanes;
    let first = unit - lane;
    scratch[unit] = value;
    sync_cube();
    let mut part = f32::new(0.0);
    #[unroll]
    for i in 0..side {
        part += scratch[first + i * side + lane % side];
    }
    if lane < side {
        scratch[units + first + lane] = part;
    }
    // Before this barrier all have read what the next sum overwrites.
    sync_cube();
    let mut sum = f32::new(0.0);
    #[unroll]
    for i in 0..side {
        sum += scratch[units + first + i];
    }
    sum
}

/// Columns of vectors per cube of [`column_sums`].
const COLUMNS: usize = 16;
/// Units of [`column_sums`] that share the rows of a column.
pub const LANES: usize = 16;
/// Rows that a unit of [`column_sums`] loads before it adds them, so that it waits for memory once
/// for all of them.
const ROWS_AT_ONCE: usize = 8;

/// The column of vectors that a unit sums, in a grid of [`Groups::grid`].
#[cube]
pub fn own_column() -> usize {
    CUBE_POS_X as usize * COLUMNS + UNIT_POS_X as usize
}

/// The first row of a unit in such a grid; `steps - 1` more follow, at a stride of [`LANES`].
#[cube]
pub fn first_row(steps: usize) -> usize {
    CUBE_POS_Y as usize * steps * LANES + UNIT_POS_Y as usize
}

/// Adds up the partial column sums of a cube's [`LANES`], and writes the total to the row of the
/// cube's group in `sums` `[groups, width]`.
#[cube]
pub fn write_column_sum<N: Size>(sum: Vector<f32, N>, sums: &mut [Vector<f32, N>], column: usize, width: usize) {
    let mut scratch = Shared::<[Vector<f32, N>]>::new_slice(comptime!(COLUMNS * LANES));
    let place = UNIT_POS_X as usize;
    scratch[UNIT_POS_Y as usize * COLUMNS + place] = sum;
    sync_cube();
    if UNIT_POS_Y == 0 && column < width {
        let mut total = Vector::new(f32::new(0.0));
        #[unroll]
        for lane in 0..LANES {
            total += scratch[lane * COLUMNS + place];
        }
        sums[CUBE_POS_Y as usize * width + column] = total;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn column_sums_kernel<T: Float, N: Size>(
    x: &[Vector<T, N>],
    sums: &mut [Vector<f32, N>],
    rows: usize,
    width: usize,
    steps: usize,
    #[define(T)] _dtype: ElemType,
) {
    let (column, first) = (own_column(), first_row(steps));
    let mut sum = Vector::<f32, N>::new(f32::new(0.0));
    for block in 0..steps.div_ceil(ROWS_AT_ONCE) {
        let mut values = Array::<Vector<f32, N>>::new(ROWS_AT_ONCE);
        #[unroll]
        for i in 0..ROWS_AT_ONCE {
            let step = block * ROWS_AT_ONCE + i;
            let row = first + step * LANES;
            values[i] = Vector::zeroed();
            if step < steps && row < rows && column < width {
                values[i] = Vector::cast_from(x[row * width + column]);
            }
        }
        #[unroll]
        for i in 0..ROWS_AT_ONCE {
            sum += values[i];
        }
    }
    write_column_sum::<N>(sum, sums, column, width);
}

/// How the rows of a matrix are divided into groups. Each group is summed first, then the groups'
/// sums.
#[derive(Clone, Copy, Debug)]
pub struct Groups {
    /// Number of groups.
    pub count: usize,
    /// Rows for each of a group's [`LANES`].
    pub steps: usize,
}

impl Groups {
    /// Enough groups to keep a GPU busy, but few enough for a cheap sum over them.
    pub fn of(rows: usize) -> Self {
        let steps = rows.div_ceil(256).next_multiple_of(LANES).max(256) / LANES;
        Self { count: rows.div_ceil(steps * LANES).max(1), steps }
    }

    /// A grid with one cube for each group and each [`COLUMNS`] of `width` vectors.
    pub fn grid(self, tensors: &[&CubeTensor], width: usize) -> Grid {
        let cubes = CubeCount::new_2d(width.div_ceil(COLUMNS) as u32, self.count as u32);
        Grid::new(tensors, cubes, CubeDim::new_2d(COLUMNS as u32, LANES as u32))
    }
}

/// The sums of the columns of `x` `[..., n]` over all other dimensions, `[n]` in float32.
pub fn column_sums(x: CubeTensor) -> CubeTensor {
    let [rows, width] = rows_and_width(&x);
    let groups = Groups::of(rows);
    let sums = group_sums(x, groups, width);
    if groups.count == 1 { sums } else { sum_groups(sums) }
}

/// The sum over the groups of `sums` `[groups, n]`: `[n]`.
pub fn sum_groups(sums: CubeTensor) -> CubeTensor {
    let [groups, width] = rows_and_width(&sums);
    group_sums(sums, Groups { count: 1, steps: groups.div_ceil(LANES) }, width)
}

/// Sums of the columns of each group's rows, `[groups, n]`, or `[n]` for a single group.
fn group_sums(x: CubeTensor, groups: Groups, width: usize) -> CubeTensor {
    let [rows, _] = rows_and_width(&x);
    let sums = match groups.count {
        1 => unfilled(&x, [width], DType::F32),
        count => unfilled(&x, [count, width], DType::F32),
    };
    let vector = vector_size(width);
    let (grid, dtype) = (groups.grid(&[&x, &sums], width / vector), elem(x.dtype));
    // SAFETY: the kernel checks every index against `rows` and `width`.
    unsafe { launch!(column_sums_kernel, grid, vector, [x, &sums], rows, width / vector, groups.steps, dtype) };
    sums
}

/// The sum of each unit's `value`, for all units of a cube of `units`, a power of two.
#[cube]
pub fn cube_sum(value: f32, #[comptime] units: u32) -> f32 {
    over_cube(value, units, false)
}

/// The largest of each unit's `value`, for all units of a cube of `units`, a power of two.
#[cube]
pub fn cube_max(value: f32, #[comptime] units: u32) -> f32 {
    over_cube(value, units, true)
}

#[cube]
fn over_cube(value: f32, #[comptime] units: u32, #[comptime] largest: bool) -> f32 {
    let mut values = Shared::<[f32]>::new_slice(units as usize);
    values[UNIT_POS as usize] = value;
    sync_cube();
    let mut rest = (units / 2).runtime();
    while rest > 0 {
        if UNIT_POS < rest {
            let other = values[(UNIT_POS + rest) as usize];
            if !largest {
                values[UNIT_POS as usize] += other;
            } else if other > values[UNIT_POS as usize] {
                values[UNIT_POS as usize] = other;
            }
        }
        sync_cube();
        rest /= 2;
    }
    values[0]
}
