//! Penalties on repeated tokens.

use super::{Processor, Step};

/// Which of the tokens so far a penalty considers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// The prompt and the generated tokens.
    All,
    /// The generated tokens.
    Generated,
    /// The last n tokens, prompt included.
    Last(usize),
}

impl History {
    /// Each distinct token of the history, with its count.
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

    /// A processor that changes the logit of each token of the history, given its count.
    fn processor(self, name: &'static str, change: impl Fn(&mut f32, usize) + Send + Sync + 'static) -> Processor {
        Processor::new(name, move |step, logits| {
            for (id, count) in self.counts(step) {
                if let Some(logit) = logits.get_mut(id as usize) {
                    change(logit, count);
                }
            }
        })
    }
}

/// Divides the positive logits of tokens in the history by the penalty and multiplies the negative
/// ones, once for each distinct token ([Keskar et al. 2019, section
/// 4.1](https://arxiv.org/abs/1909.05858); transformers `RepetitionPenaltyLogitsProcessor`, which
/// considers all tokens). The penalty is above 0; above 1 it discourages repetition.
///
/// The paper always divides, which makes a repeated token with a negative logit more probable.
pub fn repetition_penalty(penalty: f32, history: History) -> Processor {
    history.processor("repetition-penalty", move |logit, _| {
        *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
    })
}

/// Subtracts the penalty once from the logit of each token in the history; above 0 it discourages
/// repetition ([OpenAI's API](https://platform.openai.com/docs/api-reference/completions/create),
/// which considers the generated tokens).
pub fn presence_penalty(penalty: f32, history: History) -> Processor {
    history.processor("presence-penalty", move |logit, _| *logit -= penalty)
}

/// Subtracts the penalty times its count from the logit of each token in the history; above 0 it
/// discourages repetition ([OpenAI's
/// API](https://platform.openai.com/docs/api-reference/completions/create), which counts the
/// generated tokens).
pub fn frequency_penalty(penalty: f32, history: History) -> Processor {
    history.processor("frequency-penalty", move |logit, count| *logit -= penalty * count as f32)
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
        let penalty = repetition_penalty(2.0, History::All);
        assert_eq!(processed(&penalty, &STEP, &[4.0, -4.0, 0.0, 4.0, -4.0]), [2.0, -8.0, 0.0, 4.0, -4.0]);
        assert_eq!(processed(&penalty, &STEP, &[GONE, 1.0, GONE]), [GONE, 0.5, GONE]);
        let encouragement = repetition_penalty(0.5, History::All);
        assert_eq!(processed(&encouragement, &STEP, &[4.0, -4.0]), [8.0, -2.0]);
    }

    #[test]
    fn presence_and_frequency_count_what_was_generated() {
        let presence = presence_penalty(0.5, History::Generated);
        assert_eq!(processed(&presence, &STEP, &[1.0, 1.0, 1.0, 1.0]), [1.0, 0.5, 0.5, 1.0]);
        let frequency = frequency_penalty(0.5, History::Generated);
        assert_eq!(processed(&frequency, &STEP, &[1.0, 1.0, GONE, 1.0]), [1.0, 0.0, GONE, 1.0]);
        let encouragement = frequency_penalty(-0.5, History::Generated);
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
