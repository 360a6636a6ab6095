//! `ember-train plan`: what to train on a text in a given time, and what will come of it.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use ember_cli::program::{CommonArgs, Notes, Outcome, OutputFormat, UsageError};
use ember_cli::terminal;
use ember_data::prepare::{Dataset, excerpt};
use ember_host::interrupt::Interrupt;
use ember_host::output::write_output;
use serde_json::json;

use ember_study::plan::check::{Check, check};
use ember_study::plan::fit::{self, Fit, quantile, root_mean_square};
use ember_study::plan::text::Statistics;
use ember_study::plan::{MEASURING, Proposal, Request, fit_svg, for_every_text, propose, recipe as recipe_file};
use ember_training::config::{self, ConfigError, DataConfig, DeviceKind, Settings, TrainConfig};
use ember_training::memory;
use ember_training::run::{Caller, Start, text};
use ember_training::units::{bytes, duration, grouped, parse_bytes, short};

use super::prepare::prepare_shown;
use super::run::minutes;
use crate::report::Screen;

/// Minutes where nobody says how many: a coffee's worth, or a lunch's on a GPU, which is dearer to
/// start.
const MINUTES: f64 = 10.0;
const GPU_MINUTES: f64 = 30.0;

/// A text of more bytes than this is judged by so much of it.
const EXCERPT_BYTES: u64 = 12_000_000;

/// The keys that say how long a run is.
const LENGTH: [&str; 2] = ["max_steps", "lr_decay_steps"];

/// Arguments of `plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// Text files, folders, .jsonl or .parquet (each also .gz or .zst), or a folder that `prepare`
    /// made; none: the built-in stories
    pub text: Vec<String>,
    /// How long the run may take [default: 10, or 30 on a GPU]
    #[arg(long, value_name = "M", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// A configuration file, or the name of a shipped one: what it sets stays
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set one key of the configuration; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The recipe to write, which is replaced [default: plan.toml, which is not]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// What training may take, as 800MB or 16GB [default: what is available]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory_limit: Option<u64>,
    /// Train a few steps of the plan, and show what was predicted beside what is measured
    #[arg(long)]
    pub measure: bool,
    /// Show how the loss is predicted: the formula, the runs it was fitted on, and how far off it
    /// is; and end
    #[arg(long)]
    pub show_fit: bool,
    /// With --show-fit: draw it, too
    #[arg(long, value_name = "FILE", requires = "show_fit")]
    pub svg: Option<PathBuf>,
    /// Print what the prediction knows of the text as JSON, and end
    #[arg(long, hide = true)]
    pub facts: bool,
}

/// Runs the command.
///
/// # Errors
/// When an argument or the text is wrong, or the recipe cannot be written.
pub fn run(args: &PlanArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    if args.show_fit {
        show_fit(args.svg.as_deref(), common)?;
        return Ok(Outcome::Done);
    }
    let notes = Notes::new(common.quiet);
    let settings = settings(args, common)?;
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from("plan.toml"));
    if out.exists() && args.out.is_none() {
        return Err(UsageError::new(format!("{} exists already; name another file with --out", out.display())).into());
    }
    if let Some(folder) = out.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        let line = format!(
            "--out {}: there is no folder {}; make it, or choose another --out",
            out.display(),
            folder.display()
        );
        return Err(UsageError::new(line).into());
    }

    let mut screen = Screen::new(common.quiet);
    let Start { settings, data, selected, .. } =
        Start::new(settings, common.device, args.memory_limit, &Planner, &mut screen)?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let Some((dataset, share)) = tokens(&data, folder.path(), common, interrupt)? else {
        return Ok(Outcome::Interrupted);
    };
    let text = Statistics::new(&dataset, share)?;
    if args.facts {
        writeln!(terminal::stdout(), "{}", serde_json::to_string(&text)?).context("cannot write to standard output")?;
        return Ok(Outcome::Done);
    }
    let minutes = args.minutes.unwrap_or(if selected.gpu { GPU_MINUTES } else { MINUTES });
    notes.say("measuring the device");
    let request = Request {
        settings,
        seconds: 60.0 * minutes,
        memory_bytes: memory::available(args.memory_limit, &selected),
        measuring: MEASURING,
        processes: 1,
        shape: &|config| config.shape(dataset.manifest.vocab_size),
    };
    let proposal = propose(&request, &dataset, text, &selected)?;
    if interrupt.requested() {
        return Ok(Outcome::Interrupted);
    }
    let checked = if args.measure { Some(check(&proposal, &dataset, &selected)?) } else { None };

    let toml = recipe_file::toml(&proposal, minutes, &selected.name);
    write_output(&out, |file| file.write_all(toml.as_bytes()))
        .with_context(|| format!("{}: cannot write the recipe; choose another --out", out.display()))?;
    let mut stdout = terminal::stdout();
    match common.format {
        OutputFormat::Text => write!(stdout, "{}", page(&proposal, checked.as_ref(), &out)),
        OutputFormat::Json => writeln!(
            stdout,
            "{}",
            json!({ "device": selected.id, "device_name": selected.name, "minutes": minutes, "recipe": out, "plan": proposal,
                "measured": checked })
        ),
    }
    .context("cannot write to standard output")?;
    Ok(Outcome::Done)
}

