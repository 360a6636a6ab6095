//! Histories that once failed, each with the fault that caused it. The operations of a session
//! change with every version, so each history runs with its event at many different moments. At the
//! end, sessions on disks that lack something.

use std::fs;
use std::path::Path;

use ember_training::run::folder::{METRICS, TENSORBOARD};

use super::disk;
use super::history::{End, Failure, History, RUN, Ran, Session, Settings, Trains};
use super::library::{Library, scratch};
use super::witness::{Fault, Full, Operation};
use super::{check_history, twins};

/// A session whose disk never fills up.
fn session(max_steps: u64, end: End) -> Session {
    Session { max_steps, full: None, end }
}

/// Asserts that the history ends as specified, with its event at each of these moments.
#[track_caller]
fn check_at_moments(
    settings: &Settings,
    moments: impl Iterator<Item = usize>,
    sessions: impl Fn(usize) -> Vec<Session>,
) {
    let library = Library::new();
    let twins = twins(&library);
    for moment in moments {
        let history = History { settings: settings.clone(), sessions: sessions(moment) };
        check_history(&history, &library, &twins).unwrap_or_else(|failure| panic!("{failure}\n{history:?}"));
    }
}

/// Settings that leave out what these histories do not test.
const QUIET: Settings = Settings { sample_interval: 0, keep_checkpoints: 1, eval_interval: 3, ..Settings::EVERY_STEP };

/// The run's folder was never synced into its parent: the whole run could vanish with its name,
/// even if an earlier process that was killed had created it.
#[test]
fn the_name_of_a_run_outlives_a_power_cut() {
    check_at_moments(&QUIET, (0..120).step_by(5), |moment| vec![session(6, End::PowerCut(moment, 0))]);
    check_at_moments(&QUIET, (0..4).chain([40]), |moment| {
        vec![session(6, End::Kill(moment)), session(6, End::PowerCut(100, 0))]
    });
}

/// A checkpoint was emptied before its rename was synced: half of it could remain under its own
/// name.
#[test]
fn a_checkpoint_goes_whole() {
    check_at_moments(&QUIET, (100..200).step_by(3), |moment| vec![session(6, End::PowerCut(moment, 0))]);
}

/// Samples were never synced.
#[test]
fn samples_of_saved_steps_outlive_a_power_cut() {
    let settings = Settings { sample_interval: 2, ..QUIET };
    check_at_moments(&settings, (80..200).step_by(5), |moment| vec![session(6, End::PowerCut(moment, 0))]);
}

/// The row of an evaluation waited for free space, and the step was saved as evaluated; at the next
/// stop the row was lost.
#[test]
fn no_step_is_saved_before_its_rows() {
    check_at_moments(&QUIET, (60..240).step_by(4), |moment| {
        let full = Some(Full { while_at: moment..moment + 10, room: 300 });
        vec![Session { full, ..session(12, End::Stop(moment + 40)) }]
    });
}

/// The row with the length that the clock chose was not synced, unlike the configuration: a full disk
/// could take it back, a kill then lost it, and a resume from an earlier step did not tell of it.
#[test]
fn the_row_of_a_new_length_is_on_the_disk_before_the_next_row() {
    let (library, place) = (Library::new(), scratch());
    // So little time that the run is shortened to a single step at once.
    let settings = Settings { promised: Some(1), ..QUIET };
    let ran = library.session(place.path(), &settings, &session(6, End::Done));
    assert!(matches!(ran.ended, Some(Ok(None))), "{:?}", ran.ended);
    let log = Path::new(RUN).join(METRICS);
    let of_log = ran.operations.iter().filter(|operation| match operation {
        Operation::Write(path, ..) | Operation::Sync(path) => *path == log,
        _ => false,
    });
    let sets_length = |operation: &&Operation| match operation {
        Operation::Write(_, _, row) => row.starts_with(b"{\"step\":0,\"max_steps\":1}"),
        _ => false,
    };
    let next = of_log.skip_while(|operation| !sets_length(operation)).nth(1);
    assert_eq!(next, Some(&Operation::Sync(log.clone())));
}

/// A run that could not write its first row left a folder that made the next attempt fail.
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
    // A program that is killed while it removes the folder leaves none either.
    check_at_moments(&settings, (20..120).step_by(2), |moment| {
        vec![Session { full: full(moment), ..session(6, End::Kill(moment + moment % 16)) }]
    });
}

