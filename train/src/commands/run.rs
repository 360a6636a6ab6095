//! `ember-train run`: trains a new run, from text to checkpoint.

use std::time::{Duration, Instant};

use ember_cli::compile_progress::{CompileProgress, KERNELS_OF_A_STEP};
use ember_data::prepare::{Manifest, PrepareOptions};
use ember_host::files::name_of;
use ember_study::error::Error as StudyError;
use ember_study::plan::{self, MEASURING, Request, fit::Estimate, measure::Limits, propose, text::Statistics};
use ember_training::config::{self, ConfigError, DeviceKind, Settings, TrainConfig, keys::assigned_name};
use ember_training::run::time_budget::{Pace, TimeBudget};
use ember_training::run::{
    DefaultHooks, PreparedText, ResolvedRun, Start, StartHooks, folder::default_path, report::Reporter, text,
};
use ember_training::{distributed::all_ok, error::Error, memory::fit::Fit};

use super::prepare::{NOTHING_DONE, prepare_shown};
use super::trial;
use crate::prelude::*;

/// The keys that set the length of a run.
pub const LENGTH_KEYS: [&str; 2] = ["max_steps", "lr_decay_steps"];

/// Duration of a run whose length is not set: a coffee break.
pub const DEFAULT_MINUTES: f64 = 10.0;

/// Maximum share of a run's time for measuring the device.
const MEASURING_SHARE: f64 = 0.1;
/// Maximum further share for compiling a GPU's kernels for that measurement.
const COMPILING_SHARE: f64 = 0.25;
/// Minimum share that must be left for training.
const MIN_TRAINING_SHARE: f64 = 0.2;

/// The text above the table of keys.
const HELP_CONFIG: &str = "Keys of a configuration file (TOML, one `key = value` per line) and of --set key=value.\n\
    auto: chosen from the text and the device; the chosen value is in the run's config.toml.\n";

/// Arguments of `run`.
#[derive(Args, Debug, Default)]
#[command(after_help = "\
Examples:
  ember-train run my-writing/                          the best model that ten minutes allow here
  ember-train run my-writing/ --minutes 60             in an hour
  ember-train run letters/ --init runs/my-writing      starts from that run's model
  ember-train run --config shakespeare-char-cpu shakespeare.txt --set max_steps=500
  ember-train run my-writing/ --memory-limit 4GB --out runs/small --device cpu")]
pub struct RunArgs {
    /// Files, folders or archives of text, Word, PDF, mail and more (docs/texts.md), a folder that `prepare`
    /// made, or - for standard input
    pub text: Vec<String>,
    /// A configuration file, or a shipped recipe: stories-cpu, shakespeare-char,
    /// shakespeare-char-cpu, shakespeare-char-llama-cpu, gpt2-124m; without it the settings are
    /// chosen for the text and the device
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the run [default: runs/NAME]
    #[arg(long, value_name = "DIR", value_parser = output_file::folder())]
    pub out: Option<PathBuf>,
    /// Change one key of the configuration; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Begin from this model, with its shape and its tokenizer: a run, a checkpoint, a Hugging Face
    /// folder or a model's file (.gguf, ckpt.pt, .bin)
    #[arg(long, value_name = "FOLDER")]
    pub init: Option<String>,
    /// Write TensorBoard event files into the run's folder
    #[arg(long)]
    pub tensorboard: bool,
    /// Memory that training may take, such as 8GB or 500MB [default: what is available]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, allow_hyphen_values = true)]
    pub memory_limit: Option<u64>,
    /// Finish in this many minutes: what is not set is planned for that, and the length is
    /// corrected on the way [default: 10, if no length is set]
    #[arg(long, value_name = "M", value_parser = parse_minutes)]
    pub minutes: Option<f64>,
    /// Print every configuration key with its unit, range and default, and exit
    #[arg(long)]
    pub help_config: bool,
}

/// Parses a number of minutes: above zero, at most a year.
pub fn parse_minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes <= 525_600.0 => Ok(minutes),
        _ => Err("give a number of minutes above 0, at most 525600, such as 10 or 0.5".to_owned()),
    }
}

