//! `ember-train plan`: proposes a configuration for a text and a time, and predicts its loss.

use ember_data::prepare::{Dataset, excerpt};
use ember_host::output::{check_writable, is_standard_output};
use serde_json::json;

use ember_study::plan::fit::{self, Constants, Fit, Point, quantile, root_mean_square};
use ember_study::plan::{MEASURING, Proposal, Request, fit_svg, for_every_text, propose, recipe as recipe_file};
use ember_study::{error::Error, plan::check::Check, plan::check::check, plan::speed::Timed, plan::text::Statistics};
use ember_training::config::{ConfigError, DataConfig, DeviceKind, Settings, TrainConfig};
use ember_training::{memory, run::Start, run::StartHooks, run::text};

use super::{prepare::prepare_shown, run::DEFAULT_MINUTES, run::LENGTH_KEYS, run::parse_minutes};
use crate::prelude::*;

/// A larger text is judged by an excerpt of this many bytes.
pub(super) const EXCERPT_BYTES: u64 = 12_000_000;

/// Arguments of `plan`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ember-train plan my-writing/ --minutes 60
  ember-train plan my-writing/ --measure                        and compare with steps measured here
  ember-train plan --show-fit --svg fit.svg                     what the prediction is based on")]
pub struct PlanArgs {
    /// Files, folders or archives of text, Word, PDF, mail and more (docs/texts.md), or a folder that `prepare`
    /// made; none: the built-in stories
    pub text: Vec<String>,
    /// How long the run may take, in minutes
    #[arg(long, value_name = "M", default_value_t = DEFAULT_MINUTES, value_parser = parse_minutes)]
    pub minutes: f64,
    /// A configuration file, or the name of a shipped one, whose keys are kept
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set one key of the configuration; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The recipe to write, which is overwritten [default: plan.toml, which is not]
    #[arg(long, value_name = "FILE", value_parser = output_file::recipe())]
    pub out: Option<PathBuf>,
    /// Memory that training may take, such as 8GB or 500MB [default: what is available]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    pub memory_limit: Option<u64>,
    /// Train a few steps of the plan, and compare the prediction with what is measured
    #[arg(long)]
    pub measure: bool,
    /// Show how the loss is predicted (the formula, the runs it was fitted on, its error), and exit
    #[arg(long, conflicts_with_all = ["text", "minutes", "config", "set", "out", "memory_limit", "measure"])]
    pub show_fit: bool,
    /// With --show-fit: also draw it
    #[arg(long, value_name = "FILE", requires = "show_fit", value_parser = output_file::picture())]
    pub svg: Option<PathBuf>,
    /// Print what the prediction knows of the text as JSON, and exit
    #[arg(long, hide = true)]
    pub facts: bool,
}

/// Runs the command.
///
/// # Errors
/// When an argument or the text is wrong, or the recipe cannot be written.
pub fn run(args: &PlanArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    if args.show_fit {
        return show_fit(args.svg.as_deref(), common);
    }
    let notes = Notes::new(common.quiet);
    let settings = settings(args, common)?;
    // The facts alone are no plan, of which there would be a recipe.
    let out = if args.facts { None } else { Some(args.out.clone().map_or_else(default_out, Ok)?) };
    let mut screen = Screen::new(common.quiet);
    let start = Start::new(settings, common.device, args.memory_limit, &Planner, &mut screen)?;
    let prepared = start.prepared(&mut screen)?.map(Path::to_owned);
    let Start { settings, data, selected, .. } = start;
    let folder = temporary_folder()?;
    let (dataset, share) = match prepared {
        Some(prepared) => (Dataset::open(&prepared)?, 1.0),
        None => tokens(&data, folder.path(), common, interrupt)?,
    };
    let text = Statistics::new(&dataset, share)?;
    let Some(out) = out else {
        show(&json_line(&text)?)?;
        return Ok(Outcome::Done);
    };
    notes.say("measuring the device");
    let go_on = || !interrupt.requested();
    let proposal = for_device(settings, args.minutes, args.memory_limit, &dataset, text, &selected, &go_on)?;
    if interrupt.requested() {
        return Ok(Outcome::Interrupted);
    }
    let checked = if args.measure { Some(check(&proposal, &dataset, &selected, &go_on)?) } else { None };

    write_file(&out, &recipe_file::toml(&proposal, args.minutes, &selected.name))
        .with_context(|| write_failure(&out))?;
    let json = || {
        let Selected { id, name, .. } = &selected;
        let recipe = out.display().to_string(); // a path that is not UTF-8 is no JSON
        json_line(&json!({ "device": id, "device_name": name, "minutes": args.minutes, "recipe": recipe,
            "plan": proposal, "measured": checked }))
    };
    answer_beside(Some(&out), common, || page(&proposal, checked.as_ref(), &args.text, &out), json)
}

