//! Saves and loads checkpoints. A checkpoint is a Hugging Face folder for inference; its subfolder
//! `training/` has what only training needs: the optimizer's moments, the run's progress, and, if
//! the saved model is divided by a temperature, the undivided last norm. The average of the
//! weights, if one is kept, is a Hugging Face folder too, in `ema/`, divided by the same
//! temperature.

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fs, io};

use burn::tensor::Device;
use ember_data::tokenizer::Tokenizer;
use ember_decoding::config::Sampling;
use ember_host::file_error::At;
use ember_host::files::{is_there, make_folder_of, read_regular, refuse_irregular, sync_folder, write_text};
use ember_model::folder::{self, CARD, NamedTensor, TensorFile};
use ember_model::{Gpt, checkpoint};

use super::card::Card;
use super::disk::{ensure_room, used_bytes};
use super::folder::{AVERAGE, DAMAGED, Pointer, RunFolder, step_of};
use super::temperature::{last_norm, tempered, with_last_norm};
use crate::error::{CheckpointError, Error, Result};
use crate::step::progress::{DataChecksums, Evaluations, Progress};
use crate::{note::Note, step::optimizer::Optimizer};

/// The run's progress, in a checkpoint's folder.
pub(super) const STATE: &str = "training/state.json";
const EVALUATIONS: &str = "training/evaluations.json";
const MOMENTS: &str = "training/moments.safetensors";
const LAST_NORM: &str = "training/last_norm.safetensors";
const AVERAGE_LAST_NORM: &str = "training/ema_last_norm.safetensors";

/// The files of a checkpoint that only training needs.
pub(super) const OF_TRAINING: [&str; 5] = [STATE, EVALUATIONS, MOMENTS, LAST_NORM, AVERAGE_LAST_NORM];

/// The contents of a checkpoint.
pub struct Checkpoint<'a> {
    /// The model.
    pub gpt: &'a Gpt,
    /// The temperature that divides the logits of the saved model.
    pub temperature: f64,
    /// The optimizer.
    pub optimizer: &'a Optimizer,
    /// The tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The default sampling settings.
    pub sampling: Sampling,
    /// Where the run stands.
    pub progress: &'a Progress,
    /// The model card.
    pub card: &'a Card,
}

impl Checkpoint<'_> {
    /// Writes the checkpoint of `progress.step` and points `latest` to it. The folder gets its name
    /// only when all of it is on the disk; an existing checkpoint of this step is not changed.
    ///
    /// The free space is checked first, so that nothing is written to a disk that is too full.
    ///
    /// # Errors
    /// When something cannot be written ([`Error::is_full_disk`] tells whether the disk was full);
    /// every earlier checkpoint is still there.
    pub fn save(&self, run: &RunFolder) -> Result<()> {
        let step = self.progress.step;
        let (folder, unfinished) = (run.checkpoint(step), run.unfinished(step));
        if !folder.is_dir() {
            let _ = fs::remove_dir_all(&unfinished);
            let write = || -> Result<()> {
                ensure_room(run.path(), self.size(run))?;
                self.write(&unfinished)?;
                Ok(fs::rename(&unfinished, &folder).at("cannot create", &folder)?)
            };
            if let Err(error) = write() {
                let _ = fs::remove_dir_all(&unfinished);
                let (run, latest) = (run.path().to_owned(), run.pointed(Pointer::Latest).unwrap_or(None));
                let (is_full, source) = (error.is_full_disk(), Box::new(error));
                return Err(CheckpointError::Save { step, run, latest, is_full, source }.into());
            }
        }
        Ok(run.point(Pointer::Latest, step)?)
    }

    /// Estimated bytes of a save: the size of the last one, but at least that of the weights and
    /// the optimizer's state, which is empty before the first step.
    fn size(&self, run: &RunFolder) -> u64 {
        let latest = run.pointed(Pointer::Latest).ok().flatten();
        let values = 4 * (self.gpt.config().parameters() + self.optimizer.values()) as u64;
        latest.map_or(0, |latest| used_bytes(&latest)).max(values)
    }

    fn write(&self, dir: &Path) -> Result<()> {
        make_folder_of(&dir.join(STATE))?;
        self.write_model(&tempered(self.gpt.clone(), self.temperature), dir)?;
        self.write_last_norm(self.gpt, &dir.join(LAST_NORM))?;
        if let Some(average) = self.optimizer.average().and_then(|average| average.model(self.gpt)) {
            self.write_last_norm(&average, &dir.join(AVERAGE_LAST_NORM))?;
            // A complete folder for inference.
            let dir = dir.join(AVERAGE);
            fs::create_dir(&dir).at("cannot create", &dir)?;
            self.write_model(&tempered(average, self.temperature), &dir)?;
            // Its card has no loss: the recorded evaluations are those of the weights themselves.
            let progress = Progress { evaluations: Evaluations::default(), ..self.progress.clone() };
            write_card(self.card, &progress, &dir)?;
            folder::write_checksums(&dir)?;
            sync_folder(&dir).at("cannot write", &dir)?;
        }
        let moments = self.optimizer.stored().into_iter();
        let moments: Vec<_> =
            moments.map(|(name, values)| NamedTensor { name, shape: vec![values.len()], values }).collect();
        folder::write_tensors(&dir.join(MOMENTS), &moments)?;
        write_text(&dir.join(STATE), &serde_json::to_string_pretty(self.progress)?)?;
        write_card(self.card, self.progress, dir)?;
        folder::write_checksums(dir)?;
        Ok(sync_folder(dir).at("cannot write", dir)?)
    }

    /// Writes the undivided last norm, if the saved model is divided by a temperature.
    fn write_last_norm(&self, gpt: &Gpt, file: &Path) -> Result<()> {
        if self.temperature != 1.0 {
            folder::write_tensors(file, &last_norm(gpt))?;
        }
        Ok(())
    }

    /// Writes the files that inference reads.
    fn write_model(&self, gpt: &Gpt, dir: &Path) -> Result<()> {
        let mut settings = self.sampling.to_hugging_face();
        // A model from elsewhere may have further end tokens and a padding token.
        if let ends @ [_, _, ..] = &self.tokenizer.end_tokens()[..] {
            settings.insert("eos_token_id".to_owned(), ends.into());
        }
        if let Some(pad) = self.tokenizer.named("pad_token") {
            settings.insert("pad_token_id".to_owned(), pad.into());
        }
        checkpoint::save(gpt, self.tokenizer.end_of_text(), &settings, dir)?;
        Ok(self.tokenizer.save(dir)?)
    }
}

