//! `ember-train copied`: finds the parts of a generated text that the training text contains.

use std::{io::Read, time::Instant};

use ember_data::{prepare::Dataset, source::LeftOut};
use ember_host::{files::read_whole, names::last_part};
use serde_json::{Map, Value, json};

use ember_study::copied::{
    Checked, Documents, Novel, Rule, Together, TrainingText, beginning, check, page, times, together, words_for,
};
use ember_training::run::text::data_of;

use super::reading::ReadingArgs;
use crate::prelude::*;

/// Arguments of `copied`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ember-train copied story.txt                                  against the text of the newest run
  ember-train copied story.txt runs/my-writing --html copied.html
  ember-train copied story.txt --corpus books/ --min-words 8")]
pub struct CopiedArgs {
    /// The generated text, or - for standard input: plain, or the JSON lines of `ember-generate
    /// text --format json`
    pub file: PathBuf,
    /// The run whose training text is searched, or a folder that `prepare` made [default: the
    /// newest run]
    pub run: Option<PathBuf>,
    /// Search these texts instead: files, folders or archives of the kinds that `run` reads
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "run")]
    pub corpus: Vec<PathBuf>,
    /// Field of JSON Lines and CSV, or column of Parquet, that holds the text of --corpus [default: text]
    #[arg(long, value_name = "NAME")]
    pub field: Option<String>,
    /// Encoding of text of --corpus that has no byte order mark [default: UTF-8, else guessed]
    #[arg(long, value_name = "NAME")]
    pub encoding: Option<String>,
    /// What to clean in the text of --corpus: auto, all or off, as in `prepare` [default: auto]
    #[arg(long, value_name = "WHAT")]
    pub clean: Option<String>,
    /// Least length of a copied span, in characters [default: 50, or 1 with --min-words]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub min_chars: Option<u32>,
    /// Least length of a copied span, in words
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub min_words: Option<u32>,
    /// Write the text as a page with copied spans marked
    #[arg(long, value_name = "FILE", value_parser = output_file::page())]
    pub html: Option<PathBuf>,
}

/// Maximum number of stretches shown on the terminal; JSON and the page have all.
const MAX_SHOWN: usize = 20;

/// Maximum number of characters shown of a stretch on the terminal.
const MAX_SHOWN_CHARACTERS: usize = 60;

/// Runs the command.
///
/// # Errors
/// When the text or the training text cannot be read, something cannot be written, or an interrupt
/// says to stop.
pub fn run(args: &CopiedArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    let rule = Rule {
        min_chars: args.min_chars.unwrap_or(if args.min_words.is_some() { 1 } else { 50 }) as usize,
        min_words: args.min_words.unwrap_or(0) as usize,
    };
    let texts = texts_of(&args.file)?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (training, validation) = documents(args, &notes)?;
    let (training, index_s) = indexed(training, &notes)?;
    let (training_bytes, index_memory_bytes) = (training.index.text.len(), training.index.memory_bytes());
    let validation = validation.map(Documents::index).transpose()?;

    let started = Instant::now();
    let interrupted = || interrupt.requested();
    let checked = texts.iter().map(|text| check(text, &training, validation.as_ref(), rule, &interrupted));
    let checked: Vec<Checked> = checked.collect::<Result<_, _>>()?;
    let all = together(&texts, &checked, &training, &interrupted)?;
    let check_s = started.elapsed().as_secs_f64();
    notes.say(format!("checked {} characters in {}", grouped(all.characters as u64), duration(check_s)));
    let baseline =
        validation.as_ref().map(|validation| baseline(validation, all.characters, &training, rule, &interrupted));
    let baseline = baseline.transpose()?;

    if let Some(path) = &args.html {
        let title = format!("What {} copies", last_part(&words_of(&args.file)));
        write_file(path, &page(&title, &texts, &checked, &all, baseline.as_ref()))?;
        notes.say(format!("the marked text is in {}", path.display()));
    }
    let only_in_validation = checked.iter().map(|text| text.only_in_validation.len()).sum();
    let json = || {
        let texts = checked.iter().enumerate();
        let texts = texts.map(|(i, text)| Joined { first: json!({ "kind": "text", "text_index": i }), then: text });
        // The summary comes last. `only_in_validation` counts the spans found only in the
        // validation text; `validation` is the same summary of the beginning of the validation
        // text, which is as long as the checked texts.
        let rest = json!({
            "only_in_validation": only_in_validation, "validation": baseline, "training_bytes": training_bytes,
            "index_memory_bytes": index_memory_bytes, "index_s": index_s, "check_s": check_s,
        });
        let figures = Joined { first: rule, then: Joined { first: &all, then: rest } };
        Ok(json_lines(texts)? + &json_line(&Joined { first: json!({ "kind": "summary" }), then: figures })?)
    };
    let text = || table(&checked, &all, baseline.as_ref(), only_in_validation, rule);
    answer_beside(args.html.as_deref(), common, text, json)
}

