//! `ember-train exposure`: measures exposure bias: how the model fares on its own text.

use ember_cli::compile_progress::{CompileProgress, KERNELS_OF_A_TEXT};
use ember_data::{prepare::Dataset, windows::TrainWindows};
use ember_decoding::run_folder;
use ember_model::{Gpt, checkpoint, folder};

use crate::prelude::*;
use ember_study::exposure::{self, Exposure, Loops, MIN_TOKENS, Settings, Stretch, TIMES, Window};
use ember_training::run::text::{data_of, dataset_for};

/// Arguments of `exposure`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ember-train exposure
  ember-train exposure runs/my-writing --samples 64 --html exposure.html")]
pub struct ExposureArgs {
    /// The run, or a checkpoint in it [default: the newest run]
    pub run: Option<PathBuf>,
    /// Windows of validation text to begin from
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub windows: u32,
    /// Tokens of real text at the start of each [default: a quarter of the context]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prefix: Option<u32>,
    /// Texts sampled for each window
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub samples: u32,
    /// Tokens to generate after each prefix, to see whether they end in a loop; 0: none
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub loop_tokens: u32,
    /// Write the results as a page with figures
    #[arg(long, value_name = "FILE", value_parser = output_file::page())]
    pub html: Option<PathBuf>,
}

/// Minimum length in bytes, about, of a run of tokens that counts as repeated: a few words,
/// whatever the tokenizer.
const REPEATED_BYTES: f64 = 12.0;

/// From this many windows on, the lack of a clear drift is a sign that there is none: with fewer,
/// only a drift of several standard errors is clear.
const ENOUGH_WINDOWS: usize = 10;

/// Runs the command.
///
/// # Errors
/// When an argument does not fit the model, the run or its data cannot be read, or something cannot
/// be written.
pub fn run(args: &ExposureArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let (notes, loop_tokens) = (Notes::new(common.quiet), args.loop_tokens as usize);
    ensure!(
        loop_tokens == 0 || loop_tokens >= MIN_TOKENS,
        UsageError::new(format!(
            "--loop-tokens {loop_tokens}: a loop has at least {MIN_TOKENS} tokens; give as many or more, or 0"
        ))
    );
    let data = data_of(args.run.as_deref()).map_err(wording::text_unknown)?;
    let subject = run_folder::find_and_open(args.run.as_deref(), |found| {
        Subject::open(found.folder, &data, args, common, &notes)
    })?;
    let Subject { checkpoint, gpt, windows, settings } = subject;
    notes.say(format!(
        "generating {} after {} of validation text each, sampled and greedy, and scoring them",
        counted(grouped((windows.len() * (settings.samples + 1)) as u64), "text"),
        counted(grouped(settings.prefix as u64), "token")
    ));
    let wait = CompileProgress::begin(KERNELS_OF_A_TEXT, common.quiet);
    let exposure = exposure::measure(&gpt, &windows, &settings, &|| interrupt.requested())?;
    drop(wait);
    if let Some(path) = &args.html {
        let title = format!("Exposure of {}", run_folder::name_of_existing_checkpoint(&checkpoint));
        write_file(path, &exposure::page(&title, &exposure))?;
        notes.say(format!("the page is in {}", path.display()));
    }
    answer_beside(args.html.as_deref(), common, || table(&exposure), || json_line(&exposure))
}

/// The model that is measured, and the windows it is measured on.
struct Subject {
    checkpoint: PathBuf,
    gpt: Gpt,
    windows: Vec<Window>,
    settings: Settings,
}

impl Subject {
    /// Loads the model in `checkpoint`, and takes windows of the text in `data`.
    fn open(checkpoint: PathBuf, data: &Path, args: &ExposureArgs, common: &CommonArgs, notes: &Notes) -> Result<Self> {
        notes.say(format!("checkpoint: {}", checkpoint.display()));
        let context_length = folder::read_config(&checkpoint)?.context_length;
        let prefix = args.prefix.map_or(context_length / 4, |prefix| prefix as usize).max(1);
        let most = context_length - 1;
        ensure!(
            prefix <= most,
            UsageError::new(format!(
                "--prefix {prefix}: the context holds {context_length} tokens; give at most {most}"
            ))
        );
        let dataset = dataset_for(data, &checkpoint)?;
        let settings = Settings {
            prefix,
            samples: args.samples as usize,
            loop_tokens: args.loop_tokens as usize,
            repeated_tokens: (REPEATED_BYTES / dataset.manifest.report.bytes_per_token).round().max(2.0) as usize,
            seed: common.seed.unwrap_or(0),
        };
        let windows = windows(&dataset, context_length, args.windows as usize, &settings)?;
        folder::verify_checksums_for_inference(&checkpoint)?;
        let selected = select(common, notes)?;
        let gpt = checkpoint::load(&checkpoint, &selected.device)?;
        Ok(Self { checkpoint, gpt, windows, settings })
    }
}

