//! `ember-train share`: puts the model into one HTML page that generates text in any browser,
//! without network access.

mod blob;
mod copied;
mod facts;
mod page;

use ember_data::prepare::{Dataset, Manifest};
use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_decoding::config::{FolderSettings, GenerationConfig, KNOBS, Knobs, Strategy};
use ember_decoding::{load::EndTokens, load::opening, run_folder};
use ember_host::output::is_standard_output;
use ember_model::{WeightType, folder, folder::StoredWeights};
use ember_training::error::{Error, TextError};
use ember_training::run::text::{data_of, dataset_for};
use serde_json::{Value, json};

use crate::prelude::*;
use blob::Blob;
use copied::{Copied, Samples, by_kind};
use facts::{Facts, Said};

/// Arguments of `share`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ember-train share --html model.html                           the newest run
  ember-train share runs/my-writing --html model.html --title \"Letters\" --by \"Ann\"")]
pub struct ShareArgs {
    /// The run, a checkpoint in it, a Hugging Face folder or a model's file (.gguf, ckpt.pt, .bin)
    /// [default: the newest run]
    pub run: Option<PathBuf>,
    /// The page to write
    #[arg(long, value_name = "FILE", value_parser = output_file::page())]
    pub html: PathBuf,
    /// Number type of the matrices in the page: int8, or bf16 at twice the size
    #[arg(long, value_name = "TYPE", value_parser = weight_type, default_value = "int8")]
    pub weights: WeightType,
    #[command(flatten)]
    said: Said,
    /// Leave out how much the model copies word for word from its training text
    #[arg(long)]
    pub skip_copied: bool,
}

/// Above this number of parameters a page is so large and slow that a note says so.
const MANY_PARAMETERS: usize = 40_000_000;

fn weight_type(name: &str) -> Result<WeightType, String> {
    let known = [WeightType::Int8, WeightType::Bf16];
    known.into_iter().find(|known| known.name() == name).ok_or_else(|| "write int8 or bf16".to_owned())
}

/// Runs the command.
///
/// # Errors
/// When the checkpoint cannot be read, its tokenizer is of a kind that the page has no code for, or
/// the page cannot be written.
pub fn run(args: &ShareArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    let model = run_folder::find_and_open(args.run.as_deref(), |found| {
        notes.say(format!("checkpoint: {}", run_folder::original_of(&found.folder).display()));
        Shared::open(found.folder, &notes)
    })?;
    check_beginning(args.said.beginning.as_deref(), &model.tokenizer)?;
    let dataset = text_of(&model.checkpoint, &notes);
    let mut facts = Facts::of(&args.said, &model.checkpoint, &model.stored.config, dataset.as_ref())?;
    let mut private = None;
    if let Some(dataset) = dataset.filter(|_| !args.skip_copied)
        && let Some(samples) = measure_copied(&model, args.weights, dataset, &notes)?
    {
        facts.copied = Some(samples.copied);
        private = Some(samples.private);
    }
    if let Some(files) = facts.files() {
        notes.say(format!("the page names its training text: {files}"));
    }
    if let Some(began) = &facts.began {
        notes.say(format!("the page names the model that it began from: {began}"));
    }
    if interrupt.requested() {
        return Ok(Outcome::Interrupted);
    }
    let html = model.page(args.weights, &facts)?;
    write_file(&args.html, &html)?;
    if facts.parameters > MANY_PARAMETERS {
        notes.say(format!("with {} parameters, each token takes long in a browser", grouped(facts.parameters as u64)));
    }
    let (path, size) = (args.html.display().to_string(), html.len());
    answer_beside(
        Some(&args.html),
        common,
        || {
            let page = if is_standard_output(&args.html) { "the page" } else { &path };
            format!("{page} ({}) writes in any browser, with no server and no network\n", bytes(size as u64))
        },
        || {
            let (copied, private) = (facts.copied.as_ref().map(Copied::json), private.as_deref().map(by_kind));
            json_line(&json!({
                "html": path, "bytes": size, "weights": args.weights, "parameters": facts.parameters, "copied": copied,
                "private": private,
            }))
        },
    )
}

/// The model that is shared.
struct Shared {
    checkpoint: PathBuf,
    stored: StoredWeights,
    tokenizer: Tokenizer,
    /// The tokenizer in the page's form.
    tokenizer_json: Value,
    /// How the page generates text.
    config: GenerationConfig,
}