/// Runs the command.
///
/// # Errors
/// When an argument or the text is wrong, the folder holds a run already, or something cannot be
/// written.
pub fn run(args: &RunArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    if args.help_config {
        show(&format!("{HELP_CONFIG}{}\n", config::help()))?;
        return Ok(Outcome::Done);
    }
    let began = Instant::now();
    let group = join(interrupt)?;
    let common = &quiet_unless_leading(&*group, common);
    let (mut screen, notes) = (Screen::new(common.quiet), Notes::new(common.quiet));
    let settings = all_ok(&*group, settings(args, common).map_err(training_error))?;
    if learns_stories_by_recipe(args, &settings) {
        notes.say("no text is named: training on the built-in stories; name a text to train on it");
    }
    let minutes = args.minutes.or_else(|| LENGTH_KEYS.iter().all(|key| !settings.has(key)).then_some(DEFAULT_MINUTES));
    if let (None, Some(minutes)) = (args.minutes, minutes) {
        notes.say(format!("planned for {minutes} minutes, since no length is set; change it with --minutes M"));
    }
    let deadline = minutes.map(|minutes| Deadline { began, seconds: 60.0 * minutes });
    let hooks = RunHooks { deadline, quiet: common.quiet, interrupt };
    let start = Start::new(settings, common.device, args.memory_limit, &hooks, &mut screen);
    let start = all_ok(&*group, start)?;
    interrupt.requested(); // from here on signals are handled: an interruption cleans up what is half done
    let begun = match &args.out {
        Some(out) => start.begin(out, &*group, &hooks, &mut screen),
        None => {
            let path = default_path(&run_name(&start.data.text));
            start.begin_free(&path, &*group, &hooks, &mut screen)
        }
    };
    let Some(run) = begun? else {
        group.leave();
        return Ok(Outcome::Interrupted);
    };
    train(run, &*group, &mut screen, &notes, interrupt)
}

/// When the command is to end: `seconds` after `began`.
#[derive(Clone, Copy)]
pub struct Deadline {
    began: Instant,
    seconds: f64,
}

impl Deadline {
    /// The time limits for measuring the device.
    fn measuring(self) -> Limits {
        let share = |share: f64| Duration::from_secs_f64(share * self.seconds);
        Limits {
            timing: MEASURING.timing.min(share(MEASURING_SHARE)),
            compiling: MEASURING.compiling.min(share(COMPILING_SHARE)),
        }
    }

    /// Seconds left for measuring the device and for training, once the text is prepared; an error
    /// if they are too few.
    fn seconds_left(self, measuring: Limits, settings: &Settings) -> Result<f64> {
        let is_too_little = |seconds: f64| seconds - measuring.timing.as_secs_f64() < MIN_TRAINING_SHARE * self.seconds;
        let aim = TimeBudget::aim(self.seconds);
        if is_too_little(aim) {
            bail!("{} is too short for any run; give more --minutes", duration(self.seconds));
        }
        let spent = self.began.elapsed().as_secs_f64();
        let left = aim - spent;
        if is_too_little(left) {
            let [spent, whole] = [spent, self.seconds].map(duration);
            if text::prepared(&settings.data()?.text).is_some() {
                bail!("opening the text took {spent}, which leaves too little of {whole}; give more --minutes");
            }
            bail!(
                "preparing the text took {spent}, which leaves too little of {whole}; prepare it once with `ember-train prepare` and \
                 train on that folder, or give more --minutes"
            );
        }
        Ok(left)
    }
}

/// This program's hooks into the start of a run.
pub struct RunHooks<'a> {
    pub deadline: Option<Deadline>,
    pub quiet: bool,
    pub interrupt: &'a Interrupt,
}

impl StartHooks for RunHooks<'_> {
    fn prepare(&self, options: &PrepareOptions) -> Result<Option<Manifest>, Error> {
        prepare_shown(options, self.quiet, self.interrupt)
    }

    fn for_every_text(&self, settings: &Settings, device: DeviceKind) -> Vec<Result<TrainConfig, ConfigError>> {
        match self.deadline {
            Some(_) => plan::for_every_text(settings, device),
            None => DefaultHooks.for_every_text(settings, device),
        }
    }

    fn choose(
        &self,
        settings: Settings,
        prepared: &PreparedText,
        reporter: &mut dyn Reporter,
    ) -> Result<Option<ResolvedRun>, Error> {
        let Some(deadline) = self.deadline else { return DefaultHooks.choose(settings, prepared, reporter) };
        let resolved = self.planned(settings, prepared, deadline, reporter).map_err(training_error)?;
        if resolved.is_none() {
            Notes::new(self.quiet).say(NOTHING_DONE);
        }
        Ok(resolved)
    }

    fn time_budget(&self, most_steps: u64, pace: Pace) -> Option<TimeBudget> {
        self.deadline.map(|deadline| TimeBudget::new(deadline.began, deadline.seconds, most_steps, pace))
    }

    fn try_steps(&self, config: &TrainConfig, shape: &GptConfig, selected: &Selected) -> Result<Option<Fit>, Error> {
        let (id, micro_batch, notes) = (&selected.id, config.micro_batch, Notes::new(self.quiet));
        notes.say(format!("trying micro_batch = {micro_batch} on {id}, which compiles its kernels"));
        let fit = trial::in_a_child_process(config, shape, selected, self.quiet).map_err(training_error)?;
        // Ctrl-C ends the trial, which says nothing about memory; any other signal has waited for it.
        let fit = fit.filter(|_| !self.interrupt.requested());
        if fit.is_none() {
            notes.say(NOTHING_DONE);
        }
        Ok(fit)
    }
}

