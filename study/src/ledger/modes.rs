//! The ways to use a model, one function each: those of training and scoring here, those of
//! generation in [`generation`].

pub mod generation;
mod plan;

use burn::{module::Module, optim::GradientsAccumulator, optim::GradientsParams, tensor::Tensor};
use ember_data::windows::Batch;
use ember_decoding::{bench::Spread, score::MAX_LOGITS, score::token_log_probabilities};
use ember_decoding::{softmax::log_sum_exp, tokens::from_tensor};
use ember_kernels::DropoutMask;
use ember_model::{Gpt, GptConfig};

use super::facts::{DECODE_UNCACHED, FORWARD, FORWARD_WITH_GRAPH, Facts, PREFILL, SCORE, TRAINING_STEP};
use super::meter::{Meter, nodes_made, positive};
use super::{Entry, flops, flops::attended};
use crate::{batch::batch_logits, error::Result, stepper::Stepper};
use ember_training::memory::prediction::{Kernels, Parts, Prediction, Sizes, training::Step};
use ember_training::step::gradient::{Passes, accumulated, of_batch, pass_backward, pass_forward};
use ember_training::{config::precision::float_dtype, memory::prediction, step::optimizer::WeightAverage};

pub use plan::Plan;

/// Total seconds after which a mode is not timed again.
const ENOUGH_S: f64 = 10.0;

/// How many passes [`measure`] announces: prefill and decoding are one.
pub const PASSES: usize = 6;

/// An entry with a mode's facts and times; costs and results are still to be filled in.
fn timed(facts: &Facts, tokens: usize, times: Vec<f64>) -> Entry {
    let repeats = times.len() as u64;
    let Spread { median, min, max } = Spread::of(times);
    Entry {
        mode: facts.mode,
        time_s: median,
        time_min_s: min,
        time_max_s: max,
        repeats,
        tokens: tokens as u64,
        tokens_per_s: tokens as f64 / median.max(1e-12),
        random: facts.random,
        returns: facts.returns,
        places: facts.places,
        ..Entry::default()
    }
}

/// Measures every mode on `gpt`, which is on a device with automatic differentiation and whose
/// weights take `weights_bytes` by `meter`; `begins` receives the name of each mode before it
/// starts. Nothing else may hold the weights.
///
/// # Errors
/// When the device fails, an id is outside the vocabulary, or the plan's `go_on` says to stop.
pub fn measure(
    gpt: Gpt,
    weights_bytes: i64,
    plan: &Plan,
    meter: &mut Meter,
    begins: &mut dyn FnMut(&'static str),
) -> Result<Vec<Entry>> {
    let plain = gpt.valid();
    let gpt = gpt.with_precision(float_dtype(plan.config.precision));
    let kernels = Kernels::on(&plain.device());
    let mut ledger = Ledger { kernels, weights: weights_bytes, plan, meter, reference: Vec::new() };
    begins(FORWARD.mode);
    ledger.reference = values(batch_logits(&plain, &plan.batch))?;
    let forward = ledger.forward(&plain)?;
    begins(FORWARD_WITH_GRAPH.mode);
    let with_graph = ledger.forward_with_graph(&gpt)?;
    begins(SCORE.mode);
    let score = ledger.score(&plain)?;
    begins(PREFILL.mode);
    let [prefill, decode] = ledger.prefill_and_decode(&plain)?;
    begins(DECODE_UNCACHED.mode);
    let uncached = ledger.decode_uncached(&plain)?;
    drop(plain);
    begins(TRAINING_STEP.mode);
    let training = ledger.training_step(gpt)?;
    Ok(vec![training, with_graph, forward, score, prefill, decode, uncached])
}

/// The values of logits, on the host.
fn values<const D: usize>(logits: Tensor<D>) -> Result<Vec<f32>> {
    Ok(from_tensor(logits)?)
}

/// Runs the backward pass only to free the graph of `logits`: burn frees a graph in its backward,
/// not when its last tensor is dropped.
fn free_graph(logits: Tensor<3>) {
    logits.sum().backward();
}

/// The largest difference between two lists of logits; infinite if either holds NaN, which
/// `f64::max` would ignore.
fn difference(a: &[f32], b: &[f32]) -> f64 {
    let differences = a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs()));
    differences.fold(0.0, |most: f64, next| if next.is_nan() { f64::INFINITY } else { most.max(next) })
}

/// The largest difference of logits `[batch, vocab]` from those of the reference `[batch, time,
/// vocab]` at position `at` of every row.
fn difference_at(reference: &[f32], Sizes { batch, time }: Sizes, at: usize, logits: &[f32]) -> f64 {
    let vocab = logits.len() / batch;
    let rows = logits.chunks_exact(vocab).enumerate();
    rows.map(|(row, logits)| difference(logits, &reference[(row * time + at) * vocab..])).fold(0.0, f64::max)
}

/// Shared state of all measurements.
struct Ledger<'a> {
    kernels: Kernels,
    /// Bytes of the weights, by the meter.
    weights: i64,
    plan: &'a Plan<'a>,
    meter: &'a mut Meter,
    /// Logits `[batch, time, vocab]` of the forward without a graph.
    reference: Vec<f32>,
}