impl Shared {
    /// Opens a checkpoint.
    ///
    /// # Errors
    /// When the checkpoint cannot be read, or the page does not support its tokenizer.
    fn open(checkpoint: PathBuf, notes: &Notes) -> Result<Self> {
        folder::verify_checksums_for_inference(&checkpoint)?;
        let stored = StoredWeights::of(&checkpoint)?;
        let tokenizer = Tokenizer::from_folder(&checkpoint)?;
        let opening = opening(&checkpoint, Some(&tokenizer), stored.config.vocab_size)?;
        let tokenizer_json = tokenizer_of(&tokenizer, opening, &checkpoint)?;
        let config = writing_config(&checkpoint, &tokenizer, stored.config.vocab_size, notes)?;
        Ok(Self { checkpoint, stored, tokenizer, tokenizer_json, config })
    }

    /// The whole page.
    ///
    /// # Errors
    /// When the weights cannot be read, or are damaged.
    fn page(&self, weights: WeightType, facts: &Facts) -> Result<String> {
        let Self { checkpoint, stored, tokenizer_json, config, .. } = self;
        let blob = Blob::of(stored, weights, checkpoint)?;
        let head = json!({
            "version": 1, "config": stored.config, "tokenizer": tokenizer_json, "end_tokens": config.end_tokens,
            "settings": settings(config), "weights": weights, "facts": facts, "tensors": blob.tensors,
        });
        Ok(page::page(&facts.title, &head, &blob.bytes))
    }
}

/// Refuses a prompt with a character that the tokenizer lacks. One longer than the context is
/// allowed, as in `ember-generate text`.
fn check_beginning(beginning: Option<&str>, tokenizer: &Tokenizer) -> Result<()> {
    let Some(beginning) = beginning else { return Ok(()) };
    let encoded = tokenizer.encode_prompt(beginning, SpecialTokens::Parse);
    encoded.map(drop).with_context(|| format!("--beginning {beginning:?}"))
}

/// The page's generation settings for the model in `checkpoint`; notes those it cannot apply.
fn writing_config(
    checkpoint: &Path,
    tokenizer: &Tokenizer,
    vocab_size: usize,
    notes: &Notes,
) -> Result<GenerationConfig> {
    let drawing = FolderSettings::read(checkpoint)?;
    let left_out = left_out(&drawing.knobs);
    if !left_out.is_empty() {
        notes.say(format!("generation_config.json also sets {}, which the page does not support", left_out.join(", ")));
    }
    Ok(GenerationConfig {
        end_tokens: EndTokens::read(checkpoint, Some(tokenizer), vocab_size)?.ids,
        ..page_config(&GenerationConfig::resolve(&Knobs::default(), &drawing)?.0)
    })
}

/// The training text; None if there is none: a Hugging Face folder has no run around it, and a
/// run's text may be gone. Then the page shows fewer facts.
fn text_of(checkpoint: &Path, notes: &Notes) -> Option<Dataset> {
    match data_of(Some(checkpoint)).and_then(|data| dataset_for(&data, checkpoint)) {
        Ok(dataset) => Some(dataset),
        Err(Error::Text(TextError::NoRun(_))) => None,
        Err(error) => {
            notes.say(format!("the page says nothing of the training text: {:#}", wording::text_unknown(error)));
            None
        }
    }
}

/// Measures how much of the model's output is copied from its training text, finds private data in
/// it, and notes both; `None` if the text cannot be searched, or the model wrote nothing.
fn measure_copied(model: &Shared, weights: WeightType, dataset: Dataset, notes: &Notes) -> Result<Option<Samples>> {
    let Manifest { train, .. } = &dataset.manifest;
    if let Some(line) = copied::too_long(train.bytes + train.documents) {
        notes.say(line);
        return Ok(None);
    }
    notes.say("generating some texts, to measure how much is copied from the training text");
    let measured = copied::measure(&model.checkpoint, weights, &model.tokenizer, &model.config, dataset)?;
    match &measured {
        Some(Samples { copied, private }) => {
            notes.say(copied);
            notes.say(copied::private_line(private));
        }
        None => notes.say("the page does not say what the model copies: it wrote nothing"),
    }
    Ok(measured)
}

