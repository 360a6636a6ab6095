//! Simulates a backward pass, operation by operation, in bytes, to find its peak.

use ember_model::MlpKind;
use ember_model::operations::{Kind, Operation, Residual};

use super::{Sizes, bytes};
use crate::config::Precision;

/// One operation of the forward pass, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Whether it is the head, which produces the tied table's first gradient.
    pub is_head: bool,
    /// The gradient of its input.
    pub input: u64,
    /// The gradient of its output.
    pub output: u64,
    /// What it keeps for its backward pass.
    pub keeps: u64,
    /// The gradients of its parameters.
    pub parameters: u64,
    /// Further memory of its backward pass: copies in another type.
    pub work: u64,
    /// Further memory of its forward pass beside input and output: such copies too.
    pub forward_work: u64,
    /// The tied table's gradient, for the head and the embedding.
    pub tied: u64,
    pub residual: Residual,
}

impl Costs {
    /// The costs of an operation in this precision; `tied_table` is the size in bytes of a table
    /// that a tied head shares with the embedding, else 0.
    pub fn new(operation: &Operation, sizes: Sizes, precision: Precision, tied_table: u64) -> Self {
        let float32 = Self::in_float32(operation, sizes, tied_table);
        // Norms always compute in float32; an operation that keeps nothing costs the same in any
        // type.
        let is_float32 = float32.keeps == 0 || matches!(operation.kind, Kind::Norm { .. });
        if precision == Precision::F32 || is_float32 { float32 } else { float32.in_halves(operation, precision) }
    }

    /// The costs in float32. Kept are: the inputs of norms, matrix products and the MLP's
    /// activation; attention's input, the joint projection; and one number for each row of
    /// attention's weights `[batch, n_head, time]`. Attention's output is kept once, as the next
    /// product's input. Additions, embeddings, rotary positions (whose backward rotates back) and
    /// dropout (whose mask is recomputed) keep nothing. A tied head produces a second gradient of
    /// its table, beside the embedding's, until the two are added.
    fn in_float32(operation: &Operation, Sizes { batch, time }: Sizes, tied_table: u64) -> Self {
        let Operation { n_in, n_out, residual, .. } = *operation;
        let tokens = batch * time;
        // Position embeddings exist once per batch; rotation works in place.
        let (input, output) = match operation.kind {
            Kind::PositionLookup { .. } => (0, time * n_out),
            Kind::Rotate => (0, tokens * n_out),
            _ => (tokens * n_in, tokens * n_out),
        };
        let keeps = match operation.kind {
            Kind::Lookup { .. } | Kind::PositionLookup { .. } | Kind::Rotate | Kind::Dropout | Kind::Add => 0,
            Kind::Attention { n_head } => input + tokens * n_head,
            Kind::Norm { .. } | Kind::HeadNorms { .. } | Kind::Product { .. } => input,
            Kind::Activation | Kind::Head { .. } => input,
        };
        let is_head = matches!(operation.kind, Kind::Head { .. });
        let tied = if is_head || matches!(operation.kind, Kind::Lookup { .. }) { tied_table } else { 0 };
        Self {
            is_head,
            input: bytes(input),
            output: bytes(output),
            keeps: bytes(keeps),
            parameters: bytes(operation.parameters()),
            work: 0,
            forward_work: 0,
            tied,
            residual,
        }
    }

    /// The costs in a half type, from these costs in float32.
    fn in_halves(self, operation: &Operation, precision: Precision) -> Self {
        let is_attention = matches!(operation.kind, Kind::Attention { .. });
        // A product keeps its weight in the half type too.
        let weight = if self.is_head { self.tied.max(self.parameters) } else { self.parameters };
        let keeps = self.keeps / 2 + weight / 2;
        let is_product = self.parameters > 0 || self.is_head;
        if precision == Precision::Bf16 && is_product {
            // Gradients have the half type, except those of the logits and, at first, of the head's
            // input, which are float32.
            let copies = if self.is_head { (self.input + self.output) / 2 } else { self.output / 2 };
            let [input, output] = if self.is_head { [self.input, self.output] } else { [self.input / 2, 0] };
            return Self { input, output, keeps, work: copies, ..self };
        }
        let is_gelu = operation.name == MlpKind::Gelu.name();
        if precision == Precision::Bf16 && (is_attention || is_gelu) {
            // Attention computes its output and its input's gradient in float32 before it rounds
            // them; GELU needs no float32 copy.
            let made = |value: u64| if is_attention { value } else { 0 };
            let [input, output] = [self.input / 2, self.output / 2];
            return Self { input, output, keeps, work: made(self.input), forward_work: made(self.output), ..self };
        }
        // The backward pass uses float32 copies of input and weight, and finally rounds the
        // gradient of its input.
        let copies = self.keeps + weight;
        // Attention also needs a float32 copy of its output.
        let output = if is_attention { self.output } else { 0 };
        Self { keeps, work: copies + output + self.input / 2, forward_work: copies, ..self }
    }
}

/// The state of a backward pass.
#[derive(Default)]
pub(super) struct Walk {
    /// Activations not yet freed.
    pub kept: u64,
    /// Gradients of parameters so far, and other lasting memory.
    pub gradients: u64,
    /// The gradient of the residual stream, held while that of a branch is computed.
    pub stream: u64,
    /// Whether the next operation's output gradient is that of the residual stream, shared with it.
    pub shared: bool,
    pub peak: u64,
}

impl Walk {
    /// Updates the peak with `more` bytes in use beside what the walk holds.
    pub fn record(&mut self, more: u64) {
        self.peak = self.peak.max(self.kept + self.gradients + self.stream + more);
    }

    pub fn back_all(&mut self, operations: &[Costs]) {
        operations.iter().rev().for_each(|operation| self.back(operation));
    }

    pub fn back(&mut self, op: &Costs) {
        if op.residual == Residual::Adds {
            (self.stream, self.shared) = (op.output, true);
            return;
        }
        let dy = if std::mem::take(&mut self.shared) && op.work == 0 { 0 } else { op.output };
        if op.is_head {
            self.gradients += op.tied;
        }
        self.record(dy + op.input + op.parameters + op.work);
        self.kept = self.kept.saturating_sub(op.keeps);
        self.gradients += op.parameters;
        if op.residual == Residual::Reads {
            self.stream = 0;
        }
    }
}
