//! The words that keys choose among.

use serde::{Deserialize, Serialize};

/// What matrix products are computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// float32.
    F32,
    /// bfloat16: float32's range with 8 bits of precision.
    Bf16,
    /// float16: 11 bits of precision, and a range that losses must be scaled into.
    F16,
}

/// What turns gradients into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// AdamW for everything.
    AdamW,
    /// Muon for the matrices of the blocks, AdamW for the rest.
    Muon,
}

/// What happens to a gradient of unusual length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spikes {
    /// Nothing but the usual clipping.
    Off,
    /// It is scaled down to the usual length.
    Clip,
    /// Its step is not taken.
    Skip,
}

/// What the rate does after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Curve {
    /// Half a cosine down ([Loshchilov and Hutter 2017](https://arxiv.org/abs/1608.03983), equation
    /// 5, without restarts).
    Cosine,
    /// Level, then straight down: warm-up, stable, decay ([Hu et al.
    /// 2024](https://arxiv.org/abs/2404.06395), section 4). The level part knows no end, so that a
    /// run can be made longer before it goes down. Straight lines need no constant to choose;
    /// [Hägele et al. 2024](https://arxiv.org/abs/2405.18392) compare other ways down.
    Wsd,
    /// Level.
    Constant,
}
