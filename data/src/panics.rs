//! Panics inside libraries that read what others wrote: a damaged file is no mistake of the program, and gets a line of its own.

use anyhow::{Result, anyhow};
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether this thread is inside a call whose panics become errors.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Calls a library; where it panics, that is its error, and nobody else hears of it.
///
/// Errors with the panic's message.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // Asked of the thread that panics: what goes wrong on another one meanwhile is told as ever.
            if !CAUGHT.get() {
                others(info);
            }
        }));
    });
    let outer = CAUGHT.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    CAUGHT.set(outer);
    result.map_err(|payload| {
        let message = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        anyhow!("{}", message.unwrap_or("no reason given").lines().next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        assert_eq!(caught(|| 3).unwrap(), 3);
        let error = caught(|| panic!("row {} of 2\nand more", 5)).unwrap_err();
        assert_eq!(error.to_string(), "row 5 of 2");
        let inner = caught(|| caught(|| panic!("inside")).unwrap_err().to_string()).unwrap();
        assert_eq!(inner, "inside");
        assert!(!CAUGHT.get());
    }
}
