//! What is known before anything is chosen: how much text there is, and what a kind of device
//! trains in good time.

/// What is known of the text once it is tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextFacts {
    /// Tokens to train on.
    pub train_tokens: u64,
    /// Tokens held out.
    pub val_tokens: u64,
    /// Different tokens.
    pub vocab_size: usize,
}

impl TextFacts {
    /// Of no text at all.
    pub const NOTHING: Self = Self { train_tokens: 0, val_tokens: 0, vocab_size: 1 };

    /// What is assumed where a recipe is asked for without its text: ten million tokens.
    pub fn assumed(vocab_size: usize) -> Self {
        Self { train_tokens: 10_000_000, val_tokens: 1_000_000, vocab_size }
    }
}

/// How fast a device is, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Some 2e11 floating-point operations a second in training.
    Cpu,
    /// Some 1e13.
    Gpu,
}

/// The sizes of a model, and how many windows make a step.
pub(super) struct Shape {
    pub(super) n_layer: usize,
    pub(super) n_embd: usize,
    pub(super) context_length: usize,
    pub(super) batch_size: usize,
}

/// The rungs of a ladder, smallest first, each with the fewest training tokens that call for it.
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

/// What is known of a device of some kind.
pub(super) struct DeviceFacts {
    pub(super) name: &'static str,
    /// Operations spent on one run by default.
    pub(super) budget: f64,
    /// The time that they take.
    pub(super) minutes: &'static str,
    /// The models that it trains, by how much text there is.
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
