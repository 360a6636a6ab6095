//! Errors of the command line, in one line: what is wrong, and how to correct it.

use std::{ffi::OsString, path::Path};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

use crate::terminal;

/// The line. `meant` suggests what an unknown flag may mean, the likeliest first: flags, or the
/// name of a positional argument. Suggestions that the given command does not take are skipped.
pub(crate) fn line(program: Command, error: &Error, meant: impl Fn(&str) -> Vec<String>) -> String {
    let value = word(error, ContextKind::InvalidValue);
    let flag = name(&word(error, ContextKind::InvalidArg));
    match error.kind() {
        ErrorKind::UnknownArgument if flag.starts_with('-') => {
            let command = command(program, error);
            let right = meant(&flag).into_iter().find(|meant| takes(&command, meant));
            if let Some(bare) = right.as_ref().filter(|right| !right.starts_with('-')) {
                return format!("there is no flag {flag}; give {bare} by itself, without a flag");
            }
            let right = right.or_else(|| listed(&words(error, ContextKind::SuggestedArg), " or "));
            format!("there is no flag {flag}; {}", advice(error, right))
        }
        ErrorKind::UnknownArgument => {
            format!("\"{flag}\" is one argument too many; put quotes around a text with spaces")
        }
        ErrorKind::InvalidSubcommand => {
            let typed = word(error, ContextKind::InvalidSubcommand);
            // An unknown command with spaces is a prompt.
            let is_text = typed.contains(char::is_whitespace) && program.find_subcommand("text").is_some();
            let right = is_text.then(|| format!("`{} text {}`", program.get_name(), terminal::typed(typed.as_ref())));
            let right = right.or_else(|| listed(&words(error, ContextKind::SuggestedSubcommand), " or "));
            format!("there is no command \"{typed}\"; {}", advice(error, right))
        }
        ErrorKind::InvalidValue if value.is_empty() && !flag.starts_with('-') => {
            let or = if flag.starts_with('[') { ", or leave it out" } else { "" };
            format!("{} is empty; give it a value{or}", flag.trim_matches(['[', ']', '<', '>', '.']))
        }
        ErrorKind::InvalidValue => {
            let given = if value.is_empty() { "needs a value".to_owned() } else { format!("is {value}") };
            match listed(&words(error, ContextKind::ValidValue), ", ") {
                Some(right) => format!("{flag} {given}; use one of: {right}"),
                None => format!("{flag} {given}; write {}", word(error, ContextKind::InvalidArg)),
            }
        }
        ErrorKind::ValueValidation => {
            let given = if value.is_empty() { "empty" } else { &value };
            format!("{flag} is {given}; {}", reason(error))
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = words(error, ContextKind::InvalidArg);
            let (is, what) = if missing.len() == 1 { ("is", "it") } else { ("are", "them") };
            format!("{} {is} missing; give {what}, or see {}", missing.join(" and "), help(error))
        }
        ErrorKind::ArgumentConflict => {
            let others: Vec<_> = words(error, ContextKind::PriorArg).iter().map(|other| name(other)).collect();
            match listed(&others, " or ") {
                Some(others) if others != flag => format!("{flag} does not go with {others}; leave one of them out"),
                _ => format!("{flag} is given more than once; give it once"),
            }
        }
        ErrorKind::InvalidUtf8 => {
            "an argument is not UTF-8 text; rename that file or folder, or name the folder that it is in".to_owned()
        }
        _ => {
            let told = error.render().to_string();
            told.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    }
}

/// What to add if a file of a name that begins with `-` was taken for an unknown flag.
pub(crate) fn file_taken_for_flag(error: &Error, typed: &[OsString]) -> Option<String> {
    let flag = word(error, ContextKind::InvalidArg);
    if error.kind() != ErrorKind::UnknownArgument || !flag.starts_with('-') {
        return None;
    }
    let mut files = typed.iter().skip(1).map(Path::new).filter(|path| path.exists());
    let file = files.find(|path| path.to_string_lossy().starts_with(&flag))?;
    Some(format!("; for the file, write {}", terminal::typed(file)))
}

/// Lets flags have negative numbers as values, which are then refused with the flag's range and not
/// as unknown flags.
pub(crate) fn with_negative_numbers(command: Command) -> Command {
    let takes_them = |arg: &Arg| !arg.is_positional() && arg.get_action().takes_values();
    command
        .mut_args(|arg| if takes_them(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}

/// clap's context of this kind: nothing, a word, or several.
fn words(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(word)) => vec![word.clone()],
        Some(ContextValue::Strings(words)) => words.clone(),
        _ => Vec::new(),
    }
}

fn word(error: &Error, kind: ContextKind) -> String {
    words(error, kind).into_iter().next().unwrap_or_default()
}

/// A flag without its value's name: `--seed` of `--seed <N>`.
fn name(flag: &str) -> String {
    flag.split_once(" <").map_or(flag, |(name, _)| name).to_owned()
}

fn listed(words: &[String], between: &str) -> Option<String> {
    (!words.is_empty()).then(|| words.join(between))
}

/// The advice: the suggestion, or where to find help.
fn advice(error: &Error, meant: Option<String>) -> String {
    meant.map_or_else(|| format!("see {}", help(error)), |meant| format!("did you mean {meant}?"))
}

/// Why a value is rejected, with the number errors of clap and the standard library reworded.
fn reason(error: &Error) -> String {
    let said = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let range = said.split_once(" is not in ").and_then(|(_, range)| range.split_once("..="));
    match (said.as_str(), range) {
        (_, Some((least, most))) => format!("it must be from {least} to {most}"),
        ("invalid digit found in string" | "cannot parse integer from empty string", _) => {
            "it must be a whole number".to_owned()
        }
        ("number too large to fit in target type", _) => "it must be a smaller number".to_owned(),
        ("number too small to fit in target type", _) => "it must be a larger number".to_owned(),
        _ => said,
    }
}

/// The path of the given command, starting with the program: `ember-train runs remove`.
fn path(error: &Error) -> Vec<String> {
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let words = usage.split_whitespace().skip(1).take_while(|word| !word.starts_with(['-', '[', '<']));
    words.map(str::to_owned).collect()
}

/// The command line that shows the given command's help.
fn help(error: &Error) -> String {
    format!("`{} --help`", path(error).join(" "))
}

/// The given command, with the global flags.
fn command(mut program: Command, error: &Error) -> Command {
    program.build();
    let given = path(error).iter().skip(1).try_fold(&program, |command, name| command.find_subcommand(name)).cloned();
    given.unwrap_or(program)
}

/// Whether a command takes the first word of `meant`: a flag, or a positional argument's name.
fn takes(command: &Command, meant: &str) -> bool {
    let name = meant.split(' ').next().unwrap_or_default();
    command.get_arguments().any(|arg| match name.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.is_positional() && arg.get_value_names().is_some_and(|names| names.iter().any(|n| n == name)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "ember")]
    struct Cli {
        #[command(subcommand)]
        command: Commands,
        #[arg(long, global = true)]
        seed: Option<u64>,
    }

    #[derive(Debug, Subcommand)]
    enum Commands {
        Write {
            #[arg(long, value_name = "T", conflicts_with = "greedy")]
            temperature: Option<f64>,
            #[arg(long)]
            greedy: bool,
            #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=9))]
            threads: Option<u32>,
            #[arg(long, value_name = "HOW")]
            overflow: Option<Overflow>,
            prompt: Option<String>,
        },
        Text {
            prompt: Option<String>,
        },
        Convert {
            #[arg(value_name = "RUN")]
            from: Option<std::path::PathBuf>,
            #[arg(long, value_name = "FORMAT")]
            to: String,
            #[arg(long, value_name = "PATH")]
            out: String,
        },
    }

    #[derive(Clone, Debug, ValueEnum)]
    enum Overflow {
        Slide,
        Stop,
    }

    #[test]
    fn what_is_wrong_is_one_line_that_says_what_would_do() {
        let meant = |flag: &str| match flag {
            "--cores" => vec!["--jobs N".to_owned(), "--threads N".to_owned()],
            "--random" => vec!["--seed".to_owned()],
            "--text" => vec!["PROMPT".to_owned()],
            _ => Vec::new(),
        };
        for (typed, expected) in [
            ("write --temprature 1", "there is no flag --temprature; did you mean --temperature?"),
            ("write --cores=20", "there is no flag --cores; did you mean --threads N?"),
            ("convert --cores=20", "there is no flag --cores; see `ember convert --help`"),
            ("convert --random", "there is no flag --random; did you mean --seed?"),
            ("write --text one", "there is no flag --text; give PROMPT by itself, without a flag"),
            ("convert --text one", "there is no flag --text; see `ember convert --help`"),
            ("write --zzz", "there is no flag --zzz; see `ember write --help`"),
            ("write One day", "\"day\" is one argument too many; put quotes around a text with spaces"),
            ("wirte", "there is no command \"wirte\"; did you mean write?"),
            ("xyz", "there is no command \"xyz\"; see `ember --help`"),
            ("write --overflow shrink", "--overflow is shrink; use one of: slide, stop"),
            ("write --overflow", "--overflow needs a value; use one of: slide, stop"),
            ("write --temperature", "--temperature needs a value; write --temperature <T>"),
            ("write --threads 0", "--threads is 0; it must be from 1 to 9"),
            ("write --threads two", "--threads is two; it must be a whole number"),
            ("write --threads 9223372036854775808", "--threads is 9223372036854775808; it must be a smaller number"),
            ("write --threads=-9223372036854775809", "--threads is -9223372036854775809; it must be a larger number"),
            ("write --seed 18446744073709551616", "--seed is 18446744073709551616; it must be a smaller number"),
            ("write --threads=", "--threads is empty; it must be a whole number"),
            ("write --temperature warm", "--temperature is warm; invalid float literal"),
            ("convert  --to hf --out q", "RUN is empty; give it a value, or leave it out"),
            ("convert", "--to <FORMAT> and --out <PATH> are missing; give them, or see `ember convert --help`"),
            ("convert --to hf", "--out <PATH> is missing; give it, or see `ember convert --help`"),
            ("write --threads 1 --threads 2", "--threads is given more than once; give it once"),
            ("write --temperature 1 --greedy", "--temperature does not go with --greedy; leave one of them out"),
        ] {
            let error = Cli::try_parse_from(["ember"].into_iter().chain(typed.split(' '))).unwrap_err();
            assert_eq!(line(Cli::command(), &error, meant), expected, "{typed}");
        }
    }

    #[test]
    fn a_negative_number_is_out_of_range_and_no_flag() {
        let typed = ["ember", "write", "--threads", "-1"];
        let error = with_negative_numbers(Cli::command()).try_get_matches_from(typed).unwrap_err();
        assert_eq!(line(Cli::command(), &error, |_| Vec::new()), "--threads is -1; it must be from 1 to 9");
        let error = with_negative_numbers(Cli::command()).try_get_matches_from(["ember", "text", "-1"]).unwrap_err();
        assert!(line(Cli::command(), &error, |_| Vec::new()).starts_with("there is no flag -1; "));
    }

    #[test]
    fn who_types_a_text_in_the_place_of_a_command_is_told_of_the_one_that_continues_it() {
        let error = Cli::try_parse_from(["ember", "Once upon"]).unwrap_err();
        let expected = "there is no command \"Once upon\"; did you mean `ember text 'Once upon'`?";
        assert_eq!(line(Cli::command(), &error, |_| Vec::new()), expected);
    }

    #[cfg(unix)]
    #[test]
    fn a_name_in_another_encoding_is_said_to_be_one() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

        let error = Cli::try_parse_from([OsStr::new("ember"), OsStr::new("write"), OsStr::from_bytes(b"\xff.txt")]);
        assert!(
            line(Cli::command(), &error.unwrap_err(), |_| Vec::new())
                .starts_with("an argument is not UTF-8 text; rename")
        );
    }
}
