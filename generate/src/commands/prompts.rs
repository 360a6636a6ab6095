//! Prompts from the command line and from files, and their encoding for the model.
//!
//! In a text file each line is a prompt. An empty line is an empty prompt, which starts from the
//! tokens that the tokenizer puts before every text, else from the model's opening token. A name
//! that ends in `.jsonl` or `.json` means one JSON object a line: `{"prompt": "..."}` or
//! `{"prompt_ids": [1, 2]}`, and with either an optional `"id"` of any type, which is copied to the
//! output; other keys are ignored, and empty lines are skipped.

use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, Error, Result, bail, ensure};
use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use serde::Deserialize;
use serde_json::Value;

use super::lines::{TextFile, any_id, standard_input, without_line_end};
use super::loaded::{Loaded, outside_vocabulary};
use ember_cli::program::{UsageError, exit_code};
use ember_decoding::load::prompt_ids;

const EXAMPLE: &str = "{\"prompt\": \"...\"} or {\"prompt_ids\": [1, 2]}";

/// An encoded prompt; its text is `None` if there is no tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prompt {
    /// Its number among all prompts of the run; it identifies its answers and seeds its draws.
    pub(super) index: usize,
    /// Where it was given, for errors; none for a text of the command line.
    pub(super) place: Option<String>,
    pub(super) text: Option<String>,
    pub(super) ids: Vec<u32>,
    /// The `id` that a file of prompts gives it.
    pub(super) id: Option<Value>,
}

impl Prompt {
    /// Adds the prompt's location to an error, unless the error is about a flag.
    pub(super) fn blame(&self, error: Error) -> Error {
        if exit_code(&error) == 2 { error } else { located(self.place.as_deref(), error) }
    }
}

/// Adds its location, if it has one, to an error.
fn located(place: Option<&str>, error: Error) -> Error {
    match place {
        Some(place) => error.context(place.to_owned()),
        None => error,
    }
}

/// A prompt before encoding.
#[derive(Clone, Debug, PartialEq)]
pub struct UnencodedPrompt {
    /// Where it was given, for errors: `FILE:LINE` in a file; none for a text of the command line.
    pub place: Option<String>,
    /// The `id` that the file gives it, if any.
    pub id: Option<Value>,
    /// The prompt itself.
    pub input: PromptInput,
}

/// A prompt as text or as token ids.
#[derive(Clone, Debug, PartialEq)]
pub enum PromptInput {
    /// A text, perhaps empty.
    Text(String),
    /// Token ids, at least one.
    Ids(Vec<u32>),
}

impl UnencodedPrompt {
    /// Encodes the prompt, which is number `index` of the run.
    ///
    /// # Errors
    /// As [`Self::to_ids`].
    pub(super) fn encode(self, index: usize, loaded: &Loaded, special: SpecialTokens) -> Result<Prompt> {
        let vocab_size = loaded.model.config().vocab_size;
        let ids = self.to_ids(loaded.tokenizer.as_ref(), loaded.opening, special, vocab_size)?;
        let text = match self.input {
            PromptInput::Text(text) => Some(text),
            PromptInput::Ids(_) => loaded.text_of(&ids)?,
        };
        Ok(Prompt { index, place: self.place, text, ids, id: self.id })
    }

    /// The token ids to start from. `special` says how names of special tokens are read;
    /// [`prompt_ids`] says how an empty prompt starts.
    ///
    /// # Errors
    /// Names the line when the text cannot be encoded, there is no tokenizer, the prompt is empty
    /// and there is no token to start from, or an id is not below `vocab_size`.
    fn to_ids(
        &self,
        tokenizer: Option<&Tokenizer>,
        opening: Option<u32>,
        special: SpecialTokens,
        vocab_size: usize,
    ) -> Result<Vec<u32>> {
        // Also to a usage error, unlike [`Prompt::blame`]: it is this prompt that is empty.
        let blame = |error: Error| located(self.place.as_deref(), error);
        let place = self.place.as_deref().unwrap_or("the prompt");
        let ids = match (&self.input, tokenizer) {
            (PromptInput::Ids(ids), _) => ids.clone(),
            (PromptInput::Text(text), Some(tokenizer)) => ids_of(text, tokenizer, opening, special).map_err(blame)?,
            (PromptInput::Text(_), None) => bail!("{place}: the checkpoint holds no tokenizer; give \"prompt_ids\""),
        };
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
            bail!(outside_vocabulary(place, id, vocab_size));
        }
        Ok(ids)
    }
}

