//! What `run` and `resume` have in common: everything after the model exists.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use ember_cli::program::{CommonArgs, Notes, Outcome};
use ember_data::prepare::Dataset;
use ember_host::interrupt::Interrupt;
use ember_model::Gpt;
use ember_model::device::Selected;

use crate::report::{reporter, restore_terminal};
use ember_study::plot::loss_svg;
use ember_training::ahead::Ahead;
use ember_training::checkpoint::{DataChecksums, Progress};
use ember_training::clock::Clock;
use ember_training::config::TrainConfig;
use ember_training::evaluations::Best;
use ember_training::optimizer::Optimizer;
use ember_training::peak;
use ember_training::precision::float_dtype;
use ember_training::report::{Records, Row, RunFacts, jsonl};
use ember_training::run_folder::RunFolder;
use ember_training::team::messages::{agree, said_by_the_first};
use ember_training::team::{Team, exchange};
use ember_training::trainer::{Spent, Trainer};
use ember_training::windows::windows;

/// A run, new or taken up again, ready to train.
pub struct Session {
    pub team: Box<dyn Team>,
    pub run: RunFolder,
    pub config: TrainConfig,
    pub dataset: Dataset,
    pub gpt: Gpt,
    pub optimizer: Optimizer,
    pub progress: Progress,
    pub selected: Selected,
    /// The step at which to stop as if interrupted.
    pub pause_at: Option<u64>,
    /// For a run that was promised to end at a time.
    pub clock: Option<Clock>,
}

impl Session {
    /// Trains to the end or to an interruption, draws the picture, says where things are.
    pub fn train(self, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
        let notes = Notes::new(common.quiet);
        let Self { team, run, config, dataset, gpt, optimizer, mut progress, selected, pause_at, clock } = self;
        progress.data = Some(agree(&*team, data_of_the_first(&*team, DataChecksums::of(&dataset.manifest))?)?);
        let gpt = exchange::weights_of_the_first(&*team, gpt)?.with_precision(float_dtype(config.precision));
        let (windows, val_windows) = windows(&config, &dataset)?;
        notes.say(format!(
            "{} parameters, {} tokens a step, {} windows in a pass",
            gpt.config().parameters(),
            config.tokens_per_step(),
            windows.windows_per_pass()
        ));
        let peak_flops = peak::flops(&selected.name, config.precision);
        let facts = facts(&config, &dataset, &gpt, &selected.name, peak_flops);
        let log = if team.leads() {
            log(&run, facts, progress.step, config.tensorboard)
        } else {
            Ok(Records::kept_elsewhere())
        };
        let log = agree(&*team, log)?;
        interrupt.before_exit(restore_terminal);
        team.keep_watch(run.path());
        let reporter = reporter(&run.name(), progress.step, config.max_steps, common.quiet);
        let ahead = Ahead::of(&config, &optimizer, &*team, &gpt.device());
        let mut trainer = Trainer {
            log,
            spent: Spent::default(),
            peak_flops,
            marks: dataset.manifest.marks,
            tokenizer: dataset.tokenizer,
            config,
            run,
            team,
            stop_agreed: false,
            optimizer,
            ahead,
            progress,
            pause_at,
            windows,
            val_windows,
            reporter,
            clock,
        };
        let result = trainer.train(gpt, &|| interrupt.requested());
        trainer.reporter.finish();
        let outcome = result?;
        if trainer.team.leads() {
            // All that was learned is saved: what cannot be drawn now can be drawn again.
            if let Err(error) = conclude(&trainer, outcome, &notes) {
                notes.say(format!("{error:#}"));
            }
        }
        trainer.team.leave();
        Ok(outcome)
    }
}

/// The checksums of the text, where this process reads the same as the one of rank 0.
fn data_of_the_first(team: &dyn Team, own: DataChecksums) -> Result<Result<DataChecksums>> {
    let first: DataChecksums = serde_json::from_str(&said_by_the_first(team, &serde_json::to_string(&own)?)?)?;
    Ok(match first.difference(&own) {
        Some(what) => Err(anyhow!("it reads another {what} than that of rank 0; let all see the same folder")),
        None => Ok(own),
    })
}

/// The first row of the log.
fn facts(config: &TrainConfig, dataset: &Dataset, gpt: &Gpt, device: &str, peak_flops: Option<f64>) -> RunFacts {
    RunFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        device: device.to_owned(),
        parameters: gpt.config().parameters() as u64,
        vocab_size: gpt.config().vocab_size as u64,
        tokens_per_step: config.tokens_per_step(),
        max_steps: config.max_steps,
        train_tokens: dataset.manifest.train.tokens,
        val_tokens: dataset.manifest.val.tokens,
        peak_flops,
    }
}

/// Opens the run's records, whose first row says what the run is.
fn log(run: &RunFolder, facts: RunFacts, step: u64, tensorboard: bool) -> Result<Records> {
    let mut log = Records::open(run, step, tensorboard)?;
    if jsonl::read::<Row>(&run.metrics())?.is_empty() {
        log.append(&Row { run: Some(facts), ..Row::default() })?;
    }
    Ok(log)
}

/// Draws the losses and says what there is now and what to do with it.
fn conclude(trainer: &Trainer, outcome: Outcome, notes: &Notes) -> Result<()> {
    let run = &trainer.run;
    let rows: Vec<Row> = jsonl::read(&run.metrics())?;
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
            if let Some(Best { val_loss, .. }) = trainer.progress.evaluations.best {
                notes.say(format!("best validation loss {val_loss:.4}{}", marks(trainer, val_loss)));
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

/// The folder that `prepare` made, if that is the text.
pub fn prepared(text: &[String]) -> Option<&Path> {
    let [only] = text else { return None };
    Some(Path::new(only)).filter(|folder| Dataset::is_in(folder))
}

/// Where the tokens of a run that was begun are: in the folder that `prepare` made, if that is the text, also where it is gone; else
/// in the run's own.
pub fn data_folder(run: &Path, text: &[String]) -> PathBuf {
    let own = run.join("data");
    match (prepared(text), text) {
        (Some(folder), _) => folder.to_owned(),
        (None, [gone]) if !Dataset::is_in(&own) && !Path::new(gone).is_file() => PathBuf::from(gone),
        _ => own,
    }
}

/// Says which device was chosen and why.
pub fn say_device(notes: &Notes, selected: &Selected) {
    notes.say(format!("device {}: {} ({})", selected.id, selected.name, selected.reason));
}