/// The default recipe file. It must not exist yet, and must be writable, which is checked before
/// the device is measured.
fn default_out() -> Result<PathBuf> {
    let out = PathBuf::from("plan.toml");
    ensure!(!out.exists(), UsageError::new(format!("{} exists already; name another file with --out", out.display())));
    check_writable(&out).with_context(|| write_failure(&out))?;
    Ok(out)
}

fn write_failure(out: &Path) -> String {
    format!("{}: cannot write the recipe; choose another --out", out.display())
}

/// The plan for the device in `minutes`, within `memory_limit` or else the available memory.
fn for_device(
    settings: Settings,
    minutes: f64,
    memory_limit: Option<u64>,
    dataset: &Dataset,
    text: Statistics,
    selected: &Selected,
    go_on: &dyn Fn() -> bool,
) -> Result<Proposal> {
    let request = Request {
        settings,
        seconds: 60.0 * minutes,
        measured_within: false,
        memory_bytes: memory::available(memory_limit, selected),
        measuring: MEASURING,
        processes: 1,
        shape: &|config| config.shape(dataset.manifest.vocab_size),
        go_on,
    };
    Ok(propose(&request, dataset, text, selected)?)
}

/// The plan for a prepared text, which is the fraction `share` of the whole, as (name, text) lines.
///
/// # Errors
/// When the device cannot compute, the time is too short, or the user interrupts.
pub(super) fn proposal_lines(
    text: &[String],
    minutes: f64,
    dataset: &Dataset,
    share: f64,
    common: &CommonArgs,
    interrupt: &Interrupt,
) -> Result<Vec<(String, String)>> {
    let settings = settings_without_length(None, &[], text, common)?;
    let mut screen = Screen::new(common.quiet);
    let Start { settings, selected, .. } = Start::new(settings, common.device, None, &Planner, &mut screen)?;
    let statistics = Statistics::new(dataset, share)?;
    let go_on = || !interrupt.requested();
    Ok(plan_lines(&for_device(settings, minutes, None, dataset, statistics, &selected, &go_on)?))
}

/// Hooks of a start that leaves unset sizes to the plan.
struct Planner;

impl StartHooks for Planner {
    fn for_every_text(&self, settings: &Settings, device: DeviceKind) -> Vec<Result<TrainConfig, ConfigError>> {
        for_every_text(settings, device)
    }
}

/// The settings of the recipe, the assignments and the command line. The recipe's length is
/// dropped, as the plan chooses the length.
fn settings_without_length(
    config: Option<&Path>,
    assignments: &[String],
    text: &[String],
    common: &CommonArgs,
) -> Result<Settings> {
    let mut settings = recipe(config, text.is_empty())?;
    (settings.max_steps, settings.lr_decay_steps) = (None, None);
    set_all(&mut settings, assignments, text, common)?;
    Ok(settings)
}

/// The settings; refuses those that a plan decides itself or cannot predict.
fn settings(args: &PlanArgs, common: &CommonArgs) -> Result<Settings> {
    let settings = settings_without_length(args.config.as_deref(), &args.set, &args.text, common)?;
    if let Some(key) = LENGTH_KEYS.iter().find(|key| settings.has(key)) {
        bail!(UsageError::new(format!(
            "--set {key}: a plan chooses the length of the run itself, for --minutes M; leave {key} out"
        )));
    }
    if let Some(folder) = settings.init() {
        bail!(UsageError::new(format!(
            "init = {folder}: a plan predicts only the loss of models that start from random weights; leave init out, or \
             let `ember-train run --init {folder} --minutes M` choose the length"
        )));
    }
    Ok(settings)
}

