//! How long the driver takes: what is left of a program's time is the program's.

use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::wish::Wish;

/// What the driver is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Compiling,
    /// To compute, and to tell when that is done. Software compiles the last part of a kernel here.
    Other,
}

/// Calls the driver, and writes how long it took so far to the file that is wished for.
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
    // Whole at any time, for the process may end now.
    let whole = format!("{file}.new");
    let _ = fs::write(&whole, format!("{:.2} {:.2}\n", compiling.as_secs_f64(), all.as_secs_f64()));
    let _ = fs::rename(&whole, file);
    result
}
