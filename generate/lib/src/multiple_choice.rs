//! Multiple choice: the model's answer is the most probable of several given continuations. Nothing
//! is generated.
//!
//! A longer choice has more tokens to lose probability on, so there are three ways to compare
//! ([`By`]): the sum of the log-probabilities (`acc` in EleutherAI's lm-evaluation-harness), the
//! mean over tokens, and the mean over bytes of the choice's text (`acc_bytes` there; its
//! `acc_norm` counts characters, which equal bytes in ASCII text).

use std::ops::ControlFlow;

use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_model::Gpt;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use crate::error::{Cause, Result};
use crate::score::{Stretch, score_stretches};
use crate::tokens::common_prefix;

/// An invalid question.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum QuestionError {
    /// Too few choices to choose from.
    #[error("\"choices\" holds {0}; give at least 2 to choose from")]
    FewChoices(usize),
    /// The choice with this number has no text.
    #[error("choice {0} is empty; give it at least one character")]
    EmptyChoice(usize),
    /// The answer is not one of the choices.
    #[error("\"answer\" is {answer}, but the choices are numbered 0 to {last}")]
    Answer { answer: usize, last: usize },
    /// The tokenizer cannot encode a text.
    #[error("{part}")]
    Text { part: String, source: Cause },
    /// There is no token to start from.
    #[error(
        "nothing stands before the choices, and this model has no token to begin a text with; give a longer \"context\""
    )]
    NoStart,
    /// The choice with this number adds no token to the context.
    #[error("choice {0} adds no token to the context; give it other text")]
    NoToken(usize),
    /// A choice longer than the model's context.
    #[error("choice {choice} has {tokens} tokens, more than the context of {context_length}; shorten it")]
    LongChoice { choice: usize, tokens: usize, context_length: usize },
}

/// A context and its possible continuations. A choice is appended directly to the context, so a
/// space between the two must be part of one of them.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Question {
    /// The caller's own identifier, passed through unchanged.
    #[serde(default, deserialize_with = "any", skip_serializing_if = "Option::is_none")]
    pub id: Option<Value>,
    /// The text before every choice. If it is empty, the choices start from the special tokens that
    /// the tokenizer puts before a text, else from `<|endoftext|>`.
    pub context: String,
    /// The possible continuations.
    pub choices: Vec<String>,
    /// The index of the right choice, from 0, if known.
    #[serde(default, deserialize_with = "index")]
    pub answer: Option<usize>,
}

/// Deserializes a value that is given, which may be null.
fn any<'de, D: Deserializer<'de>>(given: D) -> std::result::Result<Option<Value>, D::Error> {
    Value::deserialize(given).map(Some)
}

/// Deserializes the optional index of a choice.
fn index<'de, D: Deserializer<'de>>(given: D) -> std::result::Result<Option<usize>, D::Error> {
    let index = |given: Value| {
        let index = given.as_u64().and_then(|index| usize::try_from(index).ok());
        index.ok_or_else(|| {
            D::Error::custom(format!("\"answer\" is {given}; it must be the number of a choice, from 0"))
        })
    };
    Option::<Value>::deserialize(given)?.map(index).transpose()
}

impl Question {
    /// Checks that there is something to choose from, and that the answer is one of the choices.
    ///
    /// # Errors
    /// Names the key that is wrong.
    pub fn check(&self) -> Result<(), QuestionError> {
        let choices = self.choices.len();
        let empty = self.choices.iter().position(String::is_empty);
        match (empty, self.answer) {
            _ if choices < 2 => Err(QuestionError::FewChoices(choices)),
            (Some(choice), _) => Err(QuestionError::EmptyChoice(choice)),
            (None, Some(answer)) if answer >= choices => Err(QuestionError::Answer { answer, last: choices - 1 }),
            _ => Ok(()),
        }
    }

