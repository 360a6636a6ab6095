//! A checkpoint folder, opened: the model, its tokenizer, and the tokens that end a text.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use ember_data::tokenizer::{self, Tokenizer};
use ember_model::{Gpt, WeightType, checkpoint, folder};
use ember_model::{device::DeviceError, folder::FolderError};

/// Why a folder cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum LoadError {
    /// The device cannot be had.
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
    /// The tokenizer is another model's.
    #[error(
        "{}: the tokenizer has {tokens} tokens, but the model's config.json only {vocab_size}; they do not belong together",
        folder.display()
    )]
    OtherTokenizer { folder: PathBuf, tokens: usize, vocab_size: usize },
}

/// The model in `folder` for inference, on what `device` gives, its matrices stored as `weights`;
/// and its tokenizer, which may be missing only where `ids_suffice`. All is read at once, and a
/// damaged file is refused before anything of it is used.
///
/// # Errors
/// When the device cannot be had, or a file is missing, damaged, or another model's.
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
    // What a damaged file broke is not told instead of the damage.
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

/// The token that a text of its own begins with, where nothing is given to go on with and the
/// tokenizer puts nothing before a text: the folder's `bos_token_id`, else the tokenizer's
/// `<|endoftext|>`, behind which documents begin.
///
/// # Errors
/// When the file that names it is not what it should be.
pub fn opening(folder: &Path, tokenizer: Option<&Tokenizer>, vocab_size: usize) -> Result<Option<u32>, FolderError> {
    let named = folder::read_opening(folder)?.filter(|id| (*id as usize) < vocab_size);
    Ok(named.or(tokenizer.and_then(Tokenizer::end_of_text)))
}

/// The tokens that end a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndTokens {
    /// Those that apply: what the folder names, else the tokenizer's own.
    pub ids: Vec<u32>,
    /// Those that the folder names and the model does not have.
    pub unknown: Vec<u32>,
    /// Whether the folder names others than the tokenizer's own.
    pub differ: bool,
}

impl EndTokens {
    /// Those of a folder and its tokenizer.
    ///
    /// # Errors
    /// When a file that names them is not what it should be.
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
