//! Predicts the memory of training from everything in the configuration that changes it: precision,
//! activation checkpointing, passes, optimizer, average of the weights.
//!
//! A step is the walk back through the operations that [`super`] describes, in bytes, over one
//! graph or segment by segment.

use ember_model::{GptConfig, operations::Operations};

use super::walk::{Costs, Walk};
use super::{Kernels, Parts, Prediction, Sizes, bytes};
use crate::config::{Precision, TrainConfig};
use crate::evaluation_batch::rows_at_once;
use crate::step::gradient::{LOGITS_OF_A_PIECE, positions_of_a_piece};
use crate::step::optimizer::OptimizerConfig;

/// The memory of training by `config`, with the peak of a step, an evaluation or a save, whichever
/// is largest.
///
/// `shape` is the model's shape for `config` and the vocabulary. On a GPU a save uses the host's
/// memory, which is not counted.
pub fn training(config: &TrainConfig, shape: &GptConfig, kernels: Kernels) -> Parts {
    let step = Step::new(config, shape, kernels).parts();
    let [evaluating, saving] = evaluation_and_save(&step, config.context_length, shape, kernels);
    Parts { peak_bytes: step.peak_bytes.max(evaluating).max(saving), ..step }
}

/// When training by `config` needs the most memory, as in "in a step", and the parts of that.
pub fn worst(config: &TrainConfig, shape: &GptConfig, kernels: Kernels) -> (&'static str, Vec<(&'static str, u64)>) {
    let step = Step::new(config, shape, kernels).parts();
    let [evaluating, saving] = evaluation_and_save(&step, config.context_length, shape, kernels);
    if step.peak_bytes >= evaluating.max(saving) {
        return ("in a step", step.named_of_training().to_vec());
    }
    let lasting = [("weights", step.weights_bytes), ("moments", step.moments_bytes)];
    let (moment, work, peak) = match evaluating >= saving {
        true => ("in an evaluation", "activations", evaluating),
        false => ("in a save", "copy of the moments", saving),
    };
    let work = (work, peak - step.weights_bytes - step.moments_bytes);
    (moment, lasting.into_iter().chain([work]).collect())
}

/// The peaks of an evaluation and of a save, including weights and moments.
fn evaluation_and_save(step: &Parts, time: usize, shape: &GptConfig, kernels: Kernels) -> [u64; 2] {
    let lasting = step.weights_bytes + step.moments_bytes;
    let sizes = Sizes { batch: rows_at_once(time, shape.vocab_size), time };
    let scoring = Prediction { config: shape, sizes, kernels }.score();
    let evaluating = lasting + scoring.peak_bytes - scoring.weights_bytes;
    // The moments are copied out to be written.
    let saving = if kernels.are_on_gpu() { 0 } else { lasting + step.moments_bytes };
    [evaluating, saving]
}

/// The forward pass in bytes.
struct ForwardCosts {
    embedding: Vec<Costs>,
    /// One of the blocks.
    block: Vec<Costs>,
    /// The last norm.
    norm: Costs,
    head: Costs,
    /// What the graph of everything before the last norm keeps.
    below: u64,
}

fn keeps(operations: &[Costs]) -> u64 {
    operations.iter().map(|operation| operation.keeps).sum()
}

/// One step of training.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The model's shape.
    pub shape: &'a GptConfig,
    /// Windows of one pass, and tokens in each.
    pub sizes: Sizes,
    /// Where the kernels run.
    pub kernels: Kernels,
    /// The type of the matrix products.
    pub precision: Precision,
    /// Whether only the blocks' inputs are kept.
    pub activation_checkpointing: bool,
    /// Whether gradients of earlier passes are held while a pass is computed.
    pub several_passes: bool,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
}

impl<'a> Step<'a> {
    /// The step of a run.
    pub fn new(config: &TrainConfig, shape: &'a GptConfig, kernels: Kernels) -> Self {
        Self {
            shape,
            sizes: Sizes { batch: config.micro_batch, time: config.context_length },
            kernels,
            precision: config.precision,
            activation_checkpointing: config.activation_checkpointing,
            several_passes: config.micro_batch < config.windows_per_step(),
            optimizer: config.into(),
        }
    }

