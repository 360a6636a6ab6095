//! A conversation and a signal that reaches it, in every order in which the two may run.

#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use shuttle::{Config, Runner, scheduler::DfsScheduler, thread};

use super::*;

/// Where the conversation is, noted under std's lock, where no other thread goes on in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Until the first look is over.
    Start,
    /// Between two looks.
    Work,
    /// From the last look on, which is about to be forgotten.
    End,
    /// Between the work and what is waited for.
    Rest,
    /// That has come.
    Over,
}

/// What the conversation saw: whether a look found the request, and whether it waited.
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
            // While the work looks it is left to the work, and the next look sees it.
            (At::Work, At::Work) => assert!(!ends && seen, "the work is not asked"),
            // Who rests or waits has nothing to save.
            (At::Rest, At::Rest) => assert!(ends || !waited, "a signal is lost"),
            // No wait is given up that nobody asked to end.
            (At::Over, _) => assert!(waited, "a wait is given up"),
            _ => {}
        }
    });
    println!("{orders} orders");
}
