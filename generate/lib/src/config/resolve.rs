//! Whose word counts: the flags and the folder become one configuration.

use anyhow::{Result, anyhow, bail, ensure};

use super::{FolderSettings, GenerationConfig, KNOBS, Knobs, Strategy, UsedBy};
use crate::semantics::{Defaults, Semantics, defaults};
use ember_cli::program::UsageError;

impl GenerationConfig {
    /// Joins what the flags say with what the folder says into one configuration, and gives the notes to show about it.
    ///
    /// Each knob is what its flag says, else what the folder says, else off; a flag that asks for another stack's [`Semantics`]
    /// puts that stack's defaults before the folder. So is the strategy, where no flag names it: any sampling knob among the
    /// flags means that tokens are drawn, a temperature of 0 that they are not, `num_beams` above 1 means beams (drawn ones only
    /// with a sampling knob among the flags too), `num_beam_groups` above 1 diverse ones. A knob that the strategy would ignore is
    /// an error in a flag, and a note in the folder, unless it is off anyway.
    ///
    /// End tokens, seed and log-probabilities keep their defaults, for the caller to set.
    ///
    /// # Errors
    /// A [`UsageError`] for a flag out of range, one that the strategy would ignore, or flags that contradict each other; when
    /// the folder's file alone contradicts itself, an error that names it.
    pub fn resolve(flags: &Knobs, folder: &FolderSettings) -> Result<(Self, Vec<String>)> {
        flags.check_ranges()?;
        let semantics = flags.semantics.or(folder.knobs.semantics).unwrap_or_default();
        let stack = stack_knobs(semantics);
        let strategy = choose_strategy(flags, &folder.knobs, &stack)?;
        let stack = if UsedBy::OneByOne.contains(strategy) { without_zero(&stack) } else { Knobs::default() };
        let mut config = Self { strategy, ..Self::default() };
        let mut applied: Vec<String> = folder_chose(flags, &folder.knobs, strategy).into_iter().collect();
        let draws_by_folder = strategy == Strategy::Sample && !applied.is_empty();
        let (mut ignored, mut by_stack) = (Vec::new(), Vec::new());
        let flags = without_zero(flags);
        let (of_folder, of_stack) = ((Source::Folder, &folder.knobs), (Source::Stack, &stack));
        // Who asks for another stack asks for what it would do, and it would not read the folder's file; a file that names a
        // stack itself says what to do with it.
        let sources = match flags.semantics {
            Some(_) => [(Source::Flags, &flags), of_stack, of_folder],
            None => [(Source::Flags, &flags), of_folder, of_stack],
        };
        for knob in KNOBS {
            let first = sources.iter().find_map(|(source, knobs)| Some((source, *knobs, knob.set_in(knobs)?)));
            let Some((source, knobs, value)) = first else { continue };
            let used = knob.used_by.contains(strategy);
            if used {
                knob.apply(knobs, &mut config);
            }
            if knob.is_off(value) {
                continue;
            }
            let words = format!("{} {}", knob.name, value.words());
            match (source, used) {
                (Source::Flags, true) => {}
                (Source::Flags, false) => return Err(ignored_flag(&flags, strategy, knob.flag, knob.used_by)),
                (Source::Folder, true) => applied.push(words),
                (Source::Folder, false) => ignored.push(words),
                (Source::Stack, true) => by_stack.push(words),
                (Source::Stack, false) => {}
            }
        }
        config.draft_tokens = flags.draft_tokens.unwrap_or(0);
        config.check_together(&flags, &folder.knobs)?;

        let mut notes = Vec::new();
        if !applied.is_empty() {
            let otherwise =
                if draws_by_folder { " (--strategy greedy takes the most probable token each time)" } else { "" };
            notes.push(format!("from generation_config.json: {}{otherwise}", applied.join(", ")));
        }
        if !ignored.is_empty() {
            let (ignored, strategy) = (ignored.join(", "), strategy.words());
            notes.push(format!("generation_config.json sets {ignored}, which {strategy} ignores"));
        }
        if !by_stack.is_empty() {
            notes.push(format!("{}'s defaults: {}", semantics.stack(), by_stack.join(", ")));
        }
        if !folder.not_applied.is_empty() {
            notes.push(format!("generation_config.json also sets {}: not applied", folder.not_applied.join(", ")));
        }
        Ok((config, notes))
    }

