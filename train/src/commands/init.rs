//! Where a run's weights come from: random numbers, or with `init` a checkpoint, whose shape and tokenizer come with it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail, ensure};
use burn::tensor::Device;
use ember_cli::program::Notes;
use ember_data::prepare::Dataset;
use ember_data::tokenizer::{Tokenizer, UnknownCharacter};
use ember_decoding::run_folder;
use ember_model::{Gpt, GptConfig, checkpoint, folder};

use ember_training::config::{Settings, TextFacts, TrainConfig};

/// A checkpoint to begin from, found and whole; its weights are not read yet.
pub struct Init {
    folder: PathBuf,
    found: String,
    shape: GptConfig,
    tokenizer: Tokenizer,
}

impl Init {
    /// Finds the checkpoint that `named` means: a run, a checkpoint or a Hugging Face folder.
    ///
    /// # Errors
    /// When there is none, it is damaged, or its tokenizer is missing or not the model's.
    pub fn open(named: &str) -> Result<Self> {
        let open = || -> Result<Self> {
            let found = run_folder::find(Some(Path::new(named)))?;
            let folder = found.folder;
            folder::verify_checksums_for_inference(&folder)?;
            let shape = folder::read_config(&folder)?;
            ensure!(
                Tokenizer::is_in(&folder),
                "{} has no tokenizer.json (nor vocab.json with merges.txt), so the text cannot become this model's tokens; put \
                 the model's own tokenizer there",
                folder.display()
            );
            let tokenizer = Tokenizer::from_folder(&folder)?;
            ensure!(
                tokenizer.vocab_size() <= shape.vocab_size,
                "{}: its tokenizer has {} tokens, but its config.json says vocab_size {}: the model has no embedding for the \
                 others; put the model's own tokenizer there",
                folder.display(),
                tokenizer.vocab_size(),
                shape.vocab_size
            );
            Ok(Self { folder, found: found.reason, shape, tokenizer })
        };
        open().context("init")
    }

    /// Lets the text become this checkpoint's tokens.
    ///
    /// # Errors
    /// When another tokenizer was asked for.
    pub fn give_tokenizer(&self, settings: &mut Settings, notes: &Notes) -> Result<()> {
        let why = if self.found.is_empty() { String::new() } else { format!(" ({})", self.found) };
        notes.say(format!("beginning from {}{why}", self.folder.display()));
        Ok(settings.take_tokenizer(&self.folder)?)
    }

    /// The model that a run by `config` begins from: this checkpoint's, with the run's context and dropout.
    pub fn shape(&self, config: &TrainConfig) -> GptConfig {
        GptConfig { context_length: config.context_length, dropout: config.dropout, ..self.shape.clone() }
    }

    /// Gives the run this checkpoint's shape.
    ///
    /// # Errors
    /// When a key contradicts it.
    pub fn give_shape(&self, settings: &mut Settings, facts: &TextFacts, notes: &Notes) -> Result<()> {
        for reason in settings.take_shape(&self.folder, &self.shape, facts)? {
            notes.say(reason);
        }
        Ok(())
    }

    /// Refuses tokens that were prepared with another tokenizer.
    ///
    /// # Errors
    /// When a token of `dataset`, which is in `data`, is not the checkpoint's token of the same id.
    pub fn check_tokens(&self, dataset: &Dataset, data: &Path) -> Result<()> {
        let (theirs, ours) = (&dataset.tokenizer, &self.tokenizer);
        let (data, folder) = (data.display(), self.folder.display());
        let again = format!("prepare the text again with --tokenizer {folder}");
        if theirs.vocab_size() != ours.vocab_size() {
            bail!(
                "{data} was prepared with a tokenizer of {} tokens, the checkpoint {folder} has one of {}; {again}",
                theirs.vocab_size(),
                ours.vocab_size()
            );
        }
        let other = (0..ours.vocab_size() as u32).find(|id| theirs.token_bytes(*id) != ours.token_bytes(*id));
        if let Some(id) = other {
            let word = |bytes: Option<Vec<u8>>| format!("{:?}", String::from_utf8_lossy(&bytes.unwrap_or_default()));
            bail!(
                "{data} was prepared with another tokenizer than the checkpoint's {folder}: token {id} is {} there and {} here; \
                 {again}",
                word(theirs.token_bytes(id)),
                word(ours.token_bytes(id))
            );
        }
        Ok(())
    }

    /// Says of a text with unknown characters that the model has no token for them.
    pub fn explain(&self, error: Error) -> Error {
        if error.chain().any(|cause| cause.is::<UnknownCharacter>()) {
            error.context(format!("the model in {} has no token for some of this text", self.folder.display()))
        } else {
            error
        }
    }
}

/// The model of a run before its first step.
///
/// # Errors
/// When the checkpoint to begin from is gone, damaged or no longer the one that the run began from.
pub fn first_model(config: &TrainConfig, dataset: &Dataset, device: &Device) -> Result<Gpt> {
    if config.init.is_empty() {
        return Ok(Gpt::new(&config.shape(dataset.manifest.vocab_size), config.seed, device)?);
    }
    let dir = Path::new(&config.init);
    let change =
        |shape: &mut GptConfig| (shape.context_length, shape.dropout) = (config.context_length, config.dropout);
    let gpt = folder::verify_checksums_for_inference(dir)
        .map_err(ember_model::Error::from)
        .and_then(|()| checkpoint::load_changed(dir, change, device))
        .with_context(|| format!("cannot begin from {}", dir.display()))?;
    ensure!(is_model_of(gpt.config(), config, dataset), "{} is no longer what the run began from", dir.display());
    Ok(gpt)
}

/// Whether `shape` is what the configuration and the text's tokens make. Of a model that began from a checkpoint, what no key
/// decides is not asked: unused token ids, the width of its heads, its norms' epsilon.
pub fn is_model_of(shape: &GptConfig, config: &TrainConfig, dataset: &Dataset) -> bool {
    let mut expected = config.shape(dataset.manifest.vocab_size);
    if !config.init.is_empty() && shape.vocab_size >= expected.vocab_size {
        expected.vocab_size = shape.vocab_size;
        expected.head_size = shape.head_size;
        expected.norm_epsilon = shape.norm_epsilon;
    }
    *shape == expected
}
