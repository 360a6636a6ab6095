//! A backward, operation by operation in bytes: what is there at its worst moment.

use ember_model::MlpKind;
use ember_model::operations::{Kind, Operation, Residual};

use super::{Sizes, bytes};
use crate::config::Precision;

/// One operation of the forward pass, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Whether it is the head, which the tied table's first gradient comes from.
    pub is_head: bool,
    /// The gradient of its input.
    pub input: u64,
    /// The gradient of its output.
    pub output: u64,
    /// What it keeps for its backward.
    pub keeps: u64,
    /// The gradients of its parameters.
    pub parameters: u64,
    /// What its backward holds beside all of these: copies in another type.
    pub work: u64,
    /// What its forward holds beside its input and output: the same.
    pub forward_work: u64,
    /// The tied table's gradient, of the head and of the embedding.
    pub tied: u64,
    pub residual: Residual,
}

impl Costs {
    /// What an operation costs in this precision; `tied_table` are the bytes of a table that a tied
    /// head shares with the embedding, else 0.
    pub fn new(operation: &Operation, sizes: Sizes, precision: Precision, tied_table: u64) -> Self {
        let float32 = Self::in_float32(operation, sizes, tied_table);
        // Norms compute in float32 always, and what keeps nothing has nothing to keep in halves.
        let is_float32 = float32.keeps == 0 || matches!(operation.kind, Kind::Norm { .. });
        if precision == Precision::F32 || is_float32 { float32 } else { float32.in_halves(operation, precision) }
    }

    /// Kept are the inputs of norms, matrix products and what stands inside the MLP, the joint
    /// projection as attention reads it, and a number for each row of attention's weights `[batch,
    /// n_head, time]`; its output is kept once, as the next product's input. Additions, embeddings,
    /// rotary positions (whose backward turns back) and dropout (whose mask can be computed again)
    /// keep nothing. What a tied head makes of its table's gradient is a second one, beside the
    /// embedding's, until the two are added.
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

    /// What the operation costs where it computes in a half type, of which this is float32's.
    fn in_halves(self, operation: &Operation, precision: Precision) -> Self {
        let is_attention = matches!(operation.kind, Kind::Attention { .. });
        // A product keeps its weight in the half type too.
        let weight = if self.is_head { self.tied.max(self.parameters) } else { self.parameters };
        let keeps = self.keeps / 2 + weight / 2;
        let is_product = self.parameters > 0 || self.is_head;
        if precision == Precision::Bf16 && is_product {
            // Gradients are halves; but that of the logits comes in float32, and so does, at first,
            // that of the head's input.
            let copies = if self.is_head { (self.input + self.output) / 2 } else { self.output / 2 };
            let [input, output] = if self.is_head { [self.input, self.output] } else { [self.input / 2, 0] };
            return Self { input, output, keeps, work: copies, ..self };
        }
        let is_gelu = operation.name == MlpKind::Gelu.name();
        if precision == Precision::Bf16 && (is_attention || is_gelu) {
            // Attention makes its output and its input's gradient in float32 before it puts them
            // away, GELU nothing.
            let made = |value: u64| if is_attention { value } else { 0 };
            let [input, output] = [self.input / 2, self.output / 2];
            return Self { input, output, keeps, work: made(self.input), forward_work: made(self.output), ..self };
        }
        // Its backward works on float32 copies of its input and its weight, and puts the gradient
        // of its input away in halves at last.
        let copies = self.keeps + weight;
        // Attention's has a float32 copy of its output as well.
        let output = if is_attention { self.output } else { 0 };
        Self { keeps, work: copies + output + self.input / 2, forward_work: copies, ..self }
    }
}

/// A backward on its way.
#[derive(Default)]
pub(super) struct Walk {
    /// Activations not yet let go.
    pub kept: u64,
    /// Gradients of parameters made so far, and whatever else lasts.
    pub gradients: u64,
    /// The gradient of the residual stream, held while a branch's is computed.
    pub stream: u64,
    /// Whether the branch begins with that same gradient.
    pub shared: bool,
    pub peak: u64,
}

impl Walk {
    /// So much is in use beside what the walk holds.
    pub fn note(&mut self, more: u64) {
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
        self.note(dy + op.input + op.parameters + op.work);
        self.kept = self.kept.saturating_sub(op.keeps);
        self.gradients += op.parameters;
        if op.residual == Residual::Reads {
            self.stream = 0;
        }
    }
}
