//! The three sources of knobs: which strategy they choose together, and whose value a knob gets.

use super::{GenerationConfig, KNOBS, Knob, KnobError, KnobValue, Knobs, Semantics, Strategy, UsedBy};
use crate::named::Named;

/// A source of knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The command line, a request, or a program that uses the library.
    Caller,
    /// The folder's `generation_config.json`.
    Folder,
    /// The defaults of the stack whose [`Semantics`] apply.
    Stack,
}

/// Whether the caller's sampling knobs ask for draws.
#[derive(Clone, Copy, Debug)]
enum CallerSampling {
    /// This sampling knob is set, whatever its value.
    On(&'static Knob),
    /// The temperature is 0, and no other sampling knob is on.
    Off,
    /// No sampling knob is set.
    Unset,
}

/// The knobs of all sources. None has a temperature of 0, which is no value to divide by: the
/// caller's is kept as [`CallerSampling::Off`], a stack's as `do_sample` false. A file's is dropped if
/// the file says `do_sample` false and names no strategy, else the file is refused.
pub(super) struct Sources<'a> {
    caller: Knobs,
    sampling: CallerSampling,
    folder: &'a Knobs,
    stack: Knobs,
}

impl<'a> Sources<'a> {
    /// # Errors
    /// [`KnobError::Greedy`] if the caller sets a temperature of 0 and another sampling knob is on.
    pub(super) fn new(caller: &Knobs, folder: &'a Knobs, semantics: Semantics) -> Result<Self, KnobError> {
        let is_zero = caller.temperature == Some(0.0);
        let caller = Knobs { temperature: caller.temperature.filter(|_| !is_zero), ..caller.clone() };
        let sampling = if !is_zero {
            caller.sampling().map_or(CallerSampling::Unset, CallerSampling::On)
        } else if let Some(knob) = caller.sampling_and_on() {
            return Err(KnobError::Greedy { knob });
        } else {
            // Clients also send sampling knobs that are off; those ask for nothing.
            CallerSampling::Off
        };
        Ok(Self { caller, sampling, folder, stack: stack_defaults(semantics) })
    }

    /// The strategy that the caller names, else the folder's if the caller sets no knob that
    /// implies one, else the one that the knobs imply together. A temperature of 0 turns off
    /// sampling.
    ///
    /// # Errors
    /// [`KnobError::GreedyStack`] if the caller sets a sampling knob, but the stack is greedy
    /// without a temperature and none is set.
    pub(super) fn strategy(&self) -> Result<Strategy, KnobError> {
        // MLX is greedy unless a temperature is set, whatever other knobs are.
        let temperature_of_folder = self.folder.temperature.filter(|_| !self.stack_precedes_folder());
        if let CallerSampling::On(knob) = self.sampling
            && self.stack.do_sample == Some(false)
            && self.caller.temperature.or(temperature_of_folder).is_none()
        {
            return Err(KnobError::GreedyStack { semantics: Semantics::Mlx, knob });
        }
        Ok(match (self.caller.strategy, self.sampling) {
            (Some(Strategy::Sample), CallerSampling::Off) => Strategy::Greedy,
            (Some(Strategy::BeamSample), CallerSampling::Off) => Strategy::Beam,
            (Some(named), _) => named,
            (None, _) => self.named_by_folder().unwrap_or_else(|| self.implied_strategy()),
        })
    }

    /// The folder's setting that decided the strategy, if one did.
    pub(super) fn folder_chose(&self, strategy: Strategy) -> Option<String> {
        if self.caller.strategy.is_some() || !matches!(self.sampling, CallerSampling::Unset) {
            return None;
        }
        if let Some(named) = self.named_by_folder() {
            return Some(format!("strategy {}", named.name()));
        }
        (strategy.samples() && self.folder.do_sample == Some(true)).then(|| "do_sample true".to_owned())
    }

