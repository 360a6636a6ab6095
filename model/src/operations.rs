//! The forward pass as a list: its operations in the order in which
//! [`Gpt::forward`](crate::Gpt::forward) computes them.
//!
//! The costs of a shape are counted from this list and nowhere else: parameters, the tensors of a
//! file, FLOPs, what inference packs, what training keeps. A new part of the model is added to the
//! forward pass and here.

use ember_kernels::limits::{Demand, Use};

use crate::{GptConfig, config::NormKind, config::Positions};

/// One operation; its sizes are values per position.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The path of its parameters in a block or in the model, such as `attn.c_attn`; what it does,
    /// if it has none or they have two paths (`qk_norm`).
    pub name: &'static str,
    /// What it computes.
    pub kind: Kind,
    /// Number of values that it reads.
    pub n_in: usize,
    /// Number of values that it produces.
    pub n_out: usize,
    /// How it relates to the residual stream.
    pub residual: Residual,
}

/// What an operation computes.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each variant's comment describes its fields
pub enum Kind {
    /// A row of a table `[rows, n_out]` for each token.
    Lookup { rows: usize },
    /// A row of a table `[rows, n_out]` for each position, the same for every text of a batch.
    PositionLookup { rows: usize },
    /// A norm over its whole input, with a shift or without.
    Norm { shift: bool },
    /// A norm over each head of queries and of keys, `head_size` wide, with a scale for queries and
    /// one for keys.
    HeadNorms { head_size: usize },
    /// Rotates queries and keys by their position, in place.
    Rotate,
    /// A product with a matrix `[n_in, n_out]`, made of matrices of the widths `parts` side by
    /// side, with a bias or without.
    Product { bias: bool, parts: Vec<usize> },
    /// Attention over all positions so far, for `n_head` heads of queries, each of which keeps a
    /// number for the backward.
    Attention { n_head: usize },
    /// The MLP's non-linear function.
    Activation,
    /// Drops values in training.
    Dropout,
    /// Adds two tensors of the same size.
    Add,
    /// The product with a table `[n_out, n_in]`; if `tied`, with the token embedding.
    Head { tied: bool },
}

/// How an operation relates to the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// It does not touch the stream.
    Away,
    /// It reads the stream, at the beginning of a branch.
    Reads,
    /// It adds the branch's output to the stream.
    Adds,
}

/// The whole list: the embedding, every block, the head.
#[derive(Clone, Debug, PartialEq)]
pub struct Operations {
    /// From token ids to the residual stream.
    pub embedding: Vec<Operation>,
    /// One block.
    pub block: Vec<Operation>,
    /// Number of blocks.
    pub n_layer: usize,
    /// From the residual stream to logits.
    pub head: Vec<Operation>,
}

impl Operation {
    /// Its parameters, each with its name inside the block or the model, and its shape.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let Self { name, n_in, n_out, .. } = *self;
        let weight = match self.kind {
            Kind::Lookup { rows } | Kind::PositionLookup { rows } => vec![rows, n_out],
            Kind::Norm { .. } => vec![n_in],
            Kind::HeadNorms { head_size } => {
                return ["q", "k"].map(|part| (format!("attn.{part}_norm.weight"), vec![head_size])).into();
            }
            Kind::Product { .. } => vec![n_in, n_out],
            Kind::Head { tied: false } => vec![n_out, n_in],
            Kind::Head { tied: true } | Kind::Rotate | Kind::Attention { .. } => return Vec::new(),
            Kind::Activation | Kind::Dropout | Kind::Add => return Vec::new(),
        };
        let mut tensors = vec![(format!("{name}.weight"), weight)];
        if let Kind::Norm { shift: true } | Kind::Product { bias: true, .. } = self.kind {
            tensors.push((format!("{name}.bias"), vec![n_out]));
        }
        tensors
    }

    /// Number of its parameters.
    pub fn parameters(&self) -> usize {
        self.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }

    /// Multiply-adds per position, and per position that it attends to.
    pub fn multiply_adds(&self) -> [usize; 2] {
        match self.kind {
            Kind::Product { .. } | Kind::Head { .. } => [self.n_in * self.n_out, 0],
            // For the score, and for the weighted sum of values.
            Kind::Attention { .. } => [0, 2 * self.n_out],
            _ => [0, 0],
        }
    }

    /// The sizes `[n_in, n_out]` of the matrix that it multiplies a position with, if there is one.
    pub fn matrix(&self) -> Option<[usize; 2]> {
        matches!(self.kind, Kind::Product { .. } | Kind::Head { .. }).then_some([self.n_in, self.n_out])
    }
}

