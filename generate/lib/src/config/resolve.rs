//! Merges the caller's knobs with the folder's settings into one configuration.

use std::fmt;

use super::{
    Contradiction, FolderSettings, GenerationConfig, KNOBS, Knob, KnobError, KnobValue, Knobs, Semantics, Strategy,
    UsedBy,
};
use crate::named::Named;

impl GenerationConfig {
    /// Merges the caller's knobs with the folder's settings. Returns the configuration and the
    /// notes to show about it.
    ///
    /// Each knob is what the caller sets, else what the folder sets, else off. If the caller asks
    /// for another stack's [`Semantics`], that stack's defaults precede the folder. If the caller
    /// names no strategy, it is inferred the same way: any sampling knob that the caller sets means
    /// sampling, a temperature of 0 no sampling, `num_beams` above 1 beams (with sampling only if
    /// the caller sets a sampling knob too), `num_beam_groups` above 1 diverse beams. A knob that
    /// the strategy would ignore is an error if the caller sets it, and a note if the folder does,
    /// unless its value is off.
    ///
    /// End tokens, seed and log-probabilities keep their defaults, for the caller to set.
    ///
    /// # Errors
    /// If the caller sets a knob out of range, a knob that the strategy would ignore, or knobs that
    /// contradict each other; [`KnobError::Impossible`] if the folder's file alone contradicts
    /// itself.
    pub fn resolve(caller: &Knobs, folder: &FolderSettings) -> Result<(Self, Vec<Note>), KnobError> {
        caller.check_ranges()?;
        let semantics = caller.semantics.or(folder.knobs.semantics).unwrap_or_default();
        let stack_defaults = defaults(semantics);
        let strategy = choose_strategy(caller, &folder.knobs, &stack_defaults)?;
        // Other stacks' defaults apply only to greedy decoding and sampling.
        let stack = if UsedBy::OneByOne.contains(strategy) { without_zero(&stack_defaults) } else { Knobs::default() };
        let mut config = Self { strategy, ..Self::default() };
        let mut applied: Vec<String> = folder_chose(caller, &folder.knobs, strategy).into_iter().collect();
        let draws_by_folder = strategy == Strategy::Sample && !applied.is_empty();
        let (mut ignored, mut by_stack) = (Vec::new(), Vec::new());
        let caller = without_zero(caller);
        let (of_folder, of_stack) = ((Source::Folder, &folder.knobs), (Source::Stack, &stack));
        // A caller who asks for a stack wants what that program does, and it would not read the
        // folder's file: so the stack's defaults come first. If the file itself names the stack,
        // the file comes first.
        let sources = match caller.semantics {
            Some(_) => [(Source::Caller, &caller), of_stack, of_folder],
            None => [(Source::Caller, &caller), of_folder, of_stack],
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
                (Source::Caller, true) | (Source::Stack, false) => {}
                (Source::Caller, false) => return Err(KnobError::Ignored { knob, strategy, named: caller.strategy }),
                (Source::Folder, true) => applied.push(words),
                (Source::Folder, false) => ignored.push(words),
                (Source::Stack, true) => by_stack.push(words),
            }
        }
        config.draft_tokens = caller.draft_tokens.unwrap_or(0);
        config.check_together(&caller, &folder.knobs)?;

