//! The flags of sampling, which follow from the table of knobs.

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

use super::text_args::{count, number};
use ember_decoding::config::{GenerationConfig, KNOBS, Knob, Knobs, Typed};

/// What the flags set.
#[derive(Clone, Debug, Default)]
pub(super) struct SamplingArgs {
    pub(super) knobs: Knobs,
}

/// The knobs whose flags follow from the table.
fn typed() -> impl Iterator<Item = (&'static Knob, Typed)> {
    KNOBS.iter().filter_map(|knob| Some((knob, knob.typed?)))
}

impl Args for SamplingArgs {
    fn augment_args(command: Command) -> Command {
        let flag = |(knob, typed): (&'static Knob, Typed)| {
            let whole = knob.of(&GenerationConfig::default()).to_json().is_u64();
            let check = move |text: &str| match whole {
                true => count(text).map(|_| text.to_owned()),
                false => number::<f64>(text).map(|_| text.to_owned()),
            };
            let arg = Arg::new(knob.name).long(knob.label).help_heading("Sampling").help(typed.meaning);
            arg.value_name(typed.placeholder).value_parser(check).allow_negative_numbers(true)
        };
        command.args(typed().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SamplingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for (knob, typed) in typed() {
            if let Some(text) = matches.get_one::<String>(knob.name) {
                typed.set(&mut self.knobs, text);
            }
        }
        Ok(())
    }
}