/// Writes the evaluation of `progress.step` into its checkpoint and its card, so that a resumed run
/// need not repeat it. If the step was not saved because the disk was full, the next checkpoint
/// holds the evaluation.
///
/// # Errors
/// When the file cannot be written.
pub fn save_evaluations(run: &RunFolder, progress: &Progress, card: &Card) -> Result<()> {
    let folder = run.checkpoint(progress.step);
    if !folder.is_dir() {
        return Ok(());
    }
    write_text(&folder.join(EVALUATIONS), &serde_json::to_string_pretty(&progress.evaluations)?)?;
    write_card(card, progress, &folder)
}

fn write_card(card: &Card, progress: &Progress, dir: &Path) -> Result<()> {
    Ok(write_text(&dir.join(CARD), &card.text(progress))?)
}

/// The checksums of the text that the checkpoint in `dir` has learned, if they can be read.
pub(super) fn text_of(dir: &Path) -> Option<DataChecksums> {
    serde_json::from_slice::<Progress>(&read_regular(&dir.join(STATE)).ok()?).ok()?.data
}

/// A loaded checkpoint.
pub struct Restored {
    /// The model, on the training device.
    pub gpt: Gpt,
    /// The optimizer with its moments.
    pub optimizer: Optimizer,
    /// Where the run stands.
    pub progress: Progress,
}

/// The newest undamaged checkpoint of a run, with every file verified: the one that `latest` names,
/// or, if that is damaged, the newest older one that is not. Damaged ones are renamed, with a
/// `note` for each. `None` before the first save.
///
/// # Errors
/// When all are damaged: the line says what is wrong with the newest. When a file cannot be read,
/// which may pass: the line names it. Nothing is changed then.
pub fn newest_whole(run: &RunFolder, note: &mut dyn FnMut(Note)) -> Result<Option<PathBuf>> {
    let mut candidates = run.saved();
    let latest = run.pointed(Pointer::Latest);
    match &latest {
        // Checkpoints newer than `latest` do not count: the user may have set the pointer back.
        Ok(Some(latest)) => candidates.retain(|saved| step_of(saved) <= step_of(latest)),
        Ok(None) if candidates.is_empty() => return Ok(None),
        _ => {}
    }
    let mut damaged: Vec<(PathBuf, Error)> = Vec::new();
    for checkpoint in candidates {
        match verify(&checkpoint) {
            Ok(()) => {
                for (path, error) in damaged {
                    note(Note::Damaged { error, aside: run.put_aside(&path, DAMAGED)? });
                }
                run.point(Pointer::Latest, step_of(&checkpoint).unwrap_or_default())?;
                return Ok(Some(checkpoint));
            }
            Err(error) if error.chain().any(|cause| cause.is::<io::Error>()) => {
                return Err(CheckpointError::Unreadable { checkpoint, source: Box::new(error) }.into());
            }
            Err(error) => damaged.push((checkpoint, error)),
        }
    }
    let newest = damaged.into_iter().next().map(|(_, error)| error);
    let none = || CheckpointError::None(run.checkpoints()).into();
    Err(newest.or_else(|| latest.err().map(Into::into)).unwrap_or_else(none))
}