        let notes = [
            (About::Folder { draws: draws_by_folder }, applied),
            (About::Ignored(strategy), ignored),
            (About::Stack(semantics), by_stack),
            (About::NotApplied, folder.not_applied.clone()),
        ];
        let notes = notes.into_iter().filter(|(_, knobs)| !knobs.is_empty());
        Ok((config, notes.map(|(about, knobs)| Note { about, knobs }).collect()))
    }

    /// Rejects a configuration that [`Self::resolve`] cannot produce, such as one from an edited
    /// trace.
    ///
    /// # Errors
    /// Names the first wrong knob, and what it must be.
    pub fn check(&self, vocab_size: usize) -> Result<(), KnobError> {
        self.check_usable(vocab_size)?;
        for knob in KNOBS.iter().filter(|knob| !knob.is_off(knob.of(self))) {
            let value = knob.of(self);
            if let Err(kind) = knob.read(&mut Knobs::default(), &value.to_json()) {
                return Err(KnobError::Kind { knob, value: value.words(), kind });
            }
        }
        match self.end_tokens.iter().find(|&&id| id as usize >= vocab_size) {
            Some(&id) => Err(KnobError::OutsideVocabulary { key: "eos_token_id", id, vocab_size }),
            None => Ok(()),
        }
    }

    /// Rejects configurations that no text can be generated with; cheap enough for the start of
    /// every generation.
    ///
    /// The other faults that [`Self::check`] finds do no harm: an end token outside the vocabulary
    /// is never chosen, and an empty token sequence is never completed.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(crate) fn check_usable(&self, vocab_size: usize) -> Result<(), KnobError> {
        for knob in KNOBS {
            let value = knob.of(self);
            knob.check_range(value)?;
            if let Some(id) = value.ids().into_iter().find(|&id| id as usize >= vocab_size) {
                return Err(KnobError::OutsideVocabulary { key: knob.name, id, vocab_size });
            }
        }
        if self.temperature == 0.0 {
            return Err(KnobError::ZeroTemperature);
        }
        if self.logprobs > vocab_size {
            return Err(KnobError::Logprobs { logprobs: self.logprobs, vocab_size });
        }
        match self.contradiction(true) {
            Some((contradiction, _)) => Err(KnobError::Contradiction(contradiction)),
            None => Ok(()),
        }
    }

    /// Rejects knobs that contradict each other.
    fn check_together(&self, caller: &Knobs, folder: &Knobs) -> Result<(), KnobError> {
        let beams_are_set = caller.num_beams.or(folder.num_beams).is_some();
        let Some((contradiction, remedies)) = self.contradiction(beams_are_set) else { return Ok(()) };
        let set = |name: &&str| KNOBS.iter().any(|knob| knob.name == *name && knob.set_in(caller).is_some());
        let by_caller = remedies.iter().any(|name| match *name {
            "strategy" => caller.strategy.is_some(),
            "draft_tokens" => true, // no file sets it
            _ => set(name),
        });
        // The error goes to the source that can correct it.
        Err(if by_caller { KnobError::Contradiction(contradiction) } else { KnobError::Impossible(contradiction) })
    }

    /// The first contradiction, and the keys of the knobs that can resolve it.
    fn contradiction(&self, beams_are_set: bool) -> Option<(Contradiction, &'static [&'static str])> {
        const DIVERSE: &[&str] = &["strategy", "num_beams", "num_beam_groups", "diversity_penalty"];
        let Self { strategy, min_new_tokens: least, max_new_tokens: most, num_beams: beams, .. } = *self;
        let (groups, diversity, sequences) = (self.num_beam_groups, self.diversity_penalty, self.num_return_sequences);
        if least > most {
            return Some((Contradiction::Length { least, most }, &["min_new_tokens", "max_new_tokens"]));
        }
        if self.draft_tokens > 0 && !UsedBy::OneByOne.contains(strategy) {
            return Some((Contradiction::Drafts(strategy), &["draft_tokens"]));
        }
        if !strategy.has_beams() {
            return None;
        }
        if !beams_are_set {
            return Some((Contradiction::NoBeams(strategy), &["strategy", "num_beam_groups"]));
        }
        if sequences > beams {
            return Some((Contradiction::Sequences { sequences, beams }, &["num_return_sequences", "num_beams"]));
        }
        if strategy != Strategy::DiverseBeam {
            return None;
        }
        if groups < 2 {
            return Some((Contradiction::NoGroups, DIVERSE));
        }
        if beams % groups != 0 {
            return Some((Contradiction::Groups { groups, beams }, DIVERSE));
        }
        (diversity <= 0.0).then_some((Contradiction::NoDiversity(diversity), DIVERSE))
    }
}

impl Knob {
    /// Rejects a number out of range.
    fn check_range(&'static self, value: &dyn KnobValue) -> Result<(), KnobError> {
        match value.number().is_some_and(|number| !self.range.contains(number)) {
            true => Err(KnobError::OutOfRange { knob: self, value: value.words() }),
            false => Ok(()),
        }
    }
}

impl Knobs {
    /// Rejects values out of range: the only check possible before the folder is known.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] for the first such knob.
    pub fn check_ranges(&self) -> Result<(), KnobError> {
        KNOBS.iter().try_for_each(|knob| knob.set_in(self).map_or(Ok(()), |value| knob.check_range(value)))
    }
}

/// A note on where a configuration came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// What it says about the knobs.
    pub about: About,
    /// The knobs, each with its value.
    pub knobs: Vec<String>,
}

/// What a [`Note`] says about knobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum About {
    /// They come from the folder's file.
    Folder {
        /// Whether the file is the only reason why tokens are drawn.
        draws: bool,
    },
    /// The folder's file sets them, but this strategy ignores them.
    Ignored(Strategy),
    /// They are this stack's defaults.
    Stack(Semantics),
    /// The folder's file sets them, but this program does not have them.
    NotApplied,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let knobs = self.knobs.join(", ");
        match self.about {
            About::Folder { .. } => write!(f, "from generation_config.json: {knobs}"),
            About::Ignored(by) => write!(f, "generation_config.json sets {knobs}, which {} ignores", by.words()),
            About::Stack(semantics) => write!(f, "{}'s defaults: {knobs}", semantics.stack()),
            About::NotApplied => write!(f, "generation_config.json also sets {knobs}: not applied"),
        }
    }
}

