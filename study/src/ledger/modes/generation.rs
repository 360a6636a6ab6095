//! The modes of generation: prefill and decoding with the cache, and decoding without it.

use ember_decoding::{sequences::ModelSequences, sequences::Sequences, tokens::to_tensor};
use ember_model::Gpt;

use super::{Ledger, Observed, Plan, difference_at, inference_operations, observe, timed, values};
use crate::error::Result;
use crate::ledger::facts::{DECODE, DECODE_UNCACHED, PREFILL};
use crate::ledger::{Entry, flops, flops::attended, meter::nodes_made, meter::positive};
use ember_training::memory::prediction::{Parts, Sizes};

impl Ledger<'_> {
    pub(super) fn prefill_and_decode(&mut self, plain: &Gpt) -> Result<[Entry; 2]> {
        let (config, plan) = (plain.config(), self.plan);
        let Sizes { batch, time } = plan.sizes();
        let prompt = plan.prompt();
        let start = || ModelSequences::new(plain, &plan.rows(prompt), batch * time);

        // Measures the memory, and compares the logits of every new position.
        let before = self.meter.begin_peak()?;
        let mut sequences = start();
        let cache_bytes = self.meter.live()? - before;
        let (logits, prefill_nodes) = nodes_made(|| sequences.logits());
        let logits = logits?;
        let logits_bytes = self.meter.live()? - before - cache_bytes;
        let peak = self.meter.peak()? - before;
        let prefill_parts =
            Parts { cache_bytes: positive(cache_bytes), logits_bytes: positive(logits_bytes), ..self.parts(peak) };
        let prefill_difference = difference_at(&self.reference, plan.sizes(), prompt - 1, &logits);
        drop(logits);

        let mut largest: f64 = 0.0;
        let mut compare = |at, logits: Vec<f32>| {
            largest = largest.max(difference_at(&self.reference, plan.sizes(), at, &logits));
        };
        let decoded = observe(self.meter, || decode_known(&mut sequences, plan, &mut compare))?;
        decoded.result?;
        let decode_parts = Parts { peak_bytes: positive(self.weights + cache_bytes + decoded.peak), ..prefill_parts };
        let mut prefill_times = Vec::new();
        let decode_times = self.times(|meter| {
            let (mut sequences, prefill_s) = meter.time(|| {
                let mut sequences = start();
                sequences.logits()?;
                Ok(sequences)
            })?;
            prefill_times.push(prefill_s);
            Ok(meter.time(|| decode_known(&mut sequences, plan, &mut |_, _| ()))?.1)
        })?;

        let a_pass = inference_operations(config);
        let prefill = Entry {
            predicted: self.predict(config).prefill(prompt),
            measured: prefill_parts,
            operations: a_pass,
            graph_nodes: prefill_nodes,
            flops: flops::forward(config, batch * prompt, batch * attended(0, prompt), batch),
            logits_difference: prefill_difference,
            ..timed(&PREFILL, batch * prompt, prefill_times)
        };
        let new = batch * plan.new_tokens;
        let decode = Entry {
            predicted: self.predict(config).decode(),
            measured: decode_parts,
            operations: a_pass * plan.new_tokens as u64,
            graph_nodes: decoded.graph_nodes,
            flops: flops::forward(config, new, batch * attended(prompt, time), new),
            logits_difference: largest,
            ..timed(&DECODE, new, decode_times)
        };
        Ok([prefill, decode])
    }

    pub(super) fn decode_uncached(&mut self, plain: &Gpt) -> Result<Entry> {
        let (config, plan) = (plain.config(), self.plan);
        let Sizes { batch, time } = plan.sizes();
        let prompt = plan.prompt();
        let all = |each: &mut dyn FnMut(usize, Vec<f32>)| -> Result<()> {
            for len in prompt + 1..=time {
                plan.proceed()?;
                each(len - 1, logits_without_cache(plain, &plan.rows(len))?);
            }
            Ok(())
        };
        let mut largest: f64 = 0.0;
        let mut compare = |at, logits: Vec<f32>| {
            largest = largest.max(difference_at(&self.reference, plan.sizes(), at, &logits));
        };
        let Observed { result, peak, graph_nodes, .. } = observe(self.meter, || all(&mut compare))?;
        result?;
        let times = self.times(|meter| Ok(meter.time(|| all(&mut |_, _| ()))?.1))?;
        let each = (prompt + 1..=time).map(|len| flops::forward(config, batch * len, batch * attended(0, len), batch));
        Ok(Entry {
            predicted: self.predict(config).decode_uncached(),
            measured: self.parts(peak),
            operations: inference_operations(config) * plan.new_tokens as u64,
            graph_nodes,
            flops: each.sum(),
            logits_difference: largest,
            ..timed(&DECODE_UNCACHED, batch * plan.new_tokens, times)
        })
    }
}

/// Feeds the rest of the batch's rows one token at a time, as decoding does with chosen tokens;
/// `each` receives the position of the logits `[batch, vocab]`.
fn decode_known(sequences: &mut ModelSequences, plan: &Plan, each: &mut dyn FnMut(usize, Vec<f32>)) -> Result<()> {
    let time = plan.batch.context_length;
    for at in plan.prompt()..time {
        plan.proceed()?;
        for row in 0..plan.batch.batch_size {
            sequences.extend(row, &[plan.batch.inputs[row * time + at]]);
        }
        each(at, sequences.logits()?);
    }
    Ok(())
}

/// The logits `[rows, vocab]` after each of `rows`, all of one length, computed from their ids
/// alone: the cost of every new token without a cache.
pub fn logits_without_cache(plain: &Gpt, rows: &[&[u32]]) -> Result<Vec<f32>> {
    let tokens = to_tensor(rows, &plain.device());
    let [_, time] = tokens.dims();
    let hidden = plain.hidden(tokens).narrow(1, time - 1, 1); // [rows, 1, n_embd]
    values(plain.logits(hidden))
}