    /// The memory of the whole step: forward, loss, backward, optimizer.
    pub fn parts(&self) -> Parts {
        let parameters = self.shape.parameters();
        let weights_bytes = bytes(parameters) * if self.optimizer.ema_decay > 0.0 { 2 } else { 1 };
        let moments_bytes = bytes(self.moments());
        let earlier = if self.several_passes { bytes(parameters) } else { 0 };
        let working = match self.kernels {
            Kernels::Cpu => self.working_peak(),
            Kernels::Gpu { .. } => self.activations() + self.logits_bytes() + self.head_gradients_on_gpu(),
        };
        // The optimizer needs all gradients and its own working memory, after the passes have
        // ended.
        let stepping = bytes(parameters) + self.optimizer_work();
        Parts {
            weights_bytes,
            gradients_bytes: bytes(parameters),
            moments_bytes,
            activations_bytes: self.activations(),
            logits_bytes: self.logits_bytes(),
            cache_bytes: 0,
            peak_bytes: weights_bytes + moments_bytes + stepping.max(earlier + working),
        }
    }

    /// The memory of a forward pass with its whole graph.
    pub fn forward_with_graph(&self) -> Parts {
        let forward = self.forward_costs();
        let activations_bytes = forward.below + forward.norm.keeps + forward.head.keeps;
        let (weights_bytes, logits_bytes) =
            (bytes(self.shape.parameters()), bytes(self.positions() * self.shape.vocab_size));
        let work = if self.kernels.are_on_gpu() { 0 } else { forward.head.forward_work };
        Parts {
            weights_bytes,
            activations_bytes,
            logits_bytes,
            peak_bytes: weights_bytes + (activations_bytes + logits_bytes + work).max(self.peak_before_head(&forward)),
            ..Parts::default()
        }
    }

    /// The peak of a forward pass in a half type before the head: what is kept so far, and an
    /// operation's float32 copies and output.
    fn peak_before_head(&self, forward: &ForwardCosts) -> u64 {
        if !self.is_half() || self.kernels.are_on_gpu() {
            return 0;
        }
        let (mut kept, mut peak) = (0, 0);
        for op in std::iter::repeat_n(&forward.block, self.shape.n_layer).flatten() {
            kept += op.keeps;
            peak = peak.max(kept + self.stream() + op.forward_work + op.output);
        }
        peak
    }

    /// Values of the optimizer's running means: Muon has one for each value of a block's matrix,
    /// AdamW two for each parameter.
    fn moments(&self) -> usize {
        2 * self.shape.parameters() - self.muon_matrices().iter().sum::<usize>() * self.shape.n_layer
    }

    /// The optimizer's working memory beside weights, moments and gradients: Muon's
    /// orthogonalisation holds the matrix, its square and the terms of a polynomial of both. A GPU
    /// steps the same matrix of all blocks together, or of as many as one buffer holds, in the type
    /// of the matrix products.
    fn optimizer_work(&self) -> u64 {
        let largest = self.muon_matrices().into_iter().max().unwrap_or(0);
        let Kernels::Gpu { most_values, .. } = self.kernels else { return bytes(5 * largest) };
        let in_float32 = bytes(largest * self.shape.n_layer);
        let together = if self.precision == Precision::Bf16 { in_float32 / 2 } else { in_float32 };
        4 * together.min(4_u64.saturating_mul(most_values as u64))
    }

    /// Sizes of the matrices of one block, if Muon steps them.
    fn muon_matrices(&self) -> Vec<usize> {
        let sizes = || self.shape.operations().matrices_of_a_block().map(|[n_in, n_out]| n_in * n_out).collect();
        self.optimizer.muon.map_or_else(Vec::new, |_| sizes())
    }

    /// Positions of one pass.
    fn positions(&self) -> usize {
        self.sizes.batch * self.sizes.time
    }

