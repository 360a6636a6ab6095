//! `samplers` of llama.cpp's clients: which knobs are applied, and in which order.

use serde_json::Value;

use super::request::list;

/// All that are here, by llama.cpp's letters, in the order in which they are applied.
const ALL: [char; 6] = ['e', 'k', 'y', 'p', 'm', 't'];

/// Those that are not here: off, as there, where nobody turns them on.
const ELSEWHERE: [char; 3] = ['d', 's', 'x'];

/// Whether these names, or letters, are all knobs in the order in which they are applied.
pub(super) fn are_all_in_order(samplers: &Value) -> bool {
    let letters = match samplers {
        Value::String(letters) => Some(letters.chars().collect()),
        names => list(names, |name| letter(name.as_str()?)),
    };
    letters.is_some_and(|letters: Vec<char>| letters.into_iter().filter(|letter| !ELSEWHERE.contains(letter)).eq(ALL))
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
