//! The checked texts as a page: copied stretches are marked, and each mark names its place in the
//! training text and links to its entry in a list.

use super::{checked::Checked, checked::Span, checked::Together, training_text::LineOf, training_text::Place};
use crate::page::page as whole_page;
use ember_host::names::Names;
use ember_page::escape;
use ember_training::units::counted;
use itertools::Itertools;

const STYLE: &str = include_str!("page/style.css");

/// A self-contained page.
pub fn page(title: &str, texts: &[&str], checked: &[Checked], all: &Together, validation: Option<&Together>) -> String {
    let of_validation = validation.map_or_else(String::new, |validation| {
        let share = 100.0 * validation.copied_share;
        // The validation text may be shorter than the checked texts.
        let amount = match validation.characters {
            fewer if fewer < all.characters => format!("{} of", counted(fewer, "character")),
            _ => "as much".to_owned(),
        };
        format!("<p>For {amount} validation text, which the model never saw, it is {share:.1}%.</p>\n")
    });
    // The folders of the sources are private.
    let places = checked.iter().flat_map(|text| &text.spans).filter_map(|span| span.place.as_ref());
    let names = Names::new(places.map(|place| place.source.as_str()));
    let sections = texts.iter().zip(checked).enumerate();
    let sections = sections.map(|(number, (text, checked))| section(number, text, checked, &names));
    whole_page(
        title,
        STYLE,
        include_str!("page/page.html"),
        &[
            ("share", &format!("{:.1}", 100.0 * all.copied_share)),
            ("characters", &all.characters),
            ("spans", &counted(all.spans, "span")),
            ("longest", &counted(all.longest, "character")),
            ("validation", &of_validation),
            ("sections", &sections.collect::<String>()),
        ],
    )
}

/// A text, and the list of its copied spans.
fn section(number: usize, text: &str, checked: &Checked, names: &Names<'_>) -> String {
    let spans = checked.spans.iter().enumerate();
    let items: String = spans.map(|(place, span)| item(number, place, span, names)).collect();
    let list = if items.is_empty() { items } else { format!("<ol>\n{items}</ol>\n") };
    let (named, marked) = (number + 1, marked(number, text, checked, names));
    format!("<section><h2>Text {named}</h2>\n<p class=\"text\">{marked}</p>\n{list}</section>\n")
}

fn item(number: usize, at: usize, span: &Span, names: &Names<'_>) -> String {
    let whereabouts = span.place.as_ref().map_or_else(String::new, |place| {
        let [words, before, text, after] =
            [&named(place, names), &place.before, &span.text, &place.after].map(|text| escape(text));
        format!("{words}<br><small>…{before}<b>{text}</b>{after}…</small>")
    });
    let (times, characters) = (times(span.times), counted(span.characters, "character"));
    format!("<li id=\"s{number}-{at}\">{characters}, {times}: {whereabouts}</li>\n")
}

fn named(place: &Place, names: &Names<'_>) -> String {
    words_for(place, names.of(&place.source))
}

/// "line 12 of input.txt"; if lines are counted within a document, "line 2 of document 7 of
/// input.jsonl", or of those trained on, "line 2 of training document 7, from input.jsonl". `source`
/// is the name of its source.
pub fn words_for(place: &Place, source: &str) -> String {
    let Place { document, line, .. } = place;
    let titled = place.title.as_ref().map_or_else(String::new, |title| format!(" ({title})"));
    match place.line_of {
        LineOf::File => format!("line {line} of {source}{titled}"),
        LineOf::Document => format!("line {line} of document {document}{titled} of {source}"),
        LineOf::SplitDocument => format!("line {line} of training document {document}{titled}, from {source}"),
    }
}

/// "once", "twice", "7 times".
pub fn times(count: usize) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

