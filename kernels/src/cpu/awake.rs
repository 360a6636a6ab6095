//! Keeps the pool's threads awake through a decoding step.
//!
//! A step is some fifty short parallel sections with a little single-threaded work between them.
//! Without this, the other threads fall asleep in the gaps, and waking them takes longer than the
//! gap: 0.2 to 0.3 of 9 ms in GPT-2 124M on two threads. While they wait they prefetch the next
//! weights ([`NEXT_WEIGHTS`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rayon::Yield;

use crate::cpu::prefetch::NEXT_WEIGHTS;

/// Idle rounds after which a thread yields its core.
const PATIENCE: u32 = 1_000;

/// Steps in progress.
static STEPS: AtomicUsize = AtomicUsize::new(0);

/// Whether one step is in progress. While there are several, no thread looks for work: it may be
/// waiting inside another step, and must return to that.
fn is_alone() -> bool {
    STEPS.load(Ordering::Acquire) == 1
}

/// Runs `f` while the pool's other threads look for work without sleeping, unless another step is
/// in progress.
pub fn with_threads_awake<R>(f: impl FnOnce() -> R) -> R {
    let threads = rayon::current_num_threads();
    if threads == 1 {
        return f();
    }
    let caller = rayon::current_thread_index();
    let step = Step::begin();
    if is_alone() {
        for _ in 1..threads {
            let is_over = Arc::clone(&step.is_over);
            // Nobody waits for these tasks: one may have taken up a whole other step as work.
            rayon::spawn(move || {
                // The caller may pick up this task while it waits for its own work: it must return
                // to that.
                if rayon::current_thread_index() != caller {
                    look_for_work(&is_over);
                }
            });
        }
    }
    f()
}

/// A step in progress. Dropped, also when the work panics, it ends the looking for work.
struct Step {
    is_over: Arc<AtomicBool>,
}

impl Step {
    fn begin() -> Self {
        STEPS.fetch_add(1, Ordering::AcqRel);
        Self { is_over: Arc::default() }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        STEPS.fetch_sub(1, Ordering::AcqRel);
    }
}

fn look_for_work(is_over: &AtomicBool) {
    let mut idle = 0;
    while !is_over.load(Ordering::Acquire) && is_alone() {
        match rayon::yield_now() {
            Some(Yield::Executed) => idle = 0,
            _ if idle < PATIENCE => {
                idle += 1;
                NEXT_WEIGHTS.prefetch_some();
                std::hint::spin_loop();
            }
            _ => std::thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use rayon::prelude::*;

    use super::*;

    #[test]
    fn work_is_done_from_inside_and_outside_the_pool() {
        let sum = || with_threads_awake(|| (0..100).map(|_| (0..1000u64).into_par_iter().sum::<u64>()).sum::<u64>());
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(sum), 100 * 499_500);
        }
        assert_eq!(sum(), 100 * 499_500);
    }

    fn wait(event: &Receiver<()>) {
        event.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    /// A thread that looks for work in the first step takes up the second, which ends after it.
    #[test]
    fn a_step_does_not_wait_for_the_end_of_another() {
        let pool = &rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let (begin_of_second, second_has_begun) = channel();
        let (end_of_first, first_has_ended) = channel();
        std::thread::scope(|scope| {
            let second = move || {
                begin_of_second.send(()).unwrap();
                wait(&first_has_ended);
            };
            scope.spawn(move || pool.install(move || with_threads_awake(second)));
            pool.install(move || with_threads_awake(move || wait(&second_has_begun)));
            end_of_first.send(()).unwrap();
        });
    }

    #[test]
    fn a_panic_ends_it() {
        let step = Step::begin();
        let is_over = Arc::clone(&step.is_over);
        let work = || {
            let _step = step;
            panic!("on purpose")
        };
        assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        assert!(is_over.load(Ordering::Acquire));
    }
}
