//! `ember-generate explain`: one generation with every number that decided it, as a page, as JSON,
//! or on the terminal.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;
use ember_data::numbers::counted;
use ember_host::output::{is_standard_output, write_output};

use super::knob_args::{count, number};
use super::model_args::{SpecialTokensArgs, WeightsArgs};
use super::prompts::{self, PromptInput, UnencodedPrompt};
use super::{
    loaded::{Loaded, folder_settings},
    text_args::random_seed,
};
use crate::twin;
use ember_cli::interrupt::end_with_terminal;
use ember_cli::program::{CommonArgs, Notes, Outcome, OutputFormat, UsageError};
use ember_cli::{output_file, terminal, wording};
use ember_decoding::config::{FolderSettings, GenerationConfig, KNOBS, Knobs, Strategy};
use ember_decoding::run_folder;
use ember_explain::{Explanation, Subject, Words, page};
use ember_host::interrupt::Interrupt;

/// Default output path of the page.
const PAGE: &str = "explain.html";

/// Node limit of the exact search: usually more than it needs for a few tokens of a trained model.
const EXACT_NODES: usize = 20_000;

/// The knobs when neither flags nor the folder set one: common values at which both knobs have a
/// visible effect.
const TEMPERATURE: f32 = 0.8;
const TOP_P: f64 = 0.95;

/// Every step is kept with all its logits, so their number must be bounded.
const MAX_TOKENS: usize = 1000;

/// Size from which a page opens slowly in browsers.
const LARGE_BYTES: usize = 8 << 20;

const KNOBS_HEADING: &str = "Knobs of the run";
const SHOWN: &str = "What is shown";

/// Arguments of `explain`.
#[derive(Args, Debug)]
#[command(after_help = "\
The page needs no network: every number in it comes from this run, and its knobs work on the model's own logits. Without a \
knob (and with none in the checkpoint's generation_config.json) the text is sampled at temperature 0.8 and top-p 0.95; \
--temperature 0 explains greedy decoding.

Examples:
  ember-generate explain \"Once upon a time\"
  ember-generate explain \"To be\" --temperature 1.2 --min-p 0.05 --seed 5 --html to-be.html
  ember-generate explain \"To be\" --steps 0,5,10       attention and layers at these steps
  ember-generate explain \"To be\" --tui                bars and beams on the terminal
  ember-generate explain \"To be\" --format json        the page's numbers")]
pub struct ExplainArgs {
    /// The text to continue; an empty one starts a new text
    #[arg(value_name = "PROMPT", conflicts_with = "prompt_ids")]
    prompt: Option<String>,

    /// Token ids as the prompt, such as 1,2,3: needs no tokenizer
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    prompt_ids: Option<Vec<u32>>,

    /// The run or checkpoint to explain [default: the newest run under runs/]
    #[arg(long, value_name = "RUN")]
    from: Option<PathBuf>,

    #[command(flatten)]
    special: SpecialTokensArgs,

    #[command(flatten)]
    weights: WeightsArgs,

    /// Where to write the page [default: explain.html]
    #[arg(long, alias = "out", value_name = "FILE", value_parser = output_file::page())]
    html: Option<PathBuf>,

    /// Show it on the terminal instead, step by step
    #[arg(long, conflicts_with_all = ["html", "steps"])]
    tui: bool,

    /// Tokens to write, at most 1000
    #[arg(long, value_name = "N", default_value = "24", value_parser = tokens, allow_negative_numbers = true, help_heading = KNOBS_HEADING)]
    max_new_tokens: usize,

    /// Sharpens (below 1) or flattens (above 1) the distribution; 0 means greedy
    #[arg(long, value_name = "T", value_parser = number::<f32>, allow_negative_numbers = true, help_heading = KNOBS_HEADING)]
    temperature: Option<f32>,

