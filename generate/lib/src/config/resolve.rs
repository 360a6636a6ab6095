//! Whose word counts: the flags and the folder become one configuration.

use std::fmt;

use super::{
    Contradiction, Defaults, FolderSettings, GenerationConfig, KNOBS, Knob, KnobError, KnobValue, Knobs, Semantics,
    Strategy, UsedBy, defaults,
};
use crate::named::Named;

impl GenerationConfig {
    /// Joins what the flags say with what the folder says into one configuration, and gives the
    /// notes to show about it.
    ///
    /// Each knob is what its flag says, else what the folder says, else off; a flag that asks for
    /// another stack's [`Semantics`] puts that stack's defaults before the folder. So is the
    /// strategy, where no flag names it: any sampling knob among the flags means that tokens are
    /// drawn, a temperature of 0 that they are not, `num_beams` above 1 means beams (drawn ones
    /// only with a sampling knob among the flags too), `num_beam_groups` above 1 diverse ones. A
    /// knob that the strategy would ignore is an error in a flag, and a note in the folder, unless
    /// it is off anyway.
    ///
    /// End tokens, seed and log-probabilities keep their defaults, for the caller to set.
    ///
    /// # Errors
    /// For a flag out of range, one that the strategy would ignore, or flags that contradict each other; when the folder's file
    /// alone contradicts itself, [`KnobError::Impossible`].
    pub fn resolve(flags: &Knobs, folder: &FolderSettings) -> Result<(Self, Vec<Note>), KnobError> {
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
        // Who asks for another stack asks for what it would do, and it would not read the folder's
        // file; a file that names a stack itself says what to do with it.
        let sources = match flags.semantics {
            Some(_) => [(Source::Flags, &flags), of_stack, of_folder],
            None => [(Source::Flags, &flags), of_folder, of_stack],
        };
        for knob in KNOBS {
            let first = sources.iter().find_map(|(source, knobs)| Some((source, *knobs, knob.set_in(knobs)?)));
            let Some((source, knobs, value)) = first else { continue };
            let used = knob.used_by.contains(strategy);
            if used {
                (knob.apply)(knobs, &mut config);
            }
            if knob.is_off(value) {
                continue;
            }
            let words = format!("{} {}", knob.name, value.words());
            match (source, used) {
                (Source::Flags, true) => {}
                (Source::Flags, false) => return Err(KnobError::Ignored { knob, strategy, named: flags.strategy }),
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
            notes.push(Note::Folder { applied, draws: draws_by_folder });
        }
        if !ignored.is_empty() {
            notes.push(Note::Ignored { knobs: ignored, strategy });
        }
        if !by_stack.is_empty() {
            notes.push(Note::Stack { semantics, knobs: by_stack });
        }
        if !folder.not_applied.is_empty() {
            notes.push(Note::NotApplied(folder.not_applied.clone()));
        }
        Ok((config, notes))
    }

    /// Refuses a configuration that no flags lead to, such as one in a trace that was changed.
    ///
    /// # Errors
    /// Names the first knob that is wrong, and what it must be.
    pub fn check(&self, vocab_size: usize) -> Result<(), KnobError> {
        let mut knobs = Knobs { strategy: Some(self.strategy), ..Knobs::default() };
        for knob in KNOBS.iter().filter(|knob| !knob.is_off(knob.of(self))) {
            let value = knob.of(self);
            knob.check_range(value)?;
            if let Err(kind) = knob.read(&mut knobs, &value.to_json()) {
                return Err(KnobError::Kind { knob, value: value.words(), kind });
            }
        }
        let outside = knobs.outside_vocabulary(vocab_size).map(|(knob, id)| (knob.name, id));
        let end_token = self.end_tokens.iter().find(|&&id| id as usize >= vocab_size).map(|&id| ("eos_token_id", id));
        if let Some((key, id)) = outside.or(end_token) {
            return Err(KnobError::OutsideVocabulary { key, id, vocab_size });
        }
        if self.temperature == 0.0 {
            return Err(KnobError::ZeroTemperature);
        }
        if self.logprobs > vocab_size {
            return Err(KnobError::Logprobs { logprobs: self.logprobs, vocab_size });
        }
        self.check_together(&Knobs { num_beams: Some(self.num_beams), ..knobs }, &Knobs::default())
    }

    /// Refuses what no knob alone gets wrong.
    fn check_together(&self, flags: &Knobs, folder: &Knobs) -> Result<(), KnobError> {
        let beams_are_set = flags.num_beams.or(folder.num_beams).is_some();
        let Some(contradiction) = self.contradiction(beams_are_set) else { return Ok(()) };
        let set = |name: &&str| KNOBS.iter().any(|knob| knob.name == *name && knob.set_in(flags).is_some());
        let by_flags = contradiction.knobs().iter().any(|name| match *name {
            "strategy" => flags.strategy.is_some(),
            "draft_tokens" => true, // no file sets it
            _ => set(name),
        });
        // Who can put it right is who is told.
        Err(if by_flags { KnobError::Contradiction(contradiction) } else { KnobError::Impossible(contradiction) })
    }

    fn contradiction(&self, beams_are_set: bool) -> Option<Contradiction> {
        let Self { min_new_tokens: least, max_new_tokens: most, num_beams: beams, num_beam_groups: groups, .. } = *self;
        let (sequences, diverse) = (self.num_return_sequences, self.strategy == Strategy::DiverseBeam);
        match self.strategy.has_beams() {
            _ if least > most => Some(Contradiction::Length { least, most }),
            _ if self.draft_tokens > 0 && !UsedBy::OneByOne.contains(self.strategy) => {
                Some(Contradiction::Drafts(self.strategy))
            }
            false => None,
            true if !beams_are_set => Some(Contradiction::NoBeams(self.strategy)),
            true if sequences > beams => Some(Contradiction::Sequences { sequences, beams }),
            true if diverse && groups < 2 => Some(Contradiction::NoGroups),
            true if diverse && beams % groups != 0 => Some(Contradiction::Groups { groups, beams }),
            true if diverse && self.diversity_penalty <= 0.0 => {
                Some(Contradiction::NoDiversity(self.diversity_penalty))
            }
            true => None,
        }
    }
}

impl Knob {
    /// Refuses a number out of the range.
    fn check_range(&'static self, value: &dyn KnobValue) -> Result<(), KnobError> {
        match value.number().is_some_and(|number| !self.range.contains(number)) {
            true => Err(KnobError::OutOfRange { knob: self, value: value.words() }),
            false => Ok(()),
        }
    }
}

impl Knobs {
    /// Refuses a value out of its range: all that can be said of knobs before the folder is known.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] for the first such knob.
    pub fn check_ranges(&self) -> Result<(), KnobError> {
        KNOBS.iter().try_for_each(|knob| knob.set_in(self).map_or(Ok(()), |value| knob.check_range(value)))
    }
}

impl Contradiction {
    /// The keys of the knobs that can put it right.
    fn knobs(self) -> &'static [&'static str] {
        match self {
            Self::Length { .. } => &["min_new_tokens", "max_new_tokens"],
            Self::Drafts(_) => &["draft_tokens"],
            Self::NoBeams(_) => &["strategy", "num_beam_groups"],
            Self::Sequences { .. } => &["num_return_sequences", "num_beams"],
            Self::NoGroups | Self::Groups { .. } | Self::NoDiversity(_) => {
                &["strategy", "num_beams", "num_beam_groups", "diversity_penalty"]
            }
        }
    }
}