    /// Refuses a configuration that no flags lead to, such as one in a trace that was changed.
    ///
    /// # Errors
    /// Names the first knob that is wrong, and what it must be.
    pub fn check(&self, vocab_size: usize) -> Result<()> {
        let mut knobs = Knobs { strategy: Some(self.strategy), ..Knobs::default() };
        for knob in KNOBS.iter().filter(|knob| !knob.is_off(knob.of(self))) {
            let (value, range) = (knob.of(self), knob.range);
            if value.number().is_some_and(|number| !range.contains(number)) {
                bail!("{} is {}; it must be {}", knob.name, value.words(), range.words());
            }
            if let Err(kind) = knob.read(&mut knobs, &value.to_json()) {
                bail!("{} is {}; it must be {kind}", knob.name, value.words());
            }
        }
        let outside = knobs.outside_vocabulary(vocab_size).map(|(knob, id)| (knob.name, id));
        let end_token = self.end_tokens.iter().find(|&&id| id as usize >= vocab_size).map(|&id| ("eos_token_id", id));
        if let Some((name, id)) = outside.or(end_token) {
            bail!("{name} has {id}, which is outside the model's vocabulary of {vocab_size}");
        }
        ensure!(self.temperature != 0.0, "temperature is 0; greedy is a strategy of its own");
        ensure!(self.logprobs <= vocab_size, "logprobs is {}; it must be at most {vocab_size}", self.logprobs);
        self.check_together(&Knobs { num_beams: Some(self.num_beams), ..knobs }, &Knobs::default())
    }

    /// What no knob alone can get wrong.
    fn check_together(&self, flags: &Knobs, folder: &Knobs) -> Result<()> {
        let by_flag = |names: &[&str]| {
            names.iter().any(|&name| KNOBS.iter().any(|knob| knob.name == name && knob.set_in(flags).is_some()))
        };
        // Who can put it right is who is told.
        let wrong = |names: &[&str], message: String| {
            if by_flag(names) || (flags.strategy.is_some() && names.contains(&"strategy")) {
                anyhow::Error::new(UsageError::new(message))
            } else {
                anyhow!("generation_config.json asks for the impossible: {message}")
            }
        };
        let Self { min_new_tokens, max_new_tokens, num_beams, num_beam_groups, num_return_sequences, .. } = *self;
        if min_new_tokens > max_new_tokens {
            let message = format!(
                "--min-new-tokens is {min_new_tokens}, more than --max-new-tokens, which is {max_new_tokens}; lower the one or \
                 raise the other"
            );
            return Err(wrong(&["min_new_tokens", "max_new_tokens"], message));
        }
        if self.draft_tokens > 0 && !matches!(self.strategy, Strategy::Greedy | Strategy::Sample) {
            bail!(UsageError::new(format!(
                "--draft and --prompt-lookup make greedy decoding and sampling faster, not {}; drop one of the two",
                self.strategy.words()
            )));
        }
        if !self.strategy.has_beams() {
            return Ok(());
        }
        if flags.num_beams.or(folder.num_beams).is_none() {
            let message = format!("{} needs --num-beams; add for example --num-beams 4", self.strategy.words());
            return Err(wrong(&["strategy", "num_beam_groups"], message));
        }
        if num_return_sequences > num_beams {
            let message = format!(
                "--num-return-sequences is {num_return_sequences}, more than --num-beams, which is {num_beams}; lower the one \
                 or raise the other"
            );
            return Err(wrong(&["num_return_sequences", "num_beams"], message));
        }
        if self.strategy == Strategy::DiverseBeam {
            let names = ["strategy", "num_beams", "num_beam_groups", "diversity_penalty"];
            if num_beam_groups < 2 {
                let message =
                    "diverse beam search needs --num-beam-groups above 1; add for example --num-beam-groups 2";
                return Err(wrong(&names, message.to_owned()));
            }
            if num_beams % num_beam_groups != 0 {
                let message = format!(
                    "--num-beam-groups is {num_beam_groups}, which does not divide --num-beams, which is {num_beams}; make \
                     groups of equal size"
                );
                return Err(wrong(&names, message));
            }
            if self.diversity_penalty <= 0.0 {
                let message = format!(
                    "--diversity-penalty is {}; diverse beam search needs one above 0, such as --diversity-penalty 1",
                    self.diversity_penalty
                );
                return Err(wrong(&names, message));
            }
        }
        Ok(())
    }
}