    /// Sample from the K best tokens; 0 is off
    #[arg(long, value_name = "K", value_parser = count, allow_negative_numbers = true, help_heading = KNOBS_HEADING)]
    top_k: Option<usize>,

    /// Sample from the fewest best tokens whose probabilities reach P; 1 is off
    #[arg(long, value_name = "P", value_parser = number::<f64>, allow_negative_numbers = true, help_heading = KNOBS_HEADING)]
    top_p: Option<f64>,

    /// Sample from the tokens at least P times as probable as the best; 0 is off
    #[arg(long, value_name = "P", value_parser = number::<f64>, allow_negative_numbers = true, help_heading = KNOBS_HEADING)]
    min_p: Option<f64>,

    /// Makes each token of the prompt and the text less probable (above 1) or more (below 1); 1 is
    /// off
    #[arg(long, value_name = "X", value_parser = number::<f32>, allow_negative_numbers = true, help_heading = KNOBS_HEADING)]
    repetition_penalty: Option<f32>,

    /// Beams of the beam search
    #[arg(long, value_name = "N", default_value = "4", value_parser = count, allow_negative_numbers = true, help_heading = SHOWN)]
    num_beams: usize,

    /// The steps at which attention and layers are shown, counted from 0, such as 0,5 [default: the
    /// first and the last]
    #[arg(long, value_name = "STEPS", value_delimiter = ',', value_parser = count, help_heading = SHOWN)]
    steps: Option<Vec<usize>>,
}

/// Parses a number of tokens; 0 and numbers that are too large are refused later.
fn tokens(text: &str) -> Result<usize, String> {
    count(text).map_err(|_| format!("it must be a whole number from 1 to {MAX_TOKENS}"))
}

pub(super) fn run(args: &ExplainArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    args.check(common.format)?;
    let notes = Notes::new(common.quiet);
    // A wrong knob is refused before the slow loading of the model.
    args.config(&folder_settings(args.from.as_deref())?.knobs)?;
    let input = prompts::from_command_line(args.prompt.as_deref(), args.prompt_ids.as_deref())?;
    let input = input.ok_or_else(|| UsageError::new("explain needs a prompt; add PROMPT or --prompt-ids"))?;

    let ids_suffice = matches!(input, PromptInput::Ids(_));
    let (loaded, defaults) =
        Loaded::with_defaults(args.from.as_deref(), ids_suffice, args.weights.chosen, common, &notes)?;
    let settings = defaults.settings.clone();
    let (mut config, remarks) = args.config(&settings.knobs)?;
    remarks.iter().for_each(|remark| notes.say(remark));
    config.end_tokens = defaults.end_tokens(&notes);
    config.seed = common.seed.unwrap_or_else(random_seed);
    notes.say(wording::decoding::summary(&config));
    if let PromptInput::Ids(ids) = &input {
        loaded.check_ids("--prompt-ids", ids)?;
    }
    let prompt = UnencodedPrompt { place: Some("the prompt".to_owned()), id: None, input };
    let prompt = prompt.encode(0, &loaded, args.special.chosen)?;

    let bytes_of = |id: u32| loaded.bytes_of(id);
    let subject = Subject {
        program: concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")),
        model: &loaded.model,
        checkpoint: &run_folder::name_of_existing_checkpoint(&loaded.folder),
        prompt_text: prompt.text.as_deref(),
        prompt: &prompt.ids,
        config: &config,
        folder: &settings,
        num_beams: args.num_beams,
        exact_nodes: EXACT_NODES,
        steps: args.steps.as_deref(),
        words: Words { bytes_of: loaded.tokenizer.is_some().then_some(&bytes_of) },
        go_on: &|| !interrupt.requested(),
    };
    if args.tui {
        return show(&subject, interrupt);
    }
    let wait = loaded.compile_progress();
    let Some(explanation) = ember_explain::explain(&subject)? else { return Ok(Outcome::Interrupted) };
    drop(wait);
    for step in args.steps.iter().flatten().filter(|&&step| step >= explanation.tokens_written()) {
        let tokens = counted(explanation.tokens_written(), "token");
        notes.say(format!("--steps {step}: the text ended before it, after {tokens}"));
    }
    match common.format {
        OutputFormat::Json => writeln!(terminal::stdout(), "{}", explanation.to_json())?,
        OutputFormat::Text => write_page(&explanation, args.html.as_deref().unwrap_or(Path::new(PAGE)), &notes)?,
    }
    Ok(Outcome::Done)
}

