//! Attempts that may panic: drivers and adapters that are missing or broken do, and so do libraries
//! that read damaged files. A user must see none of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{cell::Cell, panic, panic::AssertUnwindSafe, sync::Once, thread};

thread_local! {
    /// Whether this thread makes an attempt.
    static IS_ATTEMPTING: Cell<bool> = const { Cell::new(false) };
}

/// Attempts of all threads that are being made.
static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);

/// What the names of the runtime's own threads begin with. A panic there is caught and goes on in
/// the thread that waits.
const OF_THE_RUNTIME: &str = "DS";

/// A panic that was held back: the line of its message that tells most.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Panicked(pub String);

/// Runs `f`, turning a panic into [the line of its message that tells most](telling_line), of which
/// the process's panic hook hears nothing. It hears of every other thread's as ever, but for the
/// runtime's own while an attempt is made anywhere.
///
/// # Errors
/// The message.
pub fn quietly<T>(f: impl FnOnce() -> T) -> Result<T, Panicked> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !is_part_of_an_attempt() {
                others(info);
            }
        }));
    });
    let outer = IS_ATTEMPTING.replace(true);
    ATTEMPTS.fetch_add(1, Ordering::SeqCst);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    ATTEMPTS.fetch_sub(1, Ordering::SeqCst);
    IS_ATTEMPTING.set(outer);
    result.map_err(|payload| {
        let message = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        Panicked(telling_line(message.unwrap_or("no reason given")))
    })
}

/// The line of a message that tells most: the last cause, where a runtime wraps what happened in
/// what came of it; else the first.
pub fn telling_line(message: &str) -> String {
    // Some messages stand quoted inside another.
    let message = message.replace("\\n", "\n");
    let lines = message.lines().map(|line| line.trim().trim_end_matches("\")").trim_matches('"'));
    let tells = |line: &&str| !line.is_empty() && !WRAPPING.iter().any(|words| line.contains(words));
    let is_wrapped = message.contains(CAUSED_BY);
    let found = if is_wrapped { lines.clone().rfind(tells) } else { None };
    found.or(lines.clone().next()).unwrap_or_default().to_owned()
}

const CAUSED_BY: &str = "Caused by";

/// What lines say that only wrap another.
const WRAPPING: &[&str] = &[
    CAUSED_BY,
    "acktrace",
    "Asked at",
    "Several failures",
    "is poisoned",
    "An IO error happened",
    "An error happened",
    "Error while reading data",
    "still claiming",
    "skipped `",
];

/// Whether the thread that asks makes an attempt, or may work for one that does.
fn is_part_of_an_attempt() -> bool {
    let of_the_runtime = || thread::current().name().is_some_and(|name| name.starts_with(OF_THE_RUNTIME));
    IS_ATTEMPTING.get() || (ATTEMPTS.load(Ordering::SeqCst) > 0 && of_the_runtime())
}