/// Windows of validation text, in a shuffled order; they begin where training windows may begin.
fn windows(dataset: &Dataset, context_length: usize, count: usize, settings: &Settings) -> Result<Vec<Window>> {
    let Dataset { manifest, val, .. } = dataset;
    ensure!(
        val.len() > context_length,
        "the validation text has {} tokens, too few for a window of {context_length} and the next token; give a run with more",
        val.len()
    );
    let drawn = TrainWindows::new(val, context_length, settings.seed, manifest.window_rule, manifest.end_of_text)
        .context("the validation text has no window to start from")?;
    let count = drawn.windows_per_pass().min(count as u64);
    ensure!(
        count >= 2,
        "the validation text has one window of {context_length} tokens, and two are needed; give more text"
    );
    let window = |index| {
        let start = drawn.window(index) as usize;
        let (mut ids, mut long) = (Vec::new(), Vec::new());
        val.get(start..start + context_length + 1, &mut ids)?;
        let from = start + settings.prefix;
        val.get(from..val.len().min(from + settings.loop_tokens), &mut long)?;
        Ok(Window { ids, long })
    };
    (0..count).map(window).collect()
}

fn table(exposure: &Exposure) -> String {
    let Exposure { windows, settings: Settings { prefix, samples, loop_tokens, repeated_tokens, .. }, .. } = exposure;
    let mut lines = vec![
        format!(
            "{} of validation text; after {}: the real words, the model's own sampled at temperature 1 ({}), and its \
             most probable ones (greedy)",
            counted(grouped(*windows as u64), "window"),
            counted(grouped(*prefix as u64), "real token"),
            counted(grouped(*samples as u64), "time")
        ),
        String::new(),
        format!(
            "{:>11} | {:^29} | {:^15} | {:^15} | {:^18}",
            "", "loss, nats per token", "expected loss", "drift", "repeated"
        ),
        format!(
            "{:>11} | {:>9} {:>9} {:>9} | {:>7} {:>7} | {:^15} | {:>5} {:>5} {:>6}",
            "position", "real", "own", "greedy", "real", "own", "own - real", "real", "own", "greedy"
        ),
    ];
    let losses = exposure.positions.iter().flat_map(|at| [at.real.loss, at.sampled.loss, at.greedy.loss]);
    let max_loss = losses.fold(0.0, f64::max);
    lines.extend(exposure.positions.iter().map(|stretch| row(&positions(stretch), stretch, max_loss)));
    let Stretch { real, sampled, greedy, .. } = &exposure.whole;
    lines.push(row("all", &exposure.whole, max_loss));
    lines.push(format!(
        "\n\
         loss: -ln p of the token; sampled tokens cost what the model expects, real ones more if it is overconfident, \
         less if it is too unsure, the same if it is well calibrated\n\
         expected loss: entropy of the model's distribution; on real words, below their loss if it is overconfident\n\
         drift: expected loss on own words minus that on real ones, with its standard error; 0 without exposure bias\n\
         repeated: positions that end a run of {repeated_tokens} tokens found earlier in the window\n\
         \n\
         {}\n\
         probability: the model gives a real token {:.3} on average, its own sampled token {:.3}, its greedy token {:.3}",
        verdict(&exposure.second_half, *windows),
        real.probability,
        sampled.probability,
        greedy.probability
    ));
    if !exposure.loops.is_empty() {
        lines.push(format!(
            "\nloops: of texts of {loop_tokens} tokens, how many end in a passage repeated at least {TIMES} times in a row, over \
             {MIN_TOKENS} tokens or more"
        ));
        lines.extend(exposure.loops.iter().map(loops));
    }
    lines.join("\n") + "\n"
}

fn positions(stretch: &Stretch) -> String {
    if stretch.from == stretch.to { stretch.from.to_string() } else { format!("{}-{}", stretch.from, stretch.to) }
}

