//! Requests that come to few desks, in orders of their threads that are drawn at random. tokio's
//! semaphore is as it is: a thread may be held up before and behind what it does, and at our locks.

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

/// Desks, and requests that come to them.
const DESKS: usize = 2;
const REQUESTS: usize = 4;

/// Orders that are tried by each way to draw them.
const ORDERS: usize = 20_000;

fn server() -> Arc<Server> {
    let (device, weights) = (Device::flex(), WeightType::F32);
    let options = LoadOptions { device, weights, tokens_per_step: 1, cache_bytes: 0, max_bytes: 0 };
    let served = Served { folders: Vec::new(), run: None };
    Arc::new(Server::new(Models::new(served, options).unwrap(), DESKS, REQUESTS))
}

fn busy(number: usize) -> ActiveRequest {
    ActiveRequest { id: number.to_string(), model: String::new(), prompt_tokens: 0, written: Arc::default() }
}

fn is_at(server: &Server, number: usize) -> bool {
    server.slots().iter().flatten().filter(|busy| busy.id == number.to_string()).count() == 1
}

/// All come and work; one that comes, too, is gone before it has a desk, or where it has one at
/// once leaves it.
fn come_and_go() {
    let (server, at_work) = (server(), Arc::new(AtomicUsize::new(0)));
    let work = |number| {
        let (server, at_work) = (Arc::clone(&server), Arc::clone(&at_work));
        thread::spawn(move || {
            let slot = block_on(Arc::clone(&server).slot(busy(number))).expect("who waits gets a desk");
            assert!(at_work.fetch_add(1, Ordering::SeqCst) < DESKS);
            assert!(is_at(&server, number));
            at_work.fetch_sub(1, Ordering::SeqCst);
            drop(slot);
            assert!(!is_at(&server, number));
        })
    };
    let working: Vec<_> = (0..REQUESTS).map(work).collect();
    let gone = Arc::clone(&server);
    let gone = thread::spawn(move || drop(gone.slot(busy(REQUESTS)).now_or_never()));
    working.into_iter().chain([gone]).for_each(|thread| thread.join().unwrap());
    assert!(server.slots().iter().all(Option::is_none));
    assert_eq!(server.free_slots.available_permits(), DESKS);
}

#[test]
fn whoever_waits_gets_a_desk_of_its_own() {
    let run = |scheduler: Box<dyn Scheduler + Send>| Runner::new(scheduler, Config::new()).run(come_and_go);
    let orders = run(Box::new(RandomScheduler::new_from_seed(1, ORDERS)))
        + run(Box::new(PctScheduler::new_from_seed(1, 3, ORDERS)));
    println!("{orders} orders");
}
