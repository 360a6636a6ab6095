//! A product of few rows with a matrix, as in decoding. Every number of the matrix is read once and
//! used a few times, so memory bandwidth is the limit. Each unit keeps float32 sums over a strided
//! subset of the depth (the inner dimension); they are added up at the end.

use super::tiled::{VECTOR_SIZE, factor};
use crate::gpu::prelude::*;
use crate::gpu::tensor_cores::PLANE;
use crate::gpu::tile::sum_of_lanes;

/// Maximum number of rows; a unit keeps an accumulator for each.
const MOST: usize = 8;
/// Units of a cube.
const UNITS: usize = 256;
/// Vectors of a row of the matrix per cube, where rows go across the depth: one memory transaction.
const STRIP: usize = 2;
/// Units that share a column of vectors, each with its own part of the depth.
const LANES: usize = UNITS / STRIP;
/// Vectors that a unit loads before it uses them.
const EACH: usize = 4;

/// `y = x b` for `b` `[depth, columns]`: a cube takes a strip of the columns.
#[cube(launch_unchecked, address_type = "dynamic")]
fn across<T: Float, O: Float, N: Size>(
    x: &[T],
    b: &[Vector<T, N>],
    y: &mut [Vector<O, N>],
    depth: usize,
    stride: usize,
    columns: usize,
    #[comptime] rows: usize,
    #[define(T, O)] _types: [ElemType; 2],
) {
    let mut shared = Shared::<[Vector<f32, N>]>::new_slice(UNITS);
    let (lane, vector) = (UNIT_POS as usize / STRIP, UNIT_POS as usize % STRIP);
    let column = CUBE_POS * STRIP + vector;
    let mut sums = Array::<Vector<f32, N>>::new(rows);
    #[unroll]
    for row in 0..rows {
        sums[row] = Vector::zeroed();
    }
    let mut first = lane;
    while first < depth {
        let mut weights = Array::<Vector<T, N>>::new(EACH);
        #[unroll]
        for i in 0..EACH {
            let k = first + i * LANES;
            weights[i] = Vector::zeroed();
            if k < depth && column < columns {
                weights[i] = b[k * stride + column];
            }
        }
        #[unroll]
        for i in 0..EACH {
            let k = usize::min(first + i * LANES, depth - 1);
            let weight = Vector::<f32, N>::cast_from(weights[i]);
            #[unroll]
            for row in 0..rows {
                sums[row] = fma(Vector::new(f32::cast_from(x[row * depth + k])), weight, sums[row]);
            }
        }
        first += LANES * EACH;
    }
    #[unroll]
    for row in 0..rows {
        shared[UNIT_POS as usize] = sums[row];
        sync_cube();
        #[unroll]
        for halving in 0..comptime!(LANES.ilog2()) {
            let left = comptime!(LANES >> (halving + 1));
            if lane < left {
                shared[UNIT_POS as usize] = shared[UNIT_POS as usize] + shared[UNIT_POS as usize + left * STRIP];
            }
            sync_cube();
        }
        if lane == 0 && column < columns {
            y[row * columns + column] = Vector::cast_from(shared[vector]);
        }
        sync_cube();
    }
}

/// `y = x bᵀ` for `b` `[columns, depth]`: a plane takes a column.
#[cube(launch_unchecked, address_type = "dynamic")]
fn along<T: Float, O: Float, N: Size>(
    x: &[Vector<T, N>],
    b: &[Vector<T, N>],
    y: &mut [O],
    depth: usize,
    stride: usize,
    columns: usize,
    #[comptime] rows: usize,
    #[define(T, O)] _types: [ElemType; 2],
) {
    let lane = UNIT_POS as usize % PLANE;
    let column = CUBE_POS * comptime!(UNITS / PLANE) + UNIT_POS as usize / PLANE;
    if column < columns {
        let mut sums = Array::<Vector<f32, N>>::new(rows);
        #[unroll]
        for row in 0..rows {
            sums[row] = Vector::zeroed();
        }
        let mut first = lane;
        while first < depth {
            let mut weights = Array::<Vector<T, N>>::new(EACH);
            #[unroll]
            for i in 0..EACH {
                let k = first + i * PLANE;
                weights[i] = Vector::zeroed();
                if k < depth {
                    weights[i] = b[column * stride + k];
                }
            }
            #[unroll]
            for i in 0..EACH {
                let k = usize::min(first + i * PLANE, depth - 1);
                let weight = Vector::<f32, N>::cast_from(weights[i]);
                #[unroll]
                for row in 0..rows {
                    sums[row] = fma(Vector::cast_from(x[row * depth + k]), weight, sums[row]);
                }
            }
            first += PLANE * EACH;
        }
        #[unroll]
        for row in 0..rows {
            let sum = plane_sum(sum_of_lanes::<N>(sums[row]));
            if lane == 0 {
                y[row * columns + column] = O::cast_from(sum);
            }
        }
    }
}

/// `a b` for an `a` of few rows; `None` if this kernel does not support the factors.
pub fn product(a: &CubeTensor, b: &CubeTensor, to: DType) -> Option<CubeTensor> {
    let ([rows, depth], columns) = ([a.meta.shape()[0], a.meta.shape()[1]], b.meta.shape()[1]);
    let (layout, place) = factor(b, 1)?;
    let row = if layout.along { depth } else { columns };
    let planes = [a.client.properties().hardware.plane_size_min, a.client.properties().hardware.plane_size_max];
    if a.dtype != b.dtype || rows > MOST || !row.is_multiple_of(VECTOR_SIZE) || planes != [PLANE as u32; 2] {
        return None;
    }
    let (a, y) = (contiguous(a.clone()), unfilled(a, [rows, columns], to));
    let types = [a.dtype, to].map(elem);
    let at_once = if layout.along { UNITS / PLANE } else { STRIP * VECTOR_SIZE };
    let grid = Grid::cubes(&[&a, b, &y], columns.div_ceil(at_once), UNITS);
    // SAFETY: the kernels read `rows` of `depth` and a matrix of `depth` and `columns` at its stride,
    // and write `rows` of `columns`.
    unsafe {
        if layout.along {
            launch!(along, grid, VECTOR_SIZE, [&a, b, &y], depth / VECTOR_SIZE, place.stride, columns, rows, types);
        } else {
            launch!(across, grid, VECTOR_SIZE, [&a, b, &y], depth, place.stride, columns / VECTOR_SIZE, rows, types);
        }
    }
    Some(y)
}
