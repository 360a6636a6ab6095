//! A model of the run folder: checks thousands of histories of runs that are stopped, killed,
//! lengthened and resumed, or lose power or disk space, at any moment, against a short
//! specification ([`spec`]).
//!
//! For these tests a run is the sequence of changes to its folder. Every call that changes a file
//! is recorded ([`witness`]). A kill leaves the changes made until then; a power cut loses some of
//! them ([`disk`]). An undisturbed run ([`twin`]) is the reference for each step.
//!
//! A failing history is printed with one line per session, which can be pasted as a test.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::unwrap_used)]

mod disk;
mod found;
mod history;
mod library;
mod life;
mod program;
mod reading;
mod spec;
mod twin;
mod witness;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use history::{History, Trains};
use library::{Library, scratch};
use program::Program;
use twin::Twin;

#[test]
fn whatever_happens_a_run_ends_as_if_nothing_had() {
    check_random_histories(&Library::new(), 300, 1000);
}

#[test]
fn the_program_ends_its_runs_as_if_nothing_had_happened() {
    check_random_histories(&Program::new(Library::new()), 100, 50);
}

/// Checks `HISTORIES` random histories, by default `usual`; `PROPTEST_RNG_SEED` draws others. A
/// failing one is shrunk in at most `tries` tries, and printed with the seed that draws it again.
fn check_random_histories(trains: &dyn Trains, usual: u32, tries: u32) {
    let cases = std::env::var("HISTORIES").map_or(usual, |histories| histories.parse().unwrap());
    let seed = match ProptestConfig::default().rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => 1, // the same histories each time, unless a seed is set
    };
    let (rng_seed, failure_persistence) = (RngSeed::Fixed(seed), None);
    let config = ProptestConfig { cases, max_shrink_iters: tries, rng_seed, failure_persistence, ..Default::default() };
    let twins = twins(trains);
    let checked = TestRunner::new(config)
        .run(&history::history(), |history| check_history(&history, trains, &twins).map_err(TestCaseError::fail));
    checked.unwrap_or_else(|failure| panic!("{failure}\nagain with PROPTEST_RNG_SEED={seed} HISTORIES={cases}"));
}

/// Checks a history in a temporary folder.
fn check_history(history: &History, trains: &dyn Trains, twins: &[Twin; 2]) -> Result<(), String> {
    life::check(history, trains, &twins[usize::from(history.settings.average)], scratch().path())
}

/// The undisturbed runs, without an average of the weights and with one.
fn twins(trains: &dyn Trains) -> [Twin; 2] {
    [false, true].map(|average| Twin::new(average, trains))
}
