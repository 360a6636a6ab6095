//! `samplers` of llama.cpp's clients: which knobs are applied, and in which order.

use serde_json::Value;

use super::request::list;

/// The supported samplers, by llama.cpp's letters, in the order of application.
const ALL: [char; 6] = ['e', 'k', 'y', 'p', 'm', 't'];

/// Unsupported samplers: allowed in the list, since they are off by default in llama.cpp too.
const UNSUPPORTED: [char; 3] = ['d', 's', 'x'];

/// Whether these names or letters are all supported samplers in the order of application.
pub(super) fn are_all_in_order(samplers: &Value) -> bool {
    let letters = match samplers {
        Value::String(letters) => Some(letters.chars().collect()),
        names => list(names, |name| letter(name.as_str()?)),
    };
    letters.is_some_and(|letters: Vec<char>| letters.into_iter().filter(|letter| !UNSUPPORTED.contains(letter)).eq(ALL))
}

fn letter(name: &str) -> Option<char> {
    Some(match name {
        "penalties" => 'e',
        "top_k" | "top-k" => 'k',
        "typ_p" | "typical_p" | "typical" | "typ" => 'y',
        "top_p" | "top-p" | "nucleus" => 'p',
        "min_p" | "min-p" => 'm',
        "temperature" | "temp" => 't',
        "dry" => 'd',
        "top_n_sigma" => 's',
        "xtc" => 'x',
        _ => return None,
    })
}
