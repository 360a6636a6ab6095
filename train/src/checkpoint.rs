//! Saving a run and taking it up again: the Hugging Face folder that inference reads, and beside it, in `training/`, what only
//! training needs: the optimizer's moments and where in the data the run stands.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use burn::tensor::Device;
use ember_data::tokenizer::Tokenizer;
use ember_model::folder::{self, NamedTensor, TensorFile};
use ember_model::{Gpt, checkpoint};
use serde::{Deserialize, Serialize};

use crate::gradient::LossScale;
use crate::optimizer::AdamW;
use crate::run_folder::{Pointer, RunFolder};

const STATE: &str = "training/state.json";
const MOMENTS: &str = "training/moments.safetensors";

/// Where a run stands. With the configuration's seed, every random draw of a step follows from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps taken.
    pub step: u64,
    /// Windows read: the index of the next one, which is the position in the data.
    pub windows: u64,
    /// Tokens learned from.
    pub tokens: u64,
    /// Seconds spent, over all sessions.
    pub elapsed_s: f64,
    /// Sum of the losses of the steps since the last report.
    pub unreported_loss: f64,
    /// Number of those steps.
    pub unreported_steps: u32,
    /// What the loss is multiplied by in float16.
    #[serde(default)]
    pub loss_scale: LossScale,
}

/// Writes the checkpoint of `progress.step` and lets `latest` name it. The folder appears under its name only when all of it is
/// on the disk; a checkpoint that is there already is left as it is.
///
/// # Errors
/// When something cannot be written; every earlier checkpoint is still there.
pub fn save(run: &RunFolder, gpt: &Gpt, optimizer: &AdamW, tokenizer: &Tokenizer, progress: &Progress) -> Result<()> {
    let folder = run.checkpoint(progress.step);
    if !folder.is_dir() {
        let unfinished = run.checkpoints().join(format!(".unfinished-{}", progress.step));
        let _ = fs::remove_dir_all(&unfinished);
        let written = write(&unfinished, gpt, optimizer, tokenizer, progress).and_then(|()| {
            fs::rename(&unfinished, &folder).with_context(|| format!("cannot create {}", folder.display()))?;
            sync_folder(&run.checkpoints())
        });
        if let Err(error) = written {
            let _ = fs::remove_dir_all(&unfinished);
            let kept = match run.pointed(Pointer::Latest) {
                Ok(Some(latest)) => format!("{} is whole; free some space and resume", latest.display()),
                _ => "free some space and run again".to_owned(),
            };
            return Err(error.context(format!("could not save step {} ({kept})", progress.step)));
        }
    }
    run.point(Pointer::Latest, progress.step)
}

fn write(dir: &Path, gpt: &Gpt, optimizer: &AdamW, tokenizer: &Tokenizer, progress: &Progress) -> Result<()> {
    let training = dir.join("training");
    fs::create_dir_all(&training).with_context(|| format!("cannot create {}", training.display()))?;
    checkpoint::save(gpt, tokenizer.end_of_text(), dir)?;
    tokenizer.save(dir)?;
    let moments =
        optimizer.stored().into_iter().map(|(name, values)| NamedTensor { name, shape: vec![values.len()], values });
    let moments: Vec<_> = moments.collect();
    folder::write_tensors(&dir.join(MOMENTS), &moments)?;
    let state = dir.join(STATE);
    let write = || -> Result<()> {
        let mut file = File::create(&state)?;
        file.write_all(serde_json::to_string_pretty(progress)?.as_bytes())?;
        Ok(file.sync_all()?)
    };
    write().with_context(|| format!("cannot write {}", state.display()))?;
    folder::write_checksums(dir)?;
    sync_folder(&training)?;
    sync_folder(dir)
}

/// Makes names inside `dir` survive a power cut, where the system can say so (not on Windows).
fn sync_folder(dir: &Path) -> Result<()> {
    if cfg!(unix) {
        File::open(dir)
            .and_then(|folder| folder.sync_all())
            .with_context(|| format!("cannot write {}", dir.display()))?;
    }
    Ok(())
}

/// What [`load`] reads.
pub struct Restored {
    /// The model, on the training device.
    pub gpt: Gpt,
    /// The optimizer with its moments.
    pub optimizer: AdamW,
    /// Where the run stands.
    pub progress: Progress,
}

/// Reads the checkpoint in `dir`, every file of it verified; `optimizer` has not stepped yet.
///
/// # Errors
/// When a file is missing or damaged: the line names it.
pub fn load(dir: &Path, mut optimizer: AdamW, device: &Device) -> Result<Restored> {
    folder::verify_checksums(dir)?;
    let state = dir.join(STATE);
    if !state.is_file() {
        bail!("{} holds no training state, only a model to generate with; resume a run folder instead", dir.display());
    }
    let text = fs::read_to_string(&state).with_context(|| format!("cannot read {}", state.display()))?;
    let progress: Progress = serde_json::from_str(&text)
        .with_context(|| format!("{} is damaged; resume from another checkpoint", state.display()))?;
    let gpt = checkpoint::load(dir, device)?;
    let file = TensorFile::open(&dir.join(MOMENTS))?;
    let stored = file.names().into_iter().map(|name| Ok((name.clone(), file.read(&name)?.values)));
    let stored: BTreeMap<_, _> = stored.collect::<Result<_>>()?;
    optimizer
        .restore(&gpt, progress.step, stored, &device.clone().inner())
        .with_context(|| format!("{}", file.path().display()))?;
    ensure!(progress.windows >= progress.step, "{} is damaged: fewer windows than steps", state.display());
    Ok(Restored { gpt, optimizer, progress })
}