/// Writes the page, and prints its size and path.
fn write_page(explanation: &Explanation, path: &Path, notes: &Notes) -> Result<()> {
    let page = page::page(explanation);
    write_output(path, |file| file.write_all(page.as_bytes()))?;
    if page.len() > LARGE_BYTES {
        notes.say("a page this large opens slowly; a lower --max-new-tokens makes it smaller");
    }
    if is_standard_output(path) {
        return Ok(());
    }
    notes.say(format!("{} kB; open it in a browser:", page.len().div_ceil(1000)));
    Ok(writeln!(terminal::stdout(), "{}", path.display())?)
}

/// Shows the explanation on the terminal.
fn show(subject: &Subject, interrupt: &Interrupt) -> Result<Outcome> {
    let recorded = ember_explain::record(subject)?;
    let beams = ember_explain::beam_steps(subject)?;
    if !interrupt.requested() {
        end_with_terminal();
        twin::show(subject, &recorded, &beams, interrupt)?;
    }
    Ok(if interrupt.requested() { Outcome::Interrupted } else { Outcome::Done })
}

impl ExplainArgs {
    /// Checks the flags before anything is loaded.
    fn check(&self, format: OutputFormat) -> Result<()> {
        self.knobs().check_ranges()?;
        ensure!(
            self.max_new_tokens <= MAX_TOKENS,
            UsageError::new(format!(
                "--max-new-tokens is {}; explain keeps every step with all its logits, so it must be at most {MAX_TOKENS}",
                self.max_new_tokens
            ))
        );
        Knobs { num_beams: Some(self.num_beams), ..Knobs::default() }.check_ranges()?;
        let json = format == OutputFormat::Json;
        ensure!(
            !(json && self.html.is_some()),
            UsageError::new("--format json writes to standard output; drop --html, or redirect the output")
        );
        ensure!(!(json && self.tui), UsageError::new("--tui does not go with --format json; leave one of them out"));
        ensure!(
            !self.tui || (io::stdout().is_terminal() && io::stdin().is_terminal()),
            UsageError::new("--tui needs a terminal to draw on and to read keys from; drop --tui to write a page")
        );
        if let Some(step) = self.steps.iter().flatten().find(|&&step| step >= self.max_new_tokens) {
            let (tokens, last) = (self.max_new_tokens, self.max_new_tokens - 1);
            bail!(UsageError::new(format!("--steps {step}: with --max-new-tokens {tokens} the last step is {last}")));
        }
        Ok(())
    }

    /// The knobs that the flags set.
    fn knobs(&self) -> Knobs {
        Knobs {
            strategy: Some(if self.temperature == Some(0.0) { Strategy::Greedy } else { Strategy::Sample }),
            max_new_tokens: Some(self.max_new_tokens),
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            ..Knobs::default()
        }
    }

