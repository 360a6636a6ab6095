//! The page: the findings, in the order in which an author would ask.

use super::{Seen, chart::bar, chart::columns};
use crate::page::page as whole_page;
use ember_data::look::{Counted, Look, Share};
use ember_data::numbers::{counted, grouped};
use ember_data::source::LeftOut;
use ember_host::names::Names;
use ember_page::escape;

const STYLE: &str = include_str!("page/style.css");

/// Words on a printed page, and words read per minute.
const WORDS_A_PAGE: u64 = 300;
const WORDS_A_MINUTE: u64 = 240;

/// Characters, for scripts that do not separate words: on a page of a Chinese novel, and per minute
/// of reading Chinese (Trauzettel-Klosinski and Dietz, "Standardized assessment of reading
/// performance", 2012).
const CHARACTERS_A_PAGE: u64 = 600;
const CHARACTERS_A_MINUTE: u64 = 255;

/// The languages of those scripts that can be detected.
const UNSPACED: [&str; 5] = ["Mandarin", "Japanese", "Thai", "Burmese", "Khmer"];

/// Maximal number of places listed for each kind.
const PLACES: usize = 20;

/// A self-contained page.
pub fn page(title: &str, look: &Look, seen: Option<&Seen>) -> String {
    let words = &look.vocabulary;
    let all_words = (words.words as f64 * look.bytes as f64 / look.sample_bytes.max(1) as f64).round() as u64;
    let exactly = if look.sample_bytes < look.bytes { "about " } else { "" };
    let characters = number_of(look.characters, "character");
    // Without separated words, the stretches between punctuation are not words.
    let (length, pages, minutes, beside) = if is_unspaced(look) {
        let (pages, minutes) = (look.characters.div_ceil(CHARACTERS_A_PAGE), look.characters / CHARACTERS_A_MINUTE);
        (characters, pages, minutes, String::new())
    } else {
        let length = format!("{exactly}{}", number_of(all_words, "word"));
        (length, all_words.div_ceil(WORDS_A_PAGE), all_words / WORDS_A_MINUTE, characters + ", ")
    };
    let lead = format!(
        "{length} in {} and {}: {}.",
        number_of(look.documents, "document"),
        number_of(look.files, "file"),
        number_of(pages, "printed page")
    );
    let reading = format!("Reading time: {}. {beside}{}.", hours(minutes), size(look.bytes));
    let sample = if look.sample_bytes < look.bytes {
        format!(
            "Words, phrases, sentences and languages are those of {} spread over the text; the rest is of all of it.",
            size(look.sample_bytes)
        )
    } else {
        String::new()
    };
    let names = names(look);
    let encodings = look.encodings.as_deref().zip(look.least_certain.as_deref());
    let encodings = encodings.map(|(line, path)| format!("<p>{}</p>", escape(&names.in_line(line, path))));
    let seen = seen.map(seen_section).unwrap_or_default();
    whole_page(
        title,
        STYLE,
        include_str!("page/page.html"),
        &[
            ("lead", &capital(&lead)),
            ("reading", &reading),
            ("kinds", &shares(&look.kinds, look.bytes, &names)),
            ("years", &years(&look.years)),
            ("largest", &shares(&look.largest[..look.largest.len().min(8)], look.bytes, &names)),
            ("left_out", &left_out(&look.left_out, &names)),
            ("encodings", &encodings.unwrap_or_default()),
            ("languages", &languages(look)),
            ("words", &word_section(look, || cloud(&words.favourites))),
            ("phrases", &word_section(look, || phrases(&words.phrases))),
            ("sentences", &word_section(look, || sentences(look))),
            ("repeated", &repeated(look, &names)),
            ("boilerplate", &boilerplate(look)),
            ("private", &private(look, &names)),
            ("odd", &odd(look, &names)),
            ("seen", &seen),
            ("sample", &sample),
        ],
    )
}