impl Operations {
    /// The sum of `count` over all operations.
    pub fn sum(&self, count: impl Fn(&Operation) -> usize) -> usize {
        let sum = |list: &[Operation]| list.iter().map(&count).sum::<usize>();
        sum(&self.embedding) + self.n_layer * sum(&self.block) + sum(&self.head)
    }

    /// Number of values in the largest parameter tensor.
    fn largest(&self) -> usize {
        let operations = self.embedding.iter().chain(&self.block).chain(&self.head);
        let sizes = operations.flat_map(Operation::tensors).map(|(_, shape)| shape.iter().product());
        sizes.max().unwrap_or_default()
    }

    /// Values per position in the output of the widest operation, without the head: logits are not
    /// computed at all positions together.
    pub fn widest(&self) -> usize {
        let operations = self.embedding.iter().chain(&self.block);
        operations.map(|operation| operation.n_out).max().unwrap_or_default()
    }

    /// Every tensor with its shape, in the model's order; lazily, so that an absurd number of
    /// layers costs nothing.
    pub fn tensors(self) -> impl Iterator<Item = (String, Vec<usize>)> {
        let all = |list: &[Operation]| list.iter().flat_map(Operation::tensors).collect::<Vec<_>>();
        // The model lists the norms of heads after both of attention's matrices; the forward pass
        // runs them in between.
        let (norms, mut rest): (Vec<_>, Vec<_>) =
            self.block.iter().cloned().partition(|operation| matches!(operation.kind, Kind::HeadNorms { .. }));
        let after_attention = rest.iter().position(|operation| operation.name == "ln_2").unwrap_or(rest.len());
        rest.splice(after_attention..after_attention, norms);
        let block = all(&rest);
        let blocks = (0..self.n_layer).flat_map(move |layer| {
            block.clone().into_iter().map(move |(name, shape)| (format!("h.{layer}.{name}"), shape))
        });
        all(&self.embedding).into_iter().chain(blocks).chain(all(&self.head))
    }

    /// Sizes `[n_in, n_out]` of the matrices that a position is multiplied with in a block.
    pub fn matrices_of_a_block(&self) -> impl Iterator<Item = [usize; 2]> + '_ {
        self.block.iter().filter_map(Operation::matrix)
    }

    /// The widths of the matrices side by side in the weight `name` of a block, if it is one.
    pub fn parts(&self, name: &str) -> Option<&[usize]> {
        let module = name.strip_suffix(".weight")?;
        self.block.iter().find_map(|operation| match &operation.kind {
            Kind::Product { parts, .. } if module.ends_with(operation.name) => Some(parts.as_slice()),
            _ => None,
        })
    }
}

impl GptConfig {
    /// The forward pass of a model of this shape.
    pub fn operations(&self) -> Operations {
        use Residual::{Adds, Away, Reads};
        let (n_embd, heads) = (self.n_embd, self.heads());
        let [q, kv, qkv] = [heads.query_width(), heads.kv_width(), heads.width()];
        let hidden = self.mlp_width();
        let op = |name, kind, n_in, n_out, residual| Operation { name, kind, n_in, n_out, residual };
        let norm = |name, residual| op(name, Kind::Norm { shift: self.norm_has_shift() }, n_embd, n_embd, residual);
        let product = |name, parts: Vec<usize>, n_in| {
            let n_out = parts.iter().sum();
            op(name, Kind::Product { bias: self.bias, parts }, n_in, n_out, Away)
        };
        let dropout = (self.dropout > 0.0).then(|| op("dropout", Kind::Dropout, n_embd, n_embd, Away));

        let mut embedding = vec![op("wte", Kind::Lookup { rows: self.vocab_size }, 0, n_embd, Away)];
        if self.positions == Positions::Learned {
            embedding.push(op("wpe", Kind::PositionLookup { rows: self.context_length }, 0, n_embd, Away));
            embedding.push(op("wte + wpe", Kind::Add, n_embd, n_embd, Away));
        }
        embedding.extend(dropout.clone());

        let mut block = vec![norm("ln_1", Reads), product("attn.c_attn", vec![q, kv, kv], n_embd)];
        if self.qk_norm {
            block.push(op("qk_norm", Kind::HeadNorms { head_size: self.head_size }, qkv, qkv, Away));
        }
        if self.positions == Positions::Rotary {
            block.push(op("rotate", Kind::Rotate, qkv, qkv, Away));
        }
        block.push(op("attention", Kind::Attention { n_head: self.n_head }, qkv, q, Away));
        block.push(product("attn.c_proj", vec![n_embd], q));
        block.extend(dropout.clone());
        block.push(op("x + attention", Kind::Add, n_embd, n_embd, Adds));
        block.push(norm("ln_2", Reads));
        let parts = if self.mlp.is_gated() { 2 } else { 1 };
        block.push(product("mlp.c_fc", vec![self.n_inner; parts], n_embd));
        block.push(op(self.mlp.name(), Kind::Activation, hidden, self.n_inner, Away));
        block.push(product("mlp.c_proj", vec![n_embd], self.n_inner));
        block.extend(dropout);
        block.push(op("x + mlp", Kind::Add, n_embd, n_embd, Adds));

        let logits = op("lm_head", Kind::Head { tied: self.tied_head }, n_embd, self.vocab_size, Away);
        Operations { embedding, block, n_layer: self.n_layer, head: vec![norm("ln_f", Away), logits] }
    }

