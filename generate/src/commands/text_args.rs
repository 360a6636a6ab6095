//! The command line of `ember-generate text`, and the configuration it gives once the checkpoint is
//! loaded.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;

use anyhow::{Error, Result, bail, ensure};
use clap::Args;
use ember_data::tokenizer::Tokenizer;

use super::constraint_args::ConstraintArgs;
use super::knob_args::{KnobArgs, PENALTIES, count};
use super::loaded::{FolderDefaults, Loaded, outside_vocabulary};
use super::model_args::{SpecialTokensArgs, WeightsArgs, named};
use ember_cli::program::{Notes, OutputFormat, UsageError};
use ember_cli::wording;
use ember_decoding::config::{DEFAULT_DRAFT_TOKENS, GenerationConfig, Knobs, Strategy};
use ember_decoding::stop::StopStrings;

const PROMPT: &str = "Prompt";
const STRATEGY: &str = "Strategy";
const OUTPUT: &str = "Output";

/// Arguments of `text`.
#[derive(Args, Debug)]
#[command(after_help = "\
Without --strategy, any sampling knob means sampling, --num-beams above 1 beam search, both together beam sampling, \
--num-beam-groups above 1 diverse beam search. What is not given is as in the checkpoint's generation_config.json \
(ember-train writes sampling into it), else greedy with every knob off. A knob that the strategy would ignore is an error. \
The result goes to standard output, everything else to standard error.

Examples:
  ember-generate text \"Once upon a time\"
  ember-generate text \"To be\" --temperature 0.8 --top-p 0.95 --max-new-tokens 100
  ember-generate text \"To be\" --num-beams 4 --num-return-sequences 2 --format json
  echo \"Dear diary\" | ember-generate text --stop \".\" --format json")]
pub struct TextArgs {
    /// The text to continue [default: typed line by line on a terminal, else standard input]. An
    /// empty one starts a new text
    #[arg(value_name = "PROMPT", conflicts_with_all = ["prompt_ids", "prompts"])]
    pub(super) prompt: Option<String>,

    /// Token ids as the prompt, such as 1,2,3: needs no tokenizer
    #[arg(long, value_name = "IDS", help_heading = PROMPT, value_delimiter = ',', conflicts_with = "prompts")]
    pub(super) prompt_ids: Option<Vec<u32>>,

    /// A file of prompts, one per line, or one JSON object per line if its name ends in .jsonl or
    /// .json
    #[arg(long, value_name = "FILE", help_heading = PROMPT)]
    pub(super) prompts: Option<PathBuf>,

    /// The run or checkpoint to write with [default: the newest run under runs/]
    #[arg(long, value_name = "RUN", help_heading = PROMPT)]
    pub(super) from: Option<PathBuf>,

    #[command(flatten, next_help_heading = PROMPT)]
    pub(super) special: SpecialTokensArgs,

    #[command(flatten)]
    pub(super) weights: WeightsArgs,

    /// How tokens are chosen [default: what the other knobs imply, else what the checkpoint's
    /// folder says, else greedy]
    #[arg(long, value_parser = named::<Strategy>(), value_name = "STRATEGY", help_heading = STRATEGY)]
    pub(super) strategy: Option<Strategy>,

    /// Write faster: a smaller checkpoint with the same tokenizer proposes tokens, and the model
    /// checks them. Greedy text stays the same, sampled text has the same distribution
    #[arg(long, value_name = "RUN", help_heading = STRATEGY, conflicts_with = "prompt_lookup")]
    pub(super) draft: Option<PathBuf>,

    /// Write faster: what followed the last words earlier in the text is proposed, and the model
    /// checks it. Greedy text stays the same, sampled text has the same distribution
    #[arg(long, help_heading = STRATEGY)]
    pub(super) prompt_lookup: bool,