    /// The configuration of the run, from flags and folder, and notes about it. Only knobs that the
    /// page can change are used: with others, the page's arithmetic would differ from the run's.
    fn config(&self, folder: &Knobs) -> Result<(GenerationConfig, Vec<String>)> {
        let of_folder = page_knobs(folder);
        let mut flags = self.knobs();
        let by_flags = implies_sampling(&flags);
        // Without `do_sample` in the file, its sampling knobs imply sampling, which the page explains; `text` is
        // greedy then, as transformers is.
        let is_greedy = !by_flags && folder.do_sample == Some(false);
        let by_default = !by_flags && !implies_sampling(&of_folder) && folder.do_sample.is_none();
        if is_greedy {
            flags.strategy = Some(Strategy::Greedy);
        } else if by_default {
            (flags.temperature, flags.top_p) = (Some(TEMPERATURE), Some(TOP_P));
        }
        let unapplied = unapplied_knobs(folder, &of_folder);
        let (config, notes) =
            GenerationConfig::resolve(&flags, &FolderSettings { knobs: of_folder, not_applied: Vec::new() })?;
        let mut notes: Vec<String> = notes.iter().map(wording::decoding::note).collect();
        if by_default {
            notes.push(format!("no knob is set: temperature {TEMPERATURE} and top-p {TOP_P}"));
        } else if is_greedy {
            notes.push("greedy, as generation_config.json says; --temperature 1 explains sampling".to_owned());
        } else if !by_flags {
            notes.push("sampling, as generation_config.json says; --temperature 0 explains greedy decoding".to_owned());
        }
        if !unapplied.is_empty() {
            notes.push(format!("generation_config.json also sets {}: not applied here", unapplied.join(", ")));
        }
        Ok((config, notes))
    }
}

/// The folder's knobs that the page can change.
fn page_knobs(folder: &Knobs) -> Knobs {
    Knobs {
        temperature: folder.temperature,
        top_k: folder.top_k,
        top_p: folder.top_p,
        min_p: folder.min_p,
        repetition_penalty: folder.repetition_penalty,
        ..Knobs::default()
    }
}

/// The names of the folder's other active knobs, except `max_new_tokens`.
fn unapplied_knobs(folder: &Knobs, applied: &Knobs) -> Vec<&'static str> {
    let others = KNOBS.iter().filter(|knob| knob.name != "max_new_tokens" && knob.set_in(applied).is_none());
    others.filter(|knob| knob.set_in(folder).is_some_and(|value| !knob.is_off(value))).map(|knob| knob.name).collect()
}