/// The training text, and the validation text if there is one.
fn documents(args: &CopiedArgs, notes: &Notes) -> Result<(Documents, Option<Documents>)> {
    if !args.corpus.is_empty() {
        ensure!(
            !args.corpus.iter().any(|path| is_standard_input(path)),
            UsageError::new("--corpus -: standard input cannot be searched; name a file")
        );
        let reading = ReadingArgs {
            field: args.field.clone().unwrap_or_else(|| "text".to_owned()),
            encoding: args.encoding.clone(),
            clean: args.clean.clone().unwrap_or_else(|| "auto".to_owned()),
        };
        let documents = Documents::from_files(&args.corpus, &reading.options()?)?;
        // Of a folder, files that cannot be read are skipped, and these may be all.
        ensure!(
            !documents.is_blank(),
            "--corpus holds no text to search; name files with text, and with --field the field that holds it"
        );
        for line in LeftOut::summary(documents.left_out()) {
            notes.say(format!("Left out: {line}"));
        }
        if let [first, others @ ..] = documents.skipped() {
            let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
            notes.say(format!("not searched, since it cannot be read: {first}{more}"));
        }
        return Ok((documents, None));
    }
    let of_corpus = [("--field", &args.field), ("--encoding", &args.encoding), ("--clean", &args.clean)];
    if let Some((flag, _)) = of_corpus.iter().find(|(_, value)| value.is_some()) {
        bail!(UsageError::new(format!("{flag} needs --corpus, whose texts it applies to; give both or neither")));
    }
    let folder = data_of(args.run.as_deref())
        .map_err(|error| anyhow!("{:#}; or name the text to search with --corpus", wording::text_unknown(error)))?;
    notes.say(format!("training text: {}", folder.display()));
    let Dataset { manifest, train, val, tokenizer } = Dataset::open(&folder)?;
    let text_of = |tokens, side: usize, together| {
        let sources = manifest.sources.iter().map(|source| (source.name.clone(), source.documents[side]));
        let sources: Vec<(String, u64)> = sources.filter(|&(_, count)| count > 0).collect();
        Documents::from_tokens(tokens, &tokenizer, manifest.end_of_text, &sources, together)
    };
    Ok((text_of(&train, 0, "the training text")?, Some(text_of(&val, 1, "the validation text")?)))
}

/// Indexes the training text; also returns the seconds that took.
fn indexed(documents: Documents, notes: &Notes) -> Result<(TrainingText, f64)> {
    let started = Instant::now();
    let training = documents.index()?;
    let index_s = started.elapsed().as_secs_f64();
    let training_bytes = training.index.text.len();
    notes.say(format!(
        "indexed {} of training text in {} ({}/s, {} of memory)",
        bytes(training_bytes as u64),
        duration(index_s),
        bytes((training_bytes as f64 / index_s.max(1e-9)) as u64),
        bytes(training.index.memory_bytes())
    ));
    Ok((training, index_s))
}

/// The copied share of validation text, which no model wrote: the baseline for the generated text.
fn baseline(
    validation: &TrainingText,
    characters: usize,
    training: &TrainingText,
    rule: Rule,
    interrupted: &dyn Fn() -> bool,
) -> Result<Together> {
    let texts = beginning(validation, characters);
    let checked = texts.iter().map(|text| check(text, training, None, rule, interrupted));
    let checked: Vec<Checked> = checked.collect::<Result<_, _>>()?;
    Ok(together(&texts, &checked, training, interrupted)?)
}