    /// Bytes of the residual stream.
    fn stream(&self) -> u64 {
        bytes(self.positions() * self.shape.n_embd)
    }

    /// Positions of a piece, if the head and the loss are computed in pieces.
    fn piece(&self) -> Option<usize> {
        let most_logits = match self.kernels {
            Kernels::Cpu => LOGITS_OF_A_PIECE,
            Kernels::Gpu { most_logits, .. } => most_logits,
        };
        positions_of_a_piece(self.positions(), self.shape.vocab_size, most_logits)
    }

    /// Bytes of the logits that exist at once.
    fn logits_bytes(&self) -> u64 {
        let float32 = bytes(self.piece().unwrap_or(self.positions()) * self.shape.vocab_size);
        if self.is_half() && self.kernels.are_on_gpu() { float32 / 2 } else { float32 }
    }

    fn is_half(&self) -> bool {
        self.precision != Precision::F32
    }

    fn forward_costs(&self) -> ForwardCosts {
        let tied = if self.shape.tied_head { bytes(self.shape.vocab_size * self.shape.n_embd) } else { 0 };
        let Operations { embedding, block, n_layer, head } = self.shape.operations();
        let [embedding, block, head] = [embedding, block, head].map(|operations| {
            let costs = operations.iter().map(|op| Costs::new(op, self.sizes, self.precision, tied));
            costs.collect::<Vec<_>>()
        });
        let below = keeps(&embedding) + n_layer as u64 * keeps(&block);
        let Ok([norm, head]) = <[Costs; 2]>::try_from(head) else { unreachable!("the head is a norm and a product") };
        ForwardCosts { embedding, block, norm, head, below }
    }

    /// The most that is kept from the forward pass for the backward pass.
    fn activations(&self) -> u64 {
        let ForwardCosts { block, norm, head, below, .. } = self.forward_costs();
        if self.activation_checkpointing {
            // At the last block: the inputs of the blocks before it, and its own graph.
            return self.inputs_of_blocks(self.shape.n_layer - 1) + keeps(&block);
        }
        below + norm.keeps + if self.piece().is_some() { 0 } else { head.keeps }
    }

    /// On a GPU: the head's gradient of one piece and the sum of those before it. The gradient of
    /// the logits overwrites the logits.
    fn head_gradients_on_gpu(&self) -> u64 {
        if self.piece().is_some() { bytes(2 * self.shape.vocab_size * self.shape.n_embd) } else { 0 }
    }

    /// The peak between the beginning of a pass and the end of its backward pass, beside weights
    /// and moments.
    fn working_peak(&self) -> u64 {
        let forward = self.forward_costs();
        let below =
            if self.activation_checkpointing { self.inputs_of_blocks(self.shape.n_layer) } else { forward.below };
        let mut walk = Walk { kept: below + forward.norm.keeps + forward.head.keeps, ..Walk::default() };
        if let Some(piece) = self.piece() {
            self.head_in_pieces(&forward.head, piece, &mut walk);
            walk.kept -= forward.head.keeps;
        } else {
            walk.record(self.logits_bytes() + forward.head.forward_work);
            walk.back(&forward.head);
        }
        walk.back(&forward.norm);
        for before in (0..self.shape.n_layer).rev() {
            if self.activation_checkpointing {
                // The block's own graph is rebuilt now.
                walk.kept = self.inputs_of_blocks(before) + keeps(&forward.block);
            }
            walk.back_all(&forward.block);
        }
        walk.back_all(&forward.embedding);
        walk.peak
    }

    /// What activation checkpointing keeps of the first `count` blocks: their inputs.
    fn inputs_of_blocks(&self, count: usize) -> u64 {
        count as u64 * self.stream()
    }

