//! What is promised of a run's folder, whatever happens: by every step of the twin, to which
//! nothing happens.

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

type Judged = Result<(), String>;

/// What holds at every moment: of what is there now, and of what a power cut would leave. `saved`
/// is the step that was told to be saved.
pub fn left_behind(tree: &Tree, saved: Option<u64>, twin: &Twin) -> Judged {
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

/// What holds once the run has come to its end, which was to be at one of `ends` at different
/// times.
pub fn end(tree: &Tree, settings: &Settings, ends: &[u64], was_full: bool, twin: &Twin) -> Judged {
    let rows: Vec<Row> = logged_in(tree, METRICS)?;
    let steps = |is: fn(&Row) -> bool| rows.iter().filter(|row| is(row)).map(|row| row.step).collect::<BTreeSet<_>>();
    let (logged, evaluated) = (steps(|row| row.train_loss.is_some()), steps(|row| row.val_loss.is_some()));
    let found: Vec<Row> =
        rows.into_iter().filter(|row| row.step > 0 && row.max_steps.is_none()).map(unmeasured).collect();

    // It ends where patience ends it, or at the last length that was asked for.
    let mut decided = Evaluations::default();
    let mut out_of_patience = None;
    for step in &evaluated {
        decided.record(*step, twin.val_loss(*step));
        decided.record_saved(Best { step: *step, val_loss: twin.val_loss(*step) });
        let is_out = settings.patience > 0 && decided.since_best >= settings.patience;
        out_of_patience = out_of_patience.or(is_out.then_some(*step));
    }
    let last = out_of_patience.or(ends.last().copied()).unwrap_or_default();
    same("the last step", named(tree, "latest"), Some(last))?;
    is_whole(tree, last, twin)?;

    // Each row is there once, in order, and is the twin's; but patience ends a run without one.
    let told = if out_of_patience.is_some() { 1 } else { last };
    due("rows", &logged, |step| [1, told].contains(&step) || step.is_multiple_of(settings.log_interval), last, ends)?;
    due("evaluations", &evaluated, |step| step == last || step.is_multiple_of(settings.eval_interval), last, ends)?;
    same("rows", found, twin.rows(&logged, &evaluated, last))?;
    let (found, all) = (progress(tree, last)?, checkpoints(tree));
    if was_full {
        decided.best_saved = found.evaluations.best_saved; // judged below
    }
    let best = decided.best_saved;
    same("the state", found, twin.progress(last, &logged, decided))?;

    // The best is that of the twin's evaluations, or where a full disk kept it from being saved another
    // one of them, of which none that is there is better.
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
    // Nothing is kept that was not to be, and nothing is unfinished.
    let old =
        all.iter().rev().skip(settings.keep_checkpoints as usize).find(|step| named(tree, "best") != Some(**step));
    ensure(old.is_none(), || format!("{all:?} are kept"))?;
    let aside = in_checkpoints(tree).filter(|name| !name.starts_with("step-"));
    let left = aside.chain(tree.keys().map(String::as_str).filter(|path| path.contains(UNFINISHED))).next();
    ensure(left.is_none(), || format!("{left:?} is left"))
}

/// Whether a checkpoint holds what the twin has at its step.
fn is_whole(tree: &Tree, step: u64, twin: &Twin) -> Judged {
    for (file, content) in twin.files(step) {
        ensure(file_of(tree, step, file) == Some(content), || format!("{file} of step {step} is not whole"))?;
    }
    let (found, twins) = (progress(tree, step)?, twin.progress(step, &BTreeSet::new(), Evaluations::default()));
    same("where it stands", (found.step, found.windows, found.tokens), (twins.step, twins.windows, twins.tokens))
}

/// Steps that are due have to be among those that were looked at, and no others but former ends.
fn due(what: &str, looked_at: &BTreeSet<u64>, is_due: impl Fn(u64) -> bool, last: u64, ends: &[u64]) -> Judged {
    let missed = (1..=last).find(|step| is_due(*step) && !looked_at.contains(step));
    ensure(missed.is_none(), || format!("{what} of {looked_at:?}, and {missed:?} was due"))?;
    let other = looked_at.iter().find(|step| !is_due(**step) && !ends.contains(step));
    ensure(other.is_none(), || format!("{what} of {looked_at:?}, of which {other:?} was never due"))
}

fn ensure(holds: bool, else_what: impl FnOnce() -> String) -> Judged {
    if holds { Ok(()) } else { Err(else_what()) }
}

fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Judged {
    ensure(found == expected, || format!("{what}: {found:?} instead of {expected:?}"))
}
