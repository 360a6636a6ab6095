//! One-line messages for fatal failures below the program: a panic, or a device that fails. Device
//! runtimes report some failures as errors, some as panics of their own threads, and wrap the cause
//! in many lines.

use std::any::Any;
use std::panic;
use std::sync::{Mutex, PoisonError};

use ember_host::panics::{informative_line, message_of};

/// The first panic of this process: later ones tend to be its consequences.
static PANIC: Mutex<Option<Panic>> = Mutex::new(None);

#[derive(Clone)]
pub(crate) struct Panic {
    pub(crate) message: String,
    /// "file:line", if known.
    place: Option<String>,
}

impl Panic {
    pub(crate) fn without_place(message: impl Into<String>) -> Self {
        Self { message: message.into(), place: None }
    }
}

/// Keeps panics off the terminal, and remembers the first. The environment variable
/// `RUST_BACKTRACE` brings them back in full, for debugging.
pub(crate) fn remember_panics() {
    let default_hook = panic::take_hook();
    let wants_backtrace = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
    panic::set_hook(Box::new(move |info| {
        let mut first = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| Panic {
            message: info.payload_as_str().unwrap_or("no message").to_owned(),
            place: info.location().map(|place| format!("{}:{}", place.file(), place.line())),
        });
        drop(first);
        if wants_backtrace {
            default_hook(info);
        }
    }));
}

/// The panic that ended the program's work.
pub(crate) fn first_panic(payload: &(dyn Any + Send)) -> Panic {
    // A panic resumed from another thread does not reach the hook a second time.
    remembered().unwrap_or_else(|| Panic::without_place(message_of(payload).unwrap_or("no message")))
}

fn remembered() -> Option<Panic> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The user's line for a device failure with this message, including what to do.
pub fn of_device(message: &str) -> String {
    // The first panic, on the runtime's thread, may be more informative than its consequences.
    let first = remembered().map(|panic| panic.message).unwrap_or_default();
    let said = |words: &[&str]| [first.as_str(), message].into_iter().find(|message| contains(message, words));
    let (full, lost) = (said(FULL), said(&["device is lost", "device lost", "device_lost"]));
    let what = informative_line(full.or(lost).unwrap_or(message));
    if full.is_some() {
        format!(
            "out of memory ({what}); free some of it, use another --device, or begin anew with a smaller batch (when \
             training: micro_batch) or model"
        )
    } else if lost.is_some() {
        format!(
            "the device was lost ({what}), as after a driver update, a reset, or a kernel that took too long; try \
             again, or use --device cpu"
        )
    } else {
        // A message that only makes sense beside its source code is left out.
        let what = if contains(&what, UNINFORMATIVE) { String::new() } else { format!(" ({what})") };
        format!("the device failed{what}; try --device cpu, or see the `devices` command")
    }
}

/// The user's line for a panic caused by a device failure; `None` for any other panic.
pub fn of_device_panic(payload: &(dyn Any + Send)) -> Option<String> {
    let panic = first_panic(payload);
    panic.is_of_a_device().then(|| of_device(&panic.message))
}

/// The user's line for a panic: a cause they can act on if the message shows one, else that it is
/// our mistake.
pub(crate) fn of_panic(panic: &Panic) -> String {
    let Panic { message, place } = panic;
    if panic.is_of_a_device() {
        return of_device(message);
    }
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let message =
        lines.map(str::to_owned).chain(place.as_ref().map(|place| format!("({place})"))).collect::<Vec<_>>().join("; ");
    format!("internal error: {message}; this is a mistake in the program, please report it with the command you ran")
}

/// Messages of a lack of memory contain one of these.
const FULL: &[&str] = &[
    "out of memory",
    "outofmemory",
    "out_of_memory",
    "buffer too big",
    "allocate buffer",
    "capacity overflow",
    "was never allocated",
];

/// Messages of a failed device contain one of these.
const DEVICES: &[&str] = &[
    "wgpu",
    "vulkan",
    "adapter",
    "cuda",
    "device lost",
    "device is lost",
    "device is poisoned",
    "host access failed",
    "nvrtc",
    "cublas",
];

/// Messages of panics that do not tell the cause.
const UNINFORMATIVE: &[&str] = &["option::unwrap()", "recverror", "senderror", "no message", "no reason given"];

/// Parts of the source paths of crates that only run GPUs.
const GPU_CRATES: &[&str] = &["/cubecl-", "/burn-cubecl-", "/wgpu-"];

impl Panic {
    fn is_of_a_device(&self) -> bool {
        let is_gpu = |place: &String| GPU_CRATES.iter().any(|folder| place.replace('\\', "/").contains(folder));
        contains(&self.message, FULL) || contains(&self.message, DEVICES) || self.place.as_ref().is_some_and(is_gpu)
    }
}

fn contains(message: &str, words: &[&str]) -> bool {
    let lower = message.to_lowercase();
    words.iter().any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_explained_in_one_line() {
        let line =
            |message: &str| of_panic(&Panic { message: message.to_owned(), place: Some("src/a.rs:1".to_owned()) });
        assert!(line("index out of\nbounds").starts_with("internal error: index out of; bounds; (src/a.rs:1); this"));
        assert!(line("wgpu error: Out of Memory").starts_with("out of memory (wgpu error: Out of Memory); free some"));
        assert!(line("No possible adapter available for wgpu").contains("--device cpu"));
    }

    #[test]
    fn a_device_says_what_happened_among_much_else() {
        let lost = "The device is poisoned\nCaused by:\n  Unknown: Device is lost\nBacktrace:\nNo backtrace available";
        assert!(of_device(lost).starts_with("the device was lost (Unknown: Device is lost), as after"));
        let read = format!("bytes: host access failed: Read({lost:?})");
        assert_eq!(of_panic(&Panic::without_place(read)), of_device(lost));
        let unread = Panic {
            message: "Failed to map buffer: BufferAsyncError".to_owned(),
            place: Some("/src/cubecl-wgpu-0.11.3/src/compute/timings.rs:510".to_owned()),
        };
        assert!(of_panic(&unread).starts_with("the device failed (Failed to map buffer: BufferAsyncError); try"));
        let gone = Panic {
            message: "called `Option::unwrap()` on a `None` value".to_owned(),
            place: Some("/src/cubecl-runtime-0.11.3/src/client.rs:1".to_owned()),
        };
        assert_eq!(of_panic(&gone), "the device failed; try --device cpu, or see the `devices` command");
        let refused = "The device is poisoned\nCaused by:\n  Unknown: Unexpected error variant\nBacktrace:\n";
        assert!(of_device(refused).starts_with("the device failed (Unknown: Unexpected error variant); try"));
    }
}
