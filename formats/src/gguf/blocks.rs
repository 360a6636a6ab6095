//! Encodings of numbers: plain, or in blocks of 32 values of a row that share a scale.
//!
//! The blocks match ggml's to the bit (`ggml-quants.c`, `quantize_row_q8_0_ref`,
//! `quantize_row_q4_0_ref`).

use std::borrow::Cow;

use half::f16;

use crate::{NumberType, numbers};

/// Values in a block that shares a scale.
const BLOCK: usize = 32;

/// ggml's number for a type.
pub const fn number(kind: NumberType) -> u32 {
    match kind {
        NumberType::F32 => 0,
        NumberType::F16 => 1,
        NumberType::Bf16 => 30,
        NumberType::Q8_0 => 8,
        NumberType::Q4_0 => 2,
    }
}

/// llama.cpp's number for a file that is mostly of a type.
pub const fn file_type(kind: NumberType) -> u32 {
    match kind {
        NumberType::F32 => 0,
        NumberType::F16 => 1,
        NumberType::Bf16 => 32,
        NumberType::Q8_0 => 7,
        NumberType::Q4_0 => 2,
    }
}

/// Values per block and bytes per block.
pub const fn block(kind: NumberType) -> (usize, usize) {
    match kind {
        NumberType::F32 => (1, 4),
        NumberType::F16 | NumberType::Bf16 => (1, 2),
        NumberType::Q8_0 => (BLOCK, 2 + BLOCK),
        NumberType::Q4_0 => (BLOCK, 2 + BLOCK / 2),
    }
}

/// Appends values, in whole blocks, in the file's encoding.
pub fn encode(kind: NumberType, values: &[f32], out: &mut Vec<u8>) {
    let blocks = || values.as_chunks::<BLOCK>().0.iter();
    match kind {
        NumberType::Q8_0 => blocks().for_each(|block| encode_q8_0(block, out)),
        NumberType::Q4_0 => blocks().for_each(|block| encode_q4_0(block, out)),
        plain => numbers::encode(plain, values, out),
    }
}

/// The values encoded in whole blocks.
pub fn decode(kind: NumberType, bytes: &[u8]) -> Cow<'_, [f32]> {
    match kind {
        NumberType::Q8_0 => decode_blocks(bytes, decode_q8_0),
        NumberType::Q4_0 => decode_blocks(bytes, decode_q4_0),
        plain => numbers::decode(plain, bytes),
    }
}

/// The reciprocal of a scale, or 0 for the scale of a block of zeros.
fn reciprocal(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

fn encode_q8_0(block: &[f32; BLOCK], out: &mut Vec<u8>) {
    let scale = block.iter().fold(0.0, |most: f32, value| most.max(value.abs())) / 127.0;
    let per_step = reciprocal(scale);
    out.extend(f16::from_f32(scale).to_le_bytes());
    out.extend(block.iter().map(|value| (value * per_step).round() as i8 as u8));
}

/// The value furthest from 0 becomes -8, of the sixteen steps from -8 to 7; a byte holds a value of
/// the first half of the block and one of the second.
fn encode_q4_0(block: &[f32; BLOCK], out: &mut Vec<u8>) {
    let scale = numbers::furthest(block) / -8.0;
    let per_step = reciprocal(scale);
    let step = |value: f32| (value * per_step + 8.5).min(15.0) as u8;
    out.extend(f16::from_f32(scale).to_le_bytes());
    let (first, second) = block.split_at(BLOCK / 2);
    out.extend(first.iter().zip(second).map(|(&low, &high)| step(low) | step(high) << 4));
}

/// The values of blocks of `N` bytes, whose first two bytes are the scale.
fn decode_blocks<const N: usize>(bytes: &[u8], decode: fn(&[u8; N], f32, &mut Vec<f32>)) -> Cow<'_, [f32]> {
    let blocks = bytes.as_chunks::<N>().0;
    let mut values = Vec::with_capacity(blocks.len() * BLOCK);
    for block in blocks {
        decode(block, f16::from_le_bytes([block[0], block[1]]).to_f32(), &mut values);
    }
    values.into()
}

fn decode_q8_0(block: &[u8; 2 + BLOCK], scale: f32, out: &mut Vec<f32>) {
    out.extend(block[2..].iter().map(|&step| f32::from(step as i8) * scale));
}

fn decode_q4_0(block: &[u8; 2 + BLOCK / 2], scale: f32, out: &mut Vec<f32>) {
    let value = |step: u8| (f32::from(step) - 8.0) * scale;
    out.extend(block[2..].iter().map(|both| value(both & 15)));
    out.extend(block[2..].iter().map(|both| value(both >> 4)));
}

/// Values per block and bytes per block of Q6_K, which llama.cpp's own quantisation uses for the
/// head of a Q4_0 file. It is read but never written.
pub const Q6_K: (usize, usize) = (256, 210);

/// The values of Q6_K blocks (`ggml-quants.c`, `dequantize_row_q6_K`): for each half of a block 64
/// bytes with the low four bits of 128 values and 32 bytes with their high two bits; then a scale
/// for every 16 values; the scale of the scales comes last.
pub fn decode_q6_k(bytes: &[u8]) -> Cow<'_, [f32]> {
    let mut values = Vec::with_capacity(bytes.len() / Q6_K.1 * Q6_K.0);
    for block in bytes.as_chunks::<{ Q6_K.1 }>().0 {
        let (low, rest) = block.split_at(128);
        let (high, rest) = rest.split_at(64);
        let (scales, whole) = rest.split_at(16);
        let whole = f16::from_le_bytes([whole[0], whole[1]]).to_f32();
        for at in 0..Q6_K.0 {
            let (half, part, place) = (at / 128, at / 32 % 4, at % 32);
            let four = low[64 * half + 32 * (part % 2) + place] >> (4 * (part / 2)) & 15;
            let two = high[32 * half + place] >> (2 * part) & 3;
            let step = f32::from(four | two << 4) - 32.0;
            values.push(whole * f32::from(scales[at / 16] as i8) * step);
        }
    }
    values.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn q6_k_is_read_as_gguf_reads_it() {
        let blocks = include_bytes!("../../tests/fixtures/q6_k.blocks");
        let expected = numbers::f32s(include_bytes!("../../tests/fixtures/q6_k.f32"));
        assert_eq!(decode_q6_k(blocks), expected);
    }

    proptest! {
        /// Half a quantization step, and float16's rounding of the scale.
        #[test]
        fn blocks_lose_half_a_step(values in prop::collection::vec(-100.0f32..100.0, BLOCK)) {
            let most = values.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
            for (kind, steps) in [(NumberType::Q8_0, 127.0), (NumberType::Q4_0, 8.0)] {
                let mut bytes = Vec::new();
                encode(kind, &values, &mut bytes);
                prop_assert_eq!(bytes.len(), block(kind).1);
                // One end of the range of sixteen steps has one step fewer.
                let room = if kind == NumberType::Q4_0 { 1.01 } else { 0.51 };
                for (value, read) in values.iter().zip(decode(kind, &bytes).iter()) {
                    prop_assert!((value - read).abs() <= most / steps * room + most * 1e-3, "{} {}", value, read);
                }
            }
        }
    }
}