/// Names of the files without their folders, which are private.
fn names(look: &Look) -> Names<'_> {
    let largest = look.largest.iter().map(|share| &share.name);
    let left_out = LeftOut::firsts(&look.left_out).into_iter().map(|(first, _)| &first.name);
    let repeated = look.repeated.examples.iter().flatten();
    let private = look.private.iter().flat_map(|found| &found.places).map(|place| &place.source);
    let odd = look.lines.odd.iter().map(|line| &line.source);
    let files = largest.chain(left_out).chain(&look.least_certain).chain(repeated).chain(private).chain(odd);
    Names::new(files.map(String::as_str))
}

/// Whether most of the text is in languages that are written without spaces.
fn is_unspaced(look: &Look) -> bool {
    let languages = look.vocabulary.languages.iter().filter(|(name, _)| UNSPACED.contains(&name.as_str()));
    languages.map(|(_, share)| share).sum::<f64>() > 0.5
}

/// The paragraph on words, if the text's script separates them.
fn word_section(look: &Look, html: impl FnOnce() -> String) -> String {
    match is_unspaced(look) {
        true => "<p>Its script does not separate words, so none are counted.</p>".to_owned(),
        false => html(),
    }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().collect::<String>() + characters.as_str()).unwrap_or_default()
}

/// "1 file", "2,345 files".
fn number_of(count: u64, noun: &str) -> String {
    counted(grouped(count), noun)
}

/// The singular or the plural.
fn for_count<'a>(count: u64, one: &'a str, more: &'a str) -> &'a str {
    if count == 1 { one } else { more }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => number_of(bytes, "byte"),
        1000..999_500 => format!("{:.0} kB", bytes as f64 / 1e3),
        999_500..999_950_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

fn hours(minutes: u64) -> String {
    match minutes {
        0..=1 => "a minute".to_owned(),
        2..90 => format!("{minutes} minutes"),
        _ => format!("{} hours", grouped((minutes + 30) / 60)),
    }
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        share if share > 0.0 && share < 0.1 => "less than 0.1%".to_owned(),
        share if share < 10.0 => format!("{share:.1}%"),
        share => format!("{share:.0}%"),
    }
}

fn shares(shares: &[Share], all: u64, names: &Names<'_>) -> String {
    let row = |share: &Share| {
        let documents = if share.documents == 1 && share.files == 1 {
            String::new()
        } else {
            number_of(share.documents, "document")
        };
        format!(
            "<tr><td>{}</td><td class=\"some\"><small>{documents}</small></td><td class=\"number\">{}</td><td class=\"bar\">{}</td></tr>\n",
            escape(names.of(&share.name)),
            size(share.bytes),
            bar(share.bytes as f64 / all.max(1) as f64)
        )
    };
    shares.iter().take(12).map(row).collect()
}

fn years(years: &[Share]) -> String {
    if years.len() < 2 {
        return String::new();
    }
    let every = years.len().div_ceil(10);
    let column = |(place, year): (usize, &Share)| {
        let label = if place.is_multiple_of(every) { year.name.clone() } else { String::new() };
        (label, year.bytes as f64, format!("{}: {}, {}", year.name, size(year.bytes), number_of(year.files, "file")))
    };
    let values: Vec<_> = years.iter().enumerate().map(column).collect();
    format!(
        "<h3>By year</h3>\n{}<p><small>The year of a mail's date; else the one in a file's name, else that of its last \
         change.</small></p>\n",
        columns("how much text is from each year", &values)
    )
}

fn left_out(left_out: &[LeftOut], names: &Names<'_>) -> String {
    if left_out.is_empty() {
        return "<p class=\"good\">Nothing was left out.</p>".to_owned();
    }
    let item = |(first, count): (&LeftOut, usize)| {
        format!("<li>{}</li>\n", escape(&first.line(count, &names.in_line(&first.reason, &first.name))))
    };
    let items: String = LeftOut::firsts(left_out).into_iter().map(item).collect();
    format!("<h3>What was left out, and why</h3>\n<ul class=\"files\">{items}</ul>")
}

