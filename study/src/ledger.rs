//! The ledger: one batch through the same weights in every mode of use, and what each costs.
//!
//! Nothing is built for show: every mode calls the functions that training, scoring and generation
//! call, and the ledger only takes times and reads the memory. [`modes`] are the ways to use a
//! model, [`meter`] measures them, [`ember_training::memory::prediction`] predicts their memory,
//! and [`flops`] counts their operations. [`table`] and [`page`] show the results.

mod facts;
pub mod flops;
pub mod growth;
pub mod meter;
pub mod modes;
pub mod page;
mod picture;
pub mod table;

use ember_model::GptConfig;
use serde::Serialize;

use ember_training::{memory::prediction::Parts, units::counted, units::grouped};
use meter::MeasuredBy;

/// One way to use the model, measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Entry {
    /// Its name, as in `training_step`.
    pub mode: &'static str,
    /// Median seconds of its repetitions, after one that does not count.
    pub time_s: f64,
    /// The fastest.
    pub time_min_s: f64,
    /// The slowest.
    pub time_max_s: f64,
    /// How often it was timed: fewer times than requested if that would take long.
    pub repeats: u64,
    /// Number of tokens read, scored, prefilled or decoded.
    pub tokens: u64,
    /// Tokens per second, at the median time.
    pub tokens_per_s: f64,
    /// Memory as [`ember_training::memory::prediction`] predicts it.
    pub predicted: Parts,
    /// Memory as measured.
    pub measured: Parts,
    /// Operations of the model's forward and, in training, of the backward, the loss and the
    /// optimizer.
    pub operations: u64,
    /// Operations that burn recorded in its graph; 0 without a graph.
    pub graph_nodes: u64,
    /// Floating-point operations of the matrix products, by [`flops`].
    pub flops: f64,
    /// The largest difference of its logits from those of the forward without a graph, at the same
    /// positions; for a score, of its log-probabilities. Infinite if one of them is NaN.
    pub logits_difference: f64,
    /// What is random in it.
    pub random: &'static str,
    /// What it returns.
    pub returns: &'static str,
    /// Where it is implemented: file and function.
    #[serde(rename = "where")]
    pub places: &'static [Place],
}

/// A function and its file, from the root of the repository.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Place {
    /// The file.
    pub file: &'static str,
    /// The function's name.
    pub function: &'static str,
}

/// What was measured, and where.
#[derive(Clone, Debug, Serialize)]
pub struct Subject {
    /// Where the weights come from: a folder, or a recipe with random weights.
    pub model: String,
    /// Number of parameters.
    pub parameters: u64,
    /// The model's shape.
    pub shape: GptConfig,
    /// Rows of the batch.
    pub batch_size: u64,
    /// Tokens in each row.
    pub time: u64,
    /// Tokens of each row that are decoded one by one.
    pub new_tokens: u64,
    /// Whether the tokens are text of the run, or ids drawn at random.
    pub real_text: bool,
    /// The device, as [`DeviceChoice`](ember_model::device::DeviceChoice) writes it.
    pub device: String,
    /// The name that the device reports.
    pub device_name: String,
    /// How often each mode was to be timed.
    pub repeats: u64,
    /// Where the byte counts come from.
    pub measured_by: MeasuredBy,
}

impl Subject {
    /// The subject in three sentences.
    pub fn sentence(&self) -> String {
        let GptConfig { n_layer, n_head, n_kv_head, n_embd, vocab_size, dropout, .. } = &self.shape;
        let keys = if n_kv_head == n_head { String::new() } else { format!(" ({n_kv_head} of keys and values)") };
        format!(
            "{}: {} parameters, {} of {}{keys}, {n_embd} wide, {} tokens, dropout {dropout}.\n\
             {} of {} {}; the last {} of each row decoded one by one.\nOn {}.",
            self.model,
            grouped(self.parameters),
            counted(n_layer, "layer"),
            counted(n_head, "head"),
            grouped(*vocab_size as u64),
            counted(self.batch_size, "row"),
            self.time,
            if self.real_text { "tokens of its text" } else { "random token ids" },
            self.new_tokens,
            self.device_name,
        )
    }
}
