//! What transformers calls what stands inside the MLP.
//!
//! GPT-2's class has a function between two layers, Llama's and Qwen3's a gate through one; each
//! takes any function that transformers has a name for.

use super::keys::{Keys, Read};
use crate::MlpKind;

/// A kind, the names of its function (of which the first is written), and what the name alone does
/// not say. A kind that is not here is one that no class computes.
const FUNCTIONS: [(MlpKind, &[&str], &str); 2] = [
    // Two names of the same function; "gelu" is another, by up to 5e-4.
    (MlpKind::Gelu, &["gelu_new", "gelu_pytorch_tanh"], " (the tanh form of GELU)"),
    (MlpKind::SwiGlu, &["silu", "swish"], ""),
];

/// What is written for a kind, where transformers has it.
pub fn name(mlp: MlpKind) -> Option<&'static str> {
    FUNCTIONS.iter().find(|(kind, ..)| *kind == mlp).map(|(_, names, _)| names[0])
}

/// The kind whose function `key` names, gated as the class has it; the first where it is absent.
pub fn read(keys: &Keys, key: &str, gated: bool) -> Read<MlpKind> {
    let function = keys.get(key);
    let known = || FUNCTIONS.iter().filter(|(kind, ..)| kind.is_gated() == gated);
    let named = |names: &[&str]| function.is_null() || names.iter().any(|name| function == name);
    let kind = known().find(|(_, names, _)| named(names)).map(|(kind, ..)| *kind);
    kind.ok_or_else(|| {
        let known: Vec<_> = known().map(|(_, names, meaning)| format!("\"{}\"{meaning}", names[0])).collect();
        format!("{key} is {function}; only {} can be computed", known.join(" and "))
    })
}