fn languages(look: &Look) -> String {
    let shown = look.vocabulary.languages.iter().filter(|(_, share)| *share >= 0.005).take(6);
    let named: Vec<String> = shown.map(|(name, share)| format!("{} {}", escape(name), percent(*share))).collect();
    let words = &look.vocabulary;
    let language = if named.is_empty() { "Its language was not detected.".to_owned() } else { named.join(", ") + "." };
    if is_unspaced(look) {
        return format!("<p>{language}</p>");
    }
    format!(
        "<p>{language} {} different words, {} of which occur only once.</p>",
        grouped(words.different),
        grouped(words.once)
    )
}

/// Words in font sizes that follow their counts.
fn cloud(words: &[Counted]) -> String {
    let [least, most] = [words.last(), words.first()].map(|word| word.map_or(1.0, |word| word.count as f64).ln());
    let word = |word: &Counted| {
        let share = ((word.count as f64).ln() - least) / (most - least).max(1e-9);
        format!(
            // So that the number follows the word also in right-to-left scripts.
            "<span style=\"font-size:{:.2}em\"><bdi>{}</bdi><sub>{}</sub></span>\n",
            0.9 + 0.9 * share,
            escape(&word.text),
            grouped(word.count)
        )
    };
    if words.is_empty() {
        return "<p>None is frequent.</p>".to_owned();
    }
    format!("<p class=\"words\">{}</p>", words.iter().map(word).collect::<String>())
}

fn phrases(phrases: &[Counted]) -> String {
    if phrases.is_empty() {
        return "<p class=\"good\">No phrase of three words or more occurs three times.</p>".to_owned();
    }
    let row = |phrase: &Counted| {
        format!(
            "<li><span>{}</span><span class=\"soft number\">{}</span></li>\n",
            escape(&phrase.text),
            grouped(phrase.count)
        )
    };
    format!("<ul class=\"phrases\">{}</ul>", phrases.iter().map(row).collect::<String>())
}

fn sentences(look: &Look) -> String {
    let words = &look.vocabulary;
    let last = words.sentences.len();
    let column = |(place, &count): (usize, &u64)| {
        let length = if place + 1 == last { format!("{last} or more words") } else { counted(place + 1, "word") };
        let label = if (place + 1).is_multiple_of(10) { (place + 1).to_string() } else { String::new() };
        let says = format!("{length}: {}", number_of(count, "sentence"));
        (label, count as f64, says)
    };
    let values: Vec<_> = words.sentences.iter().enumerate().map(column).collect();
    format!(
        "<p>A sentence has {:.1} words on average.</p>\n{}<p><small>Sentences by their number of words; the last column has all \
         longer ones.</small></p>",
        words.words_per_sentence,
        columns("sentences by their number of words", &values)
    )
}

fn repeated(look: &Look, names: &Names<'_>) -> String {
    let found = &look.repeated;
    let sampled =
        if found.one_in > 1 { format!(" (one document in {} was compared)", found.one_in) } else { String::new() };
    if found.groups == 0 {
        return format!("<p class=\"good\">No two documents are nearly the same{sampled}.</p>");
    }
    let files = |group: &Vec<String>| group.iter().map(|file| escape(names.of(file))).collect::<Vec<_>>().join(", ");
    let examples: String = found.examples.iter().map(|group| format!("<li>{}</li>\n", files(group))).collect();
    format!(
        "<p>{} {} nearly the same as another, {} together{sampled}. They stay on one side of the split, so that the validation \
         text has no near-copy in the training text.</p>\n<details><summary>The largest groups</summary><ul>{examples}</ul></details>",
        number_of(found.documents, "document"),
        for_count(found.documents, "is", "are"),
        size(found.bytes)
    )
}

fn boilerplate(look: &Look) -> String {
    let lines = &look.lines;
    if lines.repeated.is_empty() {
        return "<p class=\"good\">No line repeats in many documents.</p>".to_owned();
    }
    let row = |line: &ember_data::look::RepeatedLine| {
        format!(
            "<tr><td>{}</td><td class=\"number\">{}</td></tr>\n",
            escape(&line.line),
            number_of(line.documents, "document")
        )
    };
    format!(
        "<h3>Lines that repeat in many documents</h3>\n<p>{} of the text: headings, footers, signatures.</p>\n<table>{}</table>",
        percent(lines.boilerplate),
        lines.repeated.iter().take(10).map(row).collect::<String>()
    )
}

