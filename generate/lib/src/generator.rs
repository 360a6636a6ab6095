//! Text in, text out: a model, its tokenizer and the configuration.
//!
//! Strategies produce token ids. This module decodes them into text that is final as soon as it is
//! emitted. A text ends before its first stop string, or where its grammar is complete.

use std::{ops::ControlFlow, sync::Arc};

use ember_data::tokenizer::Tokenizer;
use ember_model::Gpt;

use crate::completion::{ChosenToken, Completion, FinishReason};
use crate::constraint::{Constraint, Grammar, GrammarError};
use crate::plan::{Clock, Plan};
use crate::sequences::Continues;
use crate::stop::{EmptyStopString, StopStrings};
use crate::stream::{TextStream, token_bytes};
use crate::watch::{Certain, Traced, Watch};
use crate::{config::GenerationConfig, error::Result, generate::generate_batch, processors::LogitsProcessor};

/// Writes texts with one model and one configuration.
pub struct Generator<'a> {
    model: &'a dyn Continues,
    tokenizer: Option<&'a Tokenizer>,
    config: GenerationConfig,
    constraint: Option<Arc<Constraint>>,
    processors: Vec<Arc<dyn LogitsProcessor>>,
    draft: Option<&'a Gpt>,
    stops: StopStrings,
}

/// Prompts to continue together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prompts<'a> {
    /// The token ids of each prompt, at least one.
    pub ids: &'a [&'a [u32]],
    /// Number of each prompt's first sequence, which keys its random draws; see [`Plan`].
    pub first_sequences: &'a [u64],
    /// Sequences to generate per prompt, overriding the configuration.
    pub sequences: Option<usize>,
    /// How each prompt's time limit is measured; see [`Plan`].
    pub clocks: &'a [Clock],
    /// How many candidates of each step to trace; 0 turns tracing off.
    pub traced_candidates: usize,
}

/// A finished text.
#[derive(Clone, Debug)]
pub struct Written {
    /// Index of the prompt that it continues.
    pub prompt: usize,
    /// Index among the prompt's texts; where texts are ranked, 0 is the best.
    pub number: usize,
    /// The generated text, without the prompt and without a stop string. Without a tokenizer each
    /// token is U+FFFD.
    pub text: String,
    /// The tokens.
    pub completion: Completion,
    /// Under a grammar, whether the text is a complete match; false if a limit cut it off.
    pub valid: Option<bool>,
}

/// Callbacks that receive texts as they grow; `()` ignores everything.
pub trait Reader {
    /// The next final token of a row; called before its text.
    fn token(&mut self, _row: usize, _token: &ChosenToken) {}

    /// The next final piece of a row's text. Rows are numbered prompt by prompt.
    fn text(&mut self, _row: usize, _text: &str) {}

    /// Called after each step of a row; `steps` counts as in [`Certain`]. Breaking with a reason
    /// ends the row with the text so far.
    fn go_on(&mut self, _row: usize, _steps: usize) -> ControlFlow<FinishReason> {
        ControlFlow::Continue(())
    }

    /// The trace of a step, before its text; only if tracing is on.
    fn traced(&mut self, _step: Traced) {}
}

impl Reader for () {}

impl<'a> Generator<'a> {
    /// A generator with these knobs; without a tokenizer it produces ids only.
    ///
    /// # Errors
    /// If a stop string is empty.
    pub fn new(
        model: &'a dyn Continues,
        tokenizer: Option<&'a Tokenizer>,
        config: GenerationConfig,
    ) -> Result<Self, EmptyStopString> {
        let stops = StopStrings::new(config.stop_strings.clone())?;
        Ok(Self { model, tokenizer, config, constraint: None, processors: Vec::new(), draft: None, stops })
    }

