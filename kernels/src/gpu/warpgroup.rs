//! What kernels for Hopper's tensor cores have in common. A warpgroup, four planes, multiplies 64
//! rows at once by factors that lie in shared memory in rows of 128 bytes, of which eight are
//! shuffled: each sixteen bytes of a column are in other banks. Of the sums of a plane's 16 rows a
//! unit has, in each eight columns, two next to each other of one row and two of the row eight
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
/// Numbers of a half type in it.
pub const NUMBERS: usize = ROW / 2;
/// Bytes that a unit copies at once.
pub const VECTOR: usize = 16;
/// Vectors in a row, and rows that are shuffled together.
pub const SHUFFLED: usize = ROW / VECTOR;
/// The depth of one instruction.
pub const STEP: usize = 16;
/// Numbers of 32 bits that are written at once.
pub const WORDS: usize = 4;

/// Whether a device has these instructions, which neither older nor newer ones have.
pub fn is_hopper(client: &Client) -> bool {
    client.properties().identity.fingerprint == "ptx_sm90"
}

/// From 16 numbers of the depth to the next, in vectors: along a row, or across rows.
pub const fn step(across: bool) -> usize {
    if across { STEP * ROW / VECTOR } else { STEP * 2 / VECTOR }
}

/// What tells the tensor cores how a slice lies: rows of 128 bytes, eight of which are shuffled, and
/// for one whose rows go across the depth how many bytes it is to its next 64 rows or columns.
/// Where it begins, in vectors, is added to it.
pub const fn descriptor(next: usize) -> u64 {
    let (shuffled, eight) = (1 << 62, (SHUFFLED * ROW / VECTOR) as u64);
    shuffled | eight << 32 | ((next / VECTOR) as u64) << 16
}

/// Where vector number `vector` of row number `row` of a slice lies, in bytes.
#[cube]
pub fn offset(row: usize, vector: usize) -> usize {
    row * ROW + (vector ^ (row % SHUFFLED)) * VECTOR
}

/// Begins to copy `rows` rows of 128 bytes from vector number `first` on, which are `stride` vectors
/// apart, to where `to` is in shared memory; those from `valid` on become zero.
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
    for i in 0..comptime!(rows * SHUFFLED / units) {
        let at = UNIT_POS as usize + i * units;
        let (row, vector) = (at / SHUFFLED, at % SHUFFLED);
        let source = select(row < valid, first + row * stride + vector, 0usize);
        let bytes = select(row < valid, comptime!(VECTOR as u32), 0u32);
        ptx::copy(&from[source..from.len()], to + offset(row, vector) as u32, bytes);
    }
}

/// The first of the two rows of a warpgroup's 64 that a unit has sums of; the other is eight below.
#[cube]
pub fn own_row() -> usize {
    let (plane, lane) = (UNIT_POS as usize / PLANE, UNIT_POS as usize % PLANE);
    plane % (GROUP / PLANE) * STEP + lane / 4
}

/// The column of a unit's sum number `i`.
#[cube]
pub fn own_column(#[comptime] i: usize) -> usize {
    comptime!(i / 4 * 8 + i % 2) + UNIT_POS as usize % 4 * 2
}

/// Whether a unit's sum number `i` is of the upper of its two rows: two sums are, then two of the lower.
pub const fn is_upper(i: usize) -> bool {
    i / 2 % 2 == 0
}

/// Rows from a unit's upper row to the row of its sum number `i`.
pub const fn rows_below(i: usize) -> usize {
    if is_upper(i) { 0 } else { 8 }
}

/// A vector of a row of sums that are rounded to two bytes: of the 32 columns number `vector` those
/// eight that are this unit's in the end, of its upper or lower row.
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

/// The same of sums as they are: of the 16 columns number `vector` those four that are this unit's
/// in the end.
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

/// Which of four vectors next to each other in a row a unit of four has in the end.
#[cube]
pub fn own_vector(lane: u32, #[comptime] whole: bool) -> usize {
    if comptime!(whole) { (lane % 2 * 2 + lane / 2 % 2) as usize } else { (lane % 4) as usize }
}

/// Of two units that differ in the bit `bit` of their number the one without it gets both first
/// words, the other both second ones: each its left neighbour's before its right one's.
#[cube]
fn exchanged(first: u32, second: u32, lane: u32, bit: u32) -> (u32, u32) {
    let right = lane & bit != 0;
    let got = plane_shuffle_xor(select(right, first, second), bit);
    let kept = select(right, second, first);
    (select(right, got, kept), select(right, kept, got))
}

/// What is in an array, as it is now.
#[cube]
pub fn taken(array: &Array<f32>, #[comptime] count: usize) -> Sequence<f32> {
    let mut values = Sequence::<f32>::new();
    #[unroll]
    for i in 0..count {
        let value = array[i];
        values.push(value);
    }
    values
}

/// Puts values into an array.
#[cube]
pub fn put_back(array: &mut Array<f32>, values: &Sequence<f32>, #[comptime] count: usize) {
    #[unroll]
    for i in 0..count {
        array[i] = *values.index(i);
    }
}