fn row(name: &str, stretch: &Stretch, max_loss: f64) -> String {
    let Stretch { real, sampled, greedy, drift, .. } = stretch;
    let texts = [real, sampled, greedy];
    let losses = texts.map(|text| format!("{:>7.3} {}", text.loss, block(text.loss / max_loss))).join(" ");
    let drift = format!("{:+.3} ± {:.3}", drift.mean, drift.standard_error);
    let [of_real, of_own, of_greedy] = texts.map(|text| format!("{:.0}%", 100.0 * text.repeated));
    let repeated = format!("{of_real:>5} {of_own:>5} {of_greedy:>6}");
    let [real, own] = [real.expected_loss, sampled.expected_loss];
    format!("{name:>11} | {losses} | {real:>7.3} {own:>7.3} | {drift:>15} | {repeated}")
}

/// A bar one character wide, for a share from 0 to 1.
fn block(share: f64) -> char {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    BLOCKS[((8.0 * share).round() as usize).min(8)]
}

/// Whether the model drifts on its own text, judged by the second half of the positions in so many
/// windows.
fn verdict(half: &Stretch, windows: usize) -> String {
    let (mean, error) = (half.drift.mean, half.drift.standard_error);
    let found = match (half.drift.is_clear(windows), mean > 0.0) {
        (false, _) if windows < ENOUGH_WINDOWS => {
            "within chance, but so few windows show only a large drift: take more"
        }
        (false, _) => "within chance: no sign of exposure bias",
        (true, true) => "beyond chance: its own words leave it less sure of the next token than real ones do",
        (true, false) => "beyond chance: its own words are plainer than real ones, and it is surer of the next token",
    };
    format!("at positions {} the drift is {mean:+.3} ± {error:.3} nats, {found}", positions(half))
}

fn loops(found: &Loops) -> String {
    let bar = "#".repeat((20.0 * found.loops as f64 / found.texts.max(1) as f64).round() as usize);
    let where_from = match (found.mean_onset, found.mean_period) {
        (Some(onset), Some(period)) => format!("  after {onset:.0} tokens, {period:.1} tokens long (means)"),
        _ => String::new(),
    };
    let name = if found.text == "sampled" { "own" } else { found.text };
    format!("{name:>8} {:>5} of {:<5} {bar}{where_from}", found.loops, found.texts).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ember_study::exposure::{Estimate, Figures};

    #[test]
    fn astray_is_what_chance_hardly_explains() {
        let sentence = |mean, standard_error, windows| verdict(&half(Estimate { mean, standard_error }), windows);
        assert!(sentence(0.1, 0.06, 64).contains("at positions 9-16 the drift is +0.100 ± 0.060 nats, within chance"));
        assert!(sentence(0.1, 0.04, 64).contains("less sure"));
        assert!(sentence(-0.1, 0.04, 64).contains("surer of the next"));
        assert!(sentence(0.1, 0.04, 3).contains("within chance, but so few windows"), "three windows say little");
        assert!(sentence(0.1, 0.06, 10).contains("no sign of exposure bias"));
    }

    fn half(drift: Estimate) -> Stretch {
        let figures = Figures { loss: 1.0, expected_loss: 1.0, probability: 0.5, repeated: 0.0 };
        Stretch { from: 9, to: 16, real: figures, sampled: figures, greedy: figures, gap: drift, drift }
    }

    #[test]
    fn a_row_has_its_figures_below_their_names() {
        let row = row("9-16", &half(Estimate { mean: -0.1, standard_error: 0.04 }), 2.0);
        let losses = "  1.000 ▄   1.000 ▄   1.000 ▄";
        assert_eq!(row, format!("       9-16 | {losses} |   1.000   1.000 |  -0.100 ± 0.040 |    0%    0%     0%"));
    }

    #[test]
    fn bars_and_rows() {
        assert_eq!([0.0, 0.06, 0.5, 1.0, 1.3].map(block), [' ', ' ', '▄', '█', '█']);
        let of = Loops { text: "greedy", texts: 4, loops: 2, mean_onset: Some(7.4), mean_period: Some(2.0) };
        assert_eq!(loops(&of), "  greedy     2 of 4     ##########  after 7 tokens, 2.0 tokens long (means)");
        let of = Loops { text: "sampled", texts: 4, loops: 0, mean_onset: None, mean_period: None };
        assert_eq!(loops(&of), "     own     0 of 4");
    }
}