/// Who sets a knob, the first of them counts.
enum Source {
    Flags,
    Folder,
    Stack,
}

/// What another program takes where nobody says anything.
fn stack_knobs(semantics: Semantics) -> Knobs {
    if semantics == Semantics::Hf {
        return Knobs::default();
    }
    let Defaults { temperature, top_k, top_p, min_p } = defaults(semantics);
    Knobs {
        do_sample: Some(temperature > 0.0),
        temperature: Some(temperature),
        top_k: Some(top_k),
        top_p: Some(top_p),
        min_p: Some(min_p),
        ..Knobs::default()
    }
}

fn choose_strategy(flags: &Knobs, folder: &Knobs, stack: &Knobs) -> Result<Strategy> {
    let folder_first = flags.semantics.is_none();
    let zero = flags.temperature == Some(0.0);
    let sampling = without_zero(flags).sampling();
    if zero && let Some(knob) = sampling {
        bail!(UsageError::new(format!(
            "--temperature 0 means greedy, which ignores {}; drop one of the two",
            knob.flag
        )));
    }
    // MLX is greedy unless it is given a temperature, whatever else it is given.
    if let Some(knob) = sampling
        && stack.temperature == Some(0.0)
        && flags.temperature.or(folder.temperature.filter(|_| folder_first)).is_none()
    {
        bail!(UsageError::new(format!(
            "--semantics mlx has a temperature of 0 by default, which means greedy and ignores {}; add --temperature 1",
            knob.flag
        )));
    }
    let named = match flags.strategy {
        None if flags_imply_a_strategy(flags) => None,
        None => folder.strategy,
        Some(Strategy::Sample) if zero => Some(Strategy::Greedy),
        Some(Strategy::BeamSample) if zero => Some(Strategy::Beam),
        named => named,
    };
    let implied = || {
        let num_beams = flags.num_beams.or(folder.num_beams).unwrap_or(1);
        let of_stack = stack.do_sample.filter(|_| num_beams == 1); // no other stack has beams
        let unasked = if folder_first { folder.do_sample.or(of_stack) } else { of_stack.or(folder.do_sample) };
        // Who asks for beams and no more asks for beam search, however the folder would write a single text.
        let asks_for_beams = flags.num_beams.is_some_and(|beams| beams > 1);
        let do_sample = sampling.is_some() || (!zero && !asks_for_beams && unasked == Some(true));
        // The folder's groups count only where no flag asks for what groups cannot be: drawn, or one beam.
        let of_folder = folder.num_beam_groups.filter(|_| sampling.is_none() && num_beams > 1);
        Strategy::of_hugging_face(do_sample, num_beams, flags.num_beam_groups.or(of_folder).unwrap_or(1))
    };
    Ok(named.unwrap_or_else(implied))
}

/// The flags without a temperature of 0, once it has said that the strategy is greedy.
fn without_zero(flags: &Knobs) -> Knobs {
    Knobs { temperature: flags.temperature.filter(|&t| t != 0.0), ..flags.clone() }
}

fn flags_imply_a_strategy(flags: &Knobs) -> bool {
    flags.sampling().is_some() || flags.num_beams.is_some() || flags.num_beam_groups.is_some()
}

/// What the folder says about the strategy, if it decided it and no other knob of its says so.
fn folder_chose(flags: &Knobs, folder: &Knobs, strategy: Strategy) -> Option<String> {
    if flags.strategy.is_some() || flags.sampling().is_some() {
        return None;
    }
    if let Some(named) = folder.strategy.filter(|_| !flags_imply_a_strategy(flags)) {
        return Some(format!("strategy {}", named.flag_value()));
    }
    (strategy.samples() && folder.do_sample == Some(true)).then(|| "do_sample true".to_owned())
}

fn ignored_flag(flags: &Knobs, strategy: Strategy, flag: &str, used_by: UsedBy) -> anyhow::Error {
    let message = match (flags.strategy, used_by) {
        (_, UsedBy::AllButGreedy) => format!(
            "{flag} above 1 would give the same greedy text again; take --strategy sample or --num-beams, or drop it"
        ),
        (Some(named), _) => format!("--strategy {} ignores {flag}; drop one of the two", named.flag_value()),
        (None, _) => format!("{} ignores {flag}; {}, or drop it", strategy.words(), used_by.remedy(strategy)),
    };
    UsageError::new(message).into()
}
