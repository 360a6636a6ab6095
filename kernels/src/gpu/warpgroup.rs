//! Shared code of the kernels for Hopper's tensor cores. A warpgroup, four planes, multiplies 64
//! rows at once by factors in shared memory, in rows of 128 bytes. Each group of eight rows is
//! swizzled: the 16-byte vectors of a column are in different banks. Each plane has the sums of 16
//! rows; in every eight columns a unit has two adjacent sums of one row, and two of the row eight
//! below.

use cubecl::client::Client;
use cubecl::prelude::*;

use crate::gpu::ptx::{self, Half};
use crate::gpu::tensor_cores::PLANE;

/// Rows that a warpgroup multiplies at once.
pub const ROWS: usize = 64;
/// Units of a warpgroup.
pub const GROUP: usize = 4 * PLANE;
/// Bytes of a row in shared memory.
pub const ROW: usize = 128;
/// Numbers of a half type in such a row.
pub const NUMBERS: usize = ROW / 2;
/// Bytes that a unit copies at once.
pub const VECTOR_BYTES: usize = 16;
/// Vectors in a row, and rows that are swizzled together.
pub const SWIZZLED: usize = ROW / VECTOR_BYTES;
/// Depth of one instruction.
pub const STEP: usize = 16;
/// Width of an output vector, in 32-bit words.
pub const WORDS: usize = 4;

/// Whether a device has these instructions; neither older nor newer devices have them.
pub fn is_hopper(client: &Client) -> bool {
    client.properties().identity.fingerprint == "ptx_sm90"
}

/// Step from 16 numbers of the depth to the next 16, in vectors: along a row, or across rows.
pub const fn step(across: bool) -> usize {
    if across { STEP * ROW / VECTOR_BYTES } else { STEP * 2 / VECTOR_BYTES }
}

/// Descriptor of a slice's layout for the tensor cores: rows of 128 bytes, swizzled in groups of
/// eight. `next` is the distance in bytes to the next 64 rows or columns, if rows go across the
/// depth. Callers add the slice's address, in vectors.
pub const fn descriptor(next: usize) -> u64 {
    let (swizzled, eight) = (1 << 62, (SWIZZLED * ROW / VECTOR_BYTES) as u64);
    swizzled | eight << 32 | ((next / VECTOR_BYTES) as u64) << 16
}

/// Byte offset of vector number `vector` in row number `row` of a slice.
#[cube]
pub fn offset(row: usize, vector: usize) -> usize {
    row * ROW + (vector ^ (row % SWIZZLED)) * VECTOR_BYTES
}

/// Starts an asynchronous copy of `rows` rows of 128 bytes, from vector number `first` on and
/// `stride` vectors apart, to address `to` in shared memory; rows from `valid` on become zero.
#[cube]
pub fn copy_rows<T: Float, N: Size>(
    from: &[Vector<T, N>],
    first: usize,
    stride: usize,
    valid: usize,
    to: u32,
    #[comptime] rows: usize,
    #[comptime] units: usize,
) {
    #[unroll]
    for i in 0..comptime!(rows * SWIZZLED / units) {
        let at = UNIT_POS as usize + i * units;
        let (row, vector) = (at / SWIZZLED, at % SWIZZLED);
        let source = select(row < valid, first + row * stride + vector, 0usize);
        let bytes = select(row < valid, comptime!(VECTOR_BYTES as u32), 0u32);
        ptx::copy(&from[source..from.len()], to + offset(row, vector) as u32, bytes);
    }
}

/// The first of a unit's two rows, of a warpgroup's 64; the other is eight below.
#[cube]
pub fn own_row() -> usize {
    let (plane, lane) = (UNIT_POS as usize / PLANE, UNIT_POS as usize % PLANE);
    plane % (GROUP / PLANE) * STEP + lane / 4
}