/// The result of one run, and its effects on memory and graph.
struct Observed<T> {
    result: T,
    /// Bytes in use after the run and not before.
    kept: i64,
    /// The most additional bytes in use at once.
    peak: i64,
    graph_nodes: u64,
}

fn observe<T>(meter: &mut Meter, run: impl FnOnce() -> T) -> Result<Observed<T>> {
    let before = meter.begin_peak()?;
    let (result, graph_nodes) = nodes_made(run);
    Ok(Observed { result, kept: meter.live()? - before, peak: meter.peak()? - before, graph_nodes })
}

impl Ledger<'_> {
    /// Times `run` as often as the plan says, but no longer than [`ENOUGH_S`]; the caller has run
    /// it once before.
    fn times(&mut self, mut run: impl FnMut(&Meter) -> Result<f64>) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        while times.len() < self.plan.repeats && times.iter().sum::<f64>() < ENOUGH_S {
            self.plan.proceed()?;
            times.push(run(self.meter)?);
        }
        Ok(times)
    }

    fn predict<'b>(&self, config: &'b GptConfig) -> Prediction<'b> {
        Prediction { config, sizes: self.plan.sizes(), kernels: self.kernels }
    }

    /// Memory of a mode that holds the weights, and at most `peak` bytes in addition.
    fn parts(&self, peak: i64) -> Parts {
        Parts { weights_bytes: positive(self.weights), peak_bytes: positive(self.weights + peak), ..Parts::default() }
    }

    fn whole_flops(&self, config: &GptConfig) -> f64 {
        let Sizes { batch, time } = self.plan.sizes();
        flops::forward(config, batch * time, batch * attended(0, time), batch * time)
    }

    fn forward(&mut self, plain: &Gpt) -> Result<Entry> {
        let (config, plan) = (plain.config(), self.plan);
        let Observed { result, kept, peak, graph_nodes } = observe(self.meter, || batch_logits(plain, &plan.batch))?;
        drop(result);
        let again = values(batch_logits(plain, &plan.batch))?;
        let difference = difference(&again, &self.reference);
        drop(again);
        let times = self.times(|meter| Ok(meter.time(|| Ok(batch_logits(plain, &plan.batch)))?.1))?;
        Ok(Entry {
            predicted: self.predict(config).forward(),
            measured: Parts { logits_bytes: positive(kept), ..self.parts(peak) },
            operations: inference_operations(config),
            graph_nodes,
            flops: self.whole_flops(config),
            logits_difference: difference,
            ..timed(&FORWARD, plan.tokens(), times)
        })
    }

    fn forward_with_graph(&mut self, gpt: &Gpt) -> Result<Entry> {
        let (config, plan) = (gpt.config(), self.plan);
        // Run once before measuring: the buffers in which products of this precision keep packed
        // factors belong to the threads, not to the pass.
        free_graph(batch_logits(gpt, &plan.batch));
        DropoutMask::seed(plan.config.seed);
        let Observed { result: logits, kept, peak, graph_nodes } =
            observe(self.meter, || batch_logits(gpt, &plan.batch))?;
        let logits_bytes = 4 * logits.shape().num_elements() as i64;
        let difference = difference(&values(logits.clone().inner())?, &self.reference);
        free_graph(logits);
        let times = self.times(|meter| {
            let (logits, time_s) = meter.time(|| Ok(batch_logits(gpt, &plan.batch)))?;
            free_graph(logits);
            Ok(time_s)
        })?;
        Ok(Entry {
            predicted: Step::new(&plan.config, config, self.kernels).forward_with_graph(),
            measured: Parts {
                activations_bytes: positive(kept - logits_bytes),
                logits_bytes: positive(logits_bytes),
                ..self.parts(peak)
            },
            operations: prediction::operation_count(config) as u64,
            graph_nodes,
            flops: self.whole_flops(config),
            logits_difference: difference,
            ..timed(&FORWARD_WITH_GRAPH, plan.tokens(), times)
        })
    }

    fn score(&mut self, plain: &Gpt) -> Result<Entry> {
        let (config, plan) = (plain.config(), self.plan);
        let Batch { inputs, targets, context_length, .. } = &plan.batch;
        let run = || Ok(token_log_probabilities(plain, inputs, targets, *context_length)?);
        let Observed { result: logprobs, peak, graph_nodes, .. } = observe(self.meter, run)?;
        let by_reference = self.reference.chunks_exact(config.vocab_size).zip(targets);
        let by_reference =
            by_reference.map(|(logits, &id)| (f64::from(logits[id as usize]) - log_sum_exp(logits)) as f32);
        let difference = difference(&logprobs?, &by_reference.collect::<Vec<_>>());
        let times = self.times(|meter| Ok(meter.time(run)?.1))?;
        let chunks = plan.tokens().div_ceil((MAX_LOGITS / config.vocab_size).max(1));
        Ok(Entry {
            predicted: self.predict(config).score(),
            measured: self.parts(peak),
            // All operations but the head run once; then for each part of the positions: select
            // them, head, log-softmax, select the targets.
            operations: inference_operations(config) - 1 + 4 * chunks as u64,
            graph_nodes,
            flops: self.whole_flops(config),
            logits_difference: difference,
            ..timed(&SCORE, plan.tokens(), times)
        })
    }

    /// Steps with a learning rate of 0: the full work, and the same weights in every repetition.
    fn training_step(&mut self, mut gpt: Gpt) -> Result<Entry> {
        let plan = self.plan;
        let config = gpt.config().clone();
        let mut stepper = Stepper::new(&plan.config);
        let mut times = Vec::new();

        // No parameter requires a gradient, so no graph is left behind; dropout is active.
        DropoutMask::seed(plan.config.seed);
        let logits = batch_logits(&gpt.clone().no_grad(), &plan.batch);
        let difference = difference(&values(logits.inner())?, &self.reference);
        self.reference = Vec::new();

        let before = self.meter.begin_peak()?;
        gpt = stepper.step(gpt, &plan.batch);
        if stepper.optimizer.average().is_some() {
            // The first average shares the weights' memory: it has its own from the second step on.
            gpt = stepper.step(gpt, &plan.batch);
        }
        let remembered = self.meter.live()? - before;
        let average = 4 * stepper.optimizer.average().map_or(0, WeightAverage::values) as i64;

        let passes = stepper.passes(&gpt, 0);
        let mut predicted = Step::new(&plan.config, &config, self.kernels).parts();
        if passes.in_segments(plan.tokens() * config.vocab_size) {
            (predicted.activations_bytes, predicted.logits_bytes) = (0, 0);
        }

        // Phase by phase, with the moments in memory as in every step but the first.
        let before = self.meter.begin_peak()?;
        // The loss keeps the logits' gradient in place of the logits, and of the same size.
        let logits_bytes = predicted.logits_bytes as i64;
        let (gradients, kept, graph_nodes) = self.phases(&gpt, &passes, before, logits_bytes)?;
        let gradients_bytes = self.meter.live()? - before;
        (gpt, _) = stepper.follow(gpt, gradients); // its loss scale has been found by the steps before
        let peak = self.meter.peak()? - before;

        while times.len() < plan.repeats && times.iter().sum::<f64>() < ENOUGH_S {
            plan.proceed()?;
            let (stepped, time_s) = self.meter.time(|| Ok(stepper.step(gpt, &plan.batch)))?;
            gpt = stepped;
            times.push(time_s);
        }
        let forward = prediction::operation_count(&config);
        Ok(Entry {
            predicted,
            measured: Parts {
                weights_bytes: positive(self.weights + average),
                gradients_bytes: positive(gradients_bytes),
                moments_bytes: positive(remembered - average),
                activations_bytes: positive(kept),
                logits_bytes: positive(logits_bytes),
                cache_bytes: 0,
                peak_bytes: positive(self.weights + remembered + peak),
            },
            // Forward and loss, the backward of each, one update per parameter tensor.
            operations: (2 * (forward + 1) + gpt.parameters().len()) as u64,
            graph_nodes,
            flops: flops::training(self.whole_flops(&config)),
            logits_difference: difference,
            ..timed(&TRAINING_STEP, plan.tokens(), times)
        })
    }

    /// The gradient, the bytes of activations that the graph keeps beside the logits, and the
    /// number of its nodes. A pass in segments never keeps all activations at once: then they are 0.
    fn phases(
        &mut self,
        gpt: &Gpt,
        passes: &Passes,
        before: i64,
        logits_bytes: i64,
    ) -> Result<(GradientsParams, i64, u64)> {
        let batch = &self.plan.batch;
        if passes.in_segments(self.plan.tokens() * gpt.config().vocab_size) {
            let (gradients, graph_nodes) = nodes_made(|| of_batch(gpt, batch, passes).gradients);
            return Ok((gradients, 0, graph_nodes));
        }
        let forward = || pass_forward(gpt, batch, passes.first_pass, passes.divisor(1), passes);
        let (loss, graph_nodes) = nodes_made(forward);
        let kept = self.meter.live()? - before - logits_bytes;
        let mut gradients = GradientsAccumulator::new();
        pass_backward(gpt, loss.objective, &mut gradients);
        Ok((accumulated(gpt, gradients, passes), kept, graph_nodes))
    }
}

/// Operations of one inference pass, without dropout.
fn inference_operations(config: &GptConfig) -> u64 {
    prediction::operation_count(&GptConfig { dropout: 0.0, ..config.clone() }) as u64
}

#[cfg(test)]
mod tests {
    #[test]
    fn nan_differs_from_every_logit() {
        let difference = super::difference;
        assert_eq!(difference(&[1.0, 2.0], &[1.5, 2.0]), 0.5);
        assert_eq!(difference(&[f32::NAN, 2.0], &[1.5, 2.0]), f64::INFINITY);
        assert_eq!(difference(&[1.0, 2.0], &[1.5, f32::NAN]), f64::INFINITY);
    }
}
