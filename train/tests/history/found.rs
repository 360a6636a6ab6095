//! Histories that once ended otherwise, each with what was wrong. What a program does to the disk
//! changes with every version, so each is lived through at many moments.

use std::fs;

use ember_training::run::folder::METRICS;

use super::history::{End, History, RUN, Session, Settings, Trains};
use super::library::{Library, scratch};
use super::witness::Full;
use super::{lived, twins};

/// A session on a disk with room.
fn session(max_steps: u64, end: End) -> Session {
    Session { max_steps, full: None, end }
}

/// Whether the history that something happens in at each of these moments ends as it should.
#[track_caller]
fn holds(settings: &Settings, moments: impl Iterator<Item = usize>, sessions: impl Fn(usize) -> Vec<Session>) {
    let library = Library::new();
    let twins = twins(&library);
    for moment in moments {
        let history = History { settings: settings.clone(), sessions: sessions(moment) };
        lived(&history, &library, &twins).unwrap_or_else(|wrong| panic!("{wrong}\n{history:?}"));
    }
}

/// What no history here looks at.
const QUIET: Settings = Settings { sample_interval: 0, keep_checkpoints: 1, eval_interval: 3, ..Settings::EVERY_STEP };

/// The run's folder was never synced into the one that it is in: all of the run could go with its
/// name, also where it had been made by a process that was killed.
#[test]
fn the_name_of_a_run_outlives_a_power_cut() {
    holds(&QUIET, (0..120).step_by(5), |moment| vec![session(6, End::PowerCut(moment, 0))]);
    holds(&QUIET, (0..4).chain([40]), |moment| vec![session(6, End::Kill(moment)), session(6, End::PowerCut(100, 0))]);
}

/// A checkpoint was emptied before its other name was synced: half of it could stand under its own.
#[test]
fn a_checkpoint_goes_whole() {
    holds(&QUIET, (100..200).step_by(3), |moment| vec![session(6, End::PowerCut(moment, 0))]);
}

/// Samples were never synced.
#[test]
fn samples_of_saved_steps_outlive_a_power_cut() {
    let settings = Settings { sample_interval: 2, ..QUIET };
    holds(&settings, (80..200).step_by(5), |moment| vec![session(6, End::PowerCut(moment, 0))]);
}

/// The row of an evaluation waited for room, and the step was saved as evaluated; at the next stop
/// the row was gone.
#[test]
fn no_step_is_saved_before_its_rows() {
    holds(&QUIET, (60..240).step_by(4), |moment| {
        let full = Some(Full { while_at: moment..moment + 10, room: 300 });
        vec![Session { full, ..session(12, End::Stop(moment + 40)) }]
    });
}

/// A run that could not write its first row left a folder that the next attempt was refused in.
#[test]
fn a_run_that_has_no_room_to_begin_leaves_no_folder() {
    let settings = Settings { tensorboard: true, prepares: true, ..QUIET };
    let full = |moment: usize| Some(Full { while_at: moment..100_000, room: 0 });
    let library = Library::new();
    for moment in 0..120 {
        let place = scratch();
        library.session(place.path(), &settings, &Session { full: full(moment), ..session(6, End::Done) });
        let run = place.path().join(RUN);
        let has_a_row = fs::metadata(run.join(METRICS)).is_ok_and(|log| log.len() > 0);
        assert!(has_a_row || !run.exists(), "after {moment} operations");
    }
    // Nor does who is killed while the folder is taken away.
    holds(&settings, (20..120).step_by(2), |moment| {
        vec![Session { full: full(moment), ..session(6, End::Kill(moment + moment % 16)) }]
    });
}

/// What was half written when the program was killed stayed for ever, but for that in checkpoints/.
#[test]
fn nothing_unfinished_outlives_a_resume() {
    holds(&QUIET, (20..100).step_by(3), |moment| vec![session(6, End::Kill(moment))]);
}

/// Who gives a checkpoint its name, or takes it away, may be killed before that is on the disk. The
/// next let `latest` name it, or emptied it, and a power cut then took the renaming back.
#[test]
fn a_renaming_that_somebody_was_killed_over_is_synced_first() {
    holds(&QUIET, 40..160, |moment| vec![session(6, End::Kill(moment)), session(6, End::PowerCut(12, moment as u64))]);
}
