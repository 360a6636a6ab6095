//! The flags generated from the table of knobs, and the parsers of their values.

use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use ember_decoding::config::{Form, KNOBS_IN_HELP, Knob, Knobs, Range, Typed};

pub(super) const PENALTIES: &str = "Penalties and bans";

/// Help headings of the table's flags, in this order; a command's own flags use them too.
const HEADINGS: [&str; 6] = ["Strategy", "Sampling", PENALTIES, "Beams", "Stopping", "Output"];

/// The knobs that the flags set.
#[derive(Clone, Debug, Default)]
pub(super) struct KnobArgs(pub(super) Knobs);

/// The knobs that have a flag, grouped by heading.
fn knobs_with_flags() -> impl Iterator<Item = (&'static Knob, Typed)> {
    let under = |heading: &'static str| move |(_, typed): &(&Knob, Typed)| typed.heading == heading;
    let typed = || KNOBS_IN_HELP.iter().filter_map(|knob| Some((knob, knob.typed?)));
    HEADINGS.into_iter().flat_map(move |heading| typed().filter(under(heading)))
}

fn flag((knob, typed): (&'static Knob, Typed)) -> Arg {
    let arg = Arg::new(knob.name).long(knob.label).help_heading(typed.heading).help(knob.meaning.trim());
    let arg = arg.value_name(typed.placeholder);
    match typed.form {
        Form::Count => {
            let (least, most) = match knob.range {
                Range::OneTo(most) => (1, most),
                Range::OneUp => (1, u32::MAX as usize),
                _ => (0, u32::MAX as usize),
            };
            arg.value_parser(as_text(move |text: &str| count_within(text, least, most))).allow_negative_numbers(true)
        }
        Form::Number => arg.value_parser(as_text(number::<f64>)).allow_negative_numbers(true),
        Form::Word(words) => arg.value_parser(PossibleValuesParser::new(
            words().into_iter().map(|(name, meaning)| PossibleValue::new(name).help(meaning)),
        )),
        Form::Texts | Form::Special => arg.action(ArgAction::Append).allow_hyphen_values(true),
    }
}

/// A value parser that validates the text and returns it unchanged.
fn as_text<T>(check: impl Fn(&str) -> Result<T, String> + Clone) -> impl Fn(&str) -> Result<String, String> + Clone {
    move |text| check(text).map(|_| text.to_owned())
}

pub(super) fn count(text: &str) -> Result<usize, String> {
    count_within(text, 0, u32::MAX as usize)
}

/// Parses a count. The bounds are only for the error text: a number outside them is refused later,
/// as it is where a file sets it.
fn count_within(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let number: Result<u32, _> = text.parse();
    number.map(|number| number as usize).map_err(|_| format!("it must be a whole number from {least} to {most}"))
}

pub(super) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "it must be a number".to_owned())
}

impl Args for KnobArgs {
    fn augment_args(command: Command) -> Command {
        command.args(knobs_with_flags().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for KnobArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for (knob, typed) in knobs_with_flags() {
            for text in matches.get_many::<String>(knob.name).into_iter().flatten() {
                (typed.take)(&mut self.0, text);
            }
        }
        Ok(())
    }
}
