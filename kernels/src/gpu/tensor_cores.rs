//! [`Products`] on tensor cores: 16 x 16 x 16 products of float16 or bfloat16 with float32 sums.
//! The layout of a fragment's numbers in registers is not specified, so values that units access
//! individually (scores, sums to be scaled) go through shared memory.
//!
//! Each plane of 32 units has 16 rows, or a multiple of that, to itself, so `sync_plane` suffices
//! here.

use burn::tensor::DType;
use cubecl::client::Client;
use cubecl::cmma::{self, Matrix, MatrixIdent, MatrixLayout};
use cubecl::prelude::*;

use crate::gpu::tensor::elem;
use crate::gpu::tile::{Products, ProductsFamily, Tile};

/// Units of a plane on NVIDIA's devices, the only ones that this module is used on.
pub const PLANE: usize = 32;

/// Rows, columns and depth of a fragment.
pub const SIDE: usize = 16;

/// Whether the device has tensor cores.
pub fn has_tensor_cores(client: &Client) -> bool {
    !client.properties().features.matmul.cmma.is_empty()
}

/// Whether the device reports tensor cores for this type, with the plane and fragment sizes of this
/// module.
pub fn supports(client: &Client, dtype: DType) -> bool {
    let (properties, factor, sum) = (client.properties(), elem(dtype), elem(DType::F32));
    let listed = properties.features.matmul.cmma.iter().any(|config| {
        [config.a_type, config.b_type, config.cd_type] == [factor, factor, sum]
            && [config.m, config.n, config.k].map(|side| side as usize) == [SIDE; 3]
    });
    let planes = [properties.hardware.plane_size_min, properties.hardware.plane_size_max].map(|size| size as usize);
    listed && dtype != DType::F32 && planes == [PLANE; 2]
}

/// Tensor cores.
pub struct TensorCores;

impl ProductsFamily for TensorCores {
    type Of<T: Float, W: Float, N: Size> = TensorCores;
}

impl Tile {
    /// Fragments along the rows of a plane.
    const fn fragments_high(self) -> usize {
        self.rows * PLANE / self.units / SIDE
    }

    /// Fragments in the width of a head.
    const fn fragments_deep(self) -> usize {
        self.vectors * self.vector_size / SIDE
    }

    /// Vectors in the width of a fragment.
    const fn fragment_vectors(self) -> usize {
        SIDE / self.vector_size
    }
}

/// First row of this plane's fragment number `i`.
#[cube]
fn row_of(#[comptime] i: usize, #[comptime] tile: Tile) -> usize {
    (UNIT_POS as usize / PLANE * comptime!(tile.fragments_high()) + i) * SIDE
}

#[cube]
impl<T: Float, W: Float, N: Size> Products<T, W, N> for TensorCores {
    type Accumulator = Sequence<Matrix<f32>>;

    fn zeros(#[comptime] tile: Tile) -> Self::Accumulator {
        let mut sum = Sequence::<Matrix<f32>>::new();
        #[unroll]
        for _ in 0..comptime!(tile.fragments_high() * tile.fragments_deep()) {
            sum.push(zero_fragment());
        }
        sum
    }

    fn scores(rows: &[Vector<T, N>], columns: &[Vector<T, N>], scores: &mut [f32], #[comptime] tile: Tile) {
        let (stride, score_stride) = comptime!((tile.stride(), tile.score_stride()));
        let ld = comptime!((tile.stride() * tile.vector_size) as u32);
        #[unroll]
        for i in 0..comptime!(tile.fragments_high()) {
            let row = row_of(i, tile);
            let mut sums = Sequence::<Matrix<f32>>::new();
            #[unroll]
            for _ in 0..comptime!(tile.columns / SIDE) {
                sums.push(zero_fragment());
            }
            #[unroll]
            for k in 0..comptime!(tile.fragments_deep()) {
                let at = comptime!(k * tile.fragment_vectors());
                let mut a = fragment::<T>(MatrixIdent::A, MatrixLayout::RowMajor);
                cmma::load(&mut a, &rows[row * stride + at..rows.len()], ld);
                #[unroll]
                for j in 0..comptime!(tile.columns / SIDE) {
                    let mut b = fragment::<T>(MatrixIdent::B, MatrixLayout::ColMajor);
                    cmma::load(&mut b, &columns[comptime!(j * SIDE * tile.stride() + at)..columns.len()], ld);
                    cmma::execute(&a, &b, &sums[j], &sums[j]);
                }
            }
            #[unroll]
            for j in 0..comptime!(tile.columns / SIDE) {
                let (from, to) = (row * score_stride + comptime!(j * SIDE), scores.len());
                cmma::store(&mut scores[from..to], &sums[j], score_stride as u32, MatrixLayout::RowMajor);
            }
        }
    }

