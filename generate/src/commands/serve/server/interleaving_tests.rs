//! Requests for few slots, in random interleavings of their threads. tokio's semaphore is not
//! instrumented: threads may be preempted before and after its operations, and at our locks.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicUsize;

use burn::tensor::Device;
use ember_model::WeightType;
use futures_util::FutureExt;
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use super::super::models::LoadOptions;
use super::super::names::Served;
use super::*;

/// Number of slots, and of requests for them.
const SLOTS: usize = 2;
const REQUESTS: usize = 4;

/// Interleavings for each scheduler.
const ORDERS: usize = 20_000;

fn server() -> Arc<Server> {
    let (device, weights) = (Device::flex(), WeightType::F32);
    let options = LoadOptions { device, weights, tokens_per_step: 1, cache_bytes: 0, max_bytes: 0 };
    let served = Served { folders: Vec::new(), run: None };
    Arc::new(Server::new(Models::new(served, options).unwrap(), Setup::default(), SLOTS, REQUESTS))
}

fn active_request(number: usize) -> ActiveRequest {
    ActiveRequest { id: number.to_string(), model: String::new(), prompt_tokens: 0, written: Arc::default() }
}

fn is_active(server: &Server, number: usize) -> bool {
    server.slots().iter().flatten().filter(|request| request.id == number.to_string()).count() == 1
}

/// All requests get a slot and finish. One more request gives up before it has a slot, or leaves
/// the slot at once.
fn acquire_and_release() {
    let (server, running) = (server(), Arc::new(AtomicUsize::new(0)));
    let work = |number| {
        let (server, running) = (Arc::clone(&server), Arc::clone(&running));
        thread::spawn(move || {
            let slot = block_on(Arc::clone(&server).slot(active_request(number))).expect("who waits gets a slot");
            assert!(running.fetch_add(1, Ordering::SeqCst) < SLOTS);
            assert!(is_active(&server, number));
            running.fetch_sub(1, Ordering::SeqCst);
            drop(slot);
            assert!(!is_active(&server, number));
        })
    };
    let working: Vec<_> = (0..REQUESTS).map(work).collect();
    let gone = Arc::clone(&server);
    let gone = thread::spawn(move || drop(gone.slot(active_request(REQUESTS)).now_or_never()));
    working.into_iter().chain([gone]).for_each(|thread| thread.join().unwrap());
    assert!(server.slots().iter().all(Option::is_none));
    assert_eq!(server.free_slots.available_permits(), SLOTS);
}

#[test]
fn every_waiting_request_gets_a_slot_of_its_own() {
    let run = |scheduler: Box<dyn Scheduler + Send>| Runner::new(scheduler, Config::new()).run(acquire_and_release);
    let orders = run(Box::new(RandomScheduler::new_from_seed(1, ORDERS)))
        + run(Box::new(PctScheduler::new_from_seed(1, 3, ORDERS)));
    println!("{orders} orders");
}
