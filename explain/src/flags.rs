//! The flags with which `ember-generate text` generates a text again.

use ember_decoding::config::{FolderSettings, Form, GenerationConfig, KNOBS, Knob, Knobs, Strategy};
use ember_decoding::named::Named;

/// The flags that `ember-generate text` needs with this folder: the `named` knobs in any case, and
/// all others whose value would differ without a flag.
///
/// A flag cannot undo a list or a time limit that the folder sets.
pub(super) fn flags(config: &GenerationConfig, folder: &FolderSettings, named: &[&str]) -> Vec<String> {
    let strategy = config.strategy;
    let (mut asked, mut flags) = (Knobs::default(), Vec::new());
    let mut ask = |asked: &mut Knobs, knob: &Knob| {
        let value = knob.of(config);
        if knob.read(asked, &value.to_json()).is_ok() {
            flags.push(format!("--{} {}", knob.label, value.words()));
        }
    };
    let used = || KNOBS.iter().filter(move |knob| knob.used_by.contains(strategy) && is_one_word(knob));
    for knob in used().filter(|knob| named.contains(&knob.name)) {
        ask(&mut asked, knob);
    }
    // Knobs of sampling imply sampling, unless the folder has beams.
    let is_implied =
        strategy == Strategy::Sample && resolved(&asked, folder).is_some_and(|made| made.strategy == strategy);
    asked.strategy = (!is_implied).then_some(strategy);
    for knob in used().filter(|knob| !named.contains(&knob.name)) {
        let differs = |usual: GenerationConfig| knob.of(&usual).to_json() != knob.of(config).to_json();
        if resolved(&asked, folder).is_none_or(differs) {
            ask(&mut asked, knob);
        }
    }
    let first = (!is_implied).then(|| format!("--strategy {}", strategy.name()));
    let seed = strategy.samples().then(|| format!("--seed {}", config.seed));
    first.into_iter().chain(flags).chain(seed).collect()
}

/// The config that these knobs and the folder's resolve to; `None` if they contradict each other.
fn resolved(asked: &Knobs, folder: &FolderSettings) -> Option<GenerationConfig> {
    GenerationConfig::resolve(asked, folder).ok().map(|(config, _)| config)
}

/// Whether a flag can set it to any of its possible values.
fn is_one_word(knob: &Knob) -> bool {
    knob.typed.is_some_and(|typed| matches!(typed.form, Form::Count | Form::Number | Form::Word(_)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sampling() -> GenerationConfig {
        let strategy = Strategy::Sample;
        GenerationConfig { strategy, temperature: 0.5, seed: 5, max_new_tokens: 12, ..GenerationConfig::default() }
    }

    #[test]
    fn what_the_folder_would_give_anyway_is_not_said() {
        let silent = FolderSettings::default();
        assert_eq!(
            flags(&sampling(), &silent, &["temperature"]),
            ["--temperature 0.5", "--max-new-tokens 12", "--seed 5"]
        );
        let knobs = Knobs { max_new_tokens: Some(12), do_sample: Some(true), ..Knobs::default() };
        let drawn = FolderSettings { knobs, ..FolderSettings::default() };
        assert_eq!(flags(&sampling(), &drawn, &["temperature"]), ["--temperature 0.5", "--seed 5"]);
        let greedy = GenerationConfig { strategy: Strategy::Greedy, ..sampling() };
        assert_eq!(flags(&greedy, &drawn, &[]), ["--strategy greedy"]);
    }

    #[test]
    fn the_flags_are_the_knobs_whatever_the_folder_says() {
        let common = Knobs { temperature: Some(0.8), top_p: Some(0.95), do_sample: Some(true), ..Knobs::default() };
        let penalised = Knobs { repetition_penalty: Some(1.3), min_new_tokens: Some(40), ..common.clone() };
        let beams = Knobs { num_beams: Some(3), length_penalty: Some(0.5), ..common.clone() };
        let plain = GenerationConfig { temperature: 1.0, top_k: 40, repetition_penalty: 1.1, ..sampling() };
        let beam = GenerationConfig { strategy: Strategy::Beam, num_beams: 4, ..sampling() };
        let greedy = GenerationConfig { strategy: Strategy::Greedy, ..sampling() };
        for folder in [Knobs::default(), common, penalised, beams] {
            let folder = FolderSettings { knobs: folder, ..FolderSettings::default() };
            for (config, named) in [
                (sampling(), "temperature"),
                (plain.clone(), "top_k"),
                (beam.clone(), "num_beams"),
                (greedy.clone(), ""),
            ] {
                let shown = flags(&config, &folder, &[named]);
                let (mut asked, mut seed) = (Knobs::default(), 0);
                for flag in &shown {
                    let (name, value) = flag.strip_prefix("--").unwrap().split_once(' ').unwrap();
                    match KNOBS.iter().find(|knob| knob.label == name) {
                        Some(knob) => (knob.typed.unwrap().take)(&mut asked, value),
                        None if name == "seed" => seed = value.parse().unwrap(),
                        None => asked.strategy = Strategy::from_name(value),
                    }
                }
                let made = resolved(&asked, &folder).unwrap();
                assert_eq!(made.strategy, config.strategy, "{shown:?}");
                assert_eq!(seed, if config.strategy.samples() { 5 } else { 0 }, "{shown:?}");
                for knob in KNOBS.iter().filter(|knob| knob.used_by.contains(config.strategy)) {
                    assert_eq!(knob.of(&made).to_json(), knob.of(&config).to_json(), "{}: {shown:?}", knob.name);
                }
            }
        }
    }
}