    fn accumulate(sum: &mut Self::Accumulator, weights: &[W], columns: &[Vector<T, N>], #[comptime] tile: Tile) {
        let (weight_stride, deep) = comptime!((tile.weight_stride(), tile.fragments_deep()));
        let ld = comptime!((tile.stride() * tile.vector_size) as u32);
        #[unroll]
        for k in 0..comptime!(tile.columns / SIDE) {
            let mut rows = Sequence::<Matrix<W>>::new();
            #[unroll]
            for i in 0..comptime!(tile.fragments_high()) {
                let mut a = fragment::<W>(MatrixIdent::A, MatrixLayout::RowMajor);
                let from = row_of(i, tile) * weight_stride + comptime!(k * SIDE);
                cmma::load(&mut a, &weights[from..weights.len()], weight_stride as u32);
                rows.push(a);
            }
            #[unroll]
            for j in 0..deep {
                let at = comptime!(k * SIDE * tile.stride() + j * tile.fragment_vectors());
                let mut b = fragment::<T>(MatrixIdent::B, MatrixLayout::RowMajor);
                cmma::load(&mut b, &columns[at..columns.len()], ld);
                #[unroll]
                for i in 0..comptime!(tile.fragments_high()) {
                    let number = comptime!(i * deep + j);
                    cmma::execute(&rows[i], &b, &sum[number], &sum[number]);
                }
            }
        }
    }

    fn scale_rows(sum: &mut Self::Accumulator, factors: &[f32], scratch: &mut [f32], #[comptime] tile: Tile) {
        let (score_stride, deep) = comptime!((tile.score_stride(), tile.fragments_deep()));
        let lane = UNIT_POS as usize % PLANE;
        #[unroll]
        for i in 0..comptime!(tile.fragments_high()) {
            let row = row_of(i, tile);
            let from = row * score_stride;
            let end = scratch.len();
            #[unroll]
            for j in 0..deep {
                let number = comptime!(i * deep + j);
                let layout = MatrixLayout::RowMajor;
                cmma::store(&mut scratch[from..end], &sum[number], score_stride as u32, layout);
                sync_plane();
                #[unroll]
                for turn in 0..comptime!(SIDE * SIDE / PLANE) {
                    let place = turn * PLANE + lane;
                    let at = from + place / SIDE * score_stride + place % SIDE;
                    scratch[at] *= factors[row + place / SIDE];
                }
                sync_plane();
                cmma::load_with_layout(&mut sum[number], &scratch[from..end], score_stride as u32, layout);
                sync_plane();
            }
        }
    }

    fn write(
        sum: &Self::Accumulator,
        factors: &[f32],
        scratch: &mut [f32],
        out: &mut [Vector<T, N>],
        first: usize,
        stride: usize,
        valid: usize,
        #[comptime] tile: Tile,
    ) {
        let (score_stride, deep) = comptime!((tile.score_stride(), tile.fragments_deep()));
        let wide = comptime!(tile.fragment_vectors());
        let lane = UNIT_POS as usize % PLANE;
        #[unroll]
        for i in 0..comptime!(tile.fragments_high()) {
            let from = row_of(i, tile) * score_stride;
            let end = scratch.len();
            #[unroll]
            for j in 0..deep {
                let number = comptime!(i * deep + j);
                let layout = MatrixLayout::RowMajor;
                cmma::store(&mut scratch[from..end], &sum[number], score_stride as u32, layout);
                sync_plane();
                #[unroll]
                for turn in 0..comptime!((SIDE * wide).div_ceil(PLANE)) {
                    let place = turn * PLANE + lane;
                    let row = row_of(i, tile) + place / wide;
                    if place < SIDE * wide && row < valid {
                        let at = from + place / wide * score_stride + place % wide * comptime!(tile.vector_size);
                        let mut values = Vector::<T, N>::zeroed();
                        #[unroll]
                        for l in 0..N::value() {
                            values.insert(l, T::cast_from(scratch[at + l] * factors[row]));
                        }
                        out[first + row * stride + comptime!(j * wide) + place % wide] = values;
                    }
                }
                sync_plane();
            }
        }
    }
}

/// An accumulator of zeros.
#[cube]
pub fn zero_fragment() -> Matrix<f32> {
    Matrix::<f32>::from_value(MatrixIdent::Accumulator, SIDE, SIDE, SIDE, MatrixLayout::Undefined, 0.0f32)
}

/// A fragment of a factor, uninitialised.
#[cube]
pub fn fragment<T: Float>(#[comptime] ident: MatrixIdent, #[comptime] layout: MatrixLayout) -> Matrix<T> {
    // SAFETY: every caller loads it next.
    unsafe { Matrix::<T>::uninitialized(ident, SIDE, SIDE, SIDE, layout) }
}
