//! What a logits processor is, and what it may look at.

/// What a processor may look at beside the logits: the tokens so far.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The prompt's token ids.
    pub prompt: &'a [u32],
    /// The token ids generated so far; its length is the step's number.
    pub generated: &'a [u32],
}

impl Step<'_> {
    /// How many tokens there are so far.
    pub(super) fn len(&self) -> usize {
        self.prompt.len() + self.generated.len()
    }

    /// The last `count` tokens, in order; all where there are fewer.
    pub(super) fn last(&self, count: usize) -> impl Iterator<Item = u32> {
        self.prompt.iter().chain(self.generated).skip(self.len().saturating_sub(count)).copied()
    }
}

/// One step of the chain between the model's logits and the choice of a token.
pub trait LogitsProcessor: Send + Sync {
    /// The knob's name, such as "top-k".
    fn name(&self) -> &'static str;

    /// Edits the logits of one position, or its log-probabilities, `[vocab]`: finite or minus
    /// infinity in, the same out. A ban may remove the last token there is; what truncates by
    /// probability keeps at least one of those that it gets.
    fn process(&self, step: &Step, logits: &mut [f32]);
}
