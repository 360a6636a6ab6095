//! Tensors as stored in a file.

use std::borrow::Cow;

use super::blocks;
use crate::NumberType;

/// The number type of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A type that is also written here.
    Known(NumberType),
    /// Used by llama.cpp's own quantisation for the head of a Q4_0 file.
    Q6K,
    /// Another type, by ggml's number.
    Other(u32),
}

impl Kind {
    /// The type with this ggml number.
    pub fn of(number: u32) -> Self {
        let known = NumberType::ALL.into_iter().find(|kind| blocks::number(*kind) == number);
        known.map_or(if number == 14 { Self::Q6K } else { Self::Other(number) }, Self::Known)
    }

    /// Bytes of a tensor of these sizes, innermost first; `None` if a row is not a whole number of
    /// blocks, a size is 0, or the count overflows. For an unknown type this is a lower bound.
    pub fn bytes(self, sizes: &[u64]) -> Option<u64> {
        let count = sizes.iter().try_fold(1, |count: u64, &size| count.checked_mul(size))?;
        let (values, bytes) = match self {
            Self::Known(kind) => blocks::block(kind),
            Self::Q6K => blocks::Q6_K,
            Self::Other(_) => (256, 1),
        };
        let whole = count > 0 && sizes[0].is_multiple_of(values as u64) || matches!(self, Self::Other(_));
        (count / values as u64).checked_mul(bytes as u64).filter(|_| whole)
    }

    /// An error if the type cannot be read.
    pub fn check_readable(self, name: &str) -> Result<(), String> {
        let Self::Other(number) = self else { return Ok(()) };
        let known = UNREADABLE_TYPES.iter().find(|(other, _)| *other == number).map(|(_, name)| *name);
        let what = known.map_or_else(|| format!("numbers of type {number}"), |known| format!("{known} numbers"));
        Err(format!(
            "tensor {name} holds {what}; F32, F16, BF16, Q8_0, Q4_0 and Q6_K can be read: get the model as one of these"
        ))
    }

    /// The smallest plain type that can hold all of its values.
    pub fn plain(self) -> NumberType {
        match self {
            Self::Known(kind) => kind.plain(),
            Self::Q6K | Self::Other(_) => NumberType::F32,
        }
    }
}

/// Names of types that cannot be read.
const UNREADABLE_TYPES: [(u32, &str); 10] = [
    (3, "Q4_1"),
    (6, "Q5_0"),
    (7, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (20, "IQ4_NL"),
    (23, "IQ4_XS"),
    (39, "MXFP4"),
];

/// A tensor as stored in a file.
#[derive(Clone)]
pub struct Stored<'a> {
    /// Innermost dimension first.
    pub sizes: Vec<usize>,
    pub kind: Kind,
    pub bytes: &'a [u8],
}

impl<'a> Stored<'a> {
    /// The values in the file's order.
    pub fn values(&self) -> Cow<'a, [f32]> {
        match self.kind {
            Kind::Known(kind) => blocks::decode(kind, self.bytes),
            Kind::Q6K => blocks::decode_q6_k(self.bytes),
            Kind::Other(_) => Cow::Borrowed(&[]), // rejected before
        }
    }
}