    /// Constrains every text to a grammar.
    ///
    /// # Errors
    /// If there is no tokenizer, and as [`Constraint::new`].
    pub fn held_to(self, grammar: Grammar) -> Result<Self, GrammarError> {
        let Some(tokenizer) = self.tokenizer else {
            return Err(GrammarError::NoTokenizer { grammar: grammar.source().to_owned() });
        };
        let constraint = Constraint::new(grammar, tokenizer, self.model.config().vocab_size, &self.config.end_tokens)?;
        Ok(self.constrained_by(constraint))
    }

    /// Constrains every text by a grammar already compiled for the model's tokens and this
    /// configuration's end tokens.
    pub fn constrained_by(self, constraint: Constraint) -> Self {
        Self { constraint: Some(Arc::new(constraint)), ..self }
    }

    /// Adds a custom logits processor. It runs after the processors that ban and penalise, and
    /// before those that truncate.
    pub fn processed_by(mut self, processor: impl LogitsProcessor + 'static) -> Self {
        self.processors.push(Arc::new(processor));
        self
    }

    /// Uses a smaller model with the same vocabulary as the draft model of speculative decoding.
    pub fn drafted_by(self, model: &'a Gpt) -> Self {
        Self { draft: Some(model), ..self }
    }

    /// The knobs.
    pub fn config(&self) -> &GenerationConfig {
        &self.config
    }

    /// The grammar constraint, if any.
    pub fn constraint(&self) -> Option<&Constraint> {
        self.constraint.as_deref()
    }

    /// Continues the prompts. Returns each prompt's texts, best first where the strategy ranks
    /// them; a search may find fewer than asked for.
    ///
    /// # Errors
    /// As [`generate_batch`].
    pub fn write(&self, prompts: &Prompts, reader: &mut dyn Reader) -> Result<Vec<Written>> {
        let each = prompts.sequences.unwrap_or(self.config.num_return_sequences);
        let config = GenerationConfig { num_return_sequences: each, ..self.config.clone() };
        config.check_usable(self.model.config().vocab_size)?; // before allocating that many rows
        let constraint = self.constraint();
        // Texts that are ranked are streamed only once final, so the plan searches them for stop
        // strings. A text written token by token is ended by its `TextStream`.
        let stops = config.strategy.ranks_texts() && self.stops.longest() > 0;
        let (tokenizer, stop_strings) = (self.tokenizer, &self.stops);
        let is_end = |generated: &[u32]| {
            constraint.is_some_and(|constraint| constraint.is_complete(generated))
                || (stops && completes_a_stop_string(generated, tokenizer, stop_strings))
        };
        let plan = Plan {
            config: &config,
            constraint: self.constraint.clone(),
            processors: &self.processors,
            ends: (constraint.is_some() || stops).then_some(&is_end),
            first_sequences: prompts.first_sequences,
            traced_candidates: prompts.traced_candidates,
            clocks: prompts.clocks,
            draft: self.draft,
        };
        let row = Row { stream: TextStream::new(self.stops.clone()), text: String::new(), tokens: 0 };
        let rows = vec![row; prompts.ids.len() * each];
        let mut texts = Texts { generator: self, rows, reader };
        let completions = generate_batch(self.model, prompts.ids, &plan, &mut texts)?;
        Ok(texts.written(completions, each))
    }
}

/// Most bytes of a character after its first.
const MAX_REST: usize = 3;

/// Whether the last token completes a stop string in the text of the tokens, so far as it is final:
/// bytes that may begin a character are not U+FFFD yet.
fn completes_a_stop_string(generated: &[u32], tokenizer: Option<&Tokenizer>, stops: &StopStrings) -> bool {
    let Some((&last, before)) = generated.split_last() else { return false };
    let last = token_bytes(tokenizer, last);
    // Collect just enough tokens backwards to cover a stop string that ends in the last token, and
    // the rest of a character before it.
    let enough = last.len() + stops.longest() + MAX_REST;
    let (mut length, mut tokens) = (last.len(), vec![last]);
    for &id in before.iter().rev() {
        if length >= enough {
            break;
        }
        let token = token_bytes(tokenizer, id);
        length += token.len();
        tokens.push(token);
    }
    tokens.reverse();
    let bytes = tokens.concat();
    // Without its beginning, the rest of a character would be U+FFFD.
    let is_rest = |byte: &&u8| tokens.len() < generated.len() && matches!(**byte, 0x80..0xc0);
    let rest = bytes.iter().take(MAX_REST).take_while(is_rest).count();
    let mut stream = TextStream::new(stops.clone());
    stream.push(&bytes[rest..]);
    stream.stopped()
}

