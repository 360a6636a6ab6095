//! The guarantees for a run folder in any history, with the twin (the undisturbed run) as the
//! reference for every step.

use std::collections::BTreeSet;
use std::fmt::Debug;

use ember_host::files::UNFINISHED;
use ember_training::run::folder::{METRICS, SAMPLES, SAMPLES_LOG};
use ember_training::run::report::Row;
use ember_training::run::sample::Sample;
use ember_training::step::progress::{Best, Evaluations};

use super::disk::Tree;
use super::history::Settings;
use super::reading::{checkpoints, file_of, in_checkpoints, logged_in, named, progress};
use super::twin::{Twin, unmeasured};

type Verdict = Result<(), String>;

/// Holds at every moment, for the current files and for what a power cut would leave. `saved` is
/// the latest step known to be saved.
pub fn invariants(tree: &Tree, saved: Option<u64>, twin: &Twin) -> Verdict {
    let all = checkpoints(tree);
    for step in &all {
        is_whole(tree, *step, twin)?;
    }
    for pointer in ["latest", "best"] {
        let named = named(tree, pointer);
        ensure(named.is_none_or(|step| all.contains(&step)), || format!("{pointer} names {named:?} of {all:?}"))?;
    }
    let latest = named(tree, "latest");
    ensure(latest >= saved, || format!("step {saved:?} was saved, and the latest is {latest:?}"))
}

/// Holds once the run has finished; `ends` are the lengths it had in the course of its history.
pub fn final_state(tree: &Tree, settings: &Settings, ends: &[u64], was_full: bool, twin: &Twin) -> Verdict {
    let rows: Vec<Row> = logged_in(tree, METRICS)?;
    let steps = |is: fn(&Row) -> bool| rows.iter().filter(|row| is(row)).map(|row| row.step).collect::<BTreeSet<_>>();
    let (logged, evaluated) = (steps(|row| row.train_loss.is_some()), steps(|row| row.val_loss.is_some()));
    let found: Vec<Row> =
        rows.into_iter().filter(|row| row.step > 0 && row.max_steps.is_none()).map(unmeasured).collect();

    // It ends when patience runs out, or at the last requested length.
    let mut expected_evaluations = Evaluations::default();
    let mut out_of_patience = None;
    for step in &evaluated {
        expected_evaluations.record(*step, twin.val_loss(*step));
        expected_evaluations.record_saved(Best { step: *step, val_loss: twin.val_loss(*step) });
        let is_out = settings.patience > 0 && expected_evaluations.since_best >= settings.patience;
        out_of_patience = out_of_patience.or(is_out.then_some(*step));
    }
    let last = out_of_patience.or(ends.last().copied()).unwrap_or_default();
    same("the last step", named(tree, "latest"), Some(last))?;
    is_whole(tree, last, twin)?;

    // Each row is there once, in order, and equals the twin's. When patience ends a run, its last
    // step gets no extra row.
    let last_logged = if out_of_patience.is_some() { 1 } else { last };
    due(
        "rows",
        &logged,
        |step| [1, last_logged].contains(&step) || step.is_multiple_of(settings.log_interval),
        last,
        ends,
    )?;
    due("evaluations", &evaluated, |step| step == last || step.is_multiple_of(settings.eval_interval), last, ends)?;
    same("rows", found, twin.rows(&logged, &evaluated, last))?;
    let (found, all) = (progress(tree, last)?, checkpoints(tree));
    if was_full {
        expected_evaluations.best_saved = found.evaluations.best_saved; // checked below
    }
    let best = expected_evaluations.best_saved;
    same("the state", found, twin.progress(last, &logged, expected_evaluations))?;

    // `best` is the best of the twin's evaluations. If a full disk kept that from being saved, it
    // is another one, and no checkpoint that exists is better.
    same("the best", named(tree, "best"), best.map(|best| best.step))?;
    let lowest = best.map_or(f64::INFINITY, |best| best.val_loss);
    same("its loss", best.map(|best| twin.val_loss(best.step)), best.map(|best| best.val_loss))?;
    let better = all.intersection(&evaluated).find(|step| twin.val_loss(**step) < lowest);
    ensure(better.is_none(), || format!("step {better:?} is better than {best:?}"))?;
    if !was_full {
        let drawn: Vec<Sample> = logged_in(tree, &format!("{SAMPLES}/{SAMPLES_LOG}"))?;
        let sampled = drawn.iter().map(|sample| sample.step).collect();
        let interval = settings.sample_interval;
        let is_due = |step: u64| interval > 0 && (step == last || step.is_multiple_of(interval));
        due("samples", &sampled, is_due, last, ends)?;
        same("samples", drawn, twin.samples(&sampled))?;
    }
    // No surplus checkpoints are kept, and no unfinished files.
    let old =
        all.iter().rev().skip(settings.keep_checkpoints as usize).find(|step| named(tree, "best") != Some(**step));
    ensure(old.is_none(), || format!("{all:?} are kept"))?;
    let aside = in_checkpoints(tree).filter(|name| !name.starts_with("step-"));
    let left = aside.chain(tree.keys().map(String::as_str).filter(|path| path.contains(UNFINISHED))).next();
    ensure(left.is_none(), || format!("{left:?} is left"))
}

/// Whether a checkpoint is the same as the twin's at its step.
fn is_whole(tree: &Tree, step: u64, twin: &Twin) -> Verdict {
    for (file, content) in twin.files(step) {
        ensure(file_of(tree, step, file) == Some(content), || format!("{file} of step {step} is not whole"))?;
    }
    let (found, expected) = (progress(tree, step)?, twin.progress(step, &BTreeSet::new(), Evaluations::default()));
    same(
        "where it stands",
        (found.step, found.windows, found.tokens),
        (expected.step, expected.windows, expected.tokens),
    )
}

/// `present` must contain every step that is due, and otherwise only former ends of the run.
fn due(what: &str, present: &BTreeSet<u64>, is_due: impl Fn(u64) -> bool, last: u64, ends: &[u64]) -> Verdict {
    let missed = (1..=last).find(|step| is_due(*step) && !present.contains(step));
    ensure(missed.is_none(), || format!("{what} of {present:?}, and {missed:?} was due"))?;
    let other = present.iter().find(|step| !is_due(**step) && !ends.contains(step));
    ensure(other.is_none(), || format!("{what} of {present:?}, of which {other:?} was never due"))
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(message()) }
}

fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Verdict {
    ensure(found == expected, || format!("{what}: {found:?} instead of {expected:?}"))
}