    /// The tokens of each choice after the context, for a model with a context of `context_length`
    /// tokens.
    ///
    /// Token boundaries need not match the boundary between context and choice: "a " and "cat" may
    /// be the tokens "a" and " cat". So context and choice are tokenised as one text. The scored
    /// tokens are all those after the longest common prefix of the context alone and all its
    /// choices, so that every choice is scored from the same position. If there is no common
    /// prefix, `opening` is put before the tokens: the token that a text starts with.
    ///
    /// A text longer than the model's context loses its first tokens, never scored ones.
    ///
    /// # Errors
    /// If the tokenizer cannot encode the text, there is no token to start from, or a choice alone
    /// exceeds the context.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        opening: Option<u32>,
        special: SpecialTokens,
        context_length: usize,
    ) -> Result<Vec<EncodedChoice>, QuestionError> {
        let encode = |text: &str, part: String| {
            tokenizer.encode_prompt(text, special).map_err(|error| QuestionError::Text { part, source: error.into() })
        };
        let context = encode(&self.context, "\"context\"".to_owned())?;
        let whole = |(number, choice): (usize, &String)| {
            encode(&format!("{}{choice}", self.context), format!("\"context\" with choice {number}"))
        };
        let wholes = self.choices.iter().enumerate().map(whole).collect::<Result<Vec<_>, _>>()?;
        let shared = wholes.iter().map(|whole| common_prefix(&context, whole)).min().unwrap_or(0);
        let start = if shared > 0 { None } else { Some(opening.ok_or(QuestionError::NoStart)?) };
        let finish = |(number, (whole, choice)): (usize, (Vec<u32>, &String))| {
            let scored = whole.len() - shared;
            if scored == 0 {
                return Err(QuestionError::NoToken(number));
            }
            if scored > context_length {
                return Err(QuestionError::LongChoice { choice: number, tokens: scored, context_length });
            }
            let mut ids: Vec<u32> = start.into_iter().chain(whole).collect();
            // The last token is only predicted, so one more fits than the model can read.
            let cut = ids.len().saturating_sub(context_length + 1);
            ids.drain(..cut);
            Ok(EncodedChoice { ids, scored, cut, bytes: choice.len() })
        };
        wholes.into_iter().zip(&self.choices).enumerate().map(finish).collect()
    }
}

/// The tokens of a context and one choice.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedChoice {
    /// The tokens of context and choice, at most the model's context plus one.
    pub ids: Vec<u32>,
    /// How many tokens at the end are scored.
    pub scored: usize,
    /// How many tokens were cut off at the beginning.
    pub cut: usize,
    /// The length of the choice's text in bytes.
    pub bytes: usize,
}

/// How to compare choices of different length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The log-probability of the whole choice.
    Sum,
    /// Its mean over the choice's tokens.
    Token,
    /// Its mean over the bytes of the choice's text.
    Byte,
}

/// The scores of one choice.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredChoice {
    /// The log-probability of each of its tokens, in nats.
    pub logprobs: Vec<f32>,
    /// The length of its text in bytes.
    pub bytes: usize,
}

impl ScoredChoice {
    /// Its log-probability in nats, normalised by `by`; higher is more probable.
    pub fn value(&self, by: By) -> f64 {
        // Added to 0, so that choices that are certain are all equal: -0 would be below 0.
        let sum = 0.0 + self.logprobs.iter().map(|&logprob| f64::from(logprob)).sum::<f64>();
        match by {
            By::Sum => sum,
            By::Token => sum / self.logprobs.len() as f64,
            By::Byte => sum / self.bytes as f64,
        }
    }
}

/// The choices of a question, most probable first; ties go to the earlier.
pub fn rank(choices: &[ScoredChoice], by: By) -> Vec<usize> {
    let mut order: Vec<usize> = (0..choices.len()).collect();
    order.sort_by(|&a, &b| choices[b].value(by).total_cmp(&choices[a].value(by))); // stable
    order
}

