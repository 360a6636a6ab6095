//! The exponential function, which a softmax computes for every score.

use cubecl::client::Client;
use cubecl::prelude::*;

#[cfg(feature = "cuda")]
use crate::gpu::ptx;

/// Whether a device takes PTX, which has an instruction for exponentials. The runtime's own code
/// takes eight instructions there.
pub fn has_instruction(client: &Client) -> bool {
    cfg!(feature = "cuda") && client.properties().identity.fingerprint.starts_with("ptx")
}

/// `e^x`, by the instruction where the device has it.
#[cfg(feature = "cuda")]
#[cube]
pub fn exp(x: f32, #[comptime] has_instruction: bool) -> f32 {
    if comptime!(has_instruction) { ptx::exp2(x * f32::new(std::f32::consts::LOG2_E)) } else { x.exp() }
}

/// `e^x`.
#[cfg(not(feature = "cuda"))]
#[cube]
pub fn exp(x: f32, #[comptime] _has_instruction: bool) -> f32 {
    x.exp()
}
