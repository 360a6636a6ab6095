//! The keys of `config.json`, read with errors that name the key.

use serde_json::{Map, Value};

use crate::MlpKind;

/// The value of a key, or what is wrong with it.
pub type Read<T> = Result<T, String>;

/// Fails with the message `wrong`, unless `holds`.
pub fn require(holds: bool, wrong: impl FnOnce() -> String) -> Read<()> {
    if holds { Ok(()) } else { Err(wrong()) }
}

/// The keys of a `config.json`.
pub struct Keys(pub Map<String, Value>);

impl Keys {
    /// The value of a key; null where it is absent.
    pub fn get(&self, key: &str) -> &Value {
        self.0.get(key).unwrap_or(&Value::Null)
    }

    /// The keys of a nested object; none if it is absent or null.
    pub fn inside(&self, key: &str) -> Read<Self> {
        match self.get(key) {
            Value::Null => Ok(Self(Map::new())),
            Value::Object(map) => Ok(Self(map.clone())),
            other => Err(format!("{key} is {other}; it must be an object")),
        }
    }

    /// The value of a key, converted; `default` if the key is absent.
    fn read<T>(&self, key: &str, default: T, convert: impl Fn(&Value) -> Option<T>, must_be: &str) -> Read<T> {
        let Some(value) = self.0.get(key) else { return Ok(default) };
        convert(value).ok_or_else(|| format!("{key} is {value}; it must be {must_be}"))
    }

    pub fn size(&self, key: &str, default: usize) -> Read<usize> {
        let size = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        self.read(key, default, size, "a whole number of at least 1")
    }

    /// As [`Self::size`], but null stands for the default too.
    pub fn size_or_null(&self, key: &str, default: usize) -> Read<usize> {
        if self.get(key).is_null() { Ok(default) } else { self.size(key, default) }
    }

    pub fn number(&self, key: &str, default: f64) -> Read<f64> {
        self.read(key, default, Value::as_f64, "a number")
    }

    pub fn flag(&self, key: &str, default: bool) -> Read<bool> {
        self.read(key, default, Value::as_bool, "true or false")
    }

    /// The MLP kind whose function `key` names, among the gated kinds or the others; the first of
    /// them if the key is absent.
    pub fn mlp(&self, key: &str, gated: bool) -> Read<MlpKind> {
        let function = self.get(key);
        let known = || FUNCTIONS.iter().filter(|(kind, ..)| kind.is_gated() == gated);
        let named = |names: &[&str]| function.is_null() || names.iter().any(|name| function == name);
        let kind = known().find(|(_, names, _)| named(names)).map(|(kind, ..)| *kind);
        kind.ok_or_else(|| {
            let known: Vec<_> = known().map(|(_, names, meaning)| format!("\"{}\"{meaning}", names[0])).collect();
            format!("{key} is {function}; only models with {} are supported", known.join(" and "))
        })
    }
}

/// transformers' names for the MLP's function: the kind, its names (the first is the one that is
/// written), and what the name alone does not say. GPT-2's class has a function between two layers,
/// Llama's and Qwen3's a gate through one. No class computes a kind that is not listed.
const FUNCTIONS: [(MlpKind, &[&str], &str); 3] = [
    // Two names of the same function.
    (MlpKind::Gelu, &["gelu_new", "gelu_pytorch_tanh"], " (the tanh form of GELU)"),
    (MlpKind::ExactGelu, &["gelu"], ""),
    (MlpKind::SwiGlu, &["silu", "swish"], ""),
];

/// The name that is written for a kind, if transformers has one.
pub fn activation(mlp: MlpKind) -> Option<&'static str> {
    FUNCTIONS.iter().find(|(kind, ..)| *kind == mlp).map(|(_, names, _)| names[0])
}
