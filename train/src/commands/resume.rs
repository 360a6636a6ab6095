//! `ember-train resume`: continues a run from its last checkpoint, with exactly the numbers that it
//! would have had uninterrupted.

use ember_training::{distributed::all_ok, distributed::launch, run};

use crate::prelude::*;

/// Arguments of `resume`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ember-train resume runs/my-writing
  ember-train resume runs/my-writing --set max_steps=20000     longer than was planned")]
pub struct ResumeArgs {
    /// The run's folder
    pub run: PathBuf,
    /// Change a key from here on: the length (max_steps, lr_decay_steps), logging, saving and
    /// sampling (except eval_tokens), patience, max_skipped_batches or precision; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Write TensorBoard event files into the run's folder; if there are none yet, with the earlier
    /// steps
    #[arg(long)]
    pub tensorboard: bool,
    /// Memory that training may take, such as 8GB or 500MB: a warning says if it needs more
    /// [default: what is available; on systems other than Linux, 2 GiB are assumed]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, allow_hyphen_values = true)]
    pub memory_limit: Option<u64>,
}

/// Runs the command.
///
/// # Errors
/// When the folder is no run, its data or checkpoint is missing or damaged, or something cannot be
/// written.
pub fn run(args: &ResumeArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let group = join(interrupt)?;
    let common = &quiet_unless_leading(&*group, common);
    let (mut screen, notes) = (Screen::new(common.quiet), Notes::new(common.quiet));
    let selected = all_ok(&*group, select(args, common, &notes).map_err(training_error))?;
    let mut changes = args.set.clone();
    if args.tensorboard {
        changes.push("tensorboard=true".to_owned());
    }
    let run = run::resume(&args.run, &changes, selected, args.memory_limit, &*group, &mut screen)?;
    train(run, &*group, &mut screen, &notes, interrupt)
}

/// Checks the arguments and chooses the device.
fn select(args: &ResumeArgs, common: &CommonArgs, notes: &Notes) -> Result<Selected> {
    ensure!(common.seed.is_none(), UsageError::new("--seed cannot change after a run has started; leave it out"));
    refuse_set_twice(&args.set, &[("tensorboard", "--tensorboard", args.tensorboard)])?;
    let common = CommonArgs { device: launch::device(common.device), ..common.clone() };
    Ok(crate::training::select(&common, notes)?)
}
