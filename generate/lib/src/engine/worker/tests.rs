//! Steps of the engine, one at a time, without its thread.
#![allow(clippy::unwrap_used)]
use burn::tensor::Device;
use ember_model::{GptConfig, WeightType, init::Random};

use super::*;
use crate::sync::mpsc::sync_channel;

const CONTEXT: usize = 64;

/// Sends the query of a request with one row, for the logits after its last id. Returns a function
/// that takes the answer, and returns whether there is one.
fn ask(worker: &mut Worker, request: u64, ids: &[u32], from: Option<usize>) -> impl Fn() -> bool + use<> {
    let (reply, answer) = sync_channel(1);
    let rows = vec![QueryRow { ids: ids.to_vec(), count: 1, from }];
    let query = Query { request, positions: CONTEXT, rows, cancelled: Arc::default(), on_progress: None, reply };
    worker.handle(Message::Query(query));
    worker.admit();
    move || matches!(answer.try_recv(), Ok(Ok(_)))
}

/// Nobody waits for another request's prompt.
#[test]
fn every_step_extends_the_text_and_reads_no_more_than_a_piece_of_the_prompt_beside_it() {
    let shape = GptConfig::new(11, CONTEXT, 2, 2, 40);
    let model = Gpt::for_inference(&shape, &Random { seed: 3 }, WeightType::F32, &Device::flex()).unwrap();
    let limits = Limits { tokens_per_step: 4, positions: 500 };
    let mut worker = Worker::new(model, limits, MetricsHandle::default(), Arc::default());
    let mut text = vec![1, 2];
    let is_begun = ask(&mut worker, 0, &text, None);
    worker.run_step();
    assert!(is_begun());
    let (is_read, mut steps) = (ask(&mut worker, 1, &[3; 60], None), 0);
    while !is_read() {
        text.push(1);
        let (is_extended, before) = (ask(&mut worker, 0, &text, Some(0)), worker.metrics.tokens);
        worker.run_step();
        assert!(is_extended(), "in step {steps}");
        let read = worker.metrics.tokens - before - 1;
        assert!(read <= 4, "{read} in step {steps}");
        steps += 1;
    }
    // The first step reads nothing: it measures how long one takes without a prompt.
    assert_eq!(steps, 1 + 60 / 4);
}

/// Its client may not read what it is sent.
#[test]
fn a_request_that_does_not_come_back_is_not_waited_for() {
    let shape = GptConfig::new(11, CONTEXT, 2, 2, 40);
    let model = Gpt::for_inference(&shape, &Random { seed: 3 }, WeightType::F32, &Device::flex()).unwrap();
    let limits = Limits { tokens_per_step: 1000, positions: 500 };
    let mut worker = Worker::new(model, limits, MetricsHandle::default(), Arc::default());
    let is_begun = ask(&mut worker, 0, &[1, 2], None);
    worker.run_step();
    assert!(is_begun() && worker.expects_queries());
    for (prompt, expects) in [(1, true), (2, false)] {
        let is_read = ask(&mut worker, prompt, &[3; 16], None);
        worker.run_step();
        assert!(is_read());
        worker.handle(Message::Left(prompt));
        assert_eq!(worker.expects_queries(), expects);
    }
    let is_read = ask(&mut worker, 3, &[3; 60], None);
    worker.run_step();
    assert!(is_read(), "alone, a prompt is read at once");
}
