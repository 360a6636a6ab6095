//! A run's initial weights: random numbers, or with `init` a checkpoint, whose shape and tokenizer
//! the run takes too.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use ember_data::prepare::Dataset;
use ember_data::tokenizer::{Tokenizer, UnknownCharacter};
use ember_decoding::run_folder;
use ember_model::{Gpt, GptConfig, checkpoint, folder};

use crate::config::TrainConfig;
use crate::error::{Error, InitError, Result};

/// An initial checkpoint, found and verified; its weights are not read yet.
pub struct Init {
    /// Its folder.
    pub folder: PathBuf,
    /// Its name for the user: the folder, or the file of another program if that was named.
    pub named: PathBuf,
    /// The line that tells which checkpoint was found.
    pub(super) found: String,
    /// The shape of its model.
    pub shape: GptConfig,
    tokenizer: Tokenizer,
}

impl Init {
    /// Finds the checkpoint that `named` means: a run, a checkpoint or a Hugging Face folder.
    ///
    /// # Errors
    /// When there is none, it is damaged, or its tokenizer is missing or not the model's.
    pub fn open(named: &str) -> Result<Self, InitError> {
        Self::find(named).map_err(|error| InitError::Open(error.into()))
    }

    fn find(named: &str) -> Result<Self> {
        let named = Path::new(named);
        run_folder::find_and_open(Some(named), |found| Self::of_found(named, found))
    }

    fn of_found(named: &Path, found: run_folder::Found) -> Result<Self> {
        let line = format!("beginning from {found}");
        let folder = found.folder;
        folder::verify_checksums_for_inference(&folder)?;
        let shape = folder::read_config(&folder)?;
        if !Tokenizer::is_in(&folder) {
            return Err(InitError::NoTokenizer(folder).into());
        }
        let tokenizer = Tokenizer::from_folder(&folder)?;
        let (tokens, vocab_size) = (tokenizer.vocab_size(), shape.vocab_size);
        if tokens > vocab_size {
            return Err(InitError::ForeignTokenizer { folder, tokens, vocab_size }.into());
        }
        // A folder that was named stays the one to begin from, whatever has become of its original.
        let named = if named.is_file() { run_folder::original_of(&folder) } else { folder.clone() };
        Ok(Self { found: line, named, folder, shape, tokenizer })
    }

    /// The shape of the model of a run with `config`: this checkpoint's, with the run's context and
    /// dropout.
    pub fn shape_by(&self, config: &TrainConfig) -> GptConfig {
        GptConfig { context_length: config.context_length, dropout: config.dropout, ..self.shape.clone() }
    }

    /// Refuses tokens that were prepared with another tokenizer.
    ///
    /// # Errors
    /// When a token of `dataset`, which is in `data`, is not the checkpoint's token of the same id.
    pub fn check_tokens(&self, dataset: &Dataset, data: &Path) -> Result<(), InitError> {
        let (theirs, ours) = (&dataset.tokenizer, &self.tokenizer);
        let folder = self.folder.display();
        let what = if theirs.vocab_size() != ours.vocab_size() {
            let (theirs, ours) = (theirs.vocab_size(), ours.vocab_size());
            format!("a tokenizer of {theirs} tokens, the checkpoint {folder} has one of {ours}")
        } else {
            let Some(id) = theirs.first_difference(ours) else { return Ok(()) };
            let word = |tokenizer: &Tokenizer| {
                String::from_utf8_lossy(&tokenizer.token_bytes(id).unwrap_or_default()).into_owned()
            };
            let (theirs, ours) = (word(theirs), word(ours));
            format!(
                "another tokenizer than that of the checkpoint {folder}: token {id} is {theirs:?} in the text and {ours:?} \
                 in the checkpoint"
            )
        };
        Err(InitError::OtherTokenizer { data: data.to_owned(), folder: self.folder.clone(), what })
    }

    /// Turns an error about unknown characters into one that names this model; returns others as
    /// they are.
    pub fn explain(&self, error: Error) -> Error {
        if error.chain().any(|cause| cause.is::<UnknownCharacter>()) {
            return InitError::UnknownCharacters { folder: self.named.clone(), source: error.into() }.into();
        }
        error
    }
}

/// The name of the checkpoint in a run's `init`: its run and its step, or the name of its folder,
/// without the path, which is private. `None` if the initial weights were random.
pub fn initial_checkpoint_name(init: &str) -> Option<String> {
    if init.is_empty() {
        return None;
    }
    // The run may have begun on Windows.
    let folder = init.replace('\\', "/");
    Some(run_folder::name_of_checkpoint(Path::new(&folder)).unwrap_or_else(|| "another model".to_owned()))
}

/// The model of a run before its first step.
///
/// # Errors
/// When the initial checkpoint is gone, damaged or no longer the one that the run began from.
pub fn initial_model(config: &TrainConfig, dataset: &Dataset, device: &Device) -> Result<Gpt> {
    if config.init.is_empty() {
        return Ok(Gpt::new(&config.shape(dataset.manifest.vocab_size), config.seed, device)?);
    }
    let named = PathBuf::from(&config.init);
    let change =
        |shape: &mut GptConfig| (shape.context_length, shape.dropout) = (config.context_length, config.dropout);
    let load = || -> Result<Gpt> {
        let folder = run_folder::folder_of(&named)?;
        folder::verify_checksums_for_inference(&folder)?;
        Ok(checkpoint::load_changed(&folder, change, device)?)
    };
    let gpt = load().map_err(|error| InitError::Gone { folder: named.clone(), source: error.into() })?;
    if is_model_of(gpt.config(), config, dataset) { Ok(gpt) } else { Err(InitError::Changed(named).into()) }
}

/// Whether `shape` matches the configuration and the text's vocabulary. For a run that began from a
/// checkpoint, values without a key are not compared: unused token ids, the head size, the norms'
/// epsilon.
pub fn is_model_of(shape: &GptConfig, config: &TrainConfig, dataset: &Dataset) -> bool {
    let mut expected = config.shape(dataset.manifest.vocab_size);
    if !config.init.is_empty() && shape.vocab_size >= expected.vocab_size {
        expected.vocab_size = shape.vocab_size;
        expected.head_size = shape.head_size;
        expected.norm_epsilon = shape.norm_epsilon;
    }
    *shape == expected
}

#[cfg(test)]
mod tests {
    use super::initial_checkpoint_name;

    #[test]
    fn what_a_run_began_from_is_named_without_its_place() {
        for (init, expected) in [
            ("", None),
            ("/home/ana/runs/diary/checkpoints/step-00000500", Some("diary, step 500")),
            (r"C:\Users\ana\runs\diary\checkpoints\step-00000500", Some("diary, step 500")),
            ("/home/ana/models/..", Some("another model")),
        ] {
            assert_eq!(initial_checkpoint_name(init).as_deref(), expected, "{init}");
        }
    }
}
