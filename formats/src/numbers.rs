//! Decodes and encodes plain numbers.

use std::{borrow::Cow, io, io::Write};

use half::{bf16, f16};

use crate::NumberType;
use crate::error::{FormatError, Result};

/// float32 values, borrowed if byte order and alignment allow it.
pub fn f32s(bytes: &[u8]) -> Cow<'_, [f32]> {
    if cfg!(target_endian = "little")
        && let Ok(values) = bytemuck::try_cast_slice(bytes)
    {
        return Cow::Borrowed(values);
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

/// Decodes the plain type of `kind`; for types with block scales that is float32.
pub fn decode(kind: NumberType, bytes: &[u8]) -> Cow<'_, [f32]> {
    match kind.plain() {
        NumberType::F16 => f16s(bytes),
        NumberType::Bf16 => bf16s(bytes),
        _ => f32s(bytes),
    }
}

/// Writes values as the bytes that `encode` appends for them, in chunks, so that memory holds no
/// second copy of a tensor.
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

/// The value of largest magnitude, with its sign.
pub fn furthest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most: f32, &value| if value.abs() > most.abs() { value } else { most })
}

/// Rejects values of the tensor `name` that are not finite, or would not be as `kind`; with block
/// scales, the float16 scale must be finite.
///
/// # Errors
/// For such a value; the error names the tensor.
pub fn check(name: &str, kind: NumberType, values: &[f32]) -> Result<()> {
    if let Some(value) = values.iter().find(|value| !value.is_finite()) {
        let source = format!("one of its values is {value}; a model needs finite values").into();
        return Err(FormatError::Values { name: name.to_owned(), source });
    }
    let largest = furthest(values);
    let (is_held, others) = match kind {
        NumberType::F32 => (true, ""),
        NumberType::F16 => (f16::from_f32(largest).is_finite(), "bf16 or f32"),
        NumberType::Bf16 => (bf16::from_f32(largest).is_finite(), "f32"),
        NumberType::Q8_0 => (f16::from_f32(largest / 127.0).is_finite(), "bf16 or f32"),
        NumberType::Q4_0 => (f16::from_f32(largest / 8.0).is_finite(), "bf16 or f32"),
    };
    match is_held {
        true => Ok(()),
        false => Err(FormatError::CannotSay {
            format: kind.name(),
            what: format!("{largest:e}, which tensor {name} has; choose {others}"),
        }),
    }
}

/// Appends values in the plain type of `kind`; for types with block scales that is float32.
pub fn encode(kind: NumberType, values: &[f32], out: &mut Vec<u8>) {
    match kind.plain() {
        NumberType::F16 => out.extend(values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes())),
        NumberType::Bf16 => out.extend(values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes())),
        _ => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_value_that_a_type_cannot_hold_is_refused() {
        use NumberType::{Bf16, F16, F32, Q4_0, Q8_0};
        for (kind, held, too_large) in [
            (F32, 3e38, None),
            (F16, 65_504.0, Some(-1e5)),
            (Bf16, 3e38, Some(f32::MAX)),
            (Q8_0, 8e6, Some(9e6)),
            (Q4_0, -5e5, Some(6e5)),
        ] {
            check("w", kind, &[0.5, held, 1.0]).unwrap();
            if let Some(value) = too_large {
                let line = check("w", kind, &[0.5, value, 1.0]).unwrap_err().to_string();
                let expected = format!("{} cannot store {value:e}, which tensor w has; choose ", kind.name());
                assert!(line.starts_with(&expected), "{line}");
            }
            for value in [f32::NAN, f32::INFINITY] {
                check("w", kind, &[0.5, value]).unwrap_err();
            }
        }
    }
}