/// The prompt of the command line, else of standard input; none if standard input is a terminal.
///
/// # Errors
/// When `--prompt-ids` is empty, or standard input cannot be read.
pub(super) fn from_command_line(text: Option<&str>, ids: Option<&[u32]>) -> Result<Option<PromptInput>> {
    ensure!(ids.is_none_or(|ids| !ids.is_empty()), UsageError::new("--prompt-ids is empty; give at least one id"));
    Ok(match (ids, text) {
        (Some(ids), _) => Some(PromptInput::Ids(ids.to_vec())),
        (None, Some(text)) => Some(PromptInput::Text(text.to_owned())),
        (None, None) if io::stdin().is_terminal() => None,
        (None, None) => Some(PromptInput::Text(without_line_end(&standard_input()?).to_owned())),
    })
}

/// [`prompt_ids`], at least one.
///
/// # Errors
/// As [`prompt_ids`], and a [`UsageError`] when the prompt is empty and there is no token to start
/// from.
pub fn ids_of(text: &str, tokenizer: &Tokenizer, opening: Option<u32>, special: SpecialTokens) -> Result<Vec<u32>> {
    let ids = prompt_ids(text, tokenizer, opening, special)?;
    ensure!(
        !ids.is_empty(),
        UsageError::new(
            "the prompt is empty, and this model has no token that a text begins with; give at least one character"
        )
    );
    Ok(ids)
}

/// Reads the prompts of the file that `flag` names, in order; at least one.
///
/// # Errors
/// One line that names the file, and the line in it if a prompt is wrong.
pub fn read(flag: &str, path: &Path) -> Result<Vec<UnencodedPrompt>> {
    let file = TextFile::read(flag, path)?;
    let plain = |(line, text): (usize, &str)| UnencodedPrompt {
        place: Some(file.place(line)),
        id: None,
        input: PromptInput::Text(text.to_owned()),
    };
    let prompts = if file.is_json_lines() { json_prompts(&file)? } else { file.lines().map(plain).collect() };
    ensure!(!prompts.is_empty(), "{flag} {} holds no prompt; write one per line", path.display());
    Ok(prompts)
}

/// The keys of a line; other keys are ignored.
#[derive(Deserialize)]
struct JsonPrompt {
    prompt: Option<String>,
    prompt_ids: Option<Vec<Value>>,
    #[serde(default, deserialize_with = "any_id")]
    id: Option<Value>,
}

fn json_prompts(file: &TextFile) -> Result<Vec<UnencodedPrompt>> {
    let prompt = |(line, json): (usize, JsonPrompt)| {
        let place = file.place(line);
        let input = match (json.prompt, json.prompt_ids) {
            (Some(text), None) => PromptInput::Text(text),
            (None, Some(ids)) if !ids.is_empty() => PromptInput::Ids(token_ids(&place, &ids)?),
            (None, Some(_)) => bail!("{place}: \"prompt_ids\" is empty; give at least one id"),
            (Some(_), Some(_)) => bail!("{place}: both \"prompt\" and \"prompt_ids\"; keep one of them"),
            (None, None) => bail!("{place}: no \"prompt\"; write {EXAMPLE}"),
        };
        Ok(UnencodedPrompt { place: Some(place), id: json.id, input })
    };
    file.objects(EXAMPLE)?.into_iter().map(prompt).collect()
}

