//! What `run` and `resume` have in common: everything after the model exists.

use std::path::{Path, PathBuf};

use anyhow::Result;
use ember_data::prepare::Dataset;
use ember_data::windows::{TrainWindows, ValWindows};
use ember_generate::interrupt::Interrupt;
use ember_generate::program::{CommonArgs, Notes, Outcome};
use ember_model::Gpt;
use ember_model::device::Selected;

use crate::checkpoint::Progress;
use crate::clock::Clock;
use crate::config::TrainConfig;
use crate::optimizer::{AdamW, AdamWConfig};
use crate::peak;
use crate::report::{MetricsLog, loss_svg, metrics, reporter, restore_terminal};
use crate::run_folder::RunFolder;
use crate::trainer::Trainer;

/// A run, new or taken up again, ready to train.
pub struct Session {
    pub run: RunFolder,
    pub config: TrainConfig,
    pub dataset: Dataset,
    pub gpt: Gpt,
    pub optimizer: AdamW,
    pub progress: Progress,
    pub selected: Selected,
    /// For a run that was promised to end at a time.
    pub clock: Option<Clock>,
}

impl Session {
    /// Trains to the end or to an interruption, draws the picture, says where things are.
    pub fn train(self, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
        let notes = Notes::new(common.quiet);
        let Self { run, config, dataset, gpt, optimizer, progress, selected, clock } = self;
        let (windows, val_windows) = windows(&config, &dataset)?;
        notes.say(format!(
            "{} parameters, {} tokens a step, {} windows in a pass",
            gpt.config().parameters(),
            config.tokens_per_step(),
            windows.windows_per_pass()
        ));
        let log = MetricsLog::open(&run.metrics())?;
        let rows = metrics::read(&run.metrics())?;
        let evaluated = rows.iter().filter_map(|row| row.val_loss.map(|loss| (row.step, loss)));
        let best = evaluated.clone().map(|(_, loss)| loss).min_by(f64::total_cmp);
        let last_evaluated = evaluated.map(|(step, _)| step).max();
        interrupt.before_exit(restore_terminal);
        let reporter = reporter(&run.name(), progress.step, config.max_steps, common.quiet);
        let mut trainer = Trainer {
            log,
            peak_flops: peak::float32_flops(&selected.name),
            marks: dataset.manifest.marks,
            tokenizer: dataset.tokenizer,
            config,
            run,
            optimizer,
            progress,
            best,
            evaluated: last_evaluated,
            windows,
            val_windows,
            reporter,
            clock,
        };
        let result = trainer.train(gpt, &|| interrupt.requested());
        trainer.reporter.finish();
        let outcome = result?;
        conclude(&trainer, outcome, &notes)?;
        Ok(outcome)
    }
}

/// Draws the losses and says what there is now and what to do with it.
fn conclude(trainer: &Trainer, outcome: Outcome, notes: &Notes) -> Result<()> {
    let run = &trainer.run;
    let rows = metrics::read(&run.metrics())?;
    loss_svg(&rows, &run.name(), &run.plot())?;
    let path = run.path().display();
    match outcome {
        Outcome::Interrupted => {
            notes.say(format!(
                "interrupted at step {}, which is saved; go on with `ember-train resume {path}`",
                trainer.progress.step
            ));
        }
        Outcome::Done => {
            if let Some(best) = trainer.best {
                notes.say(format!("best validation loss {best:.4}{}", marks(trainer, best)));
            }
            notes.say(format!("the losses are drawn in {}", run.plot().display()));
            notes.say(format!("write with it: `cargo write --from {path}` or `ember-generate text --from {path}`"));
        }
    }
    Ok(())
}

/// On the built-in corpus: how far the loss has come from forgetting everything to the floor.
fn marks(trainer: &Trainer, loss: f64) -> String {
    let Some(marks) = &trainer.marks else { return String::new() };
    let closed = (marks.forgetful_loss - loss) / (marks.forgetful_loss - marks.entropy_floor);
    if closed < 0.0 {
        return format!(
            " nats per token: not yet that of a reader who forgets every earlier sentence ({:.4}); the lowest there can be is {:.4}",
            marks.forgetful_loss, marks.entropy_floor
        );
    }
    format!(
        " nats per token: {:.1}% of the way from a reader who forgets every earlier sentence ({:.4}) to the lowest there can be ({:.4})",
        100.0 * closed,
        marks.forgetful_loss,
        marks.entropy_floor
    )
}

/// Where the tokens are: in the run's folder, or in the folder that `prepare` made, if that is the text.
pub fn data_folder(run: &Path, text: &[String]) -> PathBuf {
    match text {
        [only] if Path::new(only).join("manifest.json").is_file() => PathBuf::from(only),
        _ => run.join("data"),
    }
}

/// The windows of both splits.
///
/// # Errors
/// When a split is too short for one window: the line says which `context_length` would fit.
pub fn windows(config: &TrainConfig, dataset: &Dataset) -> Result<(TrainWindows, ValWindows)> {
    let rule = dataset.manifest.window_rule;
    let end_of_text = dataset.manifest.end_of_text;
    let context = config.context_length;
    let train = TrainWindows::new(&dataset.train, context, config.seed, rule, end_of_text)?;
    let val = ValWindows::new(&dataset.val, context, rule, end_of_text)?;
    let most = config.eval_tokens.div_ceil(context as u64) as usize;
    Ok((train, if most == 0 { val } else { val.evenly_spaced(most) }))
}

/// AdamW as configured.
pub fn optimizer(config: &TrainConfig) -> AdamW {
    AdamW::new(AdamWConfig {
        beta1: config.beta1,
        beta2: config.beta2,
        epsilon: config.epsilon,
        weight_decay: config.weight_decay,
    })
}

/// Says which device was chosen and why.
pub fn say_device(notes: &Notes, selected: &Selected) {
    notes.say(format!("device {}: {} ({})", selected.id, selected.name, selected.reason));
}
