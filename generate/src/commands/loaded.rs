//! Startup of every command that uses a model: finds the checkpoint, selects the device, loads the
//! model.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use ember_data::tokenizer::Tokenizer;
use ember_model::{Gpt, WeightType, device};

use ember_cli::compile_progress::{CompileProgress, KERNELS_OF_A_TEXT};
use ember_cli::program::{CommonArgs, Notes, UsageError};
use ember_decoding::config::FolderSettings;
use ember_decoding::load::{EndTokens, load, opening};
use ember_decoding::run_folder;
use ember_decoding::stream::{token_bytes, token_text};

/// Note about a tokenizer whose decoder joins tokens in a way not supported here.
const UNKNOWN_DECODER: &str = "this kind of tokenizer gives single tokens no text: each is shown as \u{fffd}; \
                               --format json has the ids";

/// The folder's generation settings, which apply where no flag is given, and its end tokens.
pub(super) struct FolderDefaults {
    pub(super) settings: FolderSettings,
    end_tokens: EndTokens,
}

impl FolderDefaults {
    /// The tokens that end a text: those that the folder names, else the tokenizer's end-of-text
    /// token. Prints a note where the two differ.
    pub(super) fn end_tokens(self, notes: &Notes) -> Vec<u32> {
        let EndTokens { ids, unknown, differ } = self.end_tokens;
        if !unknown.is_empty() {
            notes.say(format!("the folder's end tokens {unknown:?} are outside the model's vocabulary: not applied"));
        }
        if differ {
            notes.say(format!("a text ends with the folder's eos_token_id: {ids:?}"));
        }
        ids
    }
}

/// The generation settings of the folder that `from` names, read before the slow loading of its
/// model: some wrong flags can be detected only together with these settings.
pub(super) fn folder_settings(from: Option<&Path>) -> Result<FolderSettings> {
    run_folder::find_and_open(from, |found| Ok(FolderSettings::read(&found.folder)?))
}

/// A loaded model and the folder it came from.
pub(super) struct Loaded {
    pub(super) folder: PathBuf,
    pub(super) model: Gpt,
    pub(super) tokenizer: Option<Tokenizer>,
    /// The device that the model is on, such as `cuda:0`.
    pub(super) device_id: String,
    /// Its kind, such as `cuda`.
    pub(super) device_kind: String,
    /// The name that the device reports.
    pub(super) device_name: String,
    pub(super) on_gpu: bool,
    /// Whether notes are hidden.
    pub(super) is_quiet: bool,
    /// The token that starts a new text, if the model has one.
    pub(super) opening: Option<u32>,
}

impl Loaded {
    /// Loads the checkpoint that `from` names, with its matrices stored as `weights`; a folder may
    /// lack a tokenizer only if `ids_suffice`.
    pub(super) fn new(
        from: Option<&Path>,
        ids_suffice: bool,
        weights: WeightType,
        common: &CommonArgs,
        notes: &Notes,
    ) -> Result<Self> {
        Ok(Self::open(from, ids_suffice, weights, common, notes, |_, _, _| Ok(()))?.0)
    }

    /// Like [`Self::new`], and reads the folder's generation defaults too.
    pub(super) fn with_defaults(
        from: Option<&Path>,
        ids_suffice: bool,
        weights: WeightType,
        common: &CommonArgs,
        notes: &Notes,
    ) -> Result<(Self, FolderDefaults)> {
        Self::open(from, ids_suffice, weights, common, notes, |folder, tokenizer, vocab_size| {
            let end_tokens = EndTokens::read(folder, tokenizer, vocab_size)?;
            Ok(FolderDefaults { settings: FolderSettings::read(folder)?, end_tokens })
        })
    }

    /// Loads the checkpoint that `from` names; `read_more` reads additional data from the same
    /// folder.
    fn open<T>(
        from: Option<&Path>,
        ids_suffice: bool,
        weights: WeightType,
        common: &CommonArgs,
        notes: &Notes,
        read_more: impl Fn(&Path, Option<&Tokenizer>, usize) -> Result<T>,
    ) -> Result<(Self, T)> {
        let mut selected: Option<device::Selected> = None;
        let mut device = || -> Result<_, device::DeviceError> {
            if let Some(device) = &selected {
                return Ok(device.device.clone());
            }
            let device = selected.insert(device::select(common.device)?);
            notes.say(device.line());
            Ok(device.device.clone())
        };
        let opened = run_folder::find_and_open(from, |found| -> Result<_> {
            notes.say(format!("checkpoint: {found}"));
            let (model, tokenizer) = load(&found.folder, weights, ids_suffice, &mut device)?;
            let vocab_size = model.config().vocab_size;
            let opening = opening(&found.folder, tokenizer.as_ref(), vocab_size)?;
            let more = read_more(&found.folder, tokenizer.as_ref(), vocab_size)?;
            Ok((found.folder, model, tokenizer, opening, more))
        });
        let (folder, model, tokenizer, opening, more) = opened?;
        let Some(device) = selected else { unreachable!("a model is loaded onto the device that was chosen") };
        if tokenizer.as_ref().is_some_and(|tokenizer| !tokenizer.knows_token_bytes()) {
            notes.say(UNKNOWN_DECODER);
        }
        let (device_id, device_name, on_gpu) = (device.id, device.name, device.gpu);
        let device_kind = device_id.split(':').next().unwrap_or_default().to_owned();
        let is_quiet = !notes.are_shown();
        Ok((Self { folder, model, tokenizer, device_id, device_kind, device_name, on_gpu, is_quiet, opening }, more))
    }

    /// Shows the progress of kernel compilation, before the model's first forward pass.
    pub(super) fn compile_progress(&self) -> CompileProgress {
        CompileProgress::begin(KERNELS_OF_A_TEXT, self.is_quiet || self.device_kind == "cpu")
    }

    /// Refuses ids from the command line that are outside the vocabulary.
    pub(super) fn check_ids(&self, flag: &str, ids: &[u32]) -> Result<()> {
        let vocab_size = self.model.config().vocab_size;
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
            bail!(UsageError::new(outside_vocabulary(flag, id, vocab_size)));
        }
        Ok(())
    }

    /// The text of `ids`, if there is a tokenizer.
    pub(super) fn text_of(&self, ids: &[u32]) -> Result<Option<String>> {
        Ok(self.tokenizer.as_ref().map(|tokenizer| tokenizer.decode_text(ids)).transpose()?)
    }

    /// One token as text, with incomplete UTF-8 shown as U+FFFD; nothing without a tokenizer.
    pub(super) fn token_text(&self, id: u32) -> Option<String> {
        self.tokenizer.as_ref().map(|tokenizer| token_text(Some(tokenizer), id))
    }

    /// The bytes of one token; U+FFFD for an id that the tokenizer does not know, or without a
    /// tokenizer.
    pub(super) fn bytes_of(&self, id: u32) -> Vec<u8> {
        token_bytes(self.tokenizer.as_ref(), id)
    }
}

/// Error message for an id outside a vocabulary of this size; `place` is where the id was given.
pub(super) fn outside_vocabulary(place: &str, id: u32, vocab_size: usize) -> String {
    format!("{place}: {id} is outside the model's vocabulary; ids go from 0 to {}", vocab_size - 1)
}
