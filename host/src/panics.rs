//! Attempts that may panic: drivers and adapters that are missing or broken do, and so do libraries
//! that read damaged files. A user must see none of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{cell::Cell, panic, panic::AssertUnwindSafe, sync::Once, thread};

thread_local! {
    /// Whether this thread makes an attempt.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Threads that make one.
static EVERYWHERE: AtomicUsize = AtomicUsize::new(0);

/// What the names of the runtime's own threads begin with. A panic there is caught and goes on in
/// the thread that waits.
const OF_THE_RUNTIME: &str = "DS";

/// A panic that was held back: the first line of its message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Panicked(pub String);

/// Runs `f`, turning a panic into the first line of its message, of which the process's panic hook
/// hears nothing. It hears of every other thread's as ever, but for the runtime's own while an
/// attempt is made anywhere.
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
    let outer = HERE.replace(true);
    EVERYWHERE.fetch_add(1, Ordering::SeqCst);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    EVERYWHERE.fetch_sub(1, Ordering::SeqCst);
    HERE.set(outer);
    result.map_err(|payload| {
        let message = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        Panicked(message.unwrap_or("no reason given").lines().next().unwrap_or_default().to_owned())
    })
}

/// Whether the thread that asks makes an attempt, or may work for one that does.
fn is_part_of_an_attempt() -> bool {
    let of_the_runtime = || thread::current().name().is_some_and(|name| name.starts_with(OF_THE_RUNTIME));
    HERE.get() || (EVERYWHERE.load(Ordering::SeqCst) > 0 && of_the_runtime())
}