/// Whether these knobs imply sampling.
fn implies_sampling(knobs: &Knobs) -> bool {
    knobs.temperature.is_some() || knobs.top_k.is_some_and(|k| k > 0) || knobs.top_p.is_some() || knobs.min_p.is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::{CommandFactory, Parser};
    use std::fs;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ExplainArgs,
    }

    fn args(line: &str) -> ExplainArgs {
        Line::try_parse_from(["explain"].into_iter().chain(line.split_whitespace())).unwrap().args
    }

    fn refusal(line: &str, format: OutputFormat) -> String {
        let refused = wording::line(args(line).check(format).unwrap_err().as_ref());
        assert_eq!(refused.exit_code(), 2, "{line}");
        refused.words()
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_is_loaded() {
        let text = |line| refusal(line, OutputFormat::Text);
        assert!(text("To --top-p 1.5").starts_with("--top-p is 1.5; it must be"));
        assert!(text("To --num-beams 0").starts_with("--num-beams is 0; it must be"));
        assert!(text("To --max-new-tokens 0").starts_with("--max-new-tokens is 0; it must be"));
        assert!(text("To --max-new-tokens 1001").ends_with("so it must be at most 1000"));
        assert_eq!(text("To --steps 0,24"), "--steps 24: with --max-new-tokens 24 the last step is 23");
        assert!(text("To --tui").starts_with("--tui needs a terminal"), "a test has none");
        assert!(refusal("To --html a.html", OutputFormat::Json).contains("drop --html"));
        assert!(refusal("To --tui", OutputFormat::Json).contains("--tui does not go with --format json"));
        args("To --steps 0,23").check(OutputFormat::Text).unwrap();
        let shown = ["explain", "To", "--tui", "--steps", "0"];
        assert!(Line::try_parse_from(shown).is_err(), "the terminal shows every step");
    }

    #[test]
    fn what_is_no_number_of_tokens_is_told_the_range_that_is_kept_to() {
        for wrong in ["-1", "many"] {
            let refused = Line::try_parse_from(["explain", "To", "--max-new-tokens", wrong]).map(|line| line.args);
            let line = refused.unwrap_err().to_string();
            assert!(line.contains("from 1 to 1000"), "{line}");
        }
        let help = Line::command().render_long_help().to_string();
        assert!(help.contains(&format!("Tokens to write, at most {MAX_TOKENS}")), "{help}");
    }

    #[test]
    fn the_pages_flag_is_that_of_the_other_commands_and_answers_to_its_old_name() {
        for line in ["To --html a.html", "To --out a.html"] {
            assert_eq!(args(line).html.as_deref(), Some(Path::new("a.html")), "{line}");
        }
        let mut help = Line::command();
        assert!(!help.render_long_help().to_string().contains("--out"));
    }

    #[test]
    fn the_knobs_are_the_flags_the_folders_or_a_common_choice() {
        let folder = tempfile::tempdir().unwrap();
        let config = |line: &str| args(line).config(&FolderSettings::read(folder.path()).unwrap().knobs).unwrap();
        let (unset, notes) = config("To");
        assert_eq!((unset.strategy, unset.temperature, unset.top_p), (Strategy::Sample, TEMPERATURE, TOP_P));
        assert_eq!(
            (unset.max_new_tokens, notes),
            (24, vec!["no knob is set: temperature 0.8 and top-p 0.95".to_owned()])
        );
        let (set, _) = config("To --min-p 0.1");
        assert_eq!((set.temperature, set.top_p, set.min_p), (1.0, 1.0, 0.1));
        assert_eq!(config("To --temperature 0").0.strategy, Strategy::Greedy);
        // A penalty is not a sampling knob.
        assert_eq!(config("To --repetition-penalty 1.3").0.temperature, TEMPERATURE);

        let json = r#"{"top_k": 0, "temperature": 0.7, "typical_p": 0.9, "max_new_tokens": 7, "num_beams": 3}"#;
        fs::write(folder.path().join("generation_config.json"), json).unwrap();
        let (of_folder, notes) = config("To");
        assert_eq!((of_folder.temperature, of_folder.top_p, of_folder.typical_p), (0.7, 1.0, 1.0));
        assert_eq!((of_folder.max_new_tokens, of_folder.num_beams), (24, 1));
        assert_eq!(
            notes,
            [
                "from generation_config.json: temperature 0.7",
                "sampling, as generation_config.json says; --temperature 0 explains greedy decoding",
                "generation_config.json also sets num_beams, typical_p: not applied here"
            ]
        );
        // The file that training writes for the built-in stories.
        let json = r#"{"top_k": 0, "do_sample": true, "temperature": 1.0}"#;
        fs::write(folder.path().join("generation_config.json"), json).unwrap();
        assert_eq!((config("To").0.temperature, config("To").0.top_p), (1.0, 1.0));
    }

    #[test]
    fn a_file_that_says_greedy_is_followed_unless_a_flag_draws() {
        let folder = tempfile::tempdir().unwrap();
        let config = |line: &str| args(line).config(&FolderSettings::read(folder.path()).unwrap().knobs).unwrap();
        for json in [r#"{"do_sample": false}"#, r#"{"do_sample": false, "temperature": 0.7, "top_p": 0.9}"#] {
            fs::write(folder.path().join("generation_config.json"), json).unwrap();
            let (greedy, notes) = config("To --repetition-penalty 1.3");
            assert_eq!((greedy.strategy, greedy.temperature, greedy.top_p), (Strategy::Greedy, 1.0, 1.0));
            assert!(notes.iter().any(|note| note.starts_with("greedy, as generation_config.json says")), "{notes:?}");
        }
        assert_eq!((config("To --top-k 5").0.strategy, config("To --top-k 5").0.temperature), (Strategy::Sample, 0.7));
    }
}
