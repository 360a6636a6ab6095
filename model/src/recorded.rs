//! A decoding step that a GPU has recorded. A step is some hundred short launches, always the same; to issue each of them takes longer
//! than to compute many. So after a few steps they are recorded (a CUDA graph; wgpu's own list of commands), and from then on the host
//! only writes down what is new, the rows' tokens and the places of their positions, and has the whole replayed.

use burn::tensor::{DType, Device, Graph, Int, Tensor, capture};

use crate::kernels::{CachedAttention, overwrite};
use crate::{Gpt, KvCache};

/// The environment variable that, set to `off`, has every step's launches issued anew: to see what replaying gains, or to do without.
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
    /// Gives every row of `cache` its next token, as [`Gpt::forward_cached`] does, and records the launches. What comes out
    /// ([`Self::output`]), now and later, is what `of` makes of the logits `[rows, vocab_size]`.
    ///
    /// The cache must have room for the tokens, and until the step is dropped it may be used through it alone. On the CPU there is nothing
    /// to record; a device that cannot do so issues the launches anew at each step.
    pub fn record(gpt: &Gpt, tokens: &[u32], cache: &mut KvCache, of: fn(Tensor<2>) -> Tensor<2>) -> Self {
        let device = gpt.device();
        let longest = gpt.config().context_length.min(cache.slots());
        let inputs = Inputs::new(tokens.len(), longest, &device);
        // Before the rest: the launches are tried out before they are recorded, and write keys and values.
        inputs.write(tokens, cache);
        let attention = CachedAttention::recorded(tokens.len(), longest, inputs.table.clone());
        let (gpt, layers, rotary, read) = (gpt.clone(), cache.shared(), gpt.rotary_table(&device), inputs.clone());
        let step = move || {
            of(gpt.step_on_device([read.ids.clone(), read.positions.clone()], &layers, &attention, rotary.as_ref()))
        };
        let graph = capture(&device, Box::new(step) as Box<dyn FnMut() -> Tensor<2>>);
        let mut recorded = Self { graph, inputs, longest, moves: cache.moves() };
        recorded.replay();
        recorded
    }

    /// Whether the next step of the cache that this was recorded for can be this one.
    pub fn fits(&self, cache: &KvCache) -> bool {
        let [_, rows] = self.inputs.ids.dims();
        cache.rows() == rows
            && cache.moves() == self.moves
            && cache.has_room(rows)
            && (0..rows).all(|row| cache.len(row) < self.longest)
    }

    /// Gives every row its next token.
    pub fn step(&mut self, tokens: &[u32], cache: &mut KvCache) {
        self.inputs.write(tokens, cache);
        self.replay();
    }

    /// What came out of the last step; the next one overwrites it.
    pub fn output(&self) -> Tensor<2> {
        self.graph.output().clone()
    }

    /// Whether the device replays the launches by itself; else they are issued anew at each step.
    pub fn is_replayed(&self) -> bool {
        self.graph.is_hardware()
    }

    fn replay(&mut self) {
        // SAFETY: the closure owns the weights, the cache's tensors and the inputs, so all that the launches touch is alive; and all of
        // it is used on this thread's stream, since neither this nor the closure can be sent to another.
        unsafe { self.graph.replay() };
    }
}
