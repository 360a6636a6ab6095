//! A model of the run folder: thousands of histories of runs that are stopped, killed, left without
//! power or room on the disk, lengthened and resumed, at any moment, are held against a few lines
//! of specification ([`spec`]).
//!
//! A run is what it does to its folder. So every call that changes a file is seen ([`witness`]),
//! and what a kill leaves is the first of these changes, as many as were made; a power cut loses
//! some of them ([`disk`]). The run that nothing happens to ([`twin`]) says what each step is.
//!
//! A failing history is printed as what happened in it, a line each; it can be pasted as a test.
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
use life::live;
use program::Program;
use twin::Twin;

#[test]
fn whatever_happens_a_run_ends_as_if_nothing_had() {
    all_end_as_they_should(&Library::new(), 300, 1000);
}

#[test]
fn the_program_ends_its_runs_as_if_nothing_had_happened() {
    all_end_as_they_should(&Program::new(Library::new()), 100, 50);
}

/// Lives through as many random histories as `HISTORIES` says, or as are `usual`; by
/// `PROPTEST_RNG_SEED` through others. One that fails is
/// made shorter in so many tries, and printed with the seed that draws it again.
fn all_end_as_they_should(trains: &dyn Trains, usual: u32, tries: u32) {
    let cases = std::env::var("HISTORIES").map_or(usual, |histories| histories.parse().unwrap());
    let seed = match ProptestConfig::default().rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => 1, // the same histories each time, unless somebody looks for others
    };
    let (rng_seed, failure_persistence) = (RngSeed::Fixed(seed), None);
    let config = ProptestConfig { cases, max_shrink_iters: tries, rng_seed, failure_persistence, ..Default::default() };
    let twins = twins(trains);
    let lived = TestRunner::new(config)
        .run(&history::history(), |history| lived(&history, trains, &twins).map_err(TestCaseError::fail));
    lived.unwrap_or_else(|wrong| panic!("{wrong}\nagain with PROPTEST_RNG_SEED={seed} HISTORIES={cases}"));
}

/// Lives through a history in a place of its own.
fn lived(history: &History, trains: &dyn Trains, twins: &[Twin; 2]) -> Result<(), String> {
    live(history, trains, &twins[usize::from(history.settings.average)], scratch().path())
}

/// The run that nothing happens to, without an average of the weights and with one.
fn twins(trains: &dyn Trains) -> [Twin; 2] {
    [false, true].map(|average| Twin::new(average, trains))
}