    /// Every knob that a source sets, each with the value of the first source that sets it.
    pub(super) fn settings(&self, strategy: Strategy) -> Vec<Setting<'_>> {
        let (caller, folder) = (Some((Source::Caller, &self.caller)), Some((Source::Folder, self.folder)));
        // Other stacks' defaults apply only to greedy decoding and sampling.
        let stack = UsedBy::OneByOne.contains(strategy).then_some((Source::Stack, &self.stack));
        let order = if self.stack_precedes_folder() { [caller, stack, folder] } else { [caller, folder, stack] };
        let setting = |knob: &'static Knob| {
            order.iter().flatten().find_map(|&(source, knobs)| {
                let value = knob.set_in(knobs)?;
                Some(Setting { knob, source, knobs, value })
            })
        };
        KNOBS.iter().filter_map(setting).collect()
    }

    /// Whether the stack's defaults precede the folder. A caller who asks for a stack wants what
    /// that program does, and it would not read the folder's file. If the file itself names the
    /// stack, the file comes first.
    fn stack_precedes_folder(&self) -> bool {
        self.caller.semantics.is_some()
    }

    /// The strategy that the folder names, unless the caller's knobs imply one.
    fn named_by_folder(&self) -> Option<Strategy> {
        let Knobs { num_beams, num_beam_groups, .. } = self.caller;
        let sets_sampling = !matches!(self.sampling, CallerSampling::Unset);
        let caller_implies_one = sets_sampling || num_beams.is_some() || num_beam_groups.is_some();
        self.folder.strategy.filter(|_| !caller_implies_one)
    }

    /// The strategy that the knobs imply together if none is named. The first row that applies
    /// decides:
    ///
    /// | The caller sets     | Sampling               | Groups of beams                 |
    /// |---------------------|------------------------|---------------------------------|
    /// | a sampling knob     | yes                    | the caller's                    |
    /// | a temperature of 0  | no                     | the caller's, else the folder's |
    /// | `num_beams` above 1 | no                     | the caller's, else the folder's |
    /// | none of these       | if the defaults sample | the caller's, else the folder's |
    ///
    /// The number of beams is the caller's, else the folder's. If it is 1, only the caller's groups
    /// count.
    fn implied_strategy(&self) -> Strategy {
        let Self { caller, folder, stack, .. } = self;
        let num_beams = caller.num_beams.or(folder.num_beams).unwrap_or(1);

        // Do the defaults sample? Other stacks have no beams, so with beams only the folder counts.
        let of_stack = stack.do_sample.filter(|_| num_beams == 1);
        let of_sources = match self.stack_precedes_folder() {
            true => of_stack.or(folder.do_sample),
            false => folder.do_sample.or(of_stack),
        };
        let defaults_sample = of_sources.unwrap_or(false);

        // Does the caller ask to sample, and does the strategy?
        let asks_for_beams = caller.num_beams.is_some_and(|beams| beams > 1);
        let (asks_to_sample, do_sample) = match self.sampling {
            CallerSampling::On(_) => (true, true),
            CallerSampling::Off => (false, false),
            CallerSampling::Unset => (false, defaults_sample && !asks_for_beams),
        };

        // Groups support neither sampling nor a single beam: the folder's give way to a caller who asks
        // to sample, and to a single beam.
        let folder_groups = if asks_to_sample || num_beams <= 1 { None } else { folder.num_beam_groups };
        Strategy::of_hugging_face(do_sample, num_beams, caller.num_beam_groups.or(folder_groups).unwrap_or(1))
    }
}

/// A knob's value, and the source that it comes from.
pub(super) struct Setting<'a> {
    pub(super) knob: &'static Knob,
    pub(super) source: Source,
    /// The knobs of that source.
    knobs: &'a Knobs,
    value: &'a dyn KnobValue,
}

impl Setting<'_> {
    /// Whether the value changes anything.
    pub(super) fn is_on(&self) -> bool {
        !self.knob.is_off(self.value)
    }

    /// Copies the value into the configuration.
    pub(super) fn apply(&self, config: &mut GenerationConfig) {
        (self.knob.apply)(self.knobs, config);
    }

    /// The knob and its value, such as `top_k 50`.
    pub(super) fn words(&self) -> String {
        format!("{} {}", self.knob.name, self.value.words())
    }
}

/// The defaults of a stack's own program; all other knobs are off in every stack.
///
/// transformers has none here: its defaults come from a folder's `generation_config.json`.
/// llama.cpp's are those of `llama-cli`, MLX's those of `mlx_lm.generate`.
pub(crate) fn stack_defaults(semantics: Semantics) -> Knobs {
    let (do_sample, temperature, top_k, top_p, min_p) = match semantics {
        Semantics::Hf => return Knobs::default(),
        Semantics::Llamacpp => (true, Some(0.8), 40, 0.95, 0.05),
        Semantics::Mlx => (false, None, 0, 1.0, 0.0), // a temperature of 0, which means greedy
    };
    Knobs {
        do_sample: Some(do_sample),
        temperature,
        top_k: Some(top_k),
        top_p: Some(top_p),
        min_p: Some(min_p),
        ..Knobs::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_knob_has_the_value_of_the_first_source_that_sets_it() {
        let folder = Knobs { top_p: Some(0.5), ..Knobs::default() };
        let source = |caller: &Knobs, strategy: Strategy, name: &str| {
            let sources = Sources::new(caller, &folder, Semantics::Llamacpp).unwrap();
            sources.settings(strategy).iter().find(|setting| setting.knob.name == name).map(|setting| setting.source)
        };
        let caller = Knobs { top_k: Some(3), ..Knobs::default() };
        assert_eq!(source(&caller, Strategy::Sample, "top_k"), Some(Source::Caller));
        assert_eq!(source(&caller, Strategy::Sample, "top_p"), Some(Source::Folder));
        assert_eq!(source(&caller, Strategy::Sample, "min_p"), Some(Source::Stack));
        assert_eq!(source(&caller, Strategy::Sample, "typical_p"), None);
        // The stack precedes the folder if the caller asks for it, but it has no beams.
        let caller = Knobs { semantics: Some(Semantics::Llamacpp), ..caller };
        assert_eq!(source(&caller, Strategy::Sample, "top_p"), Some(Source::Stack));
        assert_eq!(source(&caller, Strategy::BeamSample, "top_p"), Some(Source::Folder));
    }
}