/// Scores the choices of many questions in shared batches. `on_batch` is called after every pass
/// with the number of tokens scored in it; if it breaks, the questions that are not complete are
/// `None`.
///
/// # Errors
/// As [`score_stretches`].
pub fn score_questions(
    model: &Gpt,
    questions: &[Vec<EncodedChoice>],
    on_batch: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Vec<Option<Vec<ScoredChoice>>>> {
    let stretches: Vec<Stretch> =
        questions.iter().flatten().map(|choice| Stretch { ids: &choice.ids, scored: choice.scored }).collect();
    let mut logprobs = score_stretches(model, &stretches, on_batch)?.into_iter();
    let scored = |question: &Vec<EncodedChoice>| -> Option<Vec<ScoredChoice>> {
        let own: Vec<Option<Vec<f32>>> = logprobs.by_ref().take(question.len()).collect();
        let choices = question.iter().zip(own);
        choices.map(|(choice, logprobs)| Some(ScoredChoice { logprobs: logprobs?, bytes: choice.bytes })).collect()
    };
    Ok(questions.iter().map(scored).collect())
}

/// How often the most probable choice was the right one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accuracy {
    /// Questions scored.
    pub questions: usize,
    /// Questions with a known answer; only these count for the accuracy.
    pub answered: usize,
    right: [usize; 3],
    chance: f64,
}

impl Accuracy {
    /// Counts one more question.
    pub fn add(&mut self, choices: &[ScoredChoice], answer: Option<usize>) {
        self.questions += 1;
        let Some(answer) = answer else { return };
        self.answered += 1;
        self.chance += 1.0 / choices.len() as f64;
        for by in [By::Sum, By::Token, By::Byte] {
            self.right[by as usize] += usize::from(rank(choices, by).first() == Some(&answer));
        }
    }

    /// The share of right answers; `None` if no answer is known.
    pub fn by(&self, by: By) -> Option<f64> {
        (self.answered > 0).then(|| self.right[by as usize] as f64 / self.answered as f64)
    }

