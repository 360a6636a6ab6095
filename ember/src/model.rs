//! An open checkpoint.

use std::{ops::ControlFlow, path::Path, path::PathBuf};

use ember_data::tokenizer::{self, SpecialTokens, Tokenizer};
use ember_decoding::config::{FolderError, FolderSettings, GenerationConfig, KnobError, Knobs};
use ember_decoding::generator::{Generator, Prompts, Reader, Written};
use ember_decoding::load::{self, EndTokens, LoadError, prompt_ids};
use ember_decoding::score::{Tally, score_texts, scored_bytes};
use ember_decoding::{completion::FinishReason, run_folder, run_folder::FindError, stop::EmptyStopString};
use ember_model::{Gpt, WeightType, device, device::DeviceChoice, folder};

/// Why a model cannot be opened, or cannot generate or score a text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No checkpoint was found.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The checkpoint cannot be read, or the device is not available.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The folder specifies its end tokens in an unknown form.
    #[error(transparent)]
    Folder(#[from] folder::FolderError),
    /// The folder's `generation_config.json` is invalid.
    #[error(transparent)]
    Settings(#[from] FolderError),
    /// The knobs contradict each other.
    #[error(transparent)]
    Knobs(#[from] KnobError),
    /// The tokenizer cannot read a text.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// A stop string is empty.
    #[error(transparent)]
    StopString(#[from] EmptyStopString),
    /// The request cannot be computed.
    #[error(transparent)]
    Decoding(#[from] ember_decoding::Error),
}

/// How a model is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening {
    /// The device it runs on; by default the first that works.
    pub device: DeviceChoice,
    /// The type that its matrices are stored in; by default float32.
    pub weights: WeightType,
}

/// A model, its tokenizer, and its default settings for generation.
pub struct Model {
    folder: PathBuf,
    gpt: Gpt,
    tokenizer: Tokenizer,
    /// The token that starts a new text, if the model has one.
    first_token: Option<u32>,
    config: GenerationConfig,
}

impl Model {
    /// Opens a run (its best checkpoint, else its latest), a checkpoint folder, a Hugging Face
    /// folder or a model file (.gguf, ckpt.pt, .bin), on the first device that works.
    ///
    /// # Errors
    /// When there is no checkpoint, or it cannot be read.
    pub fn open(from: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(from, Opening::default())
    }

    /// As [`Self::open`], with the caller's choice of device and weight type.
    ///
    /// # Errors
    /// As [`Self::open`], and when the device is not available or cannot compute with such weights.
    pub fn open_with(from: impl AsRef<Path>, opening: Opening) -> Result<Self, Error> {
        run_folder::find_and_open(Some(from.as_ref()), |found| Self::of_folder(found.folder, &opening))
    }

    fn of_folder(folder: PathBuf, opening: &Opening) -> Result<Self, Error> {
        let device = || Ok(device::select(opening.device)?.device);
        let (gpt, tokenizer) = load::load(&folder, opening.weights, false, device)?;
        let Some(tokenizer) = tokenizer else { unreachable!("a folder without a tokenizer is refused") };
        let end_tokens = EndTokens::read(&folder, Some(&tokenizer), gpt.config().vocab_size)?.ids;
        let (config, _) = GenerationConfig::resolve(&Knobs::default(), &FolderSettings::read(&folder)?)?;
        let first_token = load::opening(&folder, Some(&tokenizer), gpt.config().vocab_size)?;
        Ok(Self { folder, gpt, tokenizer, first_token, config: GenerationConfig { end_tokens, ..config } })
    }

    /// The checkpoint's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The model itself.
    pub fn gpt(&self) -> &Gpt {
        &self.gpt
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The default settings for generation, from its folder. To change a knob, edit a copy and pass
    /// it to [`Self::generator`].
    pub fn config(&self) -> &GenerationConfig {
        &self.config
    }

    /// A generator with these knobs, which also accepts the caller's own grammars, drafts and
    /// processors.
    ///
    /// # Errors
    /// When a stop string is empty.
    pub fn generator(&self, config: GenerationConfig) -> Result<Generator<'_>, Error> {
        Ok(Generator::new(&self.gpt, Some(&self.tokenizer), config)?)
    }

    /// The token ids of a prompt, including any that the tokenizer puts in front; those that start a
    /// new text if it is empty.
    ///
    /// # Errors
    /// When it has a character that the tokenizer does not know.
    pub fn encode(&self, prompt: &str) -> Result<Vec<u32>, Error> {
        Ok(prompt_ids(prompt, &self.tokenizer, self.first_token, SpecialTokens::Parse)?)
    }

    /// Returns a continuation of `prompt`, generated with the folder's settings.
    ///
    /// # Errors
    /// When the prompt cannot be read or has no ids, or the context is full.
    pub fn write(&self, prompt: &str) -> Result<String, Error> {
        self.stream(prompt, &self.config, |_| ControlFlow::Continue(()))
    }

    /// Returns a continuation of `prompt` generated with these knobs, and calls `on_text` with each
    /// piece as soon as it is final. `on_text` breaks to end the text there.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn stream(
        &self,
        prompt: &str,
        config: &GenerationConfig,
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<String, Error> {
        let mut listener = Listener { on_text, goes_on: true };
        let ids = self.encode(prompt)?;
        let prompts = Prompts { ids: &[&ids], sequences: Some(1), ..Prompts::default() };
        let written = self.generator(config.clone())?.write(&prompts, &mut listener)?;
        Ok(written.into_iter().next().map(|written| written.text).unwrap_or_default())
    }

    /// Continues many prompts together with these knobs: as many continuations for each as
    /// `num_return_sequences` asks for, the best first if they are ranked.
    ///
    /// # Errors
    /// As [`Self::write`], for the first prompt at fault.
    pub fn write_all(&self, prompts: &[&str], config: &GenerationConfig) -> Result<Vec<Written>, Error> {
        let ids = prompts.iter().map(|prompt| self.encode(prompt)).collect::<Result<Vec<_>, _>>()?;
        let ids: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
        Ok(self.generator(config.clone())?.write(&Prompts { ids: &ids, ..Prompts::default() }, &mut ())?)
    }

    /// The probability of a text: its loss in nats per token, its perplexity, its bits per byte. A
    /// text longer than the context is scored in windows that overlap by one token; those of
    /// `ember-generate score` overlap by half unless it is told otherwise, so its loss differs a
    /// little.
    ///
    /// # Errors
    /// When it has fewer than two tokens, or a character that the tokenizer does not know.
    pub fn score(&self, text: &str) -> Result<Tally, Error> {
        let ids = self.tokenizer.encode_whole(text, SpecialTokens::Parse)?;
        let stride = self.gpt.config().context_length;
        let scored = score_texts(&self.gpt, &[&ids], stride, &mut |_| ControlFlow::Continue(()))?;
        let logprobs: Vec<f32> = scored.into_iter().flatten().flatten().collect();
        Ok(Tally::new(&logprobs, scored_bytes(text, &ids, &self.tokenizer, SpecialTokens::Parse)))
    }
}

/// Passes text to a closure.
struct Listener<F> {
    on_text: F,
    goes_on: bool,
}

impl<F: FnMut(&str) -> ControlFlow<()>> Reader for Listener<F> {
    fn text(&mut self, _row: usize, text: &str) {
        if self.goes_on && !text.is_empty() {
            self.goes_on = (self.on_text)(text).is_continue();
        }
    }

    fn go_on(&mut self, _row: usize, _steps: usize) -> ControlFlow<FinishReason> {
        if self.goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(FinishReason::Interrupted) }
    }
}