/// What there is to say about where a configuration came from; its words join knobs, each with its value.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// What the folder's file decided.
    Folder {
        /// The knobs, each with its value.
        applied: Vec<String>,
        /// Whether tokens are drawn for no other reason.
        draws: bool,
    },
    /// What the folder's file sets in vain.
    Ignored {
        /// The knobs, each with its value.
        knobs: Vec<String>,
        /// The strategy that has no use for them.
        strategy: Strategy,
    },
    /// What another stack takes by default.
    Stack {
        /// The stack.
        semantics: Semantics,
        /// The knobs, each with its value.
        knobs: Vec<String>,
    },
    /// What the folder's file sets that there is not here, each with its value.
    NotApplied(Vec<String>),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { applied, .. } => write!(f, "from generation_config.json: {}", applied.join(", ")),
            Self::Ignored { knobs, strategy } => {
                write!(f, "generation_config.json sets {}, which {} ignores", knobs.join(", "), strategy.words())
            }
            Self::Stack { semantics, knobs } => write!(f, "{}'s defaults: {}", semantics.stack(), knobs.join(", ")),
            Self::NotApplied(knobs) => {
                write!(f, "generation_config.json also sets {}: not applied", knobs.join(", "))
            }
        }
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
    let Some(Defaults { temperature, top_k, top_p, min_p }) = defaults(semantics) else { return Knobs::default() };
    Knobs {
        do_sample: Some(temperature > 0.0),
        temperature: Some(temperature),
        top_k: Some(top_k),
        top_p: Some(top_p),
        min_p: Some(min_p),
        ..Knobs::default()
    }
}

fn choose_strategy(flags: &Knobs, folder: &Knobs, stack: &Knobs) -> Result<Strategy, KnobError> {
    let folder_first = flags.semantics.is_none();
    let zero = flags.temperature == Some(0.0);
    let sampling = without_zero(flags).sampling();
    if zero && let Some(knob) = sampling {
        return Err(KnobError::Greedy { knob });
    }
    // MLX is greedy unless it is given a temperature, whatever else it is given.
    if let Some(knob) = sampling
        && stack.temperature == Some(0.0)
        && flags.temperature.or(folder.temperature.filter(|_| folder_first)).is_none()
    {
        return Err(KnobError::GreedyStack { semantics: Semantics::Mlx, knob });
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
        // Who asks for beams and no more asks for beam search, however the folder would write a
        // single text.
        let asks_for_beams = flags.num_beams.is_some_and(|beams| beams > 1);
        let do_sample = sampling.is_some() || (!zero && !asks_for_beams && unasked == Some(true));
        // The folder's groups count only where no flag asks for what groups cannot be: drawn, or
        // one beam.
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
        return Some(format!("strategy {}", named.name()));
    }
    (strategy.samples() && folder.do_sample == Some(true)).then(|| "do_sample true".to_owned())
}
