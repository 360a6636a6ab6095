//! Loading a checkpoint folder: the model, its tokenizer and its end tokens.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use ember_data::tokenizer::{self, SpecialTokens, Tokenizer};
use ember_model::{Gpt, WeightType, checkpoint, folder};
use ember_model::{device::DeviceError, folder::FolderError};

/// Why a folder cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum LoadError {
    /// The device is not available.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The model cannot be read.
    #[error("cannot load {}", folder.display())]
    Model { folder: PathBuf, source: ember_model::Error },
    /// The tokenizer cannot be read.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// A file is damaged.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The tokenizer belongs to another model.
    #[error(
        "{}: the tokenizer has {tokens} tokens, but the model's config.json only {vocab_size}; put the model's own tokenizer there",
        folder.display()
    )]
    OtherTokenizer { folder: PathBuf, tokens: usize, vocab_size: usize },
}

/// Loads the model in `folder` for inference, with its matrices stored as `weights`, onto the
/// device that `device` returns, and its tokenizer, which may be missing only if `ids_suffice`.
/// Model, tokenizer and checksums are read in parallel; damaged files are rejected before use.
///
/// # Errors
/// If the device is not available, or a file is missing, damaged, or belongs to another model.
pub fn load(
    folder: &Path,
    weights: WeightType,
    ids_suffice: bool,
    device: impl FnOnce() -> Result<Device, DeviceError> + Send,
) -> Result<(Gpt, Option<Tokenizer>), LoadError> {
    let model = || {
        let loaded = checkpoint::load_for_inference(folder, weights, &device()?);
        loaded.map_err(|source| LoadError::Model { folder: folder.to_owned(), source })
    };
    let tokenizer = || (Tokenizer::is_in(folder) || !ids_suffice).then(|| Tokenizer::from_folder(folder)).transpose();
    // Checksum errors are reported first: a damaged file is the cause of any loading error.
    let (model, (tokenizer, intact)) =
        rayon::join(model, || rayon::join(tokenizer, || folder::verify_checksums_for_inference(folder)));
    intact?;
    let (tokenizer, model) = (tokenizer?, model?);
    let (tokens, vocab_size) = (tokenizer.as_ref().map_or(0, Tokenizer::vocab_size), model.config().vocab_size);
    if tokens > vocab_size {
        return Err(LoadError::OtherTokenizer { folder: folder.to_owned(), tokens, vocab_size });
    }
    Ok((model, tokenizer))
}

/// The token to start from if there is no prompt and the tokenizer adds no token before a text: the
/// folder's `bos_token_id`, else the tokenizer's `<|endoftext|>`, which precedes documents.
///
/// # Errors
/// If the file that names it is malformed.
pub fn opening(folder: &Path, tokenizer: Option<&Tokenizer>, vocab_size: usize) -> Result<Option<u32>, FolderError> {
    let named = folder::read_opening(folder)?.filter(|id| (*id as usize) < vocab_size);
    Ok(named.or(tokenizer.and_then(Tokenizer::end_of_text)))
}

/// The ids of a prompt. An empty text starts from the tokens that the tokenizer puts before every
/// text, else from `opening`, the token that [`opening`] finds; without one it has no ids.
/// `special` says how names of special tokens are read.
///
/// # Errors
/// If the tokenizer lacks a character of the text, or its library fails.
pub fn prompt_ids(
    text: &str,
    tokenizer: &Tokenizer,
    opening: Option<u32>,
    special: SpecialTokens,
) -> Result<Vec<u32>, tokenizer::Error> {
    let ids = tokenizer.encode_prompt(text, special)?;
    Ok(if ids.is_empty() { Vec::from_iter(opening) } else { ids })
}

/// The tokens that end a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndTokens {
    /// The end tokens in effect: those that the folder names, else the tokenizer's own.
    pub ids: Vec<u32>,
    /// End tokens that the folder names but the model does not have.
    pub unknown: Vec<u32>,
    /// Whether the folder's end tokens differ from the tokenizer's own.
    pub differ: bool,
}

impl EndTokens {
    /// Reads the end tokens of a folder and its tokenizer.
    ///
    /// # Errors
    /// If a file that names them is malformed.
    pub fn read(folder: &Path, tokenizer: Option<&Tokenizer>, vocab_size: usize) -> Result<Self, FolderError> {
        let is_known = |id: &u32| (*id as usize) < vocab_size;
        let own = Vec::from_iter(tokenizer.and_then(Tokenizer::end_of_text));
        let (ids, unknown): (Vec<u32>, Vec<u32>) = folder::read_end_tokens(folder)?.into_iter().partition(is_known);
        if ids.is_empty() {
            return Ok(Self { ids: own.into_iter().filter(is_known).collect(), unknown, differ: false });
        }
        Ok(Self { differ: ids != own, ids, unknown })
    }
}
