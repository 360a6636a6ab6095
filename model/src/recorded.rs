//! A decoding step recorded on a GPU. A step consists of some hundred short launches, always the
//! same, and issuing each of them takes longer than computing many. So after a few steps the
//! launches are recorded (a CUDA graph; wgpu's own list of commands). From then on the host only
//! writes the new inputs, the rows' tokens and the slots of their positions, and replays the
//! recording.

#![allow(unsafe_code)] // replays recorded launches

use burn::tensor::{DType, Device, Graph, Int, Tensor, capture};

use crate::{Gpt, KvCache};
use ember_kernels::{CachedAttention, CachedRows, gpu::tensor::overwrite, is_cpu};

/// The environment variable that, set to `off`, has every step's launches issued anew: to measure
/// what replaying gains, or to do without it.
pub const VARIABLE: &str = "EMBER_REPLAY";

/// Whether the environment lets steps be recorded.
///
/// # Errors
/// When the variable has an unknown value; the line says what it can be.
pub fn is_allowed() -> Result<bool, String> {
    match std::env::var_os(VARIABLE) {
        None => Ok(true),
        Some(value) if value == "off" => Ok(false),
        Some(value) if value == "on" => Ok(true),
        Some(value) => Err(format!(
            "the environment variable {VARIABLE} is {value:?}, not on or off; unset it to have steps replayed"
        )),
    }
}

/// A recorded step of one new token for each of a fixed number of rows, with its inputs.
pub struct RecordedStep {
    graph: Graph<Tensor<2>, Box<dyn FnMut() -> Tensor<2>>>,
    inputs: Inputs,
    /// The longest row, in positions, that the launches support.
    longest: usize,
    /// [`KvCache::compactions`] at the time.
    compactions: usize,
}

/// The launches' inputs, on the device.
#[derive(Clone)]
struct Inputs {
    /// `[1, rows]`
    ids: Tensor<2, Int>,
    /// `[1, rows]`
    positions: Tensor<2, Int>,
    /// [`CachedRows::table`], with room for rows of the greatest length.
    table: Tensor<1, Int>,
}

impl Inputs {
    fn new(rows: usize, longest: usize, device: &Device) -> Self {
        let row = || Tensor::zeros([1, rows], (device, DType::I32));
        let table = Tensor::zeros([CachedRows::table_length(rows, rows * longest)], (device, DType::I32));
        Self { ids: row(), positions: row(), table }
    }

    /// Writes the next token of every row, and reserves a slot in the cache for each.
    fn write(&self, tokens: &[u32], cache: &mut KvCache) {
        overwrite(&self.ids, tokens.iter().map(|&id| id as i32).collect());
        overwrite(&self.positions, (0..tokens.len()).map(|row| cache.len(row) as i32).collect());
        overwrite(&self.table, cache.reserve(&vec![1; tokens.len()]).table());
    }
}

impl RecordedStep {
    /// Gives every row of `cache` its next token, as [`Gpt::forward_cached`] does, and records the
    /// launches. The output of this step and of later ones ([`Self::output`]) is `read_out` of the
    /// logits `[rows, vocab_size]`. Until the step is dropped, only it may use the cache.
    ///
    /// `None` if the device could not record; the cache's contents may then be lost.
    ///
    /// # Panics
    /// When [`Self::can_record`] is false, or there is not one token for each row.
    pub fn record(
        gpt: &Gpt,
        tokens: &[u32],
        cache: &mut KvCache,
        read_out: fn(Tensor<2>) -> Tensor<2>,
    ) -> Option<Self> {
        assert!(Self::can_record(gpt, cache), "a step that cannot be recorded");
        assert_eq!(tokens.len(), cache.rows(), "one token for each row");
        let (device, rows) = (gpt.device(), tokens.len());
        // Every step takes a slot for each row, so no row gets longer than this before the slots
        // run out.
        let most = (0..rows).map(|row| cache.len(row)).max().unwrap_or(0) + cache.room() / rows;
        let longest = most.min(gpt.config().context_length);
        let inputs = Inputs::new(rows, longest, &device);
        // Before capturing, which tries the launches out: they write keys and values.
        inputs.write(tokens, cache);
        let attention = CachedAttention::recorded(rows, longest, inputs.table.clone());
        let (gpt, layers, read) = (gpt.clone(), cache.shared(), inputs.clone());
        let angles = gpt.rotary(0..longest, &device);
        // As `Gpt::hidden_cached`, with one new token in each row: what changes there must change
        // here. All inputs are on the device, including the rotary angles of all possible
        // positions.
        let step = move || {
            let mut x = gpt.wte.forward(read.ids.clone()); // [1, rows, n_embd]
            if let Some(wpe) = &gpt.wpe {
                x = x + wpe.forward(read.positions.clone());
            }
            let pass = gpt.pass(angles.as_ref().map(|angles| angles.select(read.positions.clone().flatten(0, 1))));
            for (block, cache) in gpt.h.iter().zip(&layers) {
                x = block.forward(x, &pass, |qkv| attention.attend(qkv, cache.clone(), gpt.config().heads()).0);
            }
            read_out(gpt.rows_of_logits(gpt.final_norm(x)))
        };
        let graph = capture(&device, Box::new(step) as Box<dyn FnMut() -> Tensor<2>>);
        let mut recorded = Self { graph, inputs, longest, compactions: cache.compactions };
        // After a failed recording, the tensors that took part, the cache's included, are marked as
        // never computed.
        if !recorded.graph.is_hardware() {
            return None;
        }
        recorded.replay();
        Some(recorded)
    }

    /// Whether the next step of `cache` can be recorded: on a GPU, when every row has positions,
    /// and there is room for another token in each.
    pub fn can_record(gpt: &Gpt, cache: &KvCache) -> bool {
        let rows = cache.rows();
        !is_cpu(&gpt.device())
            && rows > 0
            && cache.room() >= rows
            && (0..rows).all(|row| (1..gpt.config().context_length).contains(&cache.len(row)))
    }

    /// Whether this recording can run the next step of the cache that it was made for.
    pub fn fits(&self, cache: &KvCache) -> bool {
        let [_, rows] = self.inputs.ids.dims();
        cache.rows() == rows
            && cache.compactions == self.compactions
            && cache.room() >= rows
            && (0..rows).all(|row| cache.len(row) < self.longest)
    }

    /// Gives every row its next token.
    ///
    /// # Panics
    /// When the step does not fit, or there is not one token for each row.
    pub fn step(&mut self, tokens: &[u32], cache: &mut KvCache) {
        assert!(self.fits(cache) && tokens.len() == cache.rows(), "a step that was recorded for another cache");
        self.inputs.write(tokens, cache);
        self.replay();
    }

    /// The output of the last step; the next one overwrites it.
    pub fn output(&self) -> Tensor<2> {
        self.graph.output().clone()
    }

    fn replay(&mut self) {
        // SAFETY: the closure owns the weights, the cache's tensors and the inputs, so all memory
        // that the launches touch is alive. They run on this thread's stream, which neither this
        // nor the closure can leave, and nothing else uses the cache meanwhile: see `record`.
        unsafe { self.graph.replay() };
    }
}