/// Sizes that nobody set are those of a plan.
struct Planner;

impl Caller for Planner {
    fn for_every_text(&self, settings: &Settings, device: DeviceKind) -> Vec<Result<TrainConfig, ConfigError>> {
        for_every_text(settings, device)
    }
}

/// What the file, `--set` and the command line say; a length is what a plan finds, so the recipe's
/// own is left out.
fn settings(args: &PlanArgs, common: &CommonArgs) -> Result<Settings> {
    let mut settings = match &args.config {
        Some(path) => Settings::from_recipe(path)?,
        None if args.text.is_empty() => Settings::from_toml_str(config::DEFAULT)?,
        None => Settings::default(),
    };
    (settings.max_steps, settings.lr_decay_steps) = (None, None);
    for assignment in &args.set {
        settings.set(assignment)?;
    }
    if let Some(key) = LENGTH.iter().find(|key| settings.has(key)) {
        let line = format!("--set {key}: a plan finds the length of the run itself, for --minutes M; leave {key} out");
        return Err(UsageError::new(line).into());
    }
    if let Some(seed) = common.seed {
        settings.set(&format!("seed={seed}"))?;
    }
    if !args.text.is_empty() {
        settings.set_text(&args.text);
    }
    if let Some(folder) = settings.init() {
        let line = format!(
            "init = {folder}: what a plan foresees is the loss of models that begin from random numbers; leave init out, or let \
             `ember-train run --init {folder} --minutes M` find the length alone"
        );
        return Err(UsageError::new(line).into());
    }
    Ok(settings)
}

/// The text as tokens, or of a large one a part, and how much of it that is. `None` when
/// interrupted.
fn tokens(
    data: &DataConfig,
    folder: &Path,
    common: &CommonArgs,
    interrupt: &Interrupt,
) -> Result<Option<(Dataset, f64)>> {
    if let [only] = &data.text[..]
        && Dataset::is_in(Path::new(only))
    {
        return Ok(Some((Dataset::open(Path::new(only))?, 1.0)));
    }
    let notes = Notes::new(common.quiet);
    let options = text::options(data, folder.join("data"))?;
    let (options, share) = match excerpt(&options, EXCERPT_BYTES, folder)? {
        None => (options, 1.0),
        Some(part) => {
            notes
                .say(format!("the text is large: {:.1}% of it are read, and its counts scaled up", 100.0 * part.share));
            (part.options, part.share)
        }
    };
    let Some(_) = prepare_shown(&options, common.quiet, interrupt)? else { return Ok(None) };
    Ok(Some((Dataset::open(&options.out)?, share)))
}

/// The plan for people.
fn page(proposal: &Proposal, checked: Option<&Check>, out: &Path) -> String {
    let Proposal { config, text, loss, memory, speed, .. } = proposal;
    let mut lines = Vec::new();
    let mut say = |name: &str, what: String| lines.push(format!("{name:<10}{what}"));
    say(
        "text",
        format!(
            "{} tokens to learn from, {} held out, {} different; counting trigrams predicts them to {:.3} nats each",
            grouped(text.train_tokens),
            grouped(text.val_tokens),
            text.vocab_size,
            text.ngram_losses[2]
        ),
    );
    let timed = speed.timed.iter().map(|timed| {
        format!(
            "{} x {} wide: {:.1} ms a step, {}FLOP/s",
            timed.n_layer,
            timed.n_embd,
            1e3 * timed.step_s,
            short(timed.rate())
        )
    });
    say("device", format!("{} (measured in {})", timed.collect::<Vec<_>>().join("; "), duration(speed.measured_s)));
    say(
        "model",
        format!(
            "n_layer = {}, n_head = {}, n_embd = {}, context_length = {}, dropout = {}: {} parameters",
            config.n_layer,
            config.n_head,
            config.n_embd,
            config.context_length,
            config.dropout,
            short(proposal.parameters as f64)
        ),
    );
    say(
        "training",
        format!(
            "{} steps of {} tokens, {} together: the text {:.2} times; learning_rate = {}",
            grouped(config.max_steps),
            grouped(config.tokens_per_step()),
            short(proposal.tokens as f64),
            proposal.passes,
            config.learning_rate
        ),
    );
    say(
        "time",
        format!(
            "{}: {:.1} ms a step, {} for each of the looks",
            duration(proposal.seconds),
            1e3 * proposal.step_s,
            duration(proposal.look_s)
        ),
    );
    say(
        "loss",
        format!(
            "{:.3} nats per token on held-out text, between {:.3} and {:.3} (--show-fit says why)",
            loss.loss, loss.low, loss.high
        ),
    );
    say(
        "memory",
        format!(
            "{} at most: weights {}, gradients {}, moments {}, activations {}, logits {}",
            bytes(memory.peak_bytes),
            bytes(memory.weights_bytes),
            bytes(memory.gradients_bytes),
            bytes(memory.moments_bytes),
            bytes(memory.activations_bytes),
            bytes(memory.logits_bytes)
        ),
    );
    for warning in &proposal.warnings {
        say("note", warning.clone());
    }
    if let Some(checked) = checked {
        lines.extend(beside(checked));
    }
    lines.push(format!("\n{} is written; train it with\n  ember-train run --config {0}\n", out.display()));
    lines.join("\n")
}