/// The page's settings: its own knobs as the folder sets them, all others off, and one text.
fn page_config(folder: &GenerationConfig) -> GenerationConfig {
    let &GenerationConfig { strategy, temperature, top_k, top_p, .. } = folder;
    let strategy = if strategy.samples() { Strategy::Sample } else { Strategy::Greedy };
    GenerationConfig { strategy, temperature, top_k, top_p, ..GenerationConfig::default() }
}

/// The initial values of the page's knobs; temperature 0 means greedy decoding.
fn settings(config: &GenerationConfig) -> Value {
    let temperature = if config.strategy.samples() { config.temperature } else { 0.0 };
    // The shortest decimal form of the float32: 0.8, not 0.800000011920929.
    let temperature: f64 = temperature.to_string().parse().unwrap_or(1.0);
    json!({ "temperature": temperature, "top_k": config.top_k, "top_p": config.top_p })
}

/// The knobs that the page offers.
const PAGE_KNOBS: [&str; 4] = ["temperature", "top_k", "top_p", "max_new_tokens"];

/// The knobs that a folder sets but the page does not offer.
fn left_out(folder: &Knobs) -> Vec<&'static str> {
    let others = KNOBS.iter().filter(|knob| !PAGE_KNOBS.contains(&knob.name));
    others.filter(|knob| knob.set_in(folder).is_some_and(|value| !knob.is_off(value))).map(|knob| knob.name).collect()
}

/// The tokenizer in the page's form, with the token that starts a text without a prompt.
///
/// # Errors
/// When the page does not support its kind; the message names the kinds that it supports.
fn tokenizer_of(tokenizer: &Tokenizer, opening: Option<u32>, checkpoint: &Path) -> Result<Value> {
    let json: Value = serde_json::from_str(&tokenizer.to_json()?)?;
    if let Some(what) = unknown_part(&json) {
        bail!(
            "{}: the page cannot read a tokenizer with {what}; it reads characters, bytes and GPT-2's byte-level BPE: share a model \
             with one of these",
            checkpoint.join("tokenizer.json").display()
        );
    }
    let before = tokenizer.before("", SpecialTokens::Parse);
    // Only the keys that the page reads: others would just make it larger.
    let kept = ["model", "pre_tokenizer", "added_tokens"].map(|key| (key.to_owned(), json[key].clone()));
    let json: serde_json::Map<String, Value> = kept.into_iter().collect();
    Ok(json!({ "json": json, "before": before, "opening": opening }))
}

/// The part of a `tokenizer.json` that the page does not support, if any.
fn unknown_part(json: &Value) -> Option<String> {
    let (model, split) = (&json["model"], &json["pre_tokenizer"]);
    let is_empty = |value: &Value| value.is_null() || value.as_str() == Some("");
    let odd_name = |token: &&Value| ["single_word", "lstrip", "rstrip"].iter().any(|key| token[key] == true);
    if !json["normalizer"].is_null() {
        return Some("a normalizer".to_owned());
    }
    if let Some(token) = json["added_tokens"].as_array().into_iter().flatten().find(odd_name) {
        return Some(format!("the added token {}, which strips spaces or matches whole words", token["content"]));
    }
    let marks = ["continuing_subword_prefix", "end_of_word_suffix"].iter().all(|key| is_empty(&model[key]));
    let draws = model["dropout"].as_f64().unwrap_or(0.0) > 0.0;
    let known = match (model["type"].as_str(), split["type"].as_str()) {
        (Some("WordLevel"), Some("Split")) => split["pattern"]["Regex"] == r"[\s\S]",
        (Some("BPE"), Some("ByteLevel")) => split["add_prefix_space"] == false && marks && !draws,
        _ => false,
    };
    let kind = || format!("the model {} and the pre-tokenizer {}", model["type"], split["type"]);
    (!known).then(kind).or_else(|| unknown_fallback(model))
}