    /// Most tokens that --draft or --prompt-lookup propose at a time [default: 8]
    #[arg(long, value_name = "N", help_heading = STRATEGY, value_parser = count, allow_negative_numbers = true)]
    pub(super) draft_tokens: Option<usize>,

    /// Print where the chosen knobs would give another distribution in other programs, with the
    /// figures for the next token
    #[arg(long, help_heading = STRATEGY)]
    pub(super) explain_semantics: bool,

    /// What the table of knobs states, under several headings.
    #[command(flatten)]
    pub(super) table: KnobArgs,

    /// Never write this; may be given again. Bans the tokens that the tokenizer makes of it, with
    /// and without a space before it; other tokens can still spell it
    #[arg(long, value_name = "STRING", help_heading = PENALTIES, allow_hyphen_values = true)]
    pub(super) bad_words: Vec<String>,

    /// Never write these token ids in a row, such as 12,34: needs no tokenizer; may be given again
    #[arg(long, value_name = "IDS", help_heading = PENALTIES, value_parser = ids, allow_hyphen_values = true)]
    pub(super) bad_words_ids: Vec<Ids>,

    /// Never write any of these token ids, such as 12,34
    #[arg(long, value_name = "IDS", help_heading = PENALTIES, value_delimiter = ',', allow_hyphen_values = true)]
    pub(super) suppress: Vec<u32>,

    /// Add VALUE to the logit of token ID, such as 12=-2.5; for a sequence, 12+34=-2.5, to that of
    /// its last token if the others have just been written; may be given again
    #[arg(long, value_name = "ID=VALUE", help_heading = PENALTIES, value_parser = bias, allow_hyphen_values = true)]
    pub(super) logit_bias: Vec<Bias>,

    /// The grammar that the text must follow.
    #[command(flatten)]
    pub(super) constraint: ConstraintArgs,

    /// Show the text as it is written, as --format text does with a single text anyway
    #[arg(long, help_heading = OUTPUT)]
    pub(super) stream: bool,

    /// With --format json: the log-probabilities of each chosen token and of the N best
    #[arg(long, value_name = "N", help_heading = OUTPUT, value_parser = count, allow_negative_numbers = true)]
    pub(super) logprobs: Option<usize>,

    /// Write every step to FILE, one JSON object per line: the candidates, what removed them, and
    /// the draw
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(super) trace: Option<PathBuf>,

    /// Write the resulting knobs to FILE as a generation_config.json
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(super) save_config: Option<PathBuf>,
}

/// A sequence of token ids, at least one.
type Ids = Vec<u32>;

/// A sequence of token ids, and the bias added to the last one's logit.
type Bias = (Ids, f32);

