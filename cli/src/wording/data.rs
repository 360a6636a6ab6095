//! Errors of texts and tokenizers.

use std::{error::Error, io::ErrorKind};

use crate::terminal::typed;
use ember_data::{prepare, source, source::EncodingOrigin, tokenizer};
use ember_decoding::run_folder;

/// The program's line, if flags or commands would help.
pub fn line(error: &(dyn Error + 'static)) -> Option<String> {
    const OWN: [fn(&(dyn Error + 'static)) -> Option<String>; 3] = [
        |error| of_source(error.downcast_ref()?),
        |error| of_tokenizer(error.downcast_ref()?),
        |error| of_preparing(error.downcast_ref()?),
    ];
    OWN.iter().find_map(|line| line(error))
}

fn of_preparing(error: &prepare::Error) -> Option<String> {
    match error {
        prepare::Error::Source(error) => of_source(error),
        prepare::Error::Tokenizer(error) => of_tokenizer(error),
        prepare::Error::OneSided { val, documents } => Some(format!(
            "the split put {val} of {documents} documents into validation; give another --seed or more \
             different documents"
        )),
        prepare::Error::Text { text, error } => Some(format!("{text}: {}", of_preparing(error)?)),
        _ => None,
    }
}

/// Whether a disk is full: that of the temporary files, for nothing else is written to read a text.
fn is_full_disk(error: &source::Error) -> bool {
    error.of_system().is_some_and(|cause| matches!(cause.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

fn of_source(error: &source::Error) -> Option<String> {
    use source::Error::*;
    if error.is_of_the_disk() {
        let remedy = match is_full_disk(error) {
            true => "make room for temporary files, and run the same command again",
            false => {
                "run the same command again once its disk answers; if only this file cannot be read, move it away (a \
                 preparation then starts over)"
            }
        };
        return Some(format!("{error}; {remedy}"));
    }
    Some(match error {
        Run(path) => {
            let (name, typed) = (path.display(), typed(path));
            format!("{name} is a run, not text; continue it with `ember-train resume {typed}`, or name the text itself")
        }
        Prepared(path) => {
            let (name, typed) = (path.display(), typed(path));
            format!(
                "{name} is a prepared text already; train on it alone with `ember-train run {typed}`, or name the text itself"
            )
        }
        NoField { what, fields } => {
            format!("{what}; name one of these with --field (in run and plan: --set field=NAME): {}", fields.join(", "))
        }
        Encoding { name, what, encoding, origin } => {
            let flags = "with --encoding (in run and plan: --set encoding=NAME)";
            let drop = format!("drop invalid bytes with `iconv -c -f {encoding} -t UTF-8 FILE > NEW`");
            match origin {
                EncodingOrigin::Mark => format!("{name} {what}; {drop}"),
                EncodingOrigin::User => format!("{name} {what}; name another {flags}, or {drop}"),
                EncodingOrigin::Guess => format!("{name} {what}; {drop}, or name its encoding {flags}"),
            }
        }
        NoTextField(_) => format!("{error} with --field (in run and plan: --set field=NAME)"),
        _ => return None,
    })
}

fn of_tokenizer(error: &tokenizer::Error) -> Option<String> {
    let tokenizer::Error::Missing(folder) = error else { return None };
    let missing = run_folder::without_tokenizer(folder).unwrap_or_else(|| error.to_string());
    Some(format!("{missing}, or give token ids with --prompt-ids, which needs none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wording::{shared, words_by};

    fn words(error: &(dyn Error + 'static)) -> String {
        words_by(error, shared).words()
    }

    #[test]
    fn the_flag_that_helps_is_named_wherever_the_error_stands_in_the_chain() {
        let what = || "a.jsonl:1: no field \"text\"".to_owned();
        let no_field = || source::Error::NoField { what: what(), fields: vec!["body".into()] };
        let expected =
            "a.jsonl:1: no field \"text\"; name one of these with --field (in run and plan: --set field=NAME): body";
        assert_eq!(words(&no_field()), expected);
        let deep = anyhow::Error::from(prepare::Error::from(no_field())).context("init");
        assert_eq!(words(deep.as_ref()), format!("init: {expected}"));
        let number =
            source::Error::NoTextField("a.jsonl:1: the field \"text\" is not a string; name another".to_owned());
        assert_eq!(
            words(&number),
            "a.jsonl:1: the field \"text\" is not a string; name another with --field (in run and plan: --set field=NAME)"
        );
        let run = source::Error::Run("a".into());
        assert_eq!(
            words(&run),
            "a is a run, not text; continue it with `ember-train resume a`, or name the text itself"
        );
        let missing = tokenizer::Error::Missing("a".into());
        assert!(words(&missing).ends_with("there, or give token ids with --prompt-ids, which needs none"));
        let unlucky = prepare::Error::OneSided { val: 0, documents: 2 };
        assert!(words(&unlucky).ends_with("give another --seed or more different documents"));
        let named = prepare::Error::Text { text: "a.txt".to_owned(), error: Box::new(unlucky) };
        assert!(words(&named).starts_with("a.txt: the split put 0 of 2 documents"));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_its_disk_does_not_give_is_to_be_moved_away() {
        use ember_host::file_error::FileError;
        let of = |code| {
            let source = std::io::Error::from_raw_os_error(code);
            let file = FileError { doing: "cannot read", path: "a.txt".into(), source };
            words(&prepare::Error::from(source::Error::from(file)))
        };
        let (eio, eacces, enospc) = (5, 13, 28);
        let expected = "cannot read a.txt; run the same command again once its disk answers; if only this file cannot be \
                        read, move it away (a preparation then starts over): ";
        assert!(of(eio).starts_with(expected), "{}", of(eio));
        assert!(of(enospc).starts_with("cannot read a.txt; make room for temporary files, "), "{}", of(enospc));
        assert!(of(eacces).starts_with("cannot read a.txt: "), "{}", of(eacces));
    }

    #[test]
    fn an_encoding_that_was_named_is_not_asked_for_again() {
        let words = |origin| {
            let (name, what) = ("a.txt".to_owned(), "is not UTF-8 text".to_owned());
            words(&source::Error::Encoding { name, what, encoding: "UTF-8", origin })
        };
        let drop = "drop invalid bytes with `iconv -c -f UTF-8 -t UTF-8 FILE > NEW`";
        let flags = "with --encoding (in run and plan: --set encoding=NAME)";
        assert_eq!(words(EncodingOrigin::Mark), format!("a.txt is not UTF-8 text; {drop}"));
        assert_eq!(words(EncodingOrigin::User), format!("a.txt is not UTF-8 text; name another {flags}, or {drop}"));
        let expected = format!("a.txt is not UTF-8 text; {drop}, or name its encoding {flags}");
        assert_eq!(words(EncodingOrigin::Guess), expected);
    }
}
