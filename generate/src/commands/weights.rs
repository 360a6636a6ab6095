//! `--weights`: what the model's matrices are stored as while it works.

use clap::{Args, ValueEnum};
use ember_model::WeightType;

/// The flag of every command that loads a model.
#[derive(Args, Clone, Copy, Debug)]
pub struct WeightsArgs {
    /// What the model's matrices are kept as: a token reads all of them, so fewer bits are faster and less exact. On the CPU
    /// all is computed in float32 whatever they are kept as; on a GPU bf16 is also computed in, and there is no int8
    #[arg(long = "weights", value_enum, default_value_t = WeightsArg::F32, value_name = "TYPE", help_heading = "Everywhere")]
    weights: WeightsArg,
}

/// The values of the flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WeightsArg {
    /// float32: nothing is lost
    F32,
    /// bfloat16: half the memory
    Bf16,
    /// 8 bits, and a scale for every 32 weights: about a quarter of the memory
    Int8,
}

impl WeightsArgs {
    /// The type that was chosen.
    pub(super) fn chosen(self) -> WeightType {
        self.weights.into()
    }
}

impl From<WeightsArg> for WeightType {
    fn from(weights: WeightsArg) -> Self {
        match weights {
            WeightsArg::F32 => Self::F32,
            WeightsArg::Bf16 => Self::Bf16,
            WeightsArg::Int8 => Self::Int8,
        }
    }
}