/// Maximum size of the generated text.
const MAX_BYTES: u64 = 1 << 30;

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// The name of the generated text's file.
fn words_of(path: &Path) -> String {
    if is_standard_input(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// The texts of the file: the whole file, or one per JSON line.
fn texts_of(path: &Path) -> Result<Vec<String>> {
    let mut bytes = Vec::new();
    let name = words_of(path);
    if is_standard_input(path) {
        std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        bytes = read_whole(path, MAX_BYTES)
            .with_context(|| format!("cannot read {name}; name a file that exists and that you may read"))?;
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3); // the byte order mark
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        anyhow!(
            "{name} is not UTF-8 text: byte {} does not belong there; convert it, for example with iconv -f LATIN1 -t UTF-8",
            error.utf8_error().valid_up_to()
        )
    })?;
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let named = path.extension().is_some_and(|extension| extension == "jsonl" || extension == "ndjson");
    let texts =
        if named || serde_json::from_str::<Map<String, Value>>(first).is_ok_and(|line| line.contains_key("text")) {
            json_texts(&name, &text)?
        } else {
            vec![text]
        };
    ensure!(texts.iter().any(|text| !text.trim().is_empty()), "{name} holds no text to check; give a file with text");
    Ok(texts)
}

fn json_texts(name: &str, lines: &str) -> Result<Vec<String>> {
    let text_of = |(number, line): (usize, &str)| {
        let mut object: Map<String, Value> = serde_json::from_str(line)
            .map_err(|error| anyhow!("{name}:{number}: not a JSON object ({error}); correct or remove the line"))?;
        match object.remove("text") {
            Some(Value::String(text)) => Ok(text),
            Some(Value::Null) => bail!(
                "{name}:{number}: its \"text\" is null, as from a checkpoint without a tokenizer; give text, not ids"
            ),
            _ => bail!("{name}:{number}: \"text\" is missing or not a string; write {{\"text\": \"...\"}}"),
        }
    };
    (1..).zip(lines.lines()).filter(|(_, line)| !line.trim().is_empty()).map(text_of).collect()
}

fn table(checked: &[Checked], all: &Together, validation: Option<&Together>, only: usize, rule: Rule) -> String {
    let mut lines: Vec<String> = Vec::new();
    let what = match (rule.min_words, rule.min_chars) {
        (0, characters) => format!("at least {}", counted(characters, "character")),
        (words, ..=1) => format!("at least {}", counted(words, "word")),
        (words, characters) => {
            format!("at least {} and {}", counted(words, "word"), counted(characters, "character"))
        }
    };
    let mut spans: Vec<_> =
        checked.iter().enumerate().flat_map(|(i, text)| text.spans.iter().map(move |span| (i, span))).collect();
    spans.sort_by_key(|(_, span)| std::cmp::Reverse(span.characters));
    let heading = "copied spans, the longest first (text:offset in characters, length in characters, place)";
    if !spans.is_empty() {
        lines.push(heading.to_owned());
    }
    for (text, span) in spans.iter().take(MAX_SHOWN) {
        let place = span.place.as_ref().map_or_else(String::new, |place| words_for(place, &place.source));
        let stretch: String = span.text.chars().take(MAX_SHOWN_CHARACTERS).collect();
        let more = if span.characters > MAX_SHOWN_CHARACTERS { "..." } else { "" };
        let at = format!("{}:{}", text + 1, span.start);
        lines.push(format!("{at:>9} {:>6}  {}, {place}: {stretch:?}{more}", span.characters, times(span.times)));
    }
    if spans.len() > MAX_SHOWN {
        lines.push(format!("... and {} more (--format json and --html show all)", spans.len() - MAX_SHOWN));
    }
    if !spans.is_empty() {
        lines.push(String::new());
    }
    let row = |name: &str, of: &Together| {
        let (share, count) = (100.0 * of.copied_share, grouped(of.characters as u64));
        format!("{name:<21}{count:>12} {share:>7.2}% {:>7} {:>9}", of.spans, of.longest)
    };
    lines.push(format!("a span counts as copied if it has {what}"));
    lines.push(format!("{:<21}{:>12} {:>8} {:>7} {:>9}", "", "characters", "copied", "spans", "longest"));
    let name = if all.texts == 1 { "this text" } else { "these texts" };
    lines.push(row(name, all));
    if let Some(validation) = validation {
        lines.push(row("the validation text", validation));
        lines.push(format!("spans found only in the validation text, which was not trained on: {only}"));
    }
    lines.push("\nruns of n words that do not occur in the training text".to_owned());
    lines.extend(novelty(name, &all.novel, validation.map(|of| &of.novel[..])));
    lines.join("\n") + "\n"
}

