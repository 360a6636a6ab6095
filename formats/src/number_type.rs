//! Number types of files.

/// A type in which a file stores numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberType {
    /// float32.
    F32,
    /// float16.
    F16,
    /// bfloat16.
    Bf16,
    /// 8 bits, and a float16 scale for every 32 numbers.
    Q8_0,
    /// 4 bits, and a float16 scale for every 32 numbers.
    Q4_0,
}

impl NumberType {
    /// All types.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Bf16, Self::Q8_0, Self::Q4_0];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    /// The smallest type without block scales that can hold all numbers of this one.
    pub(crate) const fn plain(self) -> Self {
        match self {
            Self::F16 | Self::Bf16 => self,
            Self::F32 | Self::Q8_0 | Self::Q4_0 => Self::F32,
        }
    }
}