/// What was predicted beside what was measured.
fn beside(checked: &Check) -> Vec<String> {
    let Check { predicted, measured, .. } = checked;
    let mut lines = vec![String::new(), format!("{:<12}{:>12}{:>12}", "", "predicted", "measured")];
    for (name, predicted, measured) in [
        ("weights", predicted.weights_bytes, measured.weights_bytes),
        ("gradients", predicted.gradients_bytes, measured.gradients_bytes),
        ("moments", predicted.moments_bytes, measured.moments_bytes),
        ("activations", predicted.activations_bytes, measured.activations_bytes),
        ("logits", predicted.logits_bytes, measured.logits_bytes),
        ("peak", predicted.peak_bytes, measured.peak_bytes),
    ] {
        if predicted > 0 || measured > 0 {
            lines.push(format!("{name:<12}{:>12}{:>12}", bytes(predicted), bytes(measured)));
        }
    }
    let ms = |seconds: f64| format!("{:.1} ms", 1e3 * seconds);
    lines.push(format!("{:<12}{:>12}{:>12}", "step", ms(checked.predicted_step_s), ms(checked.measured_step_s)));
    let verdict = if checked.holds() { "within" } else { "off by more than" };
    lines.push(format!("the peak is {verdict} 10% (or 64 MiB) of what was measured"));
    lines
}

/// The fit, its points and how far each is off.
fn show_fit(svg: Option<&Path>, common: &CommonArgs) -> Result<()> {
    let points = fit::points()?;
    let fit = Fit::new(&points);
    if let Some(path) = svg {
        fit_svg(&points, &fit, path)?;
    }
    let mut out = terminal::stdout();
    if common.format == OutputFormat::Json {
        return writeln!(out, "{}", json!({ "points": points, "fit": fit })).context("cannot write to standard output");
    }
    let constants = &fit.constants;
    let mut text = format!(
        "late = E + (1 - e) H3 ((N0 / N)^a + (D0 / D)^b)\n\
         loss = late + (H1 - late) / (1 + (S / S0)^g)\n\
         D    = U (1 + R (1 - exp(-r / R)))\n\
         e = {:.3}, N0 = {}, a = {:.3}, D0 = {}, b = {:.3}, S0 = {:.1}, g = {:.3}, R = 15.4\n\n\
         H1, H3: loss of unigrams and trigrams; E = e H3, or the least there can be where that is known; N: parameters without\n\
         positions; U: tokens seen once, r: how often they are repeated; S: steps\n\n\
         {:<26}{:>9}{:>9}{:>8}{:>8}{:>10}{:>10}{:>9}{:>9}{:>9}\n",
        constants.e,
        short(constants.n0),
        constants.a,
        short(constants.d0),
        constants.b,
        constants.s0,
        constants.g,
        "text",
        "N",
        "tokens",
        "U",
        "S",
        "measured",
        "fit",
        "off",
        "left out",
        "text out",
    );
    for (i, point) in points.iter().enumerate() {
        let run = point.run();
        let percent = |error: f64| format!("{:+.1}%", 100.0 * error);
        text += &format!(
            "{:<26}{:>9}{:>9}{:>8}{:>8}{:>10.4}{:>10.4}{:>9}{:>9}{:>9}\n",
            point.text,
            short(run.parameters),
            short(run.tokens),
            short(point.statistics.train_tokens as f64),
            grouped(run.steps as u64),
            point.val_loss,
            constants.loss(run),
            percent(fit.residuals[i]),
            percent(fit.left_out[i]),
            percent(fit.text_left_out[i]),
        );
    }
    text += &format!(
        "\nroot of the mean square: {:.1}% on the points themselves, {:.1}% on each left out, {:.1}% on each text left out;\n\
         nine in ten are within {:.1}% when their text is left out, which is the interval that `plan` reports\n",
        100.0 * root_mean_square(&fit.residuals),
        100.0 * root_mean_square(&fit.left_out),
        100.0 * root_mean_square(&fit.text_left_out),
        100.0 * quantile(&fit.text_left_out, 0.9),
    );
    out.write_all(text.as_bytes()).context("cannot write to standard output")
}