/// Checks every file of a checkpoint against its checksum.
fn verify(dir: &Path) -> Result<()> {
    let checksums = dir.join("checksums.json");
    if !is_there(&checksums).at("cannot read", &checksums)? || !checksums.is_file() {
        return Err(CheckpointError::NoChecksums(checksums).into());
    }
    Ok(folder::verify_checksums(dir)?)
}

/// Reads the checkpoint in `dir`, whose files are verified, and restores `optimizer`, which is new.
///
/// # Errors
/// When a file is missing or damaged: the line names it.
pub fn load(dir: &Path, mut optimizer: Optimizer, device: &Device) -> Result<Restored> {
    let progress = load_progress(dir)?;
    let gpt = with_learned_norm(checkpoint::load(dir, device)?, &dir.join(LAST_NORM))?;
    let file = TensorFile::open(&dir.join(MOMENTS))?;
    let stored = file.names().into_iter().map(|name| Ok((name.clone(), file.read(&name)?.values)));
    let stored: BTreeMap<_, _> = stored.collect::<Result<_>>()?;
    let restored = optimizer.restore(&gpt, progress.step, stored, &device.clone().inner());
    restored.map_err(|source| CheckpointError::Moments { file: file.path().to_owned(), source })?;
    if optimizer.average().is_some() && progress.step > 0 {
        let average = dir.join(AVERAGE);
        if !average.is_dir() {
            return Err(CheckpointError::NoAverage(average).into());
        }
        let average = checkpoint::load(&average, &device.clone().inner())?;
        optimizer.restore_average(with_learned_norm(average, &dir.join(AVERAGE_LAST_NORM))?);
    }
    Ok(Restored { gpt, optimizer, progress })
}

/// The run's progress, including the evaluation of the checkpoint itself.
fn load_progress(dir: &Path) -> Result<Progress> {
    let state = dir.join(STATE);
    if !state.is_file() {
        return Err(CheckpointError::NoState(dir.to_owned()).into());
    }
    let json = fs::read(&state).at("cannot read", &state)?;
    // The checksum matched, so unreadable JSON must come from another version.
    let other = |source| CheckpointError::OtherVersion { checkpoint: dir.to_owned(), source };
    let mut progress: Progress = serde_json::from_slice(&json).map_err(other)?;
    if progress.windows < progress.step {
        return Err(CheckpointError::ImpossibleState(state).into());
    }
    // Missing if the checkpoint was not evaluated; if damaged, the evaluation is repeated.
    let evaluations = dir.join(EVALUATIONS);
    refuse_irregular(&evaluations).at("cannot read", &evaluations)?;
    if let Some(found) = fs::read(&evaluations).ok().and_then(|json| serde_json::from_slice(&json).ok()) {
        progress.evaluations = found;
    }
    Ok(progress)
}