/// The text as tokens, or an excerpt of a large text, and the excerpt's share of it.
fn tokens(data: &DataConfig, folder: &Path, common: &CommonArgs, interrupt: &Interrupt) -> Result<(Dataset, f64)> {
    let options = text::options(data, folder.join("data"))?;
    let (options, share) = match excerpt(&options, EXCERPT_BYTES, folder)? {
        None => (options, 1.0),
        Some(part) => {
            let percent = 100.0 * part.share;
            let line = format!("the text is large: {percent:.1}% of it is read, and the counts are scaled up");
            Notes::new(common.quiet).say(line);
            (part.options, part.share)
        }
    };
    prepare_shown(&options, common.quiet, interrupt)?.ok_or(Error::Stopped)?;
    Ok((Dataset::open(&options.out)?, share))
}

/// The plan as (name, text) lines.
fn plan_lines(proposal: &Proposal) -> Vec<(String, String)> {
    let Proposal { config, text, loss, memory, speed, passes, .. } = proposal;
    let TrainConfig { n_layer, n_head, n_embd, context_length, dropout, learning_rate, .. } = config;
    let [train_tokens, held_out, steps, step_tokens] =
        [text.train_tokens, text.val_tokens, config.max_steps, config.tokens_per_step()].map(grouped);
    let [parameters, tokens] = [proposal.parameters, proposal.tokens].map(|number| short(number as f64));
    let [seconds, look, measuring] = [proposal.seconds, proposal.look_s, speed.measured_s].map(duration);
    let timed = speed.timed.iter().map(|timed| {
        let Timed { n_layer, n_embd, step_s, .. } = timed;
        format!("{n_layer} x {n_embd} wide: {:.1} ms per step, {}FLOP/s", 1e3 * step_s, short(timed.rate()))
    });
    let timed = timed.collect::<Vec<_>>().join("; ");
    let parts = memory.named_of_training().map(|(name, size)| format!("{name} {}", bytes(size)));
    let lines = [
        (
            "text",
            format!(
                "{train_tokens} training tokens, {held_out} held out, {} different; trigrams with a cache reach {:.3} nats \
                 per token",
                text.vocab_size, text.trigram_cache_loss
            ),
        ),
        ("device", format!("{timed} (measured in {measuring})")),
        (
            "model",
            format!(
                "n_layer = {n_layer}, n_head = {n_head}, n_embd = {n_embd}, context_length = {context_length}, dropout = \
                 {dropout}: {parameters} parameters"
            ),
        ),
        (
            "training",
            format!(
                "{} of {step_tokens} tokens, {tokens} in total: {passes:.2} passes over the text; learning_rate = {learning_rate}",
                counted(steps, "step")
            ),
        ),
        ("time", format!("{seconds}: {:.1} ms per step, {look} per evaluation", 1e3 * proposal.step_s)),
        (
            "loss",
            format!(
                "{:.3} nats per token on held-out text, between {:.3} and {:.3} (see --show-fit)",
                loss.loss, loss.low, loss.high
            ),
        ),
        ("memory", format!("{} at most: {}", bytes(memory.peak_bytes), parts.join(", "))),
    ];
    let warnings = proposal.warnings.iter().map(|warning| ("note".to_owned(), warning.to_string()));
    lines.map(|(name, says)| (name.to_owned(), says)).into_iter().chain(warnings).collect()
}

/// The plan as text for the terminal.
fn page(proposal: &Proposal, checked: Option<&Check>, text: &[String], out: &Path) -> String {
    let mut lines: Vec<String> = plan_lines(proposal).iter().map(|(name, says)| format!("{name:<10}{says}")).collect();
    lines.extend(checked.into_iter().flat_map(comparison_table));
    lines.push(format!("\n{}\n", next_command(text, out)));
    lines.join("\n")
}

/// The next command to run: training with the recipe, which the user must first save to a file if
/// it went to standard output.
fn next_command(text: &[String], out: &Path) -> String {
    let piped = if text.iter().any(|name| name == "-") { " < TEXT" } else { "" };
    let (written, file) = match is_standard_output(out) {
        true => ("the recipe is written; save it to a FILE, and".to_owned(), "FILE".to_owned()),
        false => (format!("{} is written;", out.display()), typed(out)),
    };
    format!("{written} train it with\n  ember-train run --config {file}{piped}")
}