    /// The head and the loss, computed in pieces of `piece` positions: forward, and at once backward,
    /// so that the logits of one piece exist at a time. In use beside what the walk holds, in
    /// float32, where `input` and `table` are the gradients of the head's whole input and of its
    /// table, and `count` is the number of pieces:
    ///
    /// ```text
    /// forward of a piece     logits + earlier
    /// its gradients          logits + input / count + table + earlier
    /// sum of tables          3 table + input      (if count > 1)
    /// concatenated input     table + 2 input
    ///
    /// earlier (gradients of the pieces before the last, if two pieces are full; else 0)
    ///                        table + input (count - 1) / count
    /// ```
    ///
    /// In float16, the first two rows also have copies in another type. In bfloat16, two moments
    /// take the place of the second row, where `float32` is the gradient of the whole input in
    /// float32:
    ///
    /// ```text
    /// rounding of the logits' gradient     logits + logits / 2 + earlier
    /// other gradients                      logits / 2 + 1.5 float32 / count + table + earlier
    /// ```
    ///
    /// In both half types, `input` has the half type in the other rows.
    fn head_in_pieces(&self, head: &Costs, piece: usize, walk: &mut Walk) {
        let (count, logits) = (self.positions().div_ceil(piece) as u64, self.logits_bytes());
        let table = bytes(self.shape.vocab_size * self.shape.n_embd);
        // The gradient of the head's input has the type of the products.
        let input = if self.is_half() { self.stream() / 2 } else { self.stream() };
        // That of one piece is in float32 first.
        let input_of_piece = head.input / count;
        // During the second of two full pieces, the gradients of the first are held.
        let has_two_full = self.positions() >= 2 * piece;
        let earlier = if has_two_full { table + input * (count - 1) / count } else { 0 };
        let forward = logits + head.forward_work;
        let gradients = if self.precision == Precision::Bf16 {
            // The logits' gradient is rounded and its float32 form freed before others are
            // computed.
            let rounding = logits + logits / 2;
            let others = logits / 2 + input_of_piece + input_of_piece / 2 + table;
            rounding.max(others)
        } else {
            logits + input_of_piece + head.work + table
        };
        walk.record(forward.max(gradients) + earlier);
        // After the logits are freed: two gradients of the table are added into a third, and those
        // of the input are concatenated.
        let sum_of_tables = if count > 1 { 3 * table + input } else { 0 };
        let concatenated_input = table + 2 * input;
        walk.record(sum_of_tables.max(concatenated_input));
        walk.gradients += table;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::optimizer::{AdamWConfig, MuonConfig};
    use burn::tensor::FloatDType;
    use proptest::prelude::*;

    fn step<'a>(shape: &'a GptConfig, sizes: Sizes) -> Step<'a> {
        Step {
            shape,
            sizes,
            kernels: Kernels::Cpu,
            precision: Precision::F32,
            activation_checkpointing: false,
            several_passes: false,
            optimizer: AdamWConfig { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.1 }.into(),
        }
    }

    /// A GPU whose buffers hold all logits of these tests.
    const GPU: Kernels = Kernels::Gpu { most_logits: 1 << 28, most_values: usize::MAX };

    /// 16 positions of 50 logits each.
    #[test]
    fn a_gpu_has_no_more_logits_at_once_than_its_buffers_hold() {
        let shape = GptConfig::new(50, 8, 1, 1, 8);
        let logits = |most_logits| {
            let kernels = Kernels::Gpu { most_logits, most_values: usize::MAX };
            Step { kernels, ..step(&shape, Sizes { batch: 2, time: 8 }) }.parts().logits_bytes
        };
        assert_eq!([1 << 28, 799, 100].map(logits), [4 * 800, 4 * 400, 4 * 100]);
    }

    /// Four layers, whose largest matrix has 8 x 32 values.
    #[test]
    fn muon_on_a_gpu_steps_together_what_a_buffer_holds() {
        let shape = GptConfig::new(50, 8, 4, 1, 8);
        let muon = MuonConfig { relative_rate: 10.0, momentum: 0.95, weight_decay: 0.1, precision: FloatDType::F32 };
        let work = |most_values, precision| {
            let plain = step(&shape, Sizes { batch: 1, time: 8 });
            let optimizer = OptimizerConfig { muon: Some(muon), ..plain.optimizer };
            let kernels = Kernels::Gpu { most_logits: 1 << 28, most_values };
            Step { kernels, precision, optimizer, ..plain }.optimizer_work()
        };
        let most = [usize::MAX, 1024, 1023, 256];
        assert_eq!(most.map(|most| work(most, Precision::F32)), [1024, 1024, 1023, 256].map(|values| 4 * 4 * values));
        assert_eq!(most.map(|most| work(most, Precision::Bf16)), [1024, 1024, 1024, 512].map(|values| 4 * 2 * values));
    }

    /// One layer with one head, two wide, on one row of three tokens: n = 6, and 3 rows of
    /// attention.
    #[test]
    fn a_tiny_model_by_hand() {
        let shape = GptConfig::new(5, 4, 1, 1, 2);
        let training = step(&shape, Sizes { batch: 1, time: 3 }).parts();
        // 10 + 8 for the tables, 74 for the block, 4 for ln_f.
        assert_eq!(training.weights_bytes, 4 * 96);
        assert_eq!((training.gradients_bytes, training.moments_bytes), (4 * 96, 8 * 96));
        // ln_1 6, c_attn 6, attention 18 + 3, c_proj 6, ln_2 6, c_fc 6, gelu 24, c_proj 24; ln_f 6,
        // lm_head 6.
        assert_eq!(training.activations_bytes, 4 * 111);
        // At the head 111 + 15 + 6 + 10 = 142: all activations, and the gradients of logits, input
        // and weights. The peak is at the block's last product: activations 111 - 12, gradients 10
        // + 4, the residual stream's 6 (its own dy is the same), and those of its input 24 and its
        // parameters 18.
        assert_eq!(training.peak_bytes, 4 * (3 * 96 + 99 + 14 + 6 + 24 + 18));
    }

    proptest! {
        #[test]
        fn savings_save_and_an_average_is_a_copy(
            n_layer in 2usize..5, head in 1usize..4, width in 1usize..9, vocab in 2usize..60, batch in 1usize..4, time in 8usize..40,
        ) {
            let shape = GptConfig::new(vocab, 64, n_layer, head, 8 * head * width);
            let sizes = Sizes { batch, time };
            for kernels in [Kernels::Cpu, GPU] {
                let plain = Step { kernels, ..step(&shape, sizes) };
                let checkpointed = Step { activation_checkpointing: true, ..plain };
                prop_assert!(checkpointed.parts().activations_bytes <= plain.parts().activations_bytes);
                let optimizer = OptimizerConfig { ema_decay: 0.9, ..plain.optimizer };
                let averaged = Step { optimizer, ..plain };
                prop_assert_eq!(averaged.parts().peak_bytes, plain.parts().peak_bytes + bytes(shape.parameters()));
            }
        }

        #[test]
        fn more_of_anything_never_needs_less(
            n_layer in 1usize..4, head in 1usize..4, width in 1usize..9, vocab in 2usize..60, batch in 1usize..4, time in 2usize..20,
            dropout in prop::bool::ANY,
        ) {
            let mut shape = GptConfig::new(vocab, 32, n_layer, head, head * width);
            shape.dropout = if dropout { 0.1 } else { 0.0 };
            let deeper = GptConfig { n_layer: n_layer + 1, ..shape.clone() };
            for kernels in [Kernels::Cpu, GPU] {
                let peaks = |shape: &GptConfig, sizes: Sizes| {
                    let step = Step { kernels, ..step(shape, sizes) };
                    [step.parts(), step.forward_with_graph()].map(|parts| parts.peak_bytes)
                };
                let sizes = Sizes { batch, time };
                let [training, graph] = peaks(&shape, sizes);
                let forward = Prediction { config: &shape, sizes, kernels }.forward().peak_bytes;
                prop_assert!(training >= graph && graph >= forward, "{training} {graph} {forward}");
                for more in [
                    peaks(&shape, Sizes { batch: batch + 1, time }),
                    peaks(&shape, Sizes { batch, time: time + 1 }),
                    peaks(&deeper, sizes),
                ] {
                    prop_assert!(training <= more[0] && graph <= more[1], "{training} {graph} {more:?}");
                }
            }
        }
    }
}
