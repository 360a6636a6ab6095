//! Facts about each mode: what is random, what it returns, where it is implemented.

use super::Place;

/// A mode's name, and what is known about it without measuring.
pub(super) struct Facts {
    pub(super) mode: &'static str,
    pub(super) random: &'static str,
    pub(super) returns: &'static str,
    pub(super) places: &'static [Place],
}

const fn place(file: &'static str, function: &'static str) -> Place {
    Place { file, function }
}

pub(super) const TRAINING_STEP: Facts = Facts {
    mode: "training_step",
    random: "the windows of the text, and dropout",
    returns: "one number, the loss, and updated weights",
    places: &[
        place("train/lib/src/step/gradient/mod.rs", "pass"),
        place("kernels/src/cross_entropy/mod.rs", "loss_over"),
        place("train/lib/src/step/optimizer/mod.rs", "step"),
    ],
};
pub(super) const FORWARD_WITH_GRAPH: Facts = Facts {
    mode: "forward_with_graph",
    random: "dropout",
    returns: "logits at every position, and their graph",
    places: &[place("model/src/gpt.rs", "forward"), place("kernels/src/linear/mod.rs", "linear")],
};
pub(super) const FORWARD: Facts = Facts {
    mode: "forward",
    random: "nothing",
    returns: "logits at every position",
    places: &[place("model/src/gpt.rs", "forward")],
};
pub(super) const SCORE: Facts = Facts {
    mode: "score",
    random: "nothing",
    returns: "one log-probability for each token",
    places: &[place("generate/lib/src/score.rs", "token_log_probabilities")],
};
pub(super) const PREFILL: Facts = Facts {
    mode: "prefill",
    random: "nothing",
    returns: "logits after the last token of each row, and the cache",
    places: &[place("generate/lib/src/sequences/model.rs", "logits_of_last"), place("model/src/cache.rs", "reserve")],
};
pub(super) const DECODE: Facts = Facts {
    mode: "decode_cached",
    random: "nothing but the choice of tokens, if sampling",
    returns: "logits after each new token",
    places: &[
        place("generate/lib/src/sequences/model.rs", "logits_of_last"),
        place("model/src/gpt.rs", "forward_cached_last"),
    ],
};
pub(super) const DECODE_UNCACHED: Facts = Facts {
    mode: "decode_uncached",
    places: &[
        place("model/src/gpt.rs", "hidden"),
        place("study/src/ledger/modes/generation.rs", "logits_without_cache"),
    ],
    ..DECODE
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Every place that an entry can name.
    fn all_places() -> impl Iterator<Item = &'static Place> {
        [TRAINING_STEP, FORWARD_WITH_GRAPH, FORWARD, SCORE, PREFILL, DECODE, DECODE_UNCACHED]
            .into_iter()
            .flat_map(|facts| facts.places)
    }

    #[test]
    fn every_place_is_there() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for Place { file, function } in all_places() {
            let code = std::fs::read_to_string(root.join(file)).unwrap();
            assert!(code.contains(&format!("fn {function}(")), "{file} has no {function}");
        }
    }
}
