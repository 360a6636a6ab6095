//! Sampling settings: from a folder's `generation_config.json` to a file's keys and back.
//!
//! llama.cpp uses the file's settings unless its user overrides them. For missing ones it uses its
//! own defaults (temperature 0.8, top-k 40, top-p 0.95, min-p 0.05), whereas transformers and we
//! switch them off: so either all settings are written or none.

use serde_json::{Map, Value, json};

use super::header::Header;
use super::keys::Keys;

/// The order of llama.cpp's samplers: its own order, but with the temperature before the samplers
/// that cut tokens off, as in transformers and here, so that top-p and min-p see the same
/// probabilities.
const ORDER: &str = "penalties;dry;temperature;top_n_sigma;top_k;typ_p;top_p;min_p;xtc";

const TEMPERATURE: &str = "general.sampling.temp";
const TOP_K: &str = "general.sampling.top_k";
const TOP_P: &str = "general.sampling.top_p";
const MIN_P: &str = "general.sampling.min_p";
const REPETITION: &str = "general.sampling.penalty_repeat";
/// How many of the last tokens the repetition penalty covers; -1 for all of them.
const REPETITION_WINDOW: &str = "general.sampling.penalty_last_n";

/// Writes the sampling settings if the folder says whether to sample.
pub fn write(generation: &Map<String, Value>, header: &mut Header) {
    let Some(do_sample) = generation.get("do_sample").and_then(Value::as_bool) else { return };
    let real = |key: &str, off: f64| generation.get(key).and_then(Value::as_f64).unwrap_or(off) as f32;
    let top_k = generation.get("top_k").and_then(Value::as_u64).unwrap_or(0);
    header.string("general.sampling.sequence", ORDER);
    header.f32(TEMPERATURE, if do_sample { real("temperature", 1.0) } else { 0.0 });
    header.i32(TOP_K, i32::try_from(top_k).unwrap_or(0)); // above every vocabulary size, so off
    header.f32(TOP_P, real("top_p", 1.0));
    header.f32(MIN_P, real("min_p", 0.0));
    header.f32(REPETITION, real("repetition_penalty", 1.0));
    header.i32(REPETITION_WINDOW, -1);
}

/// The sampling settings of a file. Values that llama.cpp treats as off are omitted, and a
/// temperature of 0 or less means greedy decoding, as it does there.
pub fn read(keys: &Keys) -> Map<String, Value> {
    let mut found = Map::new();
    let real = |key: &str| keys.real(key).filter(|value| value.is_finite());
    if let Some(temperature) = real(TEMPERATURE) {
        found.insert("do_sample".to_owned(), json!(temperature > 0.0));
        if temperature > 0.0 {
            found.insert("temperature".to_owned(), json!(temperature));
        }
    }
    if let Some(top_k) = keys.whole(TOP_K).filter(|top_k| *top_k > 0) {
        found.insert("top_k".to_owned(), json!(top_k));
    }
    for (name, key) in [("top_p", TOP_P), ("min_p", MIN_P)] {
        if let Some(part) = real(key).filter(|part| *part > 0.0 && *part < 1.0) {
            found.insert(name.to_owned(), json!(part));
        }
    }
    let covers_all = real(REPETITION_WINDOW) == Some(-1.0); // no other window is supported
    if let Some(penalty) = real(REPETITION).filter(|penalty| covers_all && *penalty > 0.0 && *penalty != 1.0) {
        found.insert("repetition_penalty".to_owned(), json!(penalty));
    }
    found
}
