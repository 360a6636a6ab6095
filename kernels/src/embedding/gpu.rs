//! Embedding lookup, and the gradient of the table: the rows of `dy` are sorted by id and summed
//! per id, so that many units sum a frequent id, and a rare one costs no more than its row. The
//! order of summation depends on the ids alone.
//!
//! The sort counts: an element's rank is the number of smaller ids, and of equal ones before it.
//! For 16,384 ids that is 268 million comparisons in one launch, by instruction count 50
//! microseconds on an H200.

use super::Embed;
use crate::gpu::prelude::*;

/// Ids that a cube ranks.
const PLACES: usize = 32;
/// Units that count for each of these ids.
const PARTS: usize = 8;
/// Units of a cube in the other kernels, one for each vector of a row.
const UNITS: usize = 64;
/// Sorted rows that one cube sums.
const BLOCK: usize = 32;

// Launched with bounds checks, so no id reads outside the table.
#[cube(launch, address_type = "dynamic")]
fn gather_kernel<T: Float, N: Size>(
    weight: &[Vector<T, N>],
    ids: &[i32],
    y: &mut [Vector<T, N>],
    length: usize,
    width: usize,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS < length {
        let id = ids[ABSOLUTE_POS / width] as usize;
        y[ABSOLUTE_POS] = weight[id * width + ABSOLUTE_POS % width];
    }
}

// Several units count for each id, each over its part of all ids.
#[cube(launch_unchecked, address_type = "dynamic")]
fn order_kernel(ids: &[i32], order: &mut [u32], length: usize) {
    let mut tile = Shared::<[i32]>::new_slice(comptime!(PLACES * PARTS));
    let mut ranks = Shared::<[u32]>::new_slice(comptime!(PLACES * PARTS));
    let unit = UNIT_POS as usize;
    let part = unit % PARTS;
    let place = CUBE_POS * PLACES + unit / PARTS;
    let mut id = 0i32;
    if place < length {
        id = ids[place];
    }
    let mut rank = 0u32;
    for number in 0..length.div_ceil(PLACES * PARTS) {
        let first = number * PLACES * PARTS;
        sync_cube(); // all have read the previous tile
        tile[unit] = i32::MAX; // above every id, so it is never counted
        if first + unit < length {
            tile[unit] = ids[first + unit];
        }
        sync_cube();
        #[unroll]
        for i in 0..PLACES {
            let other = tile[i * PARTS + part];
            let before = other < id || (other == id && first + i * PARTS + part < place);
            rank += u32::cast_from(before);
        }
    }
    ranks[unit] = rank;
    sync_cube();
    if part == 0 && place < length {
        let mut total = 0u32;
        #[unroll]
        for i in 0..PARTS {
            total += ranks[unit + i];
        }
        order[total as usize] = place as u32;
    }
}

// Sums each run of equal ids within a block, into the row where the run begins.
#[cube(launch_unchecked, address_type = "dynamic")]
fn runs_kernel<T: Float, N: Size>(
    ids: &[i32],
    order: &[u32],
    dy: &[Vector<T, N>],
    sums: &mut [Vector<f32, N>],
    length: usize,
    width: usize,
    tiles: usize,
    #[define(T)] _dtype: ElemType,
) {
    let column = CUBE_POS % tiles * UNITS + UNIT_POS as usize;
    let first = CUBE_POS / tiles * BLOCK;
    if first >= length || column >= width {
        terminate!();
    }
    let mut begin = first;
    let mut row = order[first] as usize;
    let mut id = ids[row];
    let mut sum = Vector::<f32, N>::cast_from(dy[row * width + column]);
    for place in first + 1..min(first + BLOCK, length) {
        row = order[place] as usize;
        if ids[row] != id {
            sums[begin * width + column] = sum;
            sum = Vector::new(f32::new(0.0));
            begin = place;
            id = ids[row];
        }
        sum += Vector::cast_from(dy[row * width + column]);
    }
    sums[begin * width + column] = sum;
}

// Adds up an id's runs, one per block, from its first run on. Bounds-checked, as above.
#[cube(launch, address_type = "dynamic")]
fn rows_kernel<N: Size>(
    ids: &[i32],
    order: &[u32],
    sums: &[Vector<f32, N>],
    dweight: &mut [Vector<f32, N>],
    length: usize,
    width: usize,
    tiles: usize,
) {
    let column = CUBE_POS % tiles * UNITS + UNIT_POS as usize;
    let begin = CUBE_POS / tiles;
    if begin >= length || column >= width {
        terminate!();
    }
    let id = ids[order[begin] as usize];
    let mut first = true;
    if begin > 0 {
        first = ids[order[begin - 1] as usize] != id;
    }
    if first {
        let mut sum = sums[begin * width + column];
        let mut next = (begin / BLOCK + 1) * BLOCK;
        let mut same = true;
        while same {
            same = false;
            if next < length {
                same = ids[order[next] as usize] == id;
            }
            if same {
                sum += sums[next * width + column];
                next += BLOCK;
            }
        }
        dweight[id as usize * width + column] = sum;
    }
}

impl Operation<CubeBackend, 1> for Embed {
    type Kept = ();

    fn forward(&self, [weight]: [CubeTensor; 1]) -> ([CubeTensor; 1], ()) {
        let (weight, ids) = (contiguous(weight), contiguous(cast(cube(self.ids.clone()), DType::I32)));
        let [_, width, vector] = rows_of_vectors(&weight);
        let y = unfilled(&weight, [ids.meta.shape()[0], ids.meta.shape()[1], width * vector], weight.dtype);
        let length = y.meta.num_elements() / vector;
        let (grid, dtype) = (Grid::each(&[&weight, &y], length), elem(weight.dtype));
        launch!(checked gather_kernel, grid, vector, [weight, ids, &y], length, width, dtype);
        ([y], ())
    }

    fn backward(&self, (): (), dy: CubeTensor) -> [CubeTensor; 1] {
        let (ids, dy) = (contiguous(cast(cube(self.ids.clone()), DType::I32)), contiguous(dy));
        let [length, width, vector] = rows_of_vectors(&dy);
        let dweight = zeros(&dy, [self.rows, width * vector]);
        let order = unfilled(&dy, [length], DType::U32);
        let sums = unfilled(&dy, [length, width * vector], DType::F32);
        let (tiles, dtype) = (width.div_ceil(UNITS), elem(dy.dtype));
        let grid = |cubes, units| Grid::cubes(&[&dy, &sums, &dweight], cubes, units);
        let of_order = grid(length.div_ceil(PLACES), PLACES * PARTS);
        let [of_runs, of_rows] = [length.div_ceil(BLOCK), length].map(|cubes| grid(cubes * tiles, UNITS));
        // SAFETY: each kernel checks every index against `length` and `width`; the first writes
        // every element of `order`, so the second finds rows of `dy` in it.
        unsafe {
            launch!(order_kernel, of_order, [&ids, &order], length);
            launch!(runs_kernel, of_runs, vector, [&ids, &order, dy, &sums], length, width, tiles, dtype);
        }
        launch!(checked rows_kernel, of_rows, vector, [ids, order, sums, &dweight], length, width, tiles);
        [dweight]
    }
}