impl RunHooks<'_> {
    /// Plans what the settings leave open, for the time that is left; `None` if a signal
    /// interrupted the measurement of the device.
    fn planned(
        &self,
        settings: Settings,
        prepared: &PreparedText,
        deadline: Deadline,
        reporter: &mut dyn Reporter,
    ) -> Result<Option<ResolvedRun>> {
        let text = Statistics::new(prepared.dataset, 1.0)?;
        let measuring = deadline.measuring();
        let seconds = deadline.seconds_left(measuring, &settings)?;
        let fine_tuning = settings.init().is_some();
        let PreparedText { dataset, selected, processes, memory, shape, .. } = *prepared;
        let go_on = &|| !self.interrupt.requested();
        let request = Request {
            settings,
            seconds,
            measured_within: true,
            memory_bytes: memory,
            measuring,
            processes,
            shape,
            go_on,
        };
        let wait = CompileProgress::begin(KERNELS_OF_A_STEP, self.quiet);
        let proposed = propose(&request, dataset, text, selected);
        drop(wait);
        let plan = match proposed {
            Err(StudyError::Stopped) => return Ok(None),
            proposed => proposed?,
        };
        if !fine_tuning {
            // The loss is predicted only for models that start from random weights.
            let (seconds, Estimate { loss, low, high }) = (duration(plan.seconds), plan.loss);
            let line =
                format!("planned for {seconds}: validation loss about {loss:.2} (between {low:.2} and {high:.2})");
            reporter.note(line.into());
        }
        let pace = Pace { step_s: plan.step_s, look_s: plan.look_s };
        let reasons = [plan.reasons, plan.warnings].concat().into_iter().map(Into::into).collect();
        Ok(Some(ResolvedRun { config: plan.config, reasons, pace }))
    }
}

/// Combines the settings of the file, which the others override, and `--set`, `--seed`, TEXT and
/// `--init`.
pub fn settings(args: &RunArgs, common: &CommonArgs) -> Result<Settings> {
    let mut settings = recipe(args.config.as_deref(), args.text.is_empty() && args.init.is_none())?;
    set_all(&mut settings, &args.set, &args.text, common)?;
    refuse_set_twice(
        &args.set,
        &[("init", "--init", args.init.is_some()), ("tensorboard", "--tensorboard", args.tensorboard)],
    )?;
    if let Some(folder) = &args.init {
        ensure!(
            !folder.is_empty(),
            UsageError::new(
                "--init is empty; name a run, a checkpoint, a Hugging Face folder or a model's file (.gguf, ckpt.pt, .bin)"
            )
        );
        settings.init = Some(folder.clone());
    }
    if args.tensorboard {
        settings.tensorboard = Some(true);
    }
    if args.minutes.is_some() {
        let is_set = args.set.iter().any(|assignment| assigned_name(assignment) == "max_steps");
        if args.config.is_none() && args.text.is_empty() && !is_set {
            settings.max_steps = None;
        }
        if let Some(key) = LENGTH_KEYS.iter().find(|key| settings.has(key)) {
            bail!(UsageError::new(format!(
                "--minutes chooses the length of the run, and {key} is set; leave one of them out (--set {key}=auto \
                 overrides the configuration file)"
            )));
        }
    }
    Ok(settings)
}

/// Whether a recipe for other text falls back to the built-in stories, as no text was given.
fn learns_stories_by_recipe(args: &RunArgs, settings: &Settings) -> bool {
    args.config.is_some() && !settings.has("text") && !settings.has("stories")
}

/// A name for a run on these texts: the first one's file name without its extensions.
fn run_name(text: &[String]) -> String {
    let Some(first) = text.first() else { return "stories".to_owned() };
    if first == "-" {
        return "stdin".to_owned();
    }
    let path = Path::new(first).canonicalize().unwrap_or_else(|_| first.into());
    let name = name_of(&path).unwrap_or_default();
    let stem = name.trim_start_matches('.').split('.').next().unwrap_or_default();
    if stem.is_empty() { "run".to_owned() } else { stem.to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_recipe_that_was_given_no_text_is_told_apart() {
        let learns = |recipe: Option<&str>, assignment: Option<&str>| {
            let args = RunArgs { config: recipe.map(PathBuf::from), ..RunArgs::default() };
            let mut settings = super::recipe(args.config.as_deref(), true).unwrap();
            assignment.into_iter().for_each(|assignment| settings.set(assignment).unwrap());
            learns_stories_by_recipe(&args, &settings)
        };
        assert!(learns(Some("shakespeare-char-cpu"), None));
        assert!(!learns(Some("shakespeare-char-cpu"), Some("text=mine.txt")));
        assert!(!learns(Some("shakespeare-char-cpu"), Some("stories=100")));
        assert!(!learns(Some("stories-cpu"), None) && !learns(None, None));
    }

    #[test]
    fn the_help_names_every_shipped_recipe() {
        let help = RunArgs::augment_args(clap::Command::new("run")).render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(&config::recipes().collect::<Vec<_>>().join(", ")), "{help}");
    }
}