/// Parses the `prompt_ids` of a line.
fn token_ids(place: &str, ids: &[Value]) -> Result<Vec<u32>> {
    let id = |id: &Value| {
        let number = id.as_u64().and_then(|id| u32::try_from(id).ok());
        number.with_context(|| format!("{place}: \"prompt_ids\" has {id}, which is not a token id; write {EXAMPLE}"))
    };
    ids.iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// The prompts read from a file of this name and content, with the folder removed from places
    /// and errors.
    fn read_file(name: &str, content: &str) -> Result<Vec<UnencodedPrompt>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let shorter =
            |text: &str| text.replace(&format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR), "");
        let mut prompts = read("--prompts", &path).map_err(|error| shorter(&format!("{error:#}")))?;
        prompts.iter_mut().for_each(|prompt| prompt.place = prompt.place.as_deref().map(shorter));
        Ok(prompts)
    }

    fn text(place: &str, text: &str) -> UnencodedPrompt {
        UnencodedPrompt { place: Some(place.into()), id: None, input: PromptInput::Text(text.into()) }
    }

    #[test]
    fn plain_text_is_a_prompt_a_line() {
        let prompts = read_file("p.txt", "Once upon\n\n two \r\n{\"prompt\": 1}\n").unwrap();
        let expected = [
            text("p.txt:1", "Once upon"),
            text("p.txt:2", ""),
            text("p.txt:3", " two "),
            text("p.txt:4", "{\"prompt\": 1}"),
        ];
        assert_eq!(prompts, expected);
    }

    #[test]
    fn json_lines_hold_texts_or_ids_and_names() {
        let lines = "{\"prompt\": \"a\\nb\", \"id\": 7}\n\n{\"prompt_ids\": [3, 4], \"id\": \"x\", \"note\": []}\n{\"prompt\": \"\"}\n{\"prompt\": \"\", \"id\": null}";
        let prompts = read_file("p.jsonl", lines).unwrap();
        let expected = [
            UnencodedPrompt { id: Some(7.into()), ..text("p.jsonl:1", "a\nb") },
            UnencodedPrompt { id: Some("x".into()), input: PromptInput::Ids(vec![3, 4]), ..text("p.jsonl:3", "") },
            text("p.jsonl:4", ""),
            UnencodedPrompt { id: Some(Value::Null), ..text("p.jsonl:5", "") },
        ];
        assert_eq!(prompts, expected);
    }

    #[test]
    fn a_bad_file_is_named_with_its_line() {
        let error = |content: &str| read_file("p.json", content).unwrap_err();
        assert!(error("").starts_with("--prompts p.json holds no prompt"));
        assert!(error("\n\n").starts_with("--prompts p.json holds no prompt"));
        assert!(error("{\"prompt\": \"a\"}\n{\"text\": \"b\"}").starts_with("p.json:2: no \"prompt\"; write {"));
        assert!(error("{\"prompt\": \"a\", \"prompt_ids\": [1]}").starts_with("p.json:1: both"));
        assert!(error("{\"prompt_ids\": []}").starts_with("p.json:1: \"prompt_ids\" is empty"));
        assert!(
            error("{\"prompt_ids\": [-1]}").starts_with("p.json:1: \"prompt_ids\" has -1, which is not a token id")
        );
        assert!(error("{\"prompt_ids\": [4294967296]}").contains("4294967296, which is not a token id"));
        assert!(error("[").starts_with("p.json:1: not a JSON object ("));
        assert!(error("a\0").starts_with("--prompts p.json: it looks binary"));
    }

    #[test]
    fn ids_are_checked_and_errors_say_where() {
        let plain = Tokenizer::chars(&"ab".chars().collect(), false).unwrap();
        let with_end = Tokenizer::chars(&"ab".chars().collect(), true).unwrap();
        let to_ids = |prompt: &UnencodedPrompt, tokenizer: Option<&Tokenizer>| {
            let opening = tokenizer.and_then(Tokenizer::end_of_text);
            prompt.to_ids(tokenizer, opening, SpecialTokens::Parse, 3)
        };
        let error = |prompt: &UnencodedPrompt, tokenizer| format!("{:#}", to_ids(prompt, tokenizer).unwrap_err());
        assert_eq!(to_ids(&text("p:1", "ab"), Some(&plain)).unwrap(), plain.encode("ab").unwrap());
        assert_eq!(to_ids(&text("p:1", ""), Some(&with_end)).unwrap(), [with_end.end_of_text().unwrap()]);
        assert!(error(&text("p:1", ""), Some(&plain)).starts_with("p:1: the prompt is empty"));
        assert!(error(&text("p:1", "c"), Some(&plain)).starts_with("p:1: "));
        assert!(error(&text("p:1", "a"), None).starts_with("p:1: the checkpoint holds no tokenizer"));
        let ids = |ids: &[u32]| UnencodedPrompt { input: PromptInput::Ids(ids.to_vec()), ..text("p:2", "") };
        assert_eq!(to_ids(&ids(&[2, 0]), None).unwrap(), [2, 0]);
        assert!(error(&ids(&[2, 3]), None).starts_with("p:2: 3 is outside the model's vocabulary"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn every_text_survives_json_lines(texts in prop::collection::vec(any::<String>(), 1..8)) {
            let lines: Vec<String> = texts.iter().map(|text| serde_json::json!({ "prompt": text }).to_string()).collect();
            let prompts = read_file("p.jsonl", &lines.join("\n")).unwrap();
            let read: Vec<PromptInput> = prompts.into_iter().map(|prompt| prompt.input).collect();
            prop_assert_eq!(read, texts.into_iter().map(PromptInput::Text).collect::<Vec<_>>());
        }
    }
}