    /// Outputs of the MLP's first layer: the hidden layer, and its gate where it has one.
    pub fn mlp_width(&self) -> usize {
        if self.mlp.is_gated() { 2 * self.n_inner } else { self.n_inner }
    }

    /// Whether norms shift as well as scale.
    pub fn norm_has_shift(&self) -> bool {
        self.norm == NormKind::LayerNorm && self.bias
    }

    /// Number of trainable values; a tied head counts once.
    pub fn parameters(&self) -> usize {
        self.operations().sum(Operation::parameters)
    }

    /// What a model of this shape requires of a GPU.
    pub fn demand(&self, used: Use) -> Demand {
        let (head_size, has_head_dim) = (self.head_size, self.has_head_dim());
        Demand { head_size, has_head_dim, used, largest: self.operations().largest() }
    }

    /// Number of values in the position table, which is only looked up.
    pub fn position_table(&self) -> usize {
        match self.positions {
            Positions::Learned => self.context_length * self.n_embd,
            Positions::Rotary => 0,
        }
    }

    /// Number of values that are only looked up: the position table, and the token embedding unless
    /// it is the head's table, too.
    fn only_looked_up(&self) -> usize {
        let token_embedding = if self.tied_head { 0 } else { self.vocab_size * self.n_embd };
        self.position_table() + token_embedding
    }

    /// FLOPs of one token in training, forward and backward: `6 N + 12 n_layer n_embd
    /// context_length`, where N leaves out the tables that are only looked up: positions, and the
    /// token embedding of an untied head (PaLM, appendix B; a multiply-add counts as two). Here
    /// `n_embd` is the width of all attention heads together.
    pub fn training_flops_per_token(&self) -> f64 {
        let multiply_adds = self.operations().sum(|operation| {
            let [_, each] = operation.multiply_adds();
            operation.parameters() + each * self.context_length
        });
        6.0 * (multiply_adds - self.only_looked_up()) as f64
    }

    /// Bytes of a float32 [`crate::KvCache`]: keys and values of every layer for `batch` rows of
    /// `capacity` tokens.
    pub fn kv_cache_bytes(&self, batch: usize, capacity: usize) -> usize {
        4 * 2 * self.n_layer * batch * capacity * self.heads().kv_width()
    }

    /// A rough [`Self::parameters`] that does not overflow, even for shapes no machine can hold.
    pub(crate) fn parameters_f64(&self) -> f64 {
        let [vocab, context, layers, embd, inner] =
            [self.vocab_size, self.context_length, self.n_layer, self.n_embd, self.n_inner].map(|size| size as f64);
        let heads = (2 * self.n_head + 2 * self.n_kv_head) as f64 * self.head_size as f64;
        2.0 * vocab * embd + context * embd + layers * embd * (heads + 3.0 * inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_operation_is_one_of_the_blocks_and_not_the_head() {
        let gpt2 = GptConfig::new(50257, 1024, 12, 12, 768);
        assert_eq!(gpt2.operations().widest(), 4 * 768);
        assert_eq!(GptConfig { n_inner: 8, ..gpt2 }.operations().widest(), 3 * 768);
    }

    /// The published size of GPT-2 small: 124,439,808.
    #[test]
    fn gpt2_has_its_published_number_of_parameters() {
        let gpt2 = GptConfig::new(50257, 1024, 12, 12, 768);
        assert_eq!(gpt2.parameters(), 124_439_808);
        assert!((124_439_808.0..250e6).contains(&gpt2.parameters_f64()));
        // llm.c's published run: 468,000 tokens/s are 40.4% of 989 TFLOP/s by this formula.
        assert!((468_000.0 * gpt2.training_flops_per_token() / 989e12 - 0.404).abs() < 0.001);
    }
}
