//! The facts that choices depend on: the size of the text, and which models a kind of device trains
//! in reasonable time.

/// The size of the tokenised text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextFacts {
    /// Tokens in the training split.
    pub train_tokens: u64,
    /// Tokens in the validation split.
    pub val_tokens: u64,
    /// Size of the vocabulary.
    pub vocab_size: usize,
}

impl TextFacts {
    /// An empty text.
    pub const NOTHING: Self = Self { train_tokens: 0, val_tokens: 0, vocab_size: 1 };

    /// Assumed facts for a recipe without its text: ten million tokens.
    pub fn assumed(vocab_size: usize) -> Self {
        Self { train_tokens: 10_000_000, val_tokens: 1_000_000, vocab_size }
    }
}

/// The kind of a device, by its rough speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// About 2e11 floating-point operations a second in training.
    Cpu,
    /// About 1e13.
    Gpu,
}

/// The sizes of a model, and its batch size.
pub(super) struct Shape {
    pub(super) n_layer: usize,
    pub(super) n_embd: usize,
    pub(super) context_length: usize,
    pub(super) batch_size: usize,
}

/// Models from small to large, each with the fewest training tokens for which it is chosen.
const CPU_SHAPES: &[(u64, Shape)] = &[
    (0, Shape { n_layer: 2, n_embd: 64, context_length: 64, batch_size: 16 }),
    (50_000, Shape { n_layer: 4, n_embd: 128, context_length: 64, batch_size: 16 }),
];
const GPU_SHAPES: &[(u64, Shape)] = &[
    (0, Shape { n_layer: 4, n_embd: 128, context_length: 128, batch_size: 32 }),
    (200_000, Shape { n_layer: 6, n_embd: 384, context_length: 256, batch_size: 64 }),
    (20_000_000, Shape { n_layer: 8, n_embd: 512, context_length: 512, batch_size: 64 }),
    (500_000_000, Shape { n_layer: 12, n_embd: 768, context_length: 1024, batch_size: 32 }),
];

/// The facts about a kind of device.
pub(super) struct DeviceFacts {
    pub(super) name: &'static str,
    /// Floating-point operations of one run by default.
    pub(super) budget: f64,
    /// The time that the budget takes, in words.
    pub(super) minutes: &'static str,
    /// The models to choose from, by the size of the text.
    pub(super) ladder: &'static [(u64, Shape)],
}

impl DeviceKind {
    pub(super) fn facts(self) -> DeviceFacts {
        match self {
            Self::Cpu => DeviceFacts { name: "a CPU", budget: 1.2e14, minutes: "ten minutes", ladder: CPU_SHAPES },
            Self::Gpu => DeviceFacts { name: "a GPU", budget: 2e16, minutes: "half an hour", ladder: GPU_SHAPES },
        }
    }
}
