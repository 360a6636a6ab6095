//! Errors of decoding and scoring.

use std::fmt;

use crate::config::KnobError;

/// The result of a fallible step of decoding or scoring.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error from a lower layer.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a model cannot continue or measure some tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum Error {
    /// Nothing was given to continue.
    #[error("there is no prompt to continue")]
    NoPrompt,
    /// A prompt without a token.
    #[error("the prompt has no tokens; give at least one, for example the end-of-text token")]
    EmptyPrompt,
    /// Knob values with which no text can be generated.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// A token id that the model has no embedding for.
    #[error("token id {id} is outside the model's vocabulary, 0 to {}", vocab_size - 1)]
    OutsideVocabulary { id: u32, vocab_size: usize },
    /// The model cannot attend to all of the text, and the window may not slide.
    #[error(
        "the context holds {context_length} tokens and {overrun}; shorten the prompt or the text, or let the window slide"
    )]
    ContextFull { context_length: usize, overrun: Overrun },
    /// The model's logits are not finite.
    #[error(
        "the model's logits are not finite numbers: its weights are damaged, or its training diverged; use another checkpoint"
    )]
    NotFinite,
    /// The knobs have taken a logit out of float32's range.
    #[error("the knobs take a token's score out of float32's range ({}); use less extreme values", processors.join(", "))]
    BeyondFloat32 { processors: Vec<&'static str> },
    /// The processors leave no token to choose after this many new ones.
    #[error("no token is left to choose after {tokens} new ones: {}", blame(processors))]
    NothingLeft { tokens: usize, processors: Vec<&'static str> },
    /// A grammar leaves no token to choose.
    #[error(transparent)]
    DeadEnd(#[from] DeadEnd),
    /// A knob that may make a text more probable as it grows, so that exact search has no bound.
    #[error(
        "{knob} {value} may make a text more probable as it grows, which leaves an exact search without a bound; make it {range}"
    )]
    Unbounded { knob: &'static str, value: f32, range: &'static str },
    /// A processor raises a log-probability above 0, so that exact search has no bound.
    #[error("one of {} raises a token's probability above 1, which leaves an exact search without a bound; drop it", processors.join(", "))]
    MoreThanCertain { processors: Vec<&'static str> },
    /// An exact search reached its node limit without an answer.
    #[error("no complete text among {nodes} prefixes: {} left no token to continue with; search more, or loosen that", processors.join(", "))]
    NoCompleteText { nodes: usize, processors: Vec<&'static str> },
    /// The draft model has a different vocabulary.
    #[error(
        "the draft model has a vocabulary of {draft_vocab_size}, and this one's is {vocab_size}; the two must share a tokenizer"
    )]
    DraftVocabulary { draft_vocab_size: usize, vocab_size: usize },
    /// The draft model fails.
    #[error("the draft model")]
    Draft(#[source] Box<Error>),
    /// Ids that do not form rows.
    #[error("{inputs} inputs and {targets} targets are not rows of {time} tokens")]
    NotRows { inputs: usize, targets: usize, time: usize },
    /// Rows longer than what the model can attend to.
    #[error("rows of {time} tokens exceed the context of {context_length}")]
    LongRows { time: usize, context_length: usize },
    /// A stretch that would score none or all of its tokens.
    #[error("{scored} tokens of a stretch of {length} cannot be scored")]
    Stretch { scored: usize, length: usize },
    /// A step between windows that leaves tokens out, or none.
    #[error("the stride is {stride}; it must be at least 1 and at most the context of {context_length}")]
    Stride { stride: usize, context_length: usize },
    /// A text of one token or none.
    #[error("{} leaves nothing to score: each token is scored after those before it; give more text", if *tokens == 0 { "no token" } else { "1 token" })]
    NothingToScore { tokens: usize },
    /// The caller cancelled the request.
    #[error("the request was cancelled")]
    Cancelled,
    /// The device fails.
    #[error("the device failed: {0}")]
    Device(String),
    /// The engine that computes for the request has ended by a panic.
    #[error("the model's engine has ended by a fault of the program or the device")]
    EngineEnded,
    /// There is not enough memory.
    #[error(transparent)]
    Memory(Cause),
}

impl Error {
    /// A device failure with the device's own message.
    pub(crate) fn device(error: impl fmt::Debug) -> Self {
        Self::Device(format!("{error:?}"))
    }
}

/// A grammar and the knobs leave no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no token is left{after}: {why}")]
pub struct DeadEnd {
    /// The end of the text so far, in words that begin with a space; empty before the first token.
    pub after: String,
    /// Why.
    pub why: WhyDeadEnd,
}

/// Why a grammar and the knobs together leave no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum WhyDeadEnd {
    /// Some of these knobs remove every token that the grammar allows.
    #[error("the {allowed} that {grammar} allows are all removed by other knobs ({}); loosen them", knobs.join(", "))]
    Knobs { grammar: String, allowed: usize, knobs: Vec<&'static str> },
    /// The parser gave up.
    #[error("{grammar} cannot be followed further ({trouble}); simplify it")]
    Parser { grammar: String, trouble: String },
    /// No token begins with what the grammar asks for.
    #[error(
        "{grammar} asks for {characters} next, and no token of this tokenizer begins with that; ask for something that this model can write"
    )]
    Tokenizer { grammar: String, characters: String },
    /// The grammar allows no token, or only tokens that stand for no characters.
    #[error("{grammar} allows nothing here that this model can write; ask for something else")]
    NoText { grammar: String },
}

/// What does not fit into the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Overrun {
    /// A prompt of this many tokens.
    #[error("the prompt has {0}")]
    Prompt(usize),
    /// Prompt and text, after this many new tokens.
    #[error("prompt and text reached that after {0} new ones")]
    Text(usize),
    /// Prompt and text at the maximum length: this many tokens.
    #[error("prompt and text may need {0}")]
    Longest(usize),
}

/// Names the processors that leave nothing to choose.
fn blame(processors: &[&str]) -> String {
    match processors {
        [] => "the model itself gives none a chance".to_owned(),
        [one] => format!("{one} rules out all of them; relax it"),
        names => format!("together, {} rule out all of them; relax one", names.join(", ")),
    }
}