/// Column of a unit's sum number `i`.
#[cube]
pub fn own_column(#[comptime] i: usize) -> usize {
    comptime!(i / 4 * 8 + i % 2) + UNIT_POS as usize % 4 * 2
}

/// Whether a unit's sum number `i` belongs to the upper of its two rows: pairs of sums alternate
/// between the rows.
pub const fn is_upper(i: usize) -> bool {
    i / 2 % 2 == 0
}

/// Row of a unit's sum number `i`, relative to its upper row.
pub const fn rows_below(i: usize) -> usize {
    if is_upper(i) { 0 } else { 8 }
}

/// A vector of sums rounded to two bytes, for the upper or lower row: after an exchange among four
/// units, the eight columns of group number `vector` of 32 columns that this unit writes.
#[cube]
pub fn rounded(
    sums: &Sequence<f32>,
    lane: u32,
    #[comptime] vector: usize,
    #[comptime] lower: usize,
    #[comptime] half: Half,
) -> Vector<u32, Const<WORDS>> {
    let mut pairs = Sequence::<u32>::new();
    #[unroll]
    for block in 0..4usize {
        let at = comptime!((vector * 4 + block) * 4 + lower * 2);
        pairs.push(ptx::packed(*sums.index(at), *sums.index(comptime!(at + 1)), half));
    }
    let (first_left, first_right) = exchanged(pairs[0], pairs[1], lane, 1u32);
    let (second_left, second_right) = exchanged(pairs[2], pairs[3], lane, 1u32);
    let (a, c) = exchanged(first_left, second_left, lane, 2u32);
    let (b, d) = exchanged(first_right, second_right, lane, 2u32);
    let mut words = Vector::<u32, Const<WORDS>>::zeroed();
    words.insert(0usize, a);
    words.insert(1usize, b);
    words.insert(2usize, c);
    words.insert(3usize, d);
    words
}

/// The same in float32: the four columns of group number `vector` of 16 columns that this unit
/// writes.
#[cube]
pub fn whole(
    sums: &Sequence<f32>,
    lane: u32,
    #[comptime] vector: usize,
    #[comptime] lower: usize,
) -> Vector<u32, Const<WORDS>> {
    let mut words = Vector::<u32, Const<WORDS>>::zeroed();
    #[unroll]
    for i in 0..2usize {
        let first = u32::reinterpret(*sums.index(comptime!(vector * 8 + lower * 2 + i)));
        let second = u32::reinterpret(*sums.index(comptime!(vector * 8 + 4 + lower * 2 + i)));
        let (left, right) = exchanged(first, second, lane, 1u32);
        words.insert(i, left);
        words.insert(comptime!(2 + i), right);
    }
    words
}

/// Which of four adjacent vectors of a row this unit of four writes.
#[cube]
pub fn own_vector(lane: u32, #[comptime] whole: bool) -> usize {
    if comptime!(whole) { (lane % 2 * 2 + lane / 2 % 2) as usize } else { (lane % 4) as usize }
}

/// Exchanges words between two units whose numbers differ in `bit`: the left unit (bit clear) gets
/// both first words, the right one both second words, each with the left unit's word first.
#[cube]
fn exchanged(first: u32, second: u32, lane: u32, bit: u32) -> (u32, u32) {
    let right = lane & bit != 0;
    let got = plane_shuffle_xor(select(right, first, second), bit);
    let kept = select(right, second, first);
    (select(right, got, kept), select(right, kept, got))
}

/// A copy of an array's values.
#[cube]
pub fn to_sequence(array: &Array<f32>, #[comptime] count: usize) -> Sequence<f32> {
    let mut values = Sequence::<f32>::new();
    #[unroll]
    for i in 0..count {
        let value = array[i];
        values.push(value);
    }
    values
}

/// Copies values into an array.
#[cube]
pub fn from_sequence(array: &mut Array<f32>, values: &Sequence<f32>, #[comptime] count: usize) {
    #[unroll]
    for i in 0..count {
        array[i] = *values.index(i);
    }
}