/// A resume on a full disk ended because it could not create TensorBoard's file, or not write into
/// it. It ends because the last step cannot be saved. If there was no event file before, its empty
/// one kept all earlier steps out of the next session's.
#[test]
fn a_resume_on_a_full_disk_does_without_tensorboard() {
    let settings = Settings { tensorboard: true, ..QUIET };
    let library = Library::new();
    for (room, is_first) in [(0, false), (10, false), (0, true), (10, true)] {
        let place = scratch();
        let events = place.path().join(RUN).join(TENSORBOARD);
        library.session(place.path(), &settings, &session(12, End::Stop(60)));
        if is_first {
            fs::remove_dir_all(&events).unwrap();
        }
        let full = Some(Full { while_at: 0..100_000, room });
        let ran = library.session(place.path(), &settings, &Session { full, ..session(12, End::Done) });
        let line = ran.ended.unwrap().unwrap_err().line;
        assert!(line.contains("metrics.jsonl: cannot append"), "{line}");
        let ran = library.session(place.path(), &settings, &session(12, End::Done));
        assert!(matches!(ran.ended, Some(Ok(None))), "{:?}", ran.ended);
        let files = fs::read_dir(&events).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap());
        let steps = |file: Vec<u8>| file.windows(15).filter(|window| *window == b"loss/train_loss").count();
        assert_eq!(files.map(steps).sum::<usize>(), 12, "room for {room} bytes, first: {is_first}");
    }
}

/// Files half written when the program was killed stayed for ever, except in checkpoints/.
#[test]
fn nothing_unfinished_outlives_a_resume() {
    check_at_moments(&QUIET, (20..100).step_by(3), |moment| vec![session(6, End::Kill(moment))]);
}

/// A process that renames or removes a checkpoint may be killed before the rename is on the disk.
/// The next process let `latest` name that checkpoint, or emptied it, and a power cut then undid
/// the rename.
#[test]
fn a_renaming_that_somebody_was_killed_over_is_synced_first() {
    check_at_moments(&QUIET, 40..160, |moment| {
        vec![session(6, End::Kill(moment)), session(6, End::PowerCut(12, moment as u64))]
    });
}

/// The free space is checked first: a checkpoint that is only half written would take the last free
/// space from all other programs.
#[test]
fn a_save_without_room_writes_nothing() {
    let (library, place) = (Library::new(), scratch());
    library.session(place.path(), &QUIET, &session(6, End::Done));
    let folder = Path::new(RUN).join("checkpoints");
    let checkpoints = || disk::read(&place.path().join(&folder)).unwrap();
    let before = checkpoints();
    // Enough for a checkpoint, but not for what must stay free beside it.
    let full = Some(Full { while_at: 0..100_000, room: 1 << 19 });
    let ran = library.session(place.path(), &QUIET, &Session { full, ..session(12, End::Done) });
    assert!(matches!(ran.ended, Some(Err(Failure { is_full_disk: true, .. }))), "{:?}", ran.ended);
    let is_save = |operation: &Operation| matches!(operation, Operation::MakeFolder(path) if path.starts_with(&folder));
    assert!(!ran.operations.iter().any(is_save) && checkpoints() == before);
}

/// A short run on a disk with this fault, in `place`.
fn on_a_disk_with(fault: Option<Fault>, place: &Path) -> Ran {
    let library = Library::new();
    fault.into_iter().for_each(|fault| library.set_fault(fault));
    library.session(place, &QUIET, &session(6, End::Done))
}

/// How often a session synced a file.
fn file_syncs(ran: &Ran) -> usize {
    let is_file = |path: &Path| ran.operations.contains(&Operation::MakeFile(path.to_owned()));
    ran.operations.iter().filter(|operation| matches!(operation, Operation::Sync(path) if is_file(path))).count()
}

/// Some network disks write folders by themselves and return EINVAL when asked to.
#[test]
fn where_no_folder_can_be_synced_a_run_ends_and_its_files_are_synced_all_the_same() {
    let places = [scratch(), scratch()];
    let usual = on_a_disk_with(None, places[0].path());
    let ran = on_a_disk_with(Some(Fault::FolderSync(libc::EINVAL)), places[1].path());
    assert!(matches!(ran.ended, Some(Ok(None))), "{:?}", ran.ended);
    assert_eq!(file_syncs(&ran), file_syncs(&usual));
    assert!(file_syncs(&ran) > 0);
}

#[test]
fn a_disk_that_fails_to_sync_a_folder_ends_a_run() {
    let place = scratch();
    let ran = on_a_disk_with(Some(Fault::FolderSync(libc::EIO)), place.path());
    let line = ran.ended.unwrap().unwrap_err().line;
    assert!(line.ends_with("(os error 5)"), "{line}");
}

/// Nothing would keep a second process out.
#[test]
fn on_a_disk_without_locks_no_run_begins() {
    let place = scratch();
    let ran = on_a_disk_with(Some(Fault::Lock(libc::ENOLCK)), place.path());
    let line = ran.ended.unwrap().unwrap_err().line;
    assert!(line.contains("has no file locks, which keep a second process out of a run"), "{line}");
    assert!(!place.path().join(RUN).exists());
}
