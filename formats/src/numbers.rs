//! Numbers as files hold them.

#![allow(unsafe_code)] // bytes are seen as numbers

use std::{borrow::Cow, io, io::Write};

use half::{bf16, f16};

use crate::NumberType;

/// float32 values: where they stand, if the processor can read them there.
pub fn f32s(bytes: &[u8]) -> Cow<'_, [f32]> {
    // SAFETY: any four bytes are a float32.
    let (before, values, after) = unsafe { bytes.align_to::<f32>() };
    if cfg!(target_endian = "little") && before.is_empty() && after.is_empty() {
        return values.into();
    }
    each(bytes, f32::from_le_bytes)
}

/// float16 values.
pub fn f16s(bytes: &[u8]) -> Cow<'_, [f32]> {
    each(bytes, |bytes| f16::from_le_bytes(bytes).to_f32())
}

/// bfloat16 values.
pub fn bf16s(bytes: &[u8]) -> Cow<'_, [f32]> {
    each(bytes, |bytes| bf16::from_le_bytes(bytes).to_f32())
}

/// float64 values, rounded.
pub fn f64s(bytes: &[u8]) -> Cow<'_, [f32]> {
    each(bytes, |bytes| f64::from_le_bytes(bytes) as f32)
}

fn each<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32) -> Cow<'_, [f32]> {
    bytes.as_chunks::<N>().0.iter().map(|bytes| value(*bytes)).collect::<Vec<_>>().into()
}

/// Plain numbers of a type; of one with a common scale there are none, and float32 is meant.
pub fn decode(kind: NumberType, bytes: &[u8]) -> Cow<'_, [f32]> {
    match kind.plain() {
        NumberType::F16 => f16s(bytes),
        NumberType::Bf16 => bf16s(bytes),
        _ => f32s(bytes),
    }
}

/// Writes values as the bytes that `encode` appends for them, some values at a time: in memory there
/// is no second copy of a tensor.
pub fn write(values: &[f32], encode: impl Fn(&[f32], &mut Vec<u8>), out: &mut dyn Write) -> io::Result<()> {
    const AT_A_TIME: usize = 1 << 16;
    let mut bytes = Vec::new();
    for part in values.chunks(AT_A_TIME) {
        bytes.clear();
        encode(part, &mut bytes);
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// Appends values as plain numbers; those of a type with a common scale as float32.
pub fn encode(kind: NumberType, values: &[f32], out: &mut Vec<u8>) {
    match kind.plain() {
        NumberType::F16 => out.extend(values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes())),
        NumberType::Bf16 => out.extend(values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes())),
        _ => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
    }
}