/// The source of a knob's value.
enum Source {
    Caller,
    Folder,
    Stack,
}

/// The defaults of a stack's own program; all other knobs are off in every stack.
///
/// transformers has none here: its defaults come from a folder's `generation_config.json`.
/// llama.cpp's are those of `llama-cli`, MLX's those of `mlx_lm.generate`.
pub fn defaults(semantics: Semantics) -> Knobs {
    let (temperature, top_k, top_p, min_p) = match semantics {
        Semantics::Hf => return Knobs::default(),
        Semantics::Llamacpp => (0.8, 40, 0.95, 0.05),
        Semantics::Mlx => (0.0, 0, 1.0, 0.0), // a temperature of 0 means greedy
    };
    Knobs {
        do_sample: Some(temperature > 0.0),
        temperature: Some(temperature),
        top_k: Some(top_k),
        top_p: Some(top_p),
        min_p: Some(min_p),
        ..Knobs::default()
    }
}

/// The strategy that the caller names, else the folder's if the caller sets no knob that implies
/// one, else the one that the knobs imply together. A temperature of 0 turns off sampling.
fn choose_strategy(caller: &Knobs, folder: &Knobs, stack: &Knobs) -> Result<Strategy, KnobError> {
    let zero = caller.temperature == Some(0.0);
    // Clients also send sampling knobs that are off; those ask for nothing.
    if zero && let Some(knob) = without_zero(caller).sampling_and_on() {
        return Err(KnobError::Greedy { knob });
    }
    let sampling = caller.sampling().filter(|_| !zero);
    // MLX is greedy unless a temperature is set, whatever other knobs are.
    if let Some(knob) = sampling
        && stack.temperature == Some(0.0)
        && caller.temperature.or(folder.temperature.filter(|_| caller.semantics.is_none())).is_none()
    {
        return Err(KnobError::GreedyStack { semantics: Semantics::Mlx, knob });
    }
    let named = match caller.strategy {
        None if implies_a_strategy(caller) => None,
        None => folder.strategy,
        Some(Strategy::Sample) if zero => Some(Strategy::Greedy),
        Some(Strategy::BeamSample) if zero => Some(Strategy::Beam),
        named => named,
    };
    Ok(named.unwrap_or_else(|| implied_strategy(caller, folder, stack, sampling.is_some())))
}

/// The strategy that the knobs imply together if none is named. `caller_samples` says whether the
/// caller sets a sampling knob.
fn implied_strategy(caller: &Knobs, folder: &Knobs, stack: &Knobs, caller_samples: bool) -> Strategy {
    let num_beams = caller.num_beams.or(folder.num_beams).unwrap_or(1);
    let of_stack = stack.do_sample.filter(|_| num_beams == 1); // no other stack has beams
    let default_do_sample = match caller.semantics {
        None => folder.do_sample.or(of_stack),
        Some(_) => of_stack.or(folder.do_sample),
    };
    // A caller who sets only `num_beams` asks for plain beam search, even if the folder samples.
    let asks_for_beams = caller.num_beams.is_some_and(|beams| beams > 1);
    let asks_for_greedy = caller.temperature == Some(0.0);
    let do_sample = caller_samples || (!asks_for_greedy && !asks_for_beams && default_do_sample == Some(true));
    // The folder's groups count only if the caller asks for neither sampling nor one beam, which
    // groups do not support.
    let of_folder = folder.num_beam_groups.filter(|_| !caller_samples && num_beams > 1);
    Strategy::of_hugging_face(do_sample, num_beams, caller.num_beam_groups.or(of_folder).unwrap_or(1))
}

/// The knobs without a temperature of 0, which only chooses the strategy.
fn without_zero(knobs: &Knobs) -> Knobs {
    Knobs { temperature: knobs.temperature.filter(|&t| t != 0.0), ..knobs.clone() }
}

fn implies_a_strategy(caller: &Knobs) -> bool {
    caller.sampling().is_some() || caller.num_beams.is_some() || caller.num_beam_groups.is_some()
}

/// The folder's setting that decided the strategy, if one did.
fn folder_chose(caller: &Knobs, folder: &Knobs, strategy: Strategy) -> Option<String> {
    if caller.strategy.is_some() || caller.sampling().is_some() {
        return None;
    }
    if let Some(named) = folder.strategy.filter(|_| !implies_a_strategy(caller)) {
        return Some(format!("strategy {}", named.name()));
    }
    (strategy.samples() && folder.do_sample == Some(true)).then(|| "do_sample true".to_owned())
}
