//! A conversation and a signal, in every interleaving of the two.

#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use shuttle::{Config, Runner, scheduler::DfsScheduler, thread};

use super::*;

/// Progress of the conversation, stored under std's lock, at which shuttle switches no threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Until the first check is over.
    Start,
    /// Between two checks.
    Work,
    /// From the last check on, before the request is cleared.
    End,
    /// Between the work and the end of the wait.
    Rest,
    /// The wait is over.
    Over,
}

/// Whether a check found the request, and whether the wait was completed.
struct Conversation {
    seen: bool,
    waited: bool,
}

fn converse(interrupt: &Interrupt, at: &Mutex<At>) -> Conversation {
    let now = |place| *at.lock().unwrap() = place;
    let first = interrupt.requested();
    now(At::Work);
    thread::yield_now();
    now(At::End);
    let seen = interrupt.requested() || first;
    interrupt.clear();
    now(At::Rest);
    let waited = interrupt.while_waiting(|| {
        thread::yield_now();
        now(At::Over);
    });
    Conversation { seen, waited: waited.is_some() }
}

#[test]
fn a_signal_is_seen_by_the_work_or_ends_the_process() {
    let orders = Runner::new(DfsScheduler::new(None, false), Config::new()).run(|| {
        let (interrupt, at) = (Interrupt::new(), Arc::new(Mutex::new(At::Start)));
        let conversation = thread::spawn({
            let (interrupt, at) = (interrupt.clone(), Arc::clone(&at));
            move || converse(&interrupt, &at)
        });
        let from = *at.lock().unwrap();
        let ends = interrupt.signalled();
        let to = *at.lock().unwrap();
        let Conversation { seen, waited } = conversation.join().unwrap();
        match (from, to) {
            // While the work checks, the signal is left to it, and the next check sees it.
            (At::Work, At::Work) => assert!(!ends && seen, "the work is not asked"),
            // Between requests, and in a wait, there is nothing to save.
            (At::Rest, At::Rest) => assert!(ends || !waited, "a signal is lost"),
            // A wait is given up only on request.
            (At::Over, _) => assert!(waited, "a wait is given up"),
            _ => {}
        }
    });
    println!("{orders} orders");
}