impl TextArgs {
    /// Checks the flags before anything is loaded: a wrong flag should not cost a wait.
    ///
    /// # Errors
    /// A [`UsageError`] that names the flag.
    pub(super) fn check(&self, format: OutputFormat) -> Result<()> {
        self.knobs_without_words().check_ranges()?;
        StopStrings::new(self.table.0.stop_strings.clone().unwrap_or_default())?;
        ensure!(
            self.bad_words.iter().all(|word| !word.is_empty()),
            UsageError::new("--bad-words is empty, which bans nothing; give at least one character")
        );
        for (number, (ids, _)) in self.logit_bias.iter().enumerate() {
            if self.logit_bias[..number].iter().any(|(earlier, _)| earlier == ids) {
                let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
                bail!(UsageError::new(format!("--logit-bias gives {} twice; keep one of them", ids.join("+"))));
            }
        }
        let several = self.table.0.num_return_sequences.is_some_and(|n| n > 1);
        let drafts = self.draft.is_some() || self.prompt_lookup;
        let exact = self.strategy == Some(Strategy::Exact);
        let refusals = [
            (
                self.logprobs.is_some() && format == OutputFormat::Text,
                "--logprobs does not go with --format text; add --format json",
            ),
            (
                self.stream && (format == OutputFormat::Json || several || self.prompts.is_some()),
                "--stream shows a single text as it is written; drop --format json, --num-return-sequences and --prompts",
            ),
            (self.stream && exact, "--strategy exact knows its text only at the end; drop --stream"),
            (
                self.draft_tokens.is_some() && !drafts,
                "--draft-tokens is for drafts; add --prompt-lookup or --draft RUN, or drop it",
            ),
            (
                self.draft_tokens == Some(0),
                "--draft-tokens is 0; it must be at least 1; to draft nothing, drop --draft and --prompt-lookup",
            ),
            (
                self.trace.is_some() && drafts,
                "--trace records one token per step; drop --draft and --prompt-lookup, which only make it faster",
            ),
            (
                self.explain_semantics
                    && (self.table.0.num_beams.is_some_and(|n| n > 1)
                        || self.strategy.is_some_and(Strategy::ranks_texts)),
                "--explain-semantics compares how single tokens are chosen, but beams and exact search choose whole texts; drop \
                 --num-beams and --strategy",
            ),
            (
                self.explain_semantics && self.prompt.is_none() && self.prompt_ids.is_none(),
                "--explain-semantics needs a prompt to show the next token of; add PROMPT or --prompt-ids",
            ),
            (
                self.explain_semantics && (self.stream || self.trace.is_some() || drafts),
                "--explain-semantics writes no text; drop --stream, --trace, --draft and --prompt-lookup",
            ),
        ];
        refuse_first(&refusals)
    }

    /// Checks the flags against the configuration that they and the folder's settings give: the
    /// folder may ask for what [`Self::check`] refuses beside a flag.
    ///
    /// # Errors
    /// A [`UsageError`] that names the flag.
    pub(super) fn check_with(&self, config: &GenerationConfig) -> Result<()> {
        let refusals = [
            (
                self.stream && config.num_return_sequences > 1,
                "--stream shows a single text as it is written, and generation_config.json asks for several; add \
                 --num-return-sequences 1, or drop --stream",
            ),
            (
                self.stream && config.strategy == Strategy::Exact,
                "generation_config.json asks for an exact search, which knows its text only at the end; add another \
                 --strategy, or drop --stream",
            ),
            (
                self.explain_semantics && config.strategy.ranks_texts(),
                "--explain-semantics compares how single tokens are chosen, but generation_config.json asks for beams or an \
                 exact search, which choose whole texts; add --strategy sample",
            ),
        ];
        refuse_first(&refusals)
    }

    /// The knobs that the flags set, without `--bad-words`, whose token ids need a tokenizer.
    pub(super) fn knobs_without_words(&self) -> Knobs {
        fn non_empty<T: Clone>(list: &[T]) -> Option<Vec<T>> {
            (!list.is_empty()).then(|| list.to_vec())
        }
        let drafts = self.draft.is_some() || self.prompt_lookup;
        Knobs {
            strategy: self.strategy,
            bad_words: non_empty(&self.bad_words_ids),
            suppress_tokens: non_empty(&self.suppress),
            logit_bias: non_empty(&self.logit_bias),
            draft_tokens: drafts.then(|| self.draft_tokens.unwrap_or(DEFAULT_DRAFT_TOKENS)),
            ..self.table.0.clone()
        }
    }