fn private(look: &Look, names: &Names<'_>) -> String {
    if look.private.is_empty() {
        return "<p class=\"good\">No e-mail address, telephone number, key, card number or IBAN was found.</p>"
            .to_owned();
    }
    let mut html = String::from(
        "<p>A model may repeat these word for word. With <code>mask = true</code> it learns tags such as \
         <code>[e-mail]</code> in their place.</p>\n",
    );
    for found in &look.private {
        let row = |place: &ember_data::look::Place| {
            format!(
                "<li>{}, document {}, byte {}: {}</li>\n",
                escape(names.of(&place.source)),
                grouped(place.document),
                grouped(place.offset),
                escape(&place.shown)
            )
        };
        let places: String = found.places.iter().take(PLACES).map(row).collect();
        html += &format!(
            "<details><summary>{} {} in {}</summary><ul>{places}</ul></details>\n",
            grouped(found.count),
            found.kind.words(found.count),
            number_of(found.documents, "document")
        );
    }
    html
}

fn odd(look: &Look, names: &Names<'_>) -> String {
    let lines = &look.lines;
    let mut html = match lines.code {
        share if share >= 0.01 => format!("<p>{} of the text looks like source code.</p>\n", percent(share)),
        _ => String::new(),
    };
    if lines.odd_count == 0 {
        return html + "<p class=\"good\">No line is unusually long or without spaces.</p>";
    }
    let row = |line: &ember_data::look::OddLine| {
        let name = escape(names.of(&line.source));
        format!("<li>{name}, {}: {}\u{2026}</li>\n", size(line.bytes), escape(&line.begins))
    };
    html += &format!(
        "<p>{} {} unusually long or without spaces.</p>\n<details><summary>The first</summary><ul>{}</ul></details>",
        number_of(lines.odd_count, "line"),
        for_count(lines.odd_count, "is", "are"),
        lines.odd.iter().map(row).collect::<String>()
    );
    html
}

