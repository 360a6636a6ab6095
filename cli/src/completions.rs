//! `ember-generate completions` and `ember-train completions`: shell completion scripts.

use std::io::Write;

use anyhow::Result;
use clap::builder::{Resettable, Str};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use crate::program::Outcome;
use crate::terminal;

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell to complete in
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Writes the script for a shell; it is the same in every output format.
///
/// # Errors
/// When standard output cannot be written to.
pub fn run<C: CommandFactory>(args: &CompletionsArgs) -> Result<Outcome> {
    let mut out = terminal::stdout();
    out.write_all(&script(&C::command(), args.shell))?;
    out.flush()?;
    Ok(Outcome::Done)
}

fn script(command: &Command, shell: Shell) -> Vec<u8> {
    let mut script = Vec::new(); // the generator panics if a pipe is closed
    clap_complete::generate(shell, &mut shown(command), command.get_name(), &mut script);
    script
}

/// The parts of a command that `--help` shows: a shell would suggest hidden ones too.
fn shown(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set()).map(shown);
    let version = command.get_version().map(|version| Str::from(version.to_owned()));
    Command::new(command.get_name().to_owned())
        .about(Resettable::from(command.get_about().cloned()))
        .version(Resettable::from(version))
        .args(arguments)
        .subcommands(commands)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::{Arg, ValueEnum};

    #[test]
    fn every_shell_proposes_what_is_shown_and_nothing_else() {
        let bake =
            Command::new("bake").arg(Arg::new("oven").long("oven")).arg(Arg::new("secret").long("secret").hide(true));
        let command = Command::new("baker").version("7").subcommands([bake, Command::new("burn").hide(true)]);
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(&command, *shell)).unwrap();
            for (word, is_shown) in
                [("bake", true), ("oven", true), ("version", true), ("secret", false), ("burn", false)]
            {
                assert_eq!(script.contains(word), is_shown, "{word} in the script for {shell}");
            }
        }
    }
}