/// A table of the predicted and the measured memory and step time.
fn comparison_table(checked: &Check) -> Vec<String> {
    let mut lines = vec![String::new(), format!("{:<12}{:>12}{:>12}", "", "predicted", "measured")];
    for ((name, predicted), (_, measured)) in checked.predicted.named().into_iter().zip(checked.measured.named()) {
        if predicted > 0 || measured > 0 {
            lines.push(format!("{name:<12}{:>12}{:>12}", bytes(predicted), bytes(measured)));
        }
    }
    let [predicted, measured] =
        [checked.predicted_step_s, checked.measured_step_s].map(|seconds| format!("{:.1} ms", 1e3 * seconds));
    lines.push(format!("{:<12}{predicted:>12}{measured:>12}", "step"));
    let verdict = if checked.holds() { "within" } else { "off by more than" };
    lines.push(format!("the predicted peak is {verdict} 10% (or 64 MiB) of the measured one"));
    lines
}

/// Prints the fit, its points and their residuals.
fn show_fit(svg: Option<&Path>, common: &CommonArgs) -> Result<Outcome> {
    let points = fit::points()?;
    let (fit, left_out) = (Fit::new(&points), fit::left_out(&points));
    if let Some(path) = svg {
        fit_svg(&points, &fit, path)?;
    }
    let json = || {
        let mut fit = json!(fit);
        fit["left_out"] = json!(left_out);
        json_line(&json!({ "points": points, "fit": fit }))
    };
    answer_beside(svg, common, || fit_table(&points, &fit, &left_out), json)
}

/// The formula with its constants, and one line per point.
fn fit_table(points: &[Point], fit: &Fit, left_out: &[f64]) -> String {
    let Constants { e, n0, a, d0, b, s0, g, p, c, h } = fit.constants;
    let [n0, d0] = [n0, d0].map(short);
    let percent = |error: f64| format!("{:+.1}%", 100.0 * error);
    let mut text = format!(
        "late = A (E + (1 - E) ((N0 / N)^a + (D1 / D)^b)), A = HC^p (2 H0 / 3)^(1 - p)\n\
         E    = e (C F)^-c, D1 = D0 C^h, C = H3 / HC, F = H3 / H4\n\
         loss = late + (H1 - late) / (1 + (S / S0)^g)\n\
         D    = W / (1 + B / (5 W^(1/2))), W = U (1 + R (1 - exp(-r / R)))\n\
         e = {e:.3}, N0 = {n0}, a = {a:.3}, D0 = {d0}, b = {b:.3}, S0 = {s0:.1}, g = {g:.3}, p = {p:.3}, c = {c:.3}, h = {h:.3}, R = 15.4\n\n\
         H1, H3, H4: loss of unigrams, trigrams, sequences of four; HC: of trigrams with a cache of 64 tokens; H0: of spelling each token, or pointing at it among those;\n\
         N: parameters of the blocks; B: tokens of a step; U: tokens seen once, r: how often they are repeated; S: steps\n\n\
         {:<26}{:>9}{:>9}{:>8}{:>8}{:>10}{:>10}{:>9}{:>9}{:>9}\n",
        "text", "N", "tokens", "U", "S", "measured", "fit", "off", "left out", "text out",
    );
    for (i, point) in points.iter().enumerate() {
        let run = point.run();
        let [off, without, text_out] = [fit.residuals[i], left_out[i], fit.text_left_out[i]].map(percent);
        text += &format!(
            "{:<26}{:>9}{:>9}{:>8}{:>8}{:>10.4}{:>10.4}{off:>9}{without:>9}{text_out:>9}\n",
            point.text,
            short(run.parameters),
            short(run.tokens),
            short(point.statistics.train_tokens as f64),
            grouped(run.steps as u64),
            point.val_loss,
            fit.constants.loss(run),
        );
    }
    let [own, without, text_out] =
        [&fit.residuals[..], left_out, &fit.text_left_out[..]].map(|errors| 100.0 * root_mean_square(errors));
    let within = 100.0 * quantile(&fit.text_left_out, 0.9);
    text += &format!(
        "\nroot mean square error: {own:.1}% on the points themselves, {without:.1}% with each point left out, {text_out:.1}% with each \
         text left out;\n\
         nine in ten are within {within:.1}% with their text left out, the interval that `plan` reports\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_run_is_told_to_read_standard_output() {
        let trains = |text: &str, out: &str| next_command(&[text.to_owned()], Path::new(out));
        let expected = "my plan.toml is written; train it with\n  ember-train run --config 'my plan.toml' < TEXT";
        assert_eq!(trains("-", "my plan.toml"), expected.replace('\'', if cfg!(windows) { "\"" } else { "'" }));
        let expected = "the recipe is written; save it to a FILE, and train it with\n  ember-train run --config FILE";
        assert_eq!(trains("a.txt", "-"), expected);
    }
}
