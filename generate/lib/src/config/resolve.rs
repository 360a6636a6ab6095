//! Merges the caller's knobs with the folder's settings into one configuration.

use std::fmt;

use super::sources::{Setting, Source, Sources};
use super::{
    Contradiction, FolderSettings, GenerationConfig, KNOBS, Knob, KnobError, KnobValue, Knobs, Semantics, Strategy,
    UsedBy,
};

impl GenerationConfig {
    /// Merges the caller's knobs with the folder's settings. Returns the configuration and the
    /// notes to show about it.
    ///
    /// Each knob is what the caller sets, else what the folder sets, else off. For example
    /// `temperature` 0.7 and `top_k` 50 in the folder and `top_k` 5 from the caller give a
    /// temperature of 0.7, a top-k of 5 and the note "from generation_config.json: temperature
    /// 0.7". If the caller asks for another stack's [`Semantics`], that stack's defaults precede the
    /// folder; if the folder names the stack, they follow it.
    ///
    /// If the caller names no strategy, it is inferred the same way: any sampling knob that the
    /// caller sets means sampling, a temperature of 0 no sampling, `num_beams` above 1 beams (with
    /// sampling only if the caller sets a sampling knob too), `num_beam_groups` above 1 diverse
    /// beams. A knob that the strategy would ignore is an error if the caller sets it, and a note if
    /// the folder does, unless its value is off.
    ///
    /// End tokens, seed and log-probabilities keep their defaults, for the caller to set.
    ///
    /// # Errors
    /// If the caller sets a knob out of range, a knob that the strategy would ignore, or knobs that
    /// contradict each other; [`KnobError::Impossible`] if knobs of the folder's file contradict
    /// each other or a default.
    pub fn resolve(caller: &Knobs, folder: &FolderSettings) -> Result<(Self, Vec<Note>), KnobError> {
        caller.check_ranges()?;
        let semantics = caller.semantics.or(folder.knobs.semantics).unwrap_or_default();
        let sources = Sources::new(caller, &folder.knobs, semantics)?;
        let strategy = sources.strategy()?;
        let (used, ignored): (Vec<Setting>, Vec<Setting>) =
            sources.settings(strategy).into_iter().partition(|setting| setting.knob.used_by.contains(strategy));
        if let Some(setting) = ignored.iter().find(|setting| setting.source == Source::Caller && setting.is_on()) {
            return Err(KnobError::Ignored { knob: setting.knob, strategy, named: caller.strategy });
        }
        let draft_tokens = caller.draft_tokens.unwrap_or(0);
        let mut config = Self { strategy, draft_tokens, ..Self::default() };
        used.iter().for_each(|setting| setting.apply(&mut config));
        config.check_together(caller, &folder.knobs)?;

        let chosen_by_folder = sources.folder_chose(strategy);
        let draws = strategy == Strategy::Sample && chosen_by_folder.is_some();
        let applied: Vec<String> = chosen_by_folder.into_iter().chain(values_from(&used, Source::Folder)).collect();
        let notes = [
            (About::Folder { draws }, applied),
            (About::Ignored(strategy), values_from(&ignored, Source::Folder)),
            (About::Stack(semantics), values_from(&used, Source::Stack)),
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

/// The settings from this source that are not off, in words.
fn values_from(settings: &[Setting], source: Source) -> Vec<String> {
    settings.iter().filter(|setting| setting.source == source && setting.is_on()).map(Setting::words).collect()
}