/// The text with a link around each copied span; where spans overlap, the longest gets it.
fn marked(number: usize, text: &str, checked: &Checked, names: &Names<'_>) -> String {
    // From one edge to the next, all bytes have the same owner.
    let edges = checked.spans.iter().flat_map(|span| [span.bytes.start, span.bytes.end]);
    let edges: Vec<usize> = edges.chain([0, text.len()]).sorted_unstable().dedup().collect();
    let place = |edge: usize| edges.partition_point(|other| *other < edge);
    let mut owners: Vec<Option<usize>> = vec![None; edges.len() - 1];
    let mut by_length: Vec<usize> = (0..checked.spans.len()).collect();
    by_length.sort_by_key(|&span| checked.spans[span].bytes.len());
    for span in by_length {
        let bytes = &checked.spans[span].bytes;
        owners[place(bytes.start)..place(bytes.end)].fill(Some(span));
    }
    let mut html = String::new();
    let mut at = 0;
    for run in owners.chunk_by(|a, b| a == b) {
        let piece = escape(&text[edges[at]..edges[at + run.len()]]);
        at += run.len();
        match run[0] {
            None => html += &piece,
            Some(span) => {
                let Span { place, times: count, .. } = &checked.spans[span];
                let place = place.as_ref().map_or_else(String::new, |place| named(place, names));
                let title = escape(&format!("{}: {place}", times(*count)));
                html += &format!("<a href=\"#s{number}-{span}\" title=\"{title}\">{piece}</a>");
            }
        }
    }
    html
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Span, together};
    use super::*;

    fn place_in(source: &str) -> Place {
        Place {
            source: source.to_owned(),
            document: 1,
            title: None,
            line: 5,
            line_of: LineOf::File,
            offset_bytes: 9,
            before: String::new(),
            after: String::new(),
        }
    }

    #[test]
    fn a_line_is_the_file_s_or_says_which_document_s() {
        let place = |line_of, document, title: Option<&str>| {
            let title = title.map(str::to_owned);
            Place { line_of, document, title, ..place_in("a.txt") }
        };
        let words = |line_of, document, title| words_for(&place(line_of, document, title), "a.txt");
        assert_eq!(words(LineOf::File, 2, None), "line 5 of a.txt");
        assert_eq!(words(LineOf::Document, 1, Some("Rain")), "line 5 of document 1 (Rain) of a.txt");
        assert_eq!(words(LineOf::SplitDocument, 1, None), "line 5 of training document 1, from a.txt");
    }

    #[test]
    fn the_page_does_not_say_in_which_folders_the_sources_are() {
        let sources = ["/home/anastasia/diary.txt", "/home/anastasia/notes.txt", "/home/anastasia/old/notes.txt"];
        let span = |source| Span {
            start: 0,
            characters: 1,
            text: "a".to_owned(),
            times: 1,
            place: Some(place_in(source)),
            bytes: 0..1,
        };
        let (spans, only_in_validation) = (sources.map(span).to_vec(), Vec::new());
        let checked = Checked { characters: 1, copied_characters: 1, longest: 1, spans, only_in_validation };
        let all = Together {
            texts: 1,
            characters: 1,
            copied_characters: 1,
            copied_share: 1.0,
            spans: 3,
            longest: 1,
            novel: Vec::new(),
        };
        let page = page("x.txt", &["a"], &[checked], &all, None);
        for source in ["diary.txt", "notes.txt", "old/notes.txt"] {
            assert!(page.contains(&format!("once: line 5 of {source}<br>")), "{page}");
        }
        assert!(page.contains("title=\"once: line 5 of ") && !page.contains("anastasia"), "{page}");
    }

    #[test]
    fn what_is_copied_is_marked_and_nothing_is_markup() {
        let span = |start: usize, text: &str| Span {
            start,
            characters: text.len(),
            text: text.to_owned(),
            times: 2,
            place: None,
            bytes: start..start + text.len(),
        };
        let spans = vec![span(2, "<b>c"), span(5, "cde")];
        let checked =
            Checked { characters: 9, copied_characters: 6, longest: 4, spans, only_in_validation: Vec::new() };
        let html = marked(0, "a <b>cde&", &checked, &Names::new([]));
        let expected =
            "a <a href=\"#s0-0\" title=\"twice: \">&lt;b&gt;c</a><a href=\"#s0-1\" title=\"twice: \">de</a>&amp;";
        assert_eq!(html, expected);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "nothing").unwrap();
        let training = super::super::Documents::from_files(
            &[folder.path().join("a.txt")],
            &ember_data::source::ReadOptions::default(),
        )
        .unwrap();
        let training = training.index().unwrap();
        let all = together(&["a <b>cde&"], std::slice::from_ref(&checked), &training, &|| false).unwrap();
        let fewer = Together { characters: 5, ..all.clone() };
        let shorter = page("x.txt", &["a <b>cde&"], std::slice::from_ref(&checked), &all, Some(&fewer));
        assert!(shorter.contains("<p>For 5 characters of validation text, which"));
        let page = page("x.txt & more", &["a <b>cde&"], &[checked], &all, Some(&all));
        assert!(page.contains("in 2 spans; the longest passage that occurs there has 4 characters, whether"));
        assert!(page.contains("<p>For as much validation text, which"));
        assert!(page.contains("<title>x.txt &amp; more</title>") && page.contains("<li id=\"s0-1\">"));
        assert!(!page.contains("http") && !page.contains("<script"));
    }
}