/// One row's growing text.
#[derive(Clone)]
struct Row {
    stream: TextStream,
    text: String,
    /// Tokens decoded so far.
    tokens: usize,
}

/// Decodes the tokens of all rows to text.
struct Texts<'a> {
    generator: &'a Generator<'a>,
    rows: Vec<Row>,
    reader: &'a mut dyn Reader,
}

impl Texts<'_> {
    /// Decodes a row's next token; an end token has no text.
    fn push(&mut self, row: usize, id: u32) {
        let Row { stream, text, tokens } = &mut self.rows[row];
        *tokens += 1;
        let is_end = self.generator.config.end_tokens.contains(&id);
        let certain = if is_end { String::new() } else { stream.push(&token_bytes(self.generator.tokenizer, id)) };
        *text += &certain;
        self.reader.text(row, &certain);
    }

    /// The finished texts of all prompts, `each` rows per prompt.
    fn written(mut self, completions: Vec<Vec<Completion>>, each: usize) -> Vec<Written> {
        let mut written = Vec::new();
        for (prompt, completions) in completions.into_iter().enumerate() {
            // A search may return fewer sequences than it was asked for.
            for (number, completion) in completions.into_iter().enumerate() {
                let (text, is_cut) = self.finish(prompt * each + number, &completion.ids);
                // After a stop string has cut the text, the ids hold more than the text does.
                let valid = self.generator.constraint().map(|constraint| match is_cut {
                    true => constraint.accepts(&text),
                    false => constraint.is_accepting(&completion.ids),
                });
                written.push(Written { prompt, number, text, completion, valid });
            }
        }
        written
    }

    /// Decodes a row's remaining ids. Returns its whole text and whether a stop string cut it.
    fn finish(&mut self, row: usize, ids: &[u32]) -> (String, bool) {
        for &id in ids.iter().skip(self.rows[row].tokens) {
            self.push(row, id);
        }
        let Row { stream, text, .. } = &mut self.rows[row];
        let (is_cut, rest) = (stream.stopped(), stream.finish());
        *text += &rest;
        self.reader.text(row, &rest);
        (std::mem::take(text), is_cut)
    }
}

