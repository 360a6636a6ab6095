//! `ember-train first-steps`, called only by `run`: trains two steps of a configuration on random
//! tokens to see whether they fit into the device's memory. If not, only this child process ends.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use ember_cli::compile_progress::{CompileProgress, KERNELS_OF_A_STEP};
use ember_cli::interrupt::INTERRUPTED;
use ember_model::device;

use super::bench::random_windows;
use crate::prelude::*;
use ember_study::{ledger::meter::wait_for, workbench::Bench};
use ember_training::{config::TrainConfig, memory::fit::Fit};

/// Arguments of `first-steps`.
#[derive(Args, Debug)]
pub struct TrialArgs {
    /// A resolved configuration
    pub config: PathBuf,
    /// The model's shape, as JSON
    pub shape: PathBuf,
}

/// Number of steps: only in the second do the optimizer's moments exist from the start, and is the
/// copy made for the weights' average.
const STEPS: u64 = 2;

/// Trains two steps of `config` on random tokens in a child process, and passes on its notes. If
/// memory runs out, only the child ends. `None` if it was interrupted.
///
/// # Errors
/// When the child process cannot be started or waited for.
pub fn in_a_child_process(
    config: &TrainConfig,
    shape: &GptConfig,
    selected: &Selected,
    quiet: bool,
) -> Result<Option<Fit>> {
    let folder = tempfile::tempdir().context("cannot create a temporary folder; set micro_batch yourself")?;
    let [config_path, shape_path] = ["trial.toml", "shape.json"].map(|name| folder.path().join(name));
    for (path, text) in [(&config_path, config.to_toml()?), (&shape_path, serde_json::to_string(shape)?)] {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let program = std::env::current_exe().context("cannot find this program's own file; set micro_batch yourself")?;
    let mut trial = Command::new(program)
        .arg("first-steps")
        .args([&config_path, &shape_path])
        .args(["--device", &selected.id])
        .args(quiet.then_some("--quiet"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a trial step; set micro_batch yourself")?;
    let mut error = None;
    for line in trial.stderr.take().into_iter().flat_map(|said| BufReader::new(said).split(b'\n')).map_while(Result::ok)
    {
        let line = String::from_utf8_lossy(&line);
        match line.strip_prefix("error: ") {
            Some(reason) => error = Some(reason.to_owned()),
            None => Notes::new(quiet).say(line),
        }
    }
    let ended = trial.wait().context("cannot see how the trial step ended; set micro_batch yourself")?;
    if ended.success() {
        return Ok(Some(Fit::Fits(format!("two steps were tried on {}", selected.id))));
    }
    if ended.code() == Some(i32::from(INTERRUPTED)) {
        return Ok(None);
    }
    let reason = error.unwrap_or_else(|| ended.to_string());
    Ok(Some(Fit::TooLarge {
        because: format!("a step on {} failed ({reason})", selected.id),
        next_at_most: config.micro_batch / 2,
    }))
}

/// Runs the command, in the child process.
///
/// # Errors
/// When a file cannot be read, or the device fails.
pub fn run(args: &TrialArgs, common: &CommonArgs) -> Result<Outcome> {
    let config = TrainConfig::from_file(&args.config)?;
    let path = args.shape.display();
    let shape = std::fs::read_to_string(&args.shape).with_context(|| format!("{path}: cannot read the shape"))?;
    let shape: GptConfig = serde_json::from_str(&shape).with_context(|| format!("{path} is not a shape"))?;
    let selected = device::select(common.device)?;
    // A step of two micro-batches needs as much memory as one of many.
    let batch_size = config.windows_per_step().min(2 * config.micro_batch);
    let config = TrainConfig { batch_size, grad_accum_steps: 1, ..config };
    let windows = random_windows(&config, shape.vocab_size)?;
    let _wait = CompileProgress::begin(KERNELS_OF_A_STEP, common.quiet);
    let mut bench = Bench::new(&config, &shape, windows, &selected, &|| true)?;
    for _ in 0..STEPS {
        bench.timed_step()?;
    }
    wait_for(&selected.device)?;
    Ok(Outcome::Done)
}
