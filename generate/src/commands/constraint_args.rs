//! The flags that set the grammar the text must follow.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use super::lines::TextFile;
use ember_cli::program::UsageError;
use ember_decoding::constraint::{Grammar, GrammarError};

/// At most one way to constrain the text.
#[derive(Args, Clone, Debug, Default)]
#[group(id = "constraint", multiple = false)]
pub struct ConstraintArgs {
    /// Write JSON that fulfils the JSON Schema in FILE
    #[arg(long, value_name = "FILE", help_heading = "Grammar")]
    pub json_schema: Option<PathBuf>,

    /// Write text that EXPR matches from beginning to end
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, help_heading = "Grammar")]
    pub regex: Option<String>,

    /// Write text that the Lark grammar in FILE derives from `start`
    #[arg(long, value_name = "FILE", help_heading = "Grammar")]
    pub grammar: Option<PathBuf>,
}

impl ConstraintArgs {
    /// The grammar that the flags set, if any.
    ///
    /// # Errors
    /// A [`UsageError`] that names the flag and its file, when the file cannot be read or is
    /// invalid.
    pub fn grammar(&self) -> Result<Option<Grammar>> {
        Ok(match self {
            Self { json_schema: Some(path), .. } => Some(read_grammar("--json-schema", path, Grammar::json_schema)?),
            Self { regex: Some(regex), .. } => Some(Grammar::regex(format!("--regex {regex:?}"), regex)?),
            Self { grammar: Some(path), .. } => Some(read_grammar("--grammar", path, Grammar::lark)?),
            _ => None,
        })
    }
}

/// Reads the file that a flag names and parses the grammar in it.
fn read_grammar(flag: &str, path: &Path, parse: fn(String, &str) -> Result<Grammar, GrammarError>) -> Result<Grammar> {
    let file = TextFile::read(flag, path).map_err(|error| UsageError::new(format!("{error:#}")))?;
    Ok(parse(format!("{flag} {}", path.display()), &file.into_content())?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;
    use ember_cli::wording;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        constraint: ConstraintArgs,
    }

    fn grammar(args: &[&str]) -> Result<Option<Grammar>> {
        Cli::try_parse_from([&["ember-generate"], args].concat())?.constraint.grammar()
    }

    /// The error line for a wrong grammar in a file.
    fn refused(flag: &str, content: &[u8]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("grammar");
        std::fs::write(&path, content).unwrap();
        let error = grammar(&[flag, path.to_str().unwrap()]).err();
        let error = error.unwrap_or_else(|| panic!("{flag} takes {:?}", String::from_utf8_lossy(content)));
        let line = wording::line(error.as_ref());
        assert_eq!(line.exit_code(), 2, "{line:?}");
        let line = line.words();
        assert!(!line.contains('\n'), "one line: {line}");
        assert!(line.starts_with(flag) && line.contains(path.to_str().unwrap()), "names the flag and the file: {line}");
        line
    }

    #[test]
    fn at_most_one_grammar() {
        assert!(grammar(&[]).unwrap().is_none());
        assert_eq!(grammar(&["--regex", "-?[0-9]+"]).unwrap().unwrap().source(), r#"--regex "-?[0-9]+""#);
        let both = grammar(&["--regex", "a", "--grammar", "b.lark"]).unwrap_err().to_string();
        assert!(both.contains("cannot be used with"), "{both}");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_grammar() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("grammar");
        for (flag, content) in [("--json-schema", "{\"type\": \"null\"}"), ("--grammar", "start: \"a\"")] {
            std::fs::write(&path, format!("\u{feff}{content}")).unwrap();
            assert!(grammar(&[flag, path.to_str().unwrap()]).unwrap().is_some(), "{flag}");
        }
    }

    #[test]
    fn a_wrong_grammar_is_named_in_one_line() {
        let missing = grammar(&["--json-schema", "missing.json"]).unwrap_err();
        assert!(missing.is::<UsageError>());
        assert!(missing.to_string().starts_with("cannot read --json-schema missing.json; "), "{missing}");
        assert!(refused("--grammar", &[0xff, 0xfe]).contains("UTF-16"));

        assert!(refused("--json-schema", b"{\"type\":").contains("is not JSON"));
        for (schema, why) in [
            ("[1]", "schema must be an object or boolean"),
            (r#"{"type": "thing"}"#, "thing"),
            (r#"{"properties": 1}"#, "properties must be an object"),
            (r#"{"not": {"type": "string"}}"#, "not"),
        ] {
            assert!(refused("--json-schema", schema.as_bytes()).contains(why), "{why}");
        }
        for (lark, why) in [
            ("", "no start rule"),
            ("begin: \"a\"", "no start rule"),
            ("start: other", "1(8): unknown name: \"other\""),
            ("start: \"a", "lexer error"),
            ("start: /[/", "unclosed character class"),
        ] {
            assert!(refused("--grammar", lark.as_bytes()).contains(why), "{why}");
        }
        for (expression, why) in [
            ("", "allows the empty text only"),
            ("[", "unclosed character class"),
            ("a{2,1}", "invalid repetition"),
            ("(", "unclosed group"),
            ("(?=a)", "look-around"),
            ("*", "missing expression"),
        ] {
            let error = grammar(&["--regex", expression]).unwrap_err();
            let line = wording::line(error.as_ref());
            assert_eq!(line.exit_code(), 2, "{expression}: {line:?}");
            let line = line.words();
            assert!(line.starts_with("--regex") && line.contains(why) && !line.contains('\n'), "{line}");
        }
    }
}