/// The model with the undivided last norm from `file`; without such a file, nothing was divided.
fn with_learned_norm(gpt: Gpt, file: &Path) -> Result<Gpt> {
    if !file.is_file() {
        return Ok(gpt);
    }
    let file = TensorFile::open(file)?;
    let learned: Result<Vec<_>> = file.names().into_iter().map(|name| Ok(file.read(&name)?)).collect();
    Ok(with_last_norm(gpt, learned?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use ember_model::device::{DeviceChoice, select};

    use super::*;
    use crate::{note::line, run::small_run};

    /// The average can be shared by itself; the evaluation was of the other weights.
    #[test]
    fn the_average_has_a_card_without_the_loss_of_the_weights() {
        let place = tempfile::tempdir().unwrap();
        let settings = "max_steps = 2\nema_decay = 0.9\nsample_interval = 0\n";
        small_run::train(small_run::begin(&place.path().join("run"), settings));
        let checkpoint = place.path().join("run/checkpoints/step-00000002");
        let card = |folder: &Path| fs::read_to_string(folder.join(CARD)).unwrap();
        let (own, average) = (card(&checkpoint), card(&checkpoint.join(AVERAGE)));
        assert!(own.contains("| validation loss |") && !average.contains("validation loss"), "{average}");
        assert!(average.contains("| trained | step 2:"), "{average}");
    }

    /// A saved average is divided by the temperature as the weights are; training continues with
    /// the undivided one.
    #[test]
    fn the_average_of_a_calibrated_run_is_calibrated_and_comes_back_bit_for_bit() {
        let place = tempfile::tempdir().unwrap();
        let settings = "max_steps = 4\nema_decay = 0.9\ncalibrate = true\neval_interval = 2\nsample_interval = 0\n";
        let run = small_run::begin(&place.path().join("run"), settings);
        let optimizer = Optimizer::new(&run.config);
        small_run::train(run);

        let dir = place.path().join("run/checkpoints/step-00000004");
        let device = select(DeviceChoice::Cpu).unwrap().device;
        let restored = load(&dir, optimizer, &device.clone().autodiff()).unwrap();
        let temperature = restored.progress.evaluations.temperature_at(4);
        let average = restored.optimizer.average().and_then(|average| average.model(&restored.gpt)).unwrap();
        let saved = checkpoint::load(&dir.join(AVERAGE), &device).unwrap();
        assert_ne!(temperature, 1.0);
        assert_ne!(last_norm(&saved), last_norm(&average));
        assert_eq!(last_norm(&saved), last_norm(&tempered(average, temperature)));
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_in_the_place_of_the_evaluations_is_named_and_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        small_run::train(small_run::begin(&place.path().join("run"), "max_steps = 2\nsample_interval = 0\n"));
        let dir = place.path().join("run/checkpoints/step-00000002");
        let pipe = dir.join(EVALUATIONS);
        let _ = fs::remove_file(&pipe);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = line(&load_progress(&dir).unwrap_err());
        let expected = format!("cannot read {}: it is a pipe, a device or a socket, not a file", pipe.display());
        assert_eq!(error, expected);
    }

    /// A run in `folder` with these checkpoints, each with one small file.
    fn run_with(folder: &Path, steps: [u64; 2]) -> RunFolder {
        fs::write(folder.join("config.toml"), "").unwrap();
        let run = RunFolder::open(folder).unwrap();
        for step in steps {
            fs::create_dir_all(run.checkpoint(step)).unwrap();
            fs::write(run.checkpoint(step).join("config.json"), "{}").unwrap();
            folder::write_checksums(&run.checkpoint(step)).unwrap();
        }
        run
    }

    /// Steps are compared as numbers: as text, the one with more digits would come first.
    #[test]
    fn the_newest_checkpoint_is_that_of_the_largest_step() {
        let folder = tempfile::tempdir().unwrap();
        let run = run_with(folder.path(), [99_999_999, 100_000_000]);
        for latest in [100_000_000, 99_999_999] {
            run.point(Pointer::Latest, latest).unwrap();
            assert_eq!(newest_whole(&run, &mut |_| {}).unwrap(), Some(run.checkpoint(latest)));
        }
    }

    /// The file may be readable the next time: then no step needs to be repeated.
    #[cfg(unix)]
    #[test]
    fn a_checkpoint_that_cannot_be_read_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let run = run_with(folder.path(), [1, 2]);
        run.point(Pointer::Latest, 2).unwrap();
        let newest = || newest_whole(&run, &mut |_| {});
        for name in ["config.json", "checksums.json"] {
            let file = run.checkpoint(2).join(name);
            let content = fs::read(&file).unwrap();
            fs::remove_file(&file).unwrap();
            // Nobody can follow a link to itself, not even somebody who may read every file.
            std::os::unix::fs::symlink(name, &file).unwrap();
            let (checkpoint, file_shown) = (run.checkpoint(2), file.display());
            let expected = format!(
                "cannot tell whether {} is damaged; make it readable, or move it away to resume from an older one: \
                 cannot read {file_shown}: ",
                checkpoint.display()
            );
            let error = line(&newest().unwrap_err());
            assert!(error.starts_with(&expected), "{error}");
            assert!(checkpoint.is_dir());
            fs::remove_file(&file).unwrap();
            fs::write(&file, content).unwrap();
        }
        assert_eq!(newest().unwrap(), Some(run.checkpoint(2)));
        fs::remove_file(run.checkpoint(2).join("config.json")).unwrap();
        assert_eq!(newest().unwrap(), Some(run.checkpoint(1)));
    }
}
