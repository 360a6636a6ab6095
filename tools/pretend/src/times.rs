//! Measures the time spent in the driver; the rest of the run time is the program's own.

use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::wish::Wish;

/// The kind of a driver call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Compiling,
    /// Submitting work and waiting for it. A software driver finishes compiling a kernel here.
    Other,
}

/// Calls the driver, and writes the total time so far to the file set by `times`.
pub fn timed<T>(work: Work, call: impl FnOnce() -> T) -> T {
    static TOOK: Mutex<[Duration; 2]> = Mutex::new([Duration::ZERO; 2]);
    let Some(file) = &Wish::get().times else { return call() };
    let began = Instant::now();
    let result = call();
    let mut took = TOOK.lock().unwrap();
    let [compiling, all] = &mut *took;
    let elapsed = began.elapsed();
    *all += elapsed;
    if work == Work::Compiling {
        *compiling += elapsed;
    }
    // The file is replaced atomically, as the process may end at any time.
    let whole = format!("{file}.new");
    let _ = fs::write(&whole, format!("{:.2} {:.2}\n", compiling.as_secs_f64(), all.as_secs_f64()));
    let _ = fs::rename(&whole, file);
    result
}