fn seen_section(seen: &Seen) -> String {
    let token = |token: &String| format!("<span>{}</span>", escape(token));
    let piece =
        |piece: &Vec<String>| format!("<p class=\"sample\">{}</p>\n", piece.iter().map(token).collect::<String>());
    let leakage = seen.leakage.map_or_else(String::new, |share| {
        let share = percent(share);
        format!(
            " Of the validation text's passages of about 64 bytes (some thirteen English words), {share} also occur in \
             the training text."
        )
    });
    let part =
        if seen.share < 1.0 { format!(" Measured on {} of the text.", percent(seen.share)) } else { String::new() };
    let line = |(name, says): &(String, String)| {
        format!("<tr><td>{}</td><td style=\"text-align:left\">{}</td></tr>\n", escape(name), escape(says))
    };
    let plan = match &seen.plan[..] {
        [] => String::new(),
        lines => format!(
            "<h3>What <code>ember-train plan</code> proposes</h3>\n<table>{}</table>",
            lines.iter().map(line).collect::<String>()
        ),
    };
    format!(
        "<h2>What a model will see</h2>\n<p>{} tokens, of {:.2} bytes each on average: {}.</p>\n<p>{} of the text is for validation: {}.{leakage}{part}</p>\n\
         <h3>Three passages, in tokens</h3>\n{}{plan}",
        grouped(seen.vocab_size as u64),
        seen.bytes_per_token,
        escape(&seen.tokenizer),
        percent(seen.held_out),
        escape(&seen.split_rule),
        seen.pieces.iter().map(piece).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ember_data::look::look;
    use ember_data::prepare::{Input, PrepareOptions, Silent};

    #[test]
    fn a_number_stands_behind_its_word_whichever_way_that_is_written() {
        let words = ["word", "كلمة"].map(|text| Counted { text: text.to_owned(), count: 47 });
        assert_eq!(cloud(&words).matches("</bdi><sub>47</sub>").count(), 2);
    }

    fn look_at(text: &str) -> Look {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.txt");
        std::fs::write(&file, text).unwrap();
        let (inputs, out) = (vec![Input::Path(file)], folder.path().to_owned());
        look(&PrepareOptions { inputs, out, ..PrepareOptions::default() }, &Silent).unwrap()
    }

    #[test]
    fn a_text_without_spaces_is_measured_by_its_characters() {
        let found = look_at(&"今天天气很好，我们去公园散步吧。".repeat(100));
        let page = page("a", &found, None);
        assert!(page.contains("1,600 characters in 1 document and 1 file: 3 printed pages."), "{page}");
        assert!(page.contains("Reading time: 6 minutes.") && !page.contains("A sentence has"), "{page}");
        assert!(!page.contains("<p class=\"words\">"), "no paragraph within another: {page}");
    }

    #[test]
    fn a_sentence_of_one_word_has_one_word() {
        let mut found = look_at(&"A text. ".repeat(20));
        found.vocabulary.sentences = vec![1, 0, 2];
        let html = sentences(&found);
        for says in ["1 word: 1 sentence", "2 words: 0 sentences", "3 or more words: 2 sentences"] {
            assert!(html.contains(&format!("<title>{says}</title>")), "{html}");
        }
    }

    #[test]
    fn the_page_does_not_say_in_which_folders_the_texts_are() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("anastasia");
        std::fs::create_dir_all(folder.join("old")).unwrap();
        let latin = b"Die M\xfchle war still, und niemand kam \xfcber die Br\xfccke.\n".repeat(20);
        let long = "word ".repeat(3000);
        let files: [(&str, &[u8]); 6] = [
            ("empty.txt", b""),
            ("latin.txt", &latin),
            ("long.txt", long.as_bytes()),
            ("notes.txt", b"Write to tom@example.org.\n"),
            ("old/notes.txt", b"Or to ann@example.org.\n"),
            ("picture.png", b"\x89PNG\0\0"),
        ];
        for (name, bytes) in files {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
        let (inputs, out) = (vec![Input::Path(folder)], place.path().to_owned());
        let mut found = look(&PrepareOptions { inputs, out, ..PrepareOptions::default() }, &Silent).unwrap();
        found.repeated.groups = 1;
        found.repeated.examples = vec![found.largest.iter().map(|share| share.name.clone()).collect()];
        let page = page("a", &found, None);
        for shown in [
            "<td>notes.txt</td>",
            "<td>old/notes.txt</td>",
            "<li>1 empty file: empty.txt</li>",
            "<li>1 file that is not text: picture.png looks binary (byte 4 is zero)</li>",
            "; least certain: latin.txt, ",
            "<li>long.txt, latin.txt, notes.txt, old/notes.txt</li>",
            "<li>old/notes.txt, document 1, byte ",
            "<li>long.txt, 15 kB: word ",
        ] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
        assert!(!page.contains("anastasia"), "{page}");
    }

    #[test]
    fn leakage_says_what_its_passages_are() {
        let seen = Seen {
            tokenizer: "bytes".to_owned(),
            vocab_size: 256,
            bytes_per_token: 1.0,
            split_rule: "the end".to_owned(),
            held_out: 0.1,
            leakage: Some(0.25),
            pieces: Vec::new(),
            share: 1.0,
            plan: Vec::new(),
        };
        let page = page("a", &look_at(&"A text. ".repeat(20)), Some(&seen));
        assert!(page.contains("passages of about 64 bytes (some thirteen English words), 25"), "{page}");
    }

    #[test]
    fn an_encoding_that_was_guessed_is_said() {
        let mut found = look_at(&"A text. ".repeat(20));
        assert_eq!(found.encodings, None);
        found.encodings = Some("1 file is not UTF-8; least certain: letters/<a>.txt.".to_owned());
        found.least_certain = Some("letters/<a>.txt".to_owned());
        assert!(page("a", &found, None).contains("<p>1 file is not UTF-8; least certain: &lt;a&gt;.txt.</p>"));
    }
}
