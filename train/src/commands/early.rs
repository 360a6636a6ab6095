//! What no text could make right is refused before one is read: a large one takes minutes to prepare.

use anyhow::{Error, Result};
use ember_cli::program::Notes;
use ember_model::GptConfig;
use ember_model::device::Selected;

use super::fitting::{check_attention, fit_to_memory};
use super::init::Init;
use ember_study::plan;
use ember_training::config::{ConfigError, DeviceKind, Settings, TextFacts, TrainConfig};
use ember_training::memory::fit::{Open, share_of};
use ember_training::team::check_share;

/// What is known of a run before its text.
pub struct Asked<'a> {
    /// What somebody set.
    pub settings: &'a Settings,
    /// The checkpoint to begin from.
    pub init: Option<&'a Init>,
    /// The device.
    pub selected: &'a Selected,
    /// Bytes that training may take, where that is known.
    pub memory: Option<u64>,
    /// Processes that share each step.
    pub processes: usize,
    /// Whether sizes that nobody set are those of a plan.
    pub planned: bool,
}

impl Asked<'_> {
    /// Refuses settings that cannot be trained with, whatever the text: the sizes that it decides are tried, all of them.
    ///
    /// # Errors
    /// The reason that the smallest sizes are refused for, when all are.
    pub fn check(&self) -> Result<()> {
        let mut settings = self.settings.clone();
        if let Some(init) = self.init {
            init.give_shape(&mut settings, &TextFacts::NOTHING, &Notes::new(true))?;
        }
        let device = if self.selected.gpu { DeviceKind::Gpu } else { DeviceKind::Cpu };
        let of_every_text = if self.planned {
            plan::for_every_text(&settings, device)
        } else {
            settings.for_texts_of_every_size(device)
        };
        let mut first: Option<Error> = None;
        for config in of_every_text {
            match self.check_one(config) {
                Ok(()) => return Ok(()),
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(()), Err)
    }

    fn check_one(&self, config: Result<TrainConfig, ConfigError>) -> Result<()> {
        let config = config?;
        let shape = match self.init {
            Some(init) => init.shape(&config),
            // No text has fewer different tokens.
            None => config.shape(1),
        };
        check_size(&config, &shape, self.selected, self.processes)?;
        if let Some(memory) = self.memory {
            let share = share_of(&config, self.processes);
            let open = Open::of(self.settings);
            if open.micro_batch {
                fit_to_memory(&share, &shape, open, self.selected, memory)?;
            }
        }
        Ok(())
    }
}

/// Refuses a model that cannot be, or not on this device, and steps that the processes cannot share.
///
/// # Errors
/// As said, in one line.
pub fn check_size(config: &TrainConfig, shape: &GptConfig, selected: &Selected, processes: usize) -> Result<()> {
    shape.validate()?;
    check_attention(config.precision, shape, selected)?;
    Ok(check_share(config.windows_per_step(), processes)?)
}