impl Watch for Texts<'_> {
    fn certain(&mut self, Certain { row, tokens, steps }: Certain) -> ControlFlow<FinishReason> {
        for token in tokens {
            self.reader.token(row, token);
            self.push(row, token.id);
        }
        match self.rows[row].stream.stopped() && !self.generator.config.strategy.has_beams() {
            true => ControlFlow::Break(FinishReason::Stop),
            false => self.reader.go_on(row, steps),
        }
    }

    fn traced(&mut self, step: Traced) {
        self.reader.traced(step);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{config::Strategy, named::Named};
    use burn::tensor::Device;
    use ember_model::GptConfig;
    use proptest::prelude::{prop, prop_assert_eq, proptest};

    fn model(vocab_size: usize) -> Gpt {
        Gpt::new(&GptConfig::new(vocab_size, 32, 2, 2, 8), 3, &Device::flex()).unwrap()
    }

    fn letters() -> Tokenizer {
        Tokenizer::chars(&('a'..='k').collect(), false).unwrap()
    }

    fn sampling(strategy: Strategy) -> GenerationConfig {
        GenerationConfig { strategy, seed: 5, max_new_tokens: 20, num_beams: 3, ..Default::default() }
    }

    /// Collects the streamed text.
    #[derive(Default)]
    struct Streamed(String);

    impl Reader for Streamed {
        fn text(&mut self, row: usize, text: &str) {
            assert_eq!(row, 0);
            self.0 += text;
        }
    }

    fn write(generator: &Generator, reader: &mut dyn Reader) -> Written {
        generator.write(&Prompts { ids: &[&[1, 2]], ..Prompts::default() }, reader).unwrap().remove(0)
    }

    #[test]
    fn what_is_told_is_the_text_and_ends_before_a_stop_string_whatever_the_strategy() {
        let (model, tokenizer) = (model(11), letters());
        for strategy in [Strategy::Greedy, Strategy::Sample, Strategy::Beam, Strategy::BeamSample] {
            let free = Generator::new(&model, Some(&tokenizer), sampling(strategy)).unwrap();
            let mut streamed = Streamed::default();
            let whole = write(&free, &mut streamed);
            assert_eq!((whole.text.len(), &whole.text), (20, &streamed.0), "{strategy:?}");
            assert_eq!(whole.completion.finish_reason, FinishReason::Length);
            if strategy.has_beams() {
                continue; // with a stop string another text may become the best
            }
            let stop = whole.text[7..9].to_owned();
            let end = whole.text.find(&stop).unwrap();
            let config = GenerationConfig { stop_strings: vec![stop], ..sampling(strategy) };
            let mut streamed = Streamed::default();
            let stopped = write(&Generator::new(&model, Some(&tokenizer), config).unwrap(), &mut streamed);
            assert_eq!((stopped.text.as_str(), streamed.0.as_str()), (&whole.text[..end], &whole.text[..end]));
            assert_eq!(stopped.completion.finish_reason, FinishReason::Stop);
        }
    }

    #[test]
    fn a_stop_string_ends_a_ranked_text_with_the_token_that_completes_it() {
        let tokenizer = Tokenizer::bytes().unwrap();
        let stops = StopStrings::new(vec!["\u{e9}t\u{e9}".into(), "END".into()]).unwrap();
        let ends = |text: &str| completes_a_stop_string(&tokenizer.encode(text).unwrap(), Some(&tokenizer), &stops);
        assert!(ends("the END") && ends("l'\u{e9}t\u{e9}"));
        assert!(!ends("the EN") && !ends("ENDE and more") && !ends(""));
        // The beginning of a character is no text yet, and the rest of one none of its own.
        let stops = StopStrings::new(vec!["\u{fffd}".into()]).unwrap();
        let ends = |ids: &[u32]| completes_a_stop_string(ids, Some(&tokenizer), &stops);
        let ids = tokenizer.encode("\u{1f600}\u{1f600}x").unwrap();
        assert!((0..=ids.len()).all(|end| !ends(&ids[..end])));
        assert!(ends(&[ids[0], ids[8]]) && ends(&ids[5..6]));
    }

    proptest! {
        /// As for a text written token by token: nothing matches the beginning of a character, or
        /// its rest.
        #[test]
        fn a_ranked_text_ends_at_the_token_at_which_any_other_does(
            bytes in prop::collection::vec(prop::sample::select("\u{1f600}\u{20ac}\u{e9}a".as_bytes().to_vec()), 0..24),
            whole in "[\u{1f600}\u{20ac}a]{0,6}", stops in prop::collection::vec("[a\u{20ac}\u{fffd}]{1,3}", 1..3),
        ) {
            let (tokenizer, stops) = (Tokenizer::bytes().unwrap(), StopStrings::new(stops).unwrap());
            let ids: Vec<u32> = whole.bytes().chain(bytes).map(u32::from).collect();
            let mut stream = TextStream::new(stops.clone());
            for end in 1..=ids.len() {
                stream.push(&token_bytes(Some(&tokenizer), ids[end - 1]));
                prop_assert_eq!(completes_a_stop_string(&ids[..end], Some(&tokenizer), &stops), stream.stopped());
                if stream.stopped() {
                    break;
                }
            }
        }
    }

    #[test]
    fn beams_end_at_stop_strings_too() {
        let (model, tokenizer) = (model(11), letters());
        let config =
            GenerationConfig { stop_strings: ('a'..='k').map(String::from).collect(), ..sampling(Strategy::Beam) };
        let stopped = write(&Generator::new(&model, Some(&tokenizer), config).unwrap(), &mut ());
        assert_eq!((stopped.text.as_str(), stopped.completion.ids.len()), ("", 1));
        assert_eq!(stopped.completion.finish_reason, FinishReason::Stop);
    }

    #[test]
    fn a_grammar_ends_its_text_and_a_limit_leaves_it_invalid() {
        let (model, tokenizer) = (model(11), letters());
        let written = |max_new_tokens| {
            let config = GenerationConfig { max_new_tokens, ..sampling(Strategy::Sample) };
            let generator = Generator::new(&model, Some(&tokenizer), config).unwrap();
            write(&generator.held_to(Grammar::regex("regex", "[a-c]{4}k").unwrap()).unwrap(), &mut ())
        };
        let whole = written(20);
        assert_eq!((whole.text.len(), whole.text.ends_with('k'), whole.valid), (5, true, Some(true)));
        assert_eq!(whole.completion.finish_reason, FinishReason::Stop);
        assert_eq!((written(3).text.len(), written(3).valid), (3, Some(false)));
    }

    #[test]
    fn what_a_stop_string_took_away_is_not_judged() {
        let (model, tokenizer) = (model(11), letters());
        for strategy in [Strategy::Sample, Strategy::Beam] {
            for (stop, text, valid) in [("d", "abc", false), ("cd", "ab", true), ("c", "ab", true), ("e", "abcd", true)]
            {
                let config = GenerationConfig { stop_strings: vec![stop.to_owned()], ..sampling(strategy) };
                let generator = Generator::new(&model, Some(&tokenizer), config).unwrap();
                // Without an end token, all of it is generated.
                let held = generator.held_to(Grammar::regex("regex", "ab(cd)?").unwrap()).unwrap();
                let written = write(&held, &mut ());
                assert_eq!((written.text.as_str(), written.valid), (text, Some(valid)), "{strategy:?} {stop}");
            }
        }
    }

    #[test]
    fn a_number_of_sequences_that_cannot_be_is_refused() {
        let model = model(11);
        for &strategy in Strategy::ALL {
            let config = GenerationConfig { num_beam_groups: 3, diversity_penalty: 1.0, ..sampling(strategy) };
            let generator = Generator::new(&model, None, GenerationConfig { max_new_tokens: 3, ..config }).unwrap();
            let write = |sequences| {
                generator.write(&Prompts { ids: &[&[1, 2]], sequences: Some(sequences), ..Prompts::default() }, &mut ())
            };
            assert_eq!(write(2).unwrap().len(), 2, "{strategy:?}");
            for sequences in [0, usize::MAX] {
                let error = write(sequences).unwrap_err().to_string();
                assert!(error.starts_with("num_return_sequences is"), "{strategy:?}: {error}");
            }
        }
    }

    #[test]
    fn without_a_tokenizer_there_are_ids_and_no_grammar() {
        let model = model(11);
        let generator = Generator::new(&model, None, sampling(Strategy::Greedy)).unwrap();
        let written = write(&generator, &mut ());
        assert_eq!((written.text, written.completion.ids.len()), ("\u{fffd}".repeat(20), 20));
        let error = generator.held_to(Grammar::regex("regex", "a").unwrap()).err().unwrap();
        assert_eq!(error.to_string(), "regex needs a tokenizer, and the checkpoint holds none");
    }
}
