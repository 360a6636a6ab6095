//! The plan of a generation: everything that decides how prompts are continued and when a text
//! ends.

use std::{ops::ControlFlow, sync::Arc};

use ember_model::Gpt;

use crate::processors::{Chain, LogitsProcessor};
use crate::{completion::FinishReason, config::GenerationConfig, constraint::Constraint, error::Error};

/// Everything that decides how prompts are continued.
#[derive(Clone)]
pub struct Plan<'a> {
    /// The knobs.
    pub config: &'a GenerationConfig,
    /// The grammar that the text must follow.
    pub constraint: Option<Arc<Constraint>>,
    /// The caller's own processors, run after the grammar.
    pub processors: &'a [Arc<dyn LogitsProcessor>],
    /// Whether a text ends with these generated ids: at a stop string, or because the grammar is
    /// complete.
    pub ends: Option<&'a EndsText<'a>>,
    /// Number of each prompt's first sequence. Sequence i of a prompt keys its random draws by
    /// `first_sequences[prompt] + i`, so it is the same (up to rounding in the model) alone and in
    /// any batch. A prompt without an entry starts at 0.
    pub first_sequences: &'a [u64],
    /// How many candidates of each step [`Watch::traced`](crate::watch::Watch::traced) reports; 0
    /// turns tracing off.
    pub traced_candidates: usize,
    /// How `max_time_s` is measured for each prompt; by default with [`Clock::Time`].
    pub clocks: &'a [Clock],
    /// The draft model: a smaller model with the same vocabulary that proposes tokens where
    /// `draft_tokens` is above 0. Without one, prompt lookup proposes them.
    pub draft: Option<&'a Gpt>,
}

/// Whether a text ends with these generated ids.
pub type EndsText<'a> = dyn Fn(&[u32]) -> bool + Sync + 'a;

/// How the time limit `max_time_s` is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// By elapsed time.
    #[default]
    Time,
    /// By steps: a replay ends after as many steps as the original run had taken when its time ran
    /// out.
    Steps(usize),
}

impl<'a> Plan<'a> {
    /// A plan with these knobs and nothing else.
    pub fn new(config: &'a GenerationConfig) -> Self {
        Self {
            config,
            constraint: None,
            processors: &[],
            ends: None,
            first_sequences: &[],
            traced_candidates: 0,
            clocks: &[],
            draft: None,
        }
    }

    /// The chain of active processors.
    pub(crate) fn chain(&self) -> Chain {
        let constraint = self.constraint.clone().map(|constraint| constraint as _);
        Chain::new(self.config, constraint.into_iter().chain(self.processors.iter().cloned()))
    }

    /// The number that keys the random draws of a prompt's sequence.
    pub(crate) fn sequence(&self, prompt: usize, number: usize) -> u64 {
        self.first_sequences.get(prompt).copied().unwrap_or(0) + number as u64
    }

    /// Whether a prompt has reached its time limit after this many seconds and steps.
    pub(crate) fn is_out_of_time(&self, prompt: usize, seconds: f64, steps: usize) -> bool {
        match self.clocks.get(prompt) {
            None | Some(Clock::Time) => self.config.max_time_s.is_some_and(|most| seconds >= most),
            Some(Clock::Steps(most)) => steps >= *most,
        }
    }

    /// Whether a stop string or the grammar ends the text after these generated ids.
    pub(crate) fn ends_text(&self, generated: &[u32]) -> bool {
        self.ends.is_some_and(|ends| ends(generated))
    }

    /// Why a sequence of a prompt ends with its last token, if it does. `answer` is the caller's
    /// reply to that token; `seconds` is the time since generation began.
    pub(crate) fn reason_to_end(
        &self,
        prompt: usize,
        generated: &[u32],
        answer: ControlFlow<FinishReason>,
        seconds: f64,
    ) -> Option<FinishReason> {
        let config = self.config;
        if generated.last().is_some_and(|last| config.end_tokens.contains(last)) {
            return Some(FinishReason::Eos);
        }
        if let ControlFlow::Break(reason) = answer {
            return Some(reason);
        }
        if self.ends_text(generated) {
            return Some(FinishReason::Stop);
        }
        if generated.len() >= config.max_new_tokens {
            return Some(FinishReason::Length);
        }
        self.is_out_of_time(prompt, seconds, generated.len()).then_some(FinishReason::Time)
    }

    /// The error to report if the knobs leave no token to follow `generated`.
    pub(crate) fn nothing_left(&self, chain: &Chain, generated: &[u32]) -> Error {
        match &self.constraint {
            Some(constraint) => {
                let mut knobs = chain.bans();
                knobs.retain(|name| *name != constraint.name());
                constraint.nothing_left(generated, knobs).into()
            }
            None => Error::NothingLeft { tokens: generated.len(), processors: chain.bans() },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::Device;
    use ember_data::tokenizer::Tokenizer;
    use ember_model::{Gpt, GptConfig};

    use crate::config::{GenerationConfig, Strategy};
    use crate::{Generator, constraint::Grammar, generator::Prompts, named::Named};

    #[test]
    fn every_strategy_tells_alike_what_the_grammar_asked_for_and_what_removed_it() {
        let model = Gpt::new(&GptConfig::new(3, 32, 1, 1, 8), 3, &Device::flex()).unwrap();
        let tokenizer = Tokenizer::chars(&('a'..='c').collect(), false).unwrap();
        let once = GenerationConfig { no_repeat_ngram_size: 1, num_beams: 4, max_new_tokens: 9, ..Default::default() };
        let diverse = GenerationConfig { num_beam_groups: 2, diversity_penalty: 1.0, ..once };
        let configs = Strategy::ALL.iter().map(|&strategy| GenerationConfig { strategy, ..diverse.clone() });
        for config in configs.chain([GenerationConfig { draft_tokens: 2, ..diverse.clone() }]) {
            let (strategy, grammar) = (config.strategy, Grammar::regex("regex", "ab(a|bb)").unwrap());
            let generator = Generator::new(&model, Some(&tokenizer), config).unwrap().held_to(grammar).unwrap();
            let prompts = Prompts { ids: &[&[2]], ..Prompts::default() };
            let error = generator.write(&prompts, &mut ()).unwrap_err().to_string();
            let expected = "no token is left after \"ab\": the 2 that regex allows are all removed by other knobs \
                            (no-repeat-ngram-size); loosen them";
            assert_eq!(error, expected, "{strategy:?}");
        }
    }
}
