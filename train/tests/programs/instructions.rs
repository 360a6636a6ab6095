//! The environment variable that limits the processor's instructions.

use super::{Place, small_run};
use itertools::Itertools;

#[test]
fn every_set_of_instructions_learns_the_same() {
    let place = Place::new();
    let with = |set: &str| {
        let arguments = format!("{} --set precision=f32 --set dropout=0", small_run(&place, set, 20));
        let output = place.command("ember-train", &arguments).env("EMBER_SIMD", set).output().unwrap();
        super::Ran::from(output).succeeds();
        let metrics = std::fs::read_to_string(place.path(set).join("metrics.jsonl")).unwrap();
        let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["train_loss"].as_f64();
        metrics.lines().filter_map(line).collect::<Vec<_>>()
    };
    let [portable, avx2, avx512] = ["portable", "avx2", "avx512"].map(with);
    assert!(portable.last().unwrap() < &portable[0]);
    for other in [avx2, avx512] {
        for (a, b) in portable.iter().zip_eq(&other) {
            assert!((a - b).abs() < 1e-4 * a, "{portable:?} {other:?}");
        }
    }
}

#[test]
fn an_unknown_word_in_the_environment_is_refused() {
    let place = Place::new();
    for program in ["ember-train", "ember-generate"] {
        for (variable, word, known) in
            [("EMBER_SIMD", "sse9", "avx512, avx2 or portable"), ("EMBER_REPLAY", "no", "on or off")]
        {
            let ran = super::Ran::from(place.command(program, "devices").env(variable, word).output().unwrap());
            assert_eq!(ran.code, Some(2), "{}", ran.err);
            assert!(ran.err.contains(&format!("{variable} is {word:?}, not {known}; unset it")), "{}", ran.err);
        }
    }
}
