//! Penalties on what was said before.

use super::{LogitsProcessor, Step};

/// Which of the tokens so far a penalty looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// The prompt and what was generated.
    All,
    /// What was generated.
    Generated,
    /// The last so many, of the prompt too.
    Last(usize),
}

impl History {
    /// Each distinct token of the history and how often it occurs there.
    fn counts(self, step: &Step) -> Vec<(u32, usize)> {
        let count = match self {
            Self::All => step.len(),
            Self::Generated => step.generated.len(),
            Self::Last(count) => count,
        };
        let mut ids: Vec<u32> = step.last(count).collect();
        ids.sort_unstable();
        ids.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect()
    }

    /// Changes the logit of each of them, given how often it occurs.
    fn change(self, step: &Step, logits: &mut [f32], change: impl Fn(&mut f32, usize)) {
        for (id, count) in self.counts(step) {
            if let Some(logit) = logits.get_mut(id as usize) {
                change(logit, count);
            }
        }
    }
}

/// Divides the positive logits of tokens seen before and multiplies the negative ones, once for each distinct token
/// ([Keskar et al. 2019, section 4.1](https://arxiv.org/abs/1909.05858); transformers `RepetitionPenaltyLogitsProcessor`).
///
/// The paper divides always, which makes a token with a negative logit more probable for having been said.
#[derive(Clone, Copy, Debug)]
pub struct RepetitionPenalty {
    /// The divisor, above 0; above 1 discourages.
    pub penalty: f32,
    /// The tokens it looks at; transformers': all.
    pub history: History,
}

impl LogitsProcessor for RepetitionPenalty {
    fn name(&self) -> &'static str {
        "repetition-penalty"
    }

    fn process(&self, step: &Step, logits: &mut [f32]) {
        self.history.change(step, logits, |logit, _| {
            *logit = if *logit < 0.0 { *logit * self.penalty } else { *logit / self.penalty };
        });
    }
}

/// Subtracts the penalty once from the logit of each token seen before
/// ([OpenAI's API](https://platform.openai.com/docs/api-reference/completions/create)).
#[derive(Clone, Copy, Debug)]
pub struct PresencePenalty {
    /// What is subtracted; above 0 discourages.
    pub penalty: f32,
    /// The tokens it looks at; OpenAI's: the generated ones.
    pub history: History,
}

impl LogitsProcessor for PresencePenalty {
    fn name(&self) -> &'static str {
        "presence-penalty"
    }

    fn process(&self, step: &Step, logits: &mut [f32]) {
        self.history.change(step, logits, |logit, _| *logit -= self.penalty);
    }
}

/// Subtracts the penalty from the logit of each token seen before, times how often it was
/// ([OpenAI's API](https://platform.openai.com/docs/api-reference/completions/create)).
#[derive(Clone, Copy, Debug)]
pub struct FrequencyPenalty {
    /// What is subtracted for each time; above 0 discourages.
    pub penalty: f32,
    /// The tokens it looks at; OpenAI's: the generated ones.
    pub history: History,
}

impl LogitsProcessor for FrequencyPenalty {
    fn name(&self) -> &'static str {
        "frequency-penalty"
    }

    fn process(&self, step: &Step, logits: &mut [f32]) {
        self.history.change(step, logits, |logit, count| *logit -= self.penalty * count as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::processed;

    /// 0 and 1 in the prompt; 1, 1 and 2 generated.
    const STEP: Step = Step { prompt: &[0, 1], generated: &[1, 1, 2] };
    const GONE: f32 = f32::NEG_INFINITY;

    #[test]
    fn repetition_counts_each_token_once_and_minds_the_sign() {
        let penalty = RepetitionPenalty { penalty: 2.0, history: History::All };
        assert_eq!(processed(&penalty, &STEP, &[4.0, -4.0, 0.0, 4.0, -4.0]), [2.0, -8.0, 0.0, 4.0, -4.0]);
        assert_eq!(processed(&penalty, &STEP, &[GONE, 1.0, GONE]), [GONE, 0.5, GONE]);
        let encouragement = RepetitionPenalty { penalty: 0.5, history: History::All };
        assert_eq!(processed(&encouragement, &STEP, &[4.0, -4.0]), [8.0, -2.0]);
    }

    #[test]
    fn presence_and_frequency_count_what_was_generated() {
        let presence = PresencePenalty { penalty: 0.5, history: History::Generated };
        assert_eq!(processed(&presence, &STEP, &[1.0, 1.0, 1.0, 1.0]), [1.0, 0.5, 0.5, 1.0]);
        let frequency = FrequencyPenalty { penalty: 0.5, history: History::Generated };
        assert_eq!(processed(&frequency, &STEP, &[1.0, 1.0, GONE, 1.0]), [1.0, 0.0, GONE, 1.0]);
        let encouragement = FrequencyPenalty { penalty: -0.5, history: History::Generated };
        assert_eq!(processed(&encouragement, &STEP, &[1.0, 1.0, 1.0]), [1.0, 2.0, 1.5]);
        let at_the_start = Step { prompt: &[0, 1], generated: &[] };
        assert_eq!(processed(&presence, &at_the_start, &[1.0, 1.0]), [1.0, 1.0]);
    }

    #[test]
    fn a_window_reaches_into_the_prompt() {
        assert_eq!(History::Last(4).counts(&STEP), [(1, 3), (2, 1)]);
        assert_eq!(History::Last(64).counts(&STEP), [(0, 1), (1, 3), (2, 1)]);
        assert_eq!(History::Last(64).counts(&STEP), History::All.counts(&STEP));
        assert_eq!(History::Generated.counts(&STEP), [(1, 2), (2, 1)]);
    }
}