/// A table of the share of n-grams that the training text lacks, by n, in the texts of this name
/// and in the validation text; `-` where the texts have fewer than n words.
fn novelty(name: &str, all: &[Novel], validation: Option<&[Novel]>) -> Vec<String> {
    let width = name.len();
    let heading = if validation.is_some() { "the validation text" } else { "" };
    let percent = |of: Novel| of.share().map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", 100.0 * share));
    let row = |(place, &novel): (usize, &Novel)| {
        let bar = "#".repeat((30.0 * novel.share().unwrap_or(0.0)).round() as usize);
        let theirs = validation.map_or_else(String::new, |of| format!("{:>19}", percent(of[place])));
        format!("{:>3}  {:>width$}{theirs}  {bar}", novel.n, percent(novel)).trim_end().to_owned()
    };
    let heading = format!("{:>3}  {name}  {heading}", "n").trim_end().to_owned();
    std::iter::once(heading).chain(all.iter().enumerate().map(row)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn texts(name: &str, content: &[u8]) -> Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        texts_of(&path)
    }

    #[test]
    fn a_file_is_one_text_or_a_text_a_line() {
        assert_eq!(texts("a.txt", b"one\n{\"text\": \"two\"}\n").unwrap(), ["one\n{\"text\": \"two\"}\n"]);
        let json = b"{\"text\": \"one\", \"score\": -1}\n\n{\"text\": \"two\"}\n";
        assert_eq!(texts("a.txt", json).unwrap(), ["one", "two"]);
        let error = |name, content: &[u8]| texts(name, content).unwrap_err().to_string();
        assert!(error("a.jsonl", b"{\"text\": null}").contains("a.jsonl:1: its \"text\" is null"));
        assert!(error("a.jsonl", b"{\"text\": \"x\"}\n{}").contains("a.jsonl:2: \"text\" is missing"));
        assert!(error("a.jsonl", b"x").contains("a.jsonl:1: not a JSON object"));
        assert!(error("a.txt", b" \n").contains("holds no text"));
        assert!(error("a.txt", b"\xff").contains("is not UTF-8 text: byte 0"));
    }

    #[test]
    fn standard_input_is_called_so() {
        assert_eq!(["-", "a/-"].map(|path| words_of(Path::new(path))), ["standard input", "a/-"]);
    }

    #[test]
    fn a_folder_without_a_text_is_no_corpus_that_nothing_is_copied_from() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.jsonl"), "{\"body\": \"a text\"}\n").unwrap();
        let read = |field: Option<&str>| {
            let args = CopiedArgs {
                file: PathBuf::from("-"),
                run: None,
                corpus: vec![folder.path().to_owned()],
                field: field.map(str::to_owned),
                encoding: None,
                clean: None,
                min_chars: None,
                min_words: None,
                html: None,
            };
            documents(&args, &Notes::new(true)).map(drop)
        };
        assert!(read(None).unwrap_err().to_string().starts_with("--corpus holds no text to search"));
        read(Some("body")).unwrap();
    }

    #[test]
    fn of_runs_that_there_are_none_of_nothing_is_said_to_be_copied() {
        let novel = |n, ngrams, novel| Novel { n, ngrams, novel };
        let (one_word, two_words) = ([novel(1, 1, 0), novel(2, 0, 0)], [novel(1, 2, 1), novel(2, 1, 1)]);
        let table = novelty("this text", &one_word, Some(&two_words));
        let bar = "#".repeat(30);
        assert_eq!(table[0], "  n  this text  the validation text");
        assert_eq!(table[1..], ["  1       0.0%              50.0%", "  2          -             100.0%"]);
        let table = novelty("these texts", &two_words, None);
        let expected = ["  n  these texts", "  1        50.0%  ###############"].map(str::to_owned);
        assert_eq!(table, [&expected[..], &[format!("  2       100.0%  {bar}")]].concat());
        assert_eq!(
            novelty("this text", &two_words, Some(&one_word))[2],
            format!("  2     100.0%                  -  {bar}")
        );
    }
}