    /// The knobs that the flags set, for a model with this vocabulary size and its folder's
    /// tokenizer, if any.
    ///
    /// # Errors
    /// A [`UsageError`] for a token id outside the vocabulary, for a text that cannot be encoded,
    /// and for a flag that needs a tokenizer where there is none.
    pub(super) fn knobs(&self, tokenizer: Option<&Tokenizer>, vocab_size: usize) -> Result<Knobs> {
        let mut knobs = self.knobs_without_words();
        if let Some((knob, id)) = knobs.outside_vocabulary(vocab_size) {
            // Two flags fill the knob `bad_words_ids`; ids come from this one.
            let flag = if knob.name == "bad_words_ids" { "bad-words-ids" } else { knob.label };
            bail!(UsageError::new(outside_vocabulary(&format!("--{flag}"), id, vocab_size)));
        }
        let Some(tokenizer) = tokenizer else {
            ensure!(
                self.bad_words.is_empty(),
                UsageError::new("--bad-words needs a tokenizer, and the checkpoint holds none; give --bad-words-ids")
            );
            ensure!(
                knobs.stop_strings.is_none(),
                UsageError::new("--stop needs a tokenizer, and the checkpoint holds none; drop --stop")
            );
            return Ok(knobs);
        };
        for word in &self.bad_words {
            let found = tokenizer.spellings(word, self.special.chosen);
            let found =
                found.map_err(|error| UsageError::new(format!("--bad-words {word:?}: {:#}", Error::from(error))))?;
            ensure!(
                !found.is_empty(),
                UsageError::new(format!("--bad-words {word:?} has no tokens; give another text, or drop it"))
            );
            knobs.bad_words.get_or_insert_default().extend(found);
        }
        Ok(knobs)
    }

    /// The whole configuration, from the flags, the folder and the tokenizer. Prints a summary of
    /// it, and saves it if `--save-config` is given.
    ///
    /// # Errors
    /// A [`UsageError`] for a wrong flag; a file that cannot be read, is wrong, or cannot be
    /// written.
    pub(super) fn config(
        &self,
        loaded: &Loaded,
        defaults: FolderDefaults,
        seed: Option<u64>,
        notes: &Notes,
    ) -> Result<GenerationConfig> {
        let vocab_size = loaded.model.config().vocab_size;
        defaults.settings.check_vocabulary(vocab_size)?;
        let flags = self.knobs(loaded.tokenizer.as_ref(), vocab_size)?;
        let (mut config, remarks) = GenerationConfig::resolve(&flags, &defaults.settings)?;
        remarks.iter().for_each(|remark| notes.say(wording::decoding::note(remark)));
        if loaded.tokenizer.is_none() && !config.stop_strings.is_empty() {
            notes.say("generation_config.json sets stop_strings, but the checkpoint holds no tokenizer: not applied");
            config.stop_strings.clear();
        }
        config.end_tokens = defaults.end_tokens(notes);
        config.logprobs = self.logprobs.unwrap_or(0).min(vocab_size);
        if let Some(seed) = seed {
            config.seed = seed;
        } else if config.strategy.samples() {
            config.seed = random_seed();
        }
        notes.say(wording::decoding::summary(&config));
        if let Some(path) = &self.save_config {
            config.save(path)?;
            notes.say(format!("saved as {}", path.display()));
        }
        Ok(config)
    }
}

/// The error of the first refusal that applies.
fn refuse_first(refusals: &[(bool, &'static str)]) -> Result<()> {
    match refusals.iter().find(|(applies, _)| *applies) {
        Some((_, message)) => Err(UsageError::new(*message).into()),
        None => Ok(()),
    }
}

/// A random seed of 32 bits, short enough to type again.
pub(super) fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

fn ids(text: &str) -> Result<Ids, String> {
    sequence(text, ',').ok_or_else(|| "write token ids separated by commas, such as 12,34".to_owned())
}

fn bias(text: &str) -> Result<Bias, String> {
    let parsed = text.rsplit_once('=').and_then(|(ids, value)| {
        let value: f32 = value.parse().ok()?;
        Some((sequence(ids, '+')?, value))
    });
    match parsed {
        None => Err("write ID=VALUE, such as 12=-2.5, or for a sequence 12+34=-2.5".to_owned()),
        Some((_, value)) if !value.is_finite() => {
            Err("VALUE must be a finite number; --suppress removes a token for good".to_owned())
        }
        Some(bias) => Ok(bias),
    }
}

fn sequence(text: &str, separator: char) -> Option<Vec<u32>> {
    text.split(separator).map(|id| id.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
