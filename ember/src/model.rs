//! A checkpoint that is open.

use std::{ops::ControlFlow, path::Path, path::PathBuf};

use ember_data::tokenizer::{self, SpecialTokens, Tokenizer};
use ember_decoding::config::{FolderError, FolderSettings, GenerationConfig, KnobError, Knobs};
use ember_decoding::generator::{Generator, Prompts, Reader, Written};
use ember_decoding::load::{EndTokens, LoadError, load};
use ember_decoding::score::{Tally, score_texts, scored_bytes};
use ember_decoding::{completion::FinishReason, run_folder, run_folder::FindError, stop::EmptyStopString};
use ember_model::{Gpt, WeightType, device, device::DeviceChoice, folder};

/// Why a model cannot be opened, or something cannot be written or scored with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no checkpoint.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The checkpoint cannot be read, or the device cannot be had.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The folder names end tokens in a way that is not known.
    #[error(transparent)]
    Folder(#[from] folder::FolderError),
    /// The folder's `generation_config.json` is not what it should be.
    #[error(transparent)]
    Settings(#[from] FolderError),
    /// Knobs that contradict each other.
    #[error(transparent)]
    Knobs(#[from] KnobError),
    /// A text that the tokenizer cannot read.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// A stop string without a character.
    #[error(transparent)]
    StopString(#[from] EmptyStopString),
    /// What is asked for cannot be computed.
    #[error(transparent)]
    Decoding(#[from] ember_decoding::Error),
}

/// How a model is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening {
    /// Where it computes; by default on the first device that works.
    pub device: DeviceChoice,
    /// What its matrices are stored as; by default float32.
    pub weights: WeightType,
}

/// A model, its tokenizer, and how its texts are drawn unless somebody asks for something else.
pub struct Model {
    folder: PathBuf,
    gpt: Gpt,
    tokenizer: Tokenizer,
    config: GenerationConfig,
}

impl Model {
    /// Opens a run (its best checkpoint, else its latest), a checkpoint folder, a Hugging Face
    /// folder or a model's file (.gguf, ckpt.pt, .bin), on the first device that works.
    ///
    /// # Errors
    /// When there is no checkpoint, or it cannot be read.
    pub fn open(from: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(from, Opening::default())
    }

    /// As [`Self::open`], on a device and in a form of the caller's choice.
    ///
    /// # Errors
    /// As [`Self::open`], and when the device cannot be had or does not compute with such weights.
    pub fn open_with(from: impl AsRef<Path>, opening: Opening) -> Result<Self, Error> {
        run_folder::find_and_open(Some(from.as_ref()), |found| Self::of_folder(found.folder, &opening))
    }

    fn of_folder(folder: PathBuf, opening: &Opening) -> Result<Self, Error> {
        let device = || Ok(device::select(opening.device)?.device);
        let (gpt, tokenizer) = load(&folder, opening.weights, false, device)?;
        let Some(tokenizer) = tokenizer else { unreachable!("a folder without a tokenizer is refused") };
        let end_tokens = EndTokens::read(&folder, Some(&tokenizer), gpt.config().vocab_size)?.ids;
        let (config, _) = GenerationConfig::resolve(&Knobs::default(), &FolderSettings::read(&folder)?)?;
        Ok(Self { folder, gpt, tokenizer, config: GenerationConfig { end_tokens, ..config } })
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

    /// How its texts are drawn, as its folder says: to change a knob, change a copy, and hand it to
    /// [`Self::generator`].
    pub fn config(&self) -> &GenerationConfig {
        &self.config
    }

    /// A writer with these knobs, which takes grammars, drafts and processors of the caller's own.
    ///
    /// # Errors
    /// When a stop string is empty.
    pub fn generator(&self, config: GenerationConfig) -> Result<Generator<'_>, Error> {
        Ok(Generator::new(&self.gpt, Some(&self.tokenizer), config)?)
    }

    /// The ids of a prompt, with what the tokenizer puts before one.
    ///
    /// # Errors
    /// When it has a character that the tokenizer does not know.
    pub fn encode(&self, prompt: &str) -> Result<Vec<u32>, Error> {
        Ok(self.tokenizer.encode_prompt(prompt, SpecialTokens::Parse)?)
    }

    /// A continuation of `prompt`, drawn as the folder says.
    ///
    /// # Errors
    /// When the prompt is empty or cannot be read, or the context is full.
    pub fn write(&self, prompt: &str) -> Result<String, Error> {
        self.stream(prompt, &self.config, |_| ControlFlow::Continue(()))
    }

    /// A continuation of `prompt` by these knobs, told piece by piece: what `on_text` has got is
    /// final. It breaks off to end the text there.
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

    /// Continuations of many prompts by these knobs, computed together: for each as many as
    /// `num_return_sequences` asks for, the best first where they are ranked.
    ///
    /// # Errors
    /// As [`Self::write`], for the first prompt at fault.
    pub fn write_all(&self, prompts: &[&str], config: &GenerationConfig) -> Result<Vec<Written>, Error> {
        let ids = prompts.iter().map(|prompt| self.encode(prompt)).collect::<Result<Vec<_>, _>>()?;
        let ids: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
        Ok(self.generator(config.clone())?.write(&Prompts { ids: &ids, ..Prompts::default() }, &mut ())?)
    }

    /// How probable a text is: its loss in nats per token, its perplexity, its bits per byte.
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

/// Hands text on to a closure.
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
