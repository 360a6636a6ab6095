//! The examples in the help of commands, so that the programs' tests can check that each parses and
//! that the help looks good at any width.

use clap::Command;

/// The number of examples in the help of `program` and its commands, and those that it rejects,
/// each with the error.
pub fn tried(program: &Command) -> (usize, Vec<String>) {
    let examples = examples(program.get_name(), program);
    let why = |example: &String| {
        let error = program.clone().try_get_matches_from(words(example)).err()?;
        Some(format!("{example}: {error}"))
    };
    (examples.len(), examples.iter().filter_map(why).collect())
}

/// Lines below the options of `program` and its commands that a terminal would wrap badly: examples
/// wider than 100 columns, the most that clap writes, and paragraphs with line breaks of their own.
pub fn badly_wrapped(program: &Command) -> Vec<String> {
    let help = program.get_after_help().map(ToString::to_string).unwrap_or_default();
    let lines: Vec<&str> = help.lines().collect();
    let is_text = |line: &str| line.starts_with(|first: char| first != ' ') && !line.ends_with(':');
    let is_wide = |line: &&&str| line.starts_with(' ') && line.chars().count() > 100;
    let is_broken = |pair: &[&str]| is_text(pair[0]) && !pair[1].is_empty();
    let broken = lines.windows(2).filter(|pair| is_broken(pair)).map(|pair| pair[0]);
    let own = lines.iter().filter(is_wide).copied().chain(broken).map(str::to_owned);
    own.chain(program.get_subcommands().flat_map(badly_wrapped)).collect()
}

/// Lines that start with the program's name, without the comment after the command.
fn examples(name: &str, command: &Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let begins = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '));
    let own = help.lines().map(str::trim).filter(begins).map(|line| line.split("  ").next().unwrap_or(line).to_owned());
    own.chain(command.get_subcommands().flat_map(|below| examples(name, below))).collect()
}

/// Splits a line into words as a shell does, where any quotes are double quotes.
fn words(line: &str) -> Vec<String> {
    let quoted = line.split('"').enumerate();
    let words = quoted.flat_map(|(i, part)| if i % 2 == 1 { vec![part] } else { part.split_whitespace().collect() });
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn an_example_that_would_not_run_is_told() {
        let text = Command::new("text").arg(Arg::new("prompt")).arg(Arg::new("top-k").long("top-k"));
        let text = text.after_help(
            "Examples:\n  ember text \"One day\"  goes on\n  ember text One day\n  or:\n  ember text --top-k",
        );
        let program =
            Command::new("ember").subcommand(text).after_help("Examples:\n  ember text One    a word\nembers glow");
        let (tried, rejected) = tried(&program);
        assert_eq!(tried, 4);
        let rejected: Vec<_> = rejected.iter().map(|line| line.lines().next().unwrap_or_default()).collect();
        let expected =
            ["ember text One day: error: unexpected argument", "ember text --top-k: error: a value is required"];
        assert!(
            rejected.len() == 2 && rejected.iter().zip(expected).all(|(line, begin)| line.starts_with(begin)),
            "{rejected:?}"
        );
    }

    #[test]
    fn lines_that_a_terminal_would_wrap_badly_are_told() {
        let wide = format!("  ember text {}", "a".repeat(90));
        let text = Command::new("text").after_help(format!("A paragraph\nof two lines.\n\nExamples:\n{wide}"));
        let program =
            Command::new("ember").subcommand(text).after_help(format!("{}\n\nExamples:\n  a", "b".repeat(200)));
        assert_eq!(badly_wrapped(&program), [&*wide, "A paragraph"]);
    }
}
