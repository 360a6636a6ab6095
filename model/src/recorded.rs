//! A decoding step that a GPU has recorded. A step is some hundred short launches, always the same;
//! to issue each of them takes longer than to compute many. So after a few steps they are recorded
//! (a CUDA graph; wgpu's own list of commands), and from then on the host only writes down what is
//! new, the rows' tokens and the places of their positions, and has the whole replayed.

#![allow(unsafe_code)] // a list of commands runs again

use burn::tensor::{DType, Device, Graph, Int, Tensor, capture};

use crate::{Gpt, KvCache};
use ember_kernels::{CachedAttention, gpu::tensor::overwrite, is_cpu};

/// The environment variable that, set to `off`, has every step's launches issued anew: to see what
/// replaying gains, or to do without.
pub const VARIABLE: &str = "EMBER_REPLAY";

/// Whether steps are to be recorded, as the environment has it.
///
/// # Errors
/// A line that says what the variable can be.
pub fn wanted() -> Result<bool, String> {
    match std::env::var_os(VARIABLE) {
        None => Ok(true),
        Some(value) if value == "off" => Ok(false),
        Some(value) if value == "on" => Ok(true),
        Some(value) => Err(format!(
            "the environment variable {VARIABLE} is {value:?}, not on or off; unset it to have steps replayed"
        )),
    }
}

/// One new token in each of so many rows: the launches, and where they read and write.
pub struct RecordedStep {
    graph: Graph<Tensor<2>, Box<dyn FnMut() -> Tensor<2>>>,
    inputs: Inputs,
    /// Most positions of a row that the launches were made for.
    longest: usize,
    /// [`KvCache::moves`] at the time.
    moves: usize,
}

/// What the launches read, on the device.
#[derive(Clone)]
struct Inputs {
    /// `[1, rows]`
    ids: Tensor<2, Int>,
    /// `[1, rows]`
    positions: Tensor<2, Int>,
    /// Where the rows stand in the cache; room for rows of the greatest length.
    table: Tensor<1, Int>,
}

impl Inputs {
    fn new(rows: usize, longest: usize, device: &Device) -> Self {
        let row = || Tensor::zeros([1, rows], (device, DType::I32));
        Self { ids: row(), positions: row(), table: Tensor::zeros([1 + rows * (2 + longest)], (device, DType::I32)) }
    }

    /// Puts the next token of every row there, and gives each a place in the cache.
    fn write(&self, tokens: &[u32], cache: &mut KvCache) {
        overwrite(&self.ids, tokens.iter().map(|&id| id as i32).collect());
        overwrite(&self.positions, (0..tokens.len()).map(|row| cache.len(row) as i32).collect());
        overwrite(&self.table, cache.reserve(&vec![1; tokens.len()]).table());
    }
}

impl RecordedStep {
    /// Gives every row of `cache` its next token, as [`Gpt::forward_cached`] does, and records the
    /// launches. What comes out ([`Self::output`]), now and later, is what `read_out` makes of the
    /// logits `[rows, vocab_size]`. Until the step is dropped, the cache may be used through it
    /// alone.
    ///
    /// `None` when the device could not record; what was in the cache may then be lost.
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
        // Every step takes a slot for each row, so no row gets longer than this before there is no
        // room for a step.
        let most = (0..rows).map(|row| cache.len(row)).max().unwrap_or(0) + cache.room() / rows;
        let longest = most.min(gpt.config().context_length);
        let inputs = Inputs::new(rows, longest, &device);
        // Before the rest: the launches are tried out before they are recorded, and write keys and
        // values.
        inputs.write(tokens, cache);
        let attention = CachedAttention::recorded(rows, longest, inputs.table.clone());
        let (gpt, layers, read) = (gpt.clone(), cache.shared(), inputs.clone());
        let angles = gpt.rotary(0..longest, &device);
        // One new token in each row; all that is read is on the device, the angles of all positions
        // that there will be among it.
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
        let mut recorded = Self { graph, inputs, longest, moves: cache.moves };
        // What was put into a recording that then failed is marked as never computed, the cache
        // among it.
        if !recorded.graph.is_hardware() {
            return None;
        }
        recorded.replay();
        Some(recorded)
    }

    /// Whether the next step of `cache` may be recorded: on a GPU, after a pass that has read
    /// something into every row, with room for another token in each.
    pub fn can_record(gpt: &Gpt, cache: &KvCache) -> bool {
        let rows = cache.rows();
        !is_cpu(&gpt.device())
            && rows > 0
            && cache.room() >= rows
            && (0..rows).all(|row| (1..gpt.config().context_length).contains(&cache.len(row)))
    }

    /// Whether the next step of the cache that this was recorded for can be this one.
    pub fn fits(&self, cache: &KvCache) -> bool {
        let [_, rows] = self.inputs.ids.dims();
        cache.rows() == rows
            && cache.moves == self.moves
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

    /// What came out of the last step; the next one overwrites it.
    pub fn output(&self) -> Tensor<2> {
        self.graph.output().clone()
    }

    fn replay(&mut self) {
        // SAFETY: the closure owns the weights, the cache's tensors and the inputs, so all that the
        // launches touch is alive. They run on this thread's stream, which neither this nor the
        // closure can leave, and nobody else uses the cache meanwhile: see `record`.
        unsafe { self.graph.replay() };
    }
}
