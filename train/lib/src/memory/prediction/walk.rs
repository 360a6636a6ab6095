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
        let direct = if precision == Precision::Bf16 { self.in_bfloat16(operation) } else { None };
        let costs = direct.unwrap_or_else(|| self.with_float32_copies(operation));
        // A product keeps its weight in the half type too.
        Self { keeps: self.keeps / 2 + self.weight() / 2, ..costs }
    }

    /// The gradients and the work of an operation that computes in bfloat16 itself; `None` for the
    /// others. As shares of `input` and `output` in float32, where 1/2 is bfloat16:
    ///
    /// | operation | `input` | `output` | `work` | `forward_work` |
    /// |---|---|---|---|---|
    /// | the head | 1 | 1 | 1/2 input + 1/2 output | 0 |
    /// | another product, norms of heads | 1/2 | 0: in `work` | 1/2 output | 0 |
    /// | attention | 1/2 | 1/2 | 1 input | 1 output |
    /// | GELU | 1/2 | 1/2 | 0 | 0 |
    fn in_bfloat16(self, operation: &Operation) -> Option<Self> {
        let Self { input, output, .. } = self;
        if self.is_head {
            // The gradients of the logits and, at first, of its input are float32.
            return Some(Self { work: (input + output) / 2, ..self });
        }
        let halves = Self { input: input / 2, output: output / 2, ..self };
        if self.parameters > 0 {
            // It rounds the gradient of its output. The rounded copy counts as work: it exists even
            // where the gradient itself is that of the stream.
            return Some(Self { output: 0, work: output / 2, ..halves });
        }
        if matches!(operation.kind, Kind::Attention { .. }) {
            // It computes its output and its input's gradient in float32 before it rounds them.
            return Some(Self { work: input, forward_work: output, ..halves });
        }
        (operation.name == MlpKind::Gelu.name()).then_some(halves)
    }

    /// The gradients and the work of an operation that uses float32 copies of what it keeps and of
    /// its weight, and finally rounds the gradient of its input; attention's backward pass also
    /// needs a copy of its output.
    fn with_float32_copies(self, operation: &Operation) -> Self {
        let copies = self.keeps + self.weight();
        let is_attention = matches!(operation.kind, Kind::Attention { .. });
        let copy_of_output = if is_attention { self.output } else { 0 };
        Self { work: copies + copy_of_output + self.input / 2, forward_work: copies, ..self }
    }

    /// The weight that it multiplies with, in float32: a tied head's is the embedding's table.
    fn weight(self) -> u64 {
        if self.is_head { self.tied.max(self.parameters) } else { self.parameters }
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