/// The tokenizer's fallback for characters or bytes without a token, which the page does not
/// support: it refuses such a character and drops such a byte, as the program does without a
/// fallback.
fn unknown_fallback(model: &Value) -> Option<String> {
    let (vocabulary, unknown) = (model["vocab"].as_object()?, &model["unk_token"]);
    // GPT-2's characters for bytes: the printable ones of Latin-1, and further ones for the rest.
    let is_byte = |c: char| matches!(c, '!'..='~' | '\u{a1}'..='\u{ac}' | '\u{ae}'..='\u{143}');
    let is_a_byte = |token: &&String| token.chars().count() == 1 && token.chars().all(is_byte);
    let lacks_bytes = vocabulary.keys().filter(is_a_byte).count() < 256;
    let (stands_in, falls_back) = match model["type"].as_str() {
        Some("BPE") => (lacks_bytes && !unknown.is_null(), lacks_bytes && model["byte_fallback"] == true),
        _ => (unknown.as_str().is_some_and(|token| vocabulary.contains_key(token)), false),
    };
    match (stands_in, falls_back) {
        (true, _) => Some(format!("the unknown token {unknown}")),
        (false, true) => Some("byte fallback tokens such as <0x0A>".to_owned()),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_trained_here_can_be_read_and_sentencepiece_cannot() {
        let alphabet = "abc".chars().collect();
        for tokenizer in [
            Tokenizer::chars(&alphabet, false).unwrap(),
            Tokenizer::bytes().unwrap().opening_prompts().unwrap(),
            Tokenizer::train_bpe(260, ["a text"]).unwrap(),
        ] {
            let json: Value = serde_json::from_str(&tokenizer.to_json().unwrap()).unwrap();
            assert_eq!(unknown_part(&json), None);
        }
        let llama = json!({ "model": { "type": "BPE" }, "pre_tokenizer": null, "normalizer": { "type": "Sequence" } });
        assert_eq!(unknown_part(&llama).as_deref(), Some("a normalizer"));
        let odd = json!({ "model": { "type": "Unigram" }, "pre_tokenizer": { "type": "Metaspace" } });
        assert!(unknown_part(&odd).unwrap().contains("Unigram"));
    }

    /// If every byte has a token, the unknown token is never used, whatever the file sets.
    #[test]
    fn a_tokenizer_that_gives_tokens_for_what_has_none_is_refused() {
        let with = |whole: bool, key: &str, value: Value| {
            let mut json: Value = serde_json::from_str(&Tokenizer::bytes().unwrap().to_json().unwrap()).unwrap();
            if !whole {
                json["model"]["vocab"].as_object_mut().unwrap().remove("a").unwrap();
            }
            json["model"][key] = value;
            unknown_part(&json)
        };
        assert_eq!(with(false, "unk_token", Value::Null), None);
        for whole in [true, false] {
            assert_eq!(with(whole, "unk_token", json!("<unk>")).is_some(), !whole);
            assert_eq!(with(whole, "byte_fallback", json!(true)).is_some(), !whole);
        }
        let chars = Tokenizer::chars(&"abc".chars().collect(), false).unwrap().to_json().unwrap();
        let mut chars: Value = serde_json::from_str(&chars).unwrap();
        assert_eq!(unknown_part(&chars), None);
        chars["model"]["unk_token"] = json!("b");
        assert!(unknown_part(&chars).unwrap().contains("the unknown token \"b\""));
    }

    /// Measurements use the page's settings, and the page has few knobs.
    #[test]
    fn what_the_page_does_without_is_off_where_its_texts_are_measured() {
        let knobs = Knobs {
            do_sample: Some(true),
            temperature: Some(0.8),
            top_k: Some(40),
            top_p: Some(0.9),
            min_p: Some(0.1),
            repetition_penalty: Some(1.3),
            no_repeat_ngram_size: Some(3),
            suppress_tokens: Some(vec![1]),
            stop_strings: Some(vec![".".to_owned()]),
            ..Knobs::default()
        };
        let folder = FolderSettings { knobs, ..FolderSettings::default() };
        let (config, _) = GenerationConfig::resolve(&Knobs::default(), &folder).unwrap();
        let page = page_config(&config);
        assert_eq!(settings(&page), json!({ "temperature": 0.8, "top_k": 40, "top_p": 0.9 }));
        for knob in KNOBS.iter().filter(|knob| !PAGE_KNOBS.contains(&knob.name)) {
            assert!(knob.is_off(knob.of(&page)), "{}", knob.name);
        }
        let beams = GenerationConfig { strategy: Strategy::Beam, num_beams: 4, ..GenerationConfig::default() };
        assert_eq!(page_config(&beams), GenerationConfig::default());
        assert_eq!(settings(&page_config(&beams)), json!({ "temperature": 0.0, "top_k": 0, "top_p": 1.0 }));
    }
}