    /// The expected share of right answers by random guessing.
    pub fn by_chance(&self) -> Option<f64> {
        (self.answered > 0).then(|| self.chance / self.answered as f64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::score::tests::{CONTEXT, by_hand, to_the_end};
    use burn::tensor::Device;
    use ember_model::GptConfig;
    use itertools::Itertools;
    use proptest::prelude::*;

    fn question(context: &str, choices: &[&str]) -> Question {
        let choices = choices.iter().map(|&choice| choice.to_owned()).collect();
        Question { context: context.to_owned(), choices, answer: None, id: None }
    }

    fn letters(end_of_text: bool) -> Tokenizer {
        Tokenizer::chars(&" abcd".chars().collect(), end_of_text).unwrap()
    }

    fn choice(logprobs: &[f32], bytes: usize) -> ScoredChoice {
        ScoredChoice { logprobs: logprobs.to_vec(), bytes }
    }

    /// Three choices, each the best by one measure:
    ///
    /// | choice | log-probabilities | sum | a token | a byte |
    /// |---|---|---|---|---|
    /// | 0 | -3 | -3 | -3 | -3/2 |
    /// | 1 | -1, -1, -1, -1 | -4 | -1 | -4/4 |
    /// | 2 | -2.5, -2.5 | -5 | -2.5 | -5/10 |
    #[test]
    fn each_way_to_compare_by_hand() {
        let choices = [choice(&[-3.0], 2), choice(&[-1.0; 4], 4), choice(&[-2.5; 2], 10)];
        assert_eq!(choices.each_ref().map(|choice| choice.value(By::Sum)), [-3.0, -4.0, -5.0]);
        assert_eq!(choices.each_ref().map(|choice| choice.value(By::Token)), [-3.0, -1.0, -2.5]);
        assert_eq!(choices.each_ref().map(|choice| choice.value(By::Byte)), [-1.5, -1.0, -0.5]);
        assert_eq!(rank(&choices, By::Sum), [0, 1, 2]);
        assert_eq!(rank(&choices, By::Token), [1, 2, 0]);
        assert_eq!(rank(&choices, By::Byte), [2, 1, 0]);
        assert_eq!(rank(&[choice(&[-1.0], 1), choice(&[-0.5; 2], 1)], By::Sum), [0, 1]); // equal: the earlier one first
        let certain = [choice(&[-0.0], 1), choice(&[0.0], 1)];
        assert_eq!(certain.each_ref().map(|choice| format!("{:.1}", choice.value(By::Sum))), ["0.0", "0.0"]);
        assert_eq!(rank(&certain, By::Token), [0, 1]);

        let mut accuracy = Accuracy::default();
        assert_eq!((accuracy.by(By::Sum), accuracy.by_chance()), (None, None));
        accuracy.add(&choices, Some(0));
        accuracy.add(&choices, Some(2));
        accuracy.add(&choices[..2], Some(0));
        accuracy.add(&choices, None);
        assert_eq!((accuracy.questions, accuracy.answered), (4, 3));
        assert_eq!(accuracy.by(By::Sum), Some(2.0 / 3.0));
        assert_eq!(accuracy.by(By::Token), Some(0.0));
        assert_eq!(accuracy.by(By::Byte), Some(1.0 / 3.0));
        assert!((accuracy.by_chance().unwrap() - (1.0 / 3.0 + 1.0 / 3.0 + 1.0 / 2.0) / 3.0).abs() < 1e-12);
    }

    #[test]
    fn choices_are_the_tokens_behind_what_all_share() {
        let tokenizer = letters(false);
        let id = |c: &str| tokenizer.encode(c).unwrap()[0];
        let encoded = question("a b", &[" c", "d"]).encode(&tokenizer, None, SpecialTokens::Parse, 8).unwrap();
        assert_eq!(
            encoded[0],
            EncodedChoice { ids: ["a", " ", "b", " ", "c"].map(id).to_vec(), scored: 2, cut: 0, bytes: 2 }
        );
        assert_eq!(
            encoded[1],
            EncodedChoice { ids: ["a", " ", "b", "d"].map(id).to_vec(), scored: 1, cut: 0, bytes: 1 }
        );
        // Context 3: three tokens are read, one is predicted.
        let encoded = question("a b", &[" c", "d"]).encode(&tokenizer, None, SpecialTokens::Parse, 3).unwrap();
        assert_eq!((encoded[0].ids.len(), encoded[0].scored, encoded[0].cut), (4, 2, 1));
        assert_eq!((encoded[1].ids.len(), encoded[1].scored, encoded[1].cut), (4, 1, 0));
    }

    #[test]
    fn a_token_across_the_border_is_scored_for_every_choice() {
        let tokenizer = Tokenizer::train_bpe(258, ["ab\nab\nab"]).unwrap(); // bytes, <|endoftext|>, and "ab"
        let (ab, a) = (tokenizer.encode("ab").unwrap(), tokenizer.encode("a").unwrap());
        assert_eq!((ab.len(), a.len()), (1, 1), "the tokenizer of this test should have learnt \"ab\"");
        let encoded = question("xa", &["b", "d"]).encode(&tokenizer, None, SpecialTokens::Parse, 8).unwrap();
        // "x", "ab" and "x", "a", "d": the common prefix is "x", and "a" belongs to the second
        // choice.
        assert_eq!(encoded[0].ids[1..], ab);
        assert_eq!((encoded[0].scored, encoded[1].scored), (1, 2));
        assert_eq!((encoded[0].bytes, encoded[1].bytes), (1, 1));
    }

    #[test]
    fn an_empty_context_starts_where_a_text_does() {
        let tokenizer = letters(true);
        let encoded =
            question("", &["a", "bc"]).encode(&tokenizer, tokenizer.end_of_text(), SpecialTokens::Parse, 8).unwrap();
        assert_eq!(encoded[0].ids[0], tokenizer.end_of_text().unwrap());
        // Added once, even if the tokenizer adds it by itself.
        let opening = tokenizer.opening_prompts().unwrap();
        assert_eq!(
            question("", &["a", "bc"]).encode(&opening, opening.end_of_text(), SpecialTokens::Parse, 8).unwrap(),
            encoded
        );
        assert_eq!((encoded[0].scored, encoded[1].scored), (1, 2));
        let opened = question("", &["a", "bc"]).encode(&tokenizer, Some(0), SpecialTokens::Parse, 8).unwrap();
        assert_eq!(opened[0].ids[0], 0, "as the model's folder says");
    }

    #[test]
    fn bad_questions_are_refused_by_name() {
        let refused = |question: Question| question.check().unwrap_err().to_string();
        assert!(refused(question("a", &[])).contains("\"choices\" holds 0"));
        assert!(refused(question("a", &["b"])).contains("at least 2"));
        assert!(refused(question("a", &["b", ""])).contains("choice 1 is empty"));
        let wrong = Question { answer: Some(2), ..question("a", &["b", "c"]) };
        assert!(refused(wrong).contains("\"answer\" is 2, but the choices are numbered 0 to 1"));

        let refused = |question: Question| {
            let error = question.encode(&letters(false), None, SpecialTokens::Parse, 3).unwrap_err();
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            format!("{error}{}", cause.unwrap_or_default())
        };
        assert!(refused(question("", &["a", "b"])).contains("no token to begin a text with"));
        assert!(refused(question("a", &["b", "abcd"])).contains("choice 1 has 4 tokens, more than the context of 3"));
        assert!(refused(question("x", &["a", "b"])).starts_with("\"context\": "));
        assert!(refused(question("a", &["a", "x"])).starts_with("\"context\" with choice 1: "));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Batched questions give the same log-probabilities, token by token, as each choice alone,
        /// even if a context was cut.
        #[test]
        fn batched_equals_alone(
            asked in prop::collection::vec(("[a-d ]{0,10}", prop::collection::vec("[a-d ]{1,6}", 2..5)), 1..6),
        ) {
            let tokenizer = letters(true);
            let model = Gpt::new(&GptConfig::new(tokenizer.vocab_size(), CONTEXT, 2, 2, 8), 5, &Device::flex()).unwrap();
            let encoded: Vec<Vec<EncodedChoice>> = asked
                .iter()
                .map(|(context, choices)| {
                    let choices: Vec<&str> = choices.iter().map(String::as_str).collect();
                    question(context, &choices).encode(&tokenizer, tokenizer.end_of_text(), SpecialTokens::Parse, CONTEXT).unwrap()
                })
                .collect();
            let together = score_questions(&model, &encoded, &mut to_the_end).unwrap();
            prop_assert_eq!(together.len(), asked.len());
            for ((context, choices), scored) in asked.iter().zip_eq(together) {
                let scored = scored.unwrap();
                prop_assert_eq!(choices.len(), scored.len());
                for (choice, scored) in choices.iter().zip_eq(scored) {
                    let mut ids = if context.is_empty() { vec![tokenizer.end_of_text().unwrap()] } else { Vec::new() };
                    ids.extend(tokenizer.encode(context).unwrap());
                    let first = ids.len();
                    ids.extend(tokenizer.encode(choice).unwrap());
                    let begin = ids.len().saturating_sub(CONTEXT + 1);
                    let alone: f64 =
                        (first..ids.len()).map(|end| f64::from(by_hand(&model, &ids[begin..=end]))).sum();
                    prop_assert!((scored.value(By::Sum) - alone).abs() < 1e-4);
                    prop_assert_eq!((scored.logprobs.len(), scored.bytes), (choice.len(), choice.len()));
                }
            }
        }
    }
}
