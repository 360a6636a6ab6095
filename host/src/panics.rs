//! Catches panics of code that may panic: drivers and adapters that are missing or broken do, and
//! so do libraries that read damaged files. The user sees nothing of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{any::Any, cell::Cell, panic, panic::AssertUnwindSafe, sync::Once, thread};

thread_local! {
    /// Whether this thread is inside [`quietly`].
    static IS_ATTEMPTING: Cell<bool> = const { Cell::new(false) };
}

/// Calls of [`quietly`] in progress, in all threads.
static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);

/// Prefix of the GPU runtime's thread names. A panic there continues in the thread that waits.
const RUNTIME_PREFIX: &str = "DS";

/// A caught panic: the most informative line of its message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Panicked(pub String);

/// Runs `f`, turning a panic into its [most informative line](informative_line), without calling
/// the process's panic hook. Panics of other threads still reach the hook, except for those of the
/// runtime's threads while some thread runs `quietly`.
///
/// # Errors
/// The message.
pub fn quietly<T>(f: impl FnOnce() -> T) -> Result<T, Panicked> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !is_suppressed() {
                previous(info);
            }
        }));
    });
    let outer = IS_ATTEMPTING.replace(true);
    ATTEMPTS.fetch_add(1, Ordering::SeqCst);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    ATTEMPTS.fetch_sub(1, Ordering::SeqCst);
    IS_ATTEMPTING.set(outer);
    result.map_err(|payload| Panicked(informative_line(message_of(&*payload).unwrap_or("no reason given"))))
}

/// The message of a caught panic, if it has one.
pub fn message_of(payload: &(dyn Any + Send)) -> Option<&str> {
    payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied())
}

/// The most informative line of a message: the last cause if a runtime wraps the original error in
/// its consequences, else the first line.
pub fn informative_line(message: &str) -> String {
    // A message quoted inside another has its line breaks and backslashes escaped. Outside of quotes,
    // the same characters are part of a path on Windows.
    let unescaped = |quoted: &str| quoted.replace(r"\\", "\0").replace(r"\n", "\n").replace('\0', r"\");
    let message = match message.split_once('"') {
        Some((before, quoted)) => format!("{before}\"{}", unescaped(quoted)),
        None => message.to_owned(),
    };
    let lines = message.lines().map(|line| line.trim().trim_end_matches("\")").trim_matches('"'));
    let informative = |line: &&str| !line.is_empty() && !WRAPPING.iter().any(|words| line.contains(words));
    let is_wrapped = message.contains(CAUSED_BY);
    let found = if is_wrapped { lines.clone().rfind(informative) } else { None };
    found.or(lines.clone().next()).unwrap_or_default().to_owned()
}

const CAUSED_BY: &str = "Caused by";

/// Words of lines that only wrap another error.
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

/// Whether the current thread is inside [`quietly`], or may work for one that is.
fn is_suppressed() -> bool {
    let is_runtime_thread = || thread::current().name().is_some_and(|name| name.starts_with(RUNTIME_PREFIX));
    IS_ATTEMPTING.get() || (ATTEMPTS.load(Ordering::SeqCst) > 0 && is_runtime_thread())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_in_quotes_has_lines_and_a_path_on_windows_has_none() {
        let quoted = r#"Read("The device is poisoned\nCaused by:\n  Unknown: Device is lost\nBacktrace:\n")"#;
        assert_eq!(informative_line(quoted), "Unknown: Device is lost");
        let path = r"failed to load C:\nvidia\bin\new.dll";
        assert_eq!(informative_line(path), path);
        assert_eq!(informative_line(&format!("Err({path:?})")), format!("Err(\"{path}"));
    }
}
