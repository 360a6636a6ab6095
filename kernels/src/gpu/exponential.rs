//! The exponential function, of which softmaxes take one for every number.

use cubecl::client::Client;
use cubecl::prelude::*;

#[cfg(feature = "cuda")]
use crate::gpu::ptx;

/// Whether a device takes PTX, which has an instruction for it. What the runtime makes of it there is
/// eight of them.
pub fn has_instruction(client: &Client) -> bool {
    cfg!(feature = "cuda") && client.properties().identity.fingerprint.starts_with("ptx")
}

/// `e` to the power of `x`, by the instruction where the device has it.
#[cfg(feature = "cuda")]
#[cube]
pub fn exp(x: f32, #[comptime] has_instruction: bool) -> f32 {
    if comptime!(has_instruction) { ptx::exp2(x * f32::new(std::f32::consts::LOG2_E)) } else { x.exp() }
}

/// `e` to the power of `x`.
#[cfg(not(feature = "cuda"))]
#[cube]
pub fn exp(x: f32, #[comptime] _has_instruction: bool) -> f32 {
    x.exp()
}
