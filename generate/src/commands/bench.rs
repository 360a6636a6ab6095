//! `ember-generate bench`: how fast a model reads and writes here.

use std::{io::Write, path::PathBuf, time::Instant};

use anyhow::{Result, ensure};
use clap::Args;
use ember_cli::compile_progress::{CompileProgress, KERNELS_OF_A_TEXT};
use ember_cli::shape::shape;
use ember_data::numbers::grouped;
use ember_model::init::Random;
use ember_model::{Gpt, GptConfig, device};
use serde::Serialize;

use super::loaded::Loaded;
use super::model_args::WeightsArgs;
use ember_cli::program::{CommonArgs, Notes, Outcome, OutputFormat, UsageError};
use ember_cli::terminal;
use ember_decoding::bench::{Speed, Task, needed_bytes, speed};
use ember_host::{interrupt::Interrupt, memory::available_bytes};
use ember_kernels::is_cpu;

/// Arguments of `bench`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each line is one batch size and prompt length: the prompts are read in one pass, then each step writes a token after each of \
them. After every step, as many bytes as it read are read in a plain loop; `of memory` is that loop's share of the step's time.

Examples:
  ember-generate bench                                   the newest run
  ember-generate bench --shape gpt2 --batch 1,8 --prompt 128,1000
  ember-generate bench --shape 6x6x384x65x256            layers, heads, width, vocabulary, context")]
pub struct BenchArgs {
    /// The run or checkpoint to measure [default: the newest run under runs/]
    #[arg(long, value_name = "RUN", conflicts_with = "shape")]
    from: Option<PathBuf>,
    /// A shape with random weights instead: gpt2, gpt2-medium, or
    /// LAYERSxHEADSxWIDTHxVOCABULARYxCONTEXT
    #[arg(long, value_name = "SHAPE", value_parser = shape)]
    shape: Option<GptConfig>,

    #[command(flatten)]
    weights: WeightsArgs,
    /// Batch sizes: texts written together
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    batch: Vec<usize>,
    /// Prompt lengths in tokens [default: 32, or half of a shorter context]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    prompt: Option<Vec<usize>>,
    /// New tokens after each prompt [default: 32, or half of a shorter context]
    #[arg(long, value_name = "N")]
    new_tokens: Option<usize>,
    /// Number of timed repetitions, after one that is not timed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
}

/// The JSON object of one measurement.
#[derive(Serialize)]
struct JsonSpeed<'a> {
    device: &'a str,
    parameters: usize,
    /// Type in which the matrices are stored.
    weights: &'static str,
    load_s: f64,
    #[serde(flatten)]
    speed: Speed,
}

/// Runs the command.
///
/// # Errors
/// When the model cannot be loaded, the text would not fit its context, or the device fails.
pub(super) fn run(args: &BenchArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    let began = Instant::now();
    let (model, device) = model(args, common, &notes)?;
    let load_s = began.elapsed().as_secs_f64();
    let config = model.config();
    let weights = model.weight_type().name();
    let parameters = grouped(config.parameters() as u64);
    notes.say(format!("{parameters} parameters in {weights}, loaded in {load_s:.2} s"));
    if config.context_length < 2 {
        return Err(UsageError::new(
            "a context of 1 token cannot be measured: a prompt and a new token need 2; use another model",
        )
        .into());
    }
    let default = (config.context_length / 2).clamp(1, DEFAULT_TOKENS);
    let (prompts, new) = (args.prompt.clone().unwrap_or_else(|| vec![default]), args.new_tokens.unwrap_or(default));
    let longest = prompts.iter().max().copied().unwrap_or(0).saturating_add(new);
    if prompts.contains(&0) || args.batch.contains(&0) || new == 0 {
        return Err(UsageError::new("--batch, --prompt and --new-tokens must be at least 1").into());
    }
    if longest > config.context_length {
        return Err(UsageError::new(format!(
            "--prompt and --new-tokens together are {longest} tokens, more than the model's context of {}; give fewer",
            config.context_length
        ))
        .into());
    }
    let widest = args.batch.iter().max().copied().unwrap_or(0);
    check_memory(&model, Task { batch: widest, prompt: longest - new, new, repeats: 1 })?;
    let mut out = terminal::stdout();
    if common.format == OutputFormat::Text {
        writeln!(out, "{HEADER}")?;
    }
    let mut wait = Some(CompileProgress::begin(KERNELS_OF_A_TEXT, common.quiet));
    for &prompt in &prompts {
        for &batch in &args.batch {
            let task = Task { batch, prompt, new, repeats: args.repeats as usize };
            let speed = speed(&model, task, &|| !interrupt.requested())?;
            drop(wait.take());
            let Some(speed) = speed else { return Ok(Outcome::Interrupted) };
            let json = JsonSpeed { device: &device, parameters: config.parameters(), weights, load_s, speed };
            common.format.write_line(&mut out, || serde_json::to_string(&json), || line(&speed))?;
            out.flush()?;
        }
    }
    Ok(Outcome::Done)
}

/// Default number of tokens of a prompt, and after it.
const DEFAULT_TOKENS: usize = 32;

/// Refuses a batch that does not fit in CPU memory; a GPU's memory is not known.
fn check_memory(model: &Gpt, task: Task) -> Result<()> {
    let (needed, available) = (needed_bytes(model, task), available_bytes() as f64);
    ensure!(
        !is_cpu(&model.device()) || needed <= available,
        UsageError::new(format!(
            "--batch {} of {} tokens needs about {:.1} GB, and {:.1} GB of memory are free; lower --batch, --prompt or \
             --new-tokens",
            task.batch,
            task.prompt + task.new,
            needed / 1e9,
            available / 1e9
        ))
    );
    Ok(())
}

const HEADER: &str =
    "batch  prompt   prefill ms   tokens/s   ms per step (least to most)   tokens/s    GB/s  of memory";

fn line(speed: &Speed) -> String {
    let ms = |s: f64| s * 1e3;
    let bytes = (speed.weight_bytes + speed.cache_bytes) as f64;
    format!(
        "{:>5} {:>7} {:>12.1} {:>10} {:>13.3} ({:.3} to {:.3}) {:>10.1} {:>7.1} {:>9.1}%{}",
        speed.batch,
        speed.prompt_tokens,
        ms(speed.prefill_s.median),
        grouped(speed.prefill_tokens_per_s.round() as u64),
        ms(speed.step_s.median),
        ms(speed.step_s.min),
        ms(speed.step_s.max),
        speed.tokens_per_s,
        bytes / speed.step_s.median / 1e9,
        100.0 * speed.bandwidth_share.median,
        if speed.replayed { "  replayed" } else { "" },
    )
}

/// The model, and the id of the device it is on.
fn model(args: &BenchArgs, common: &CommonArgs, notes: &Notes) -> Result<(Gpt, String)> {
    let Some(config) = &args.shape else {
        let loaded = Loaded::new(args.from.as_deref(), true, args.weights.chosen, common, notes)?;
        return Ok((loaded.model, loaded.device_id));
    };
    let device = device::select(common.device)?;
    notes.say(device.line());
    let seed = common.seed.unwrap_or(0);
    let model = Gpt::for_inference(config, &Random { seed }, args.weights.chosen, &device.device)?;
    Ok((model, device.id))
}
