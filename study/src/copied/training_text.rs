//! The text that a model was trained on, searchable as one piece, and the place in it of a byte.

use std::{path::PathBuf, sync::atomic::AtomicU64};

use ember_data::source::{self, Event, Kind, LeftOut, Listing, ReadOptions};
use ember_data::{tokenizer::Tokenizer, tokens::TokenFile};
use serde::Serialize;

use super::index::Index;
use crate::error::Result;

/// Separator after every document. No UTF-8 text contains this byte, so no match crosses documents.
const SEPARATOR: u8 = 0xff;

/// Number of token ids read at once.
const BLOCK: usize = 1 << 16;

/// Characters of context shown on either side of a place.
const AROUND: usize = 40;

/// Line ends are counted in advance up to every multiple of this many bytes, to have fewer to count
/// for a place.
const COUNTED: usize = 1 << 16;

/// Documents, concatenated.
#[derive(Default)]
pub struct Documents {
    bytes: Vec<u8>,
    documents: Vec<Document>,
    sources: Vec<String>,
    skipped: Vec<String>,
    left_out: Vec<LeftOut>,
}

struct Document {
    /// Offset of its first byte in all documents.
    start: usize,
    source: usize,
    /// Its number in its source, from 1.
    number: u64,
    /// What its lines are counted within.
    line_of: LineOf,
    /// Its first line there.
    first_line: u64,
    /// Its title, if its file has one.
    title: Option<String>,
}

/// What a line number is counted within.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineOf {
    /// A text file, in which anybody can look up the line.
    File,
    /// A document of a file that is no plain text, or of an archive.
    Document,
    /// A document of one side of a prepared text: its documents are numbered among those of that
    /// side, without the held-out ones.
    SplitDocument,
}

/// Where a stretch occurs in the training text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file or other source of the text.
    pub source: String,
    /// The document's number there, from 1; for a run, among its training documents.
    pub document: u64,
    /// The document's title, if its file has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The line, from 1.
    pub line: u64,
    /// What the line is counted within.
    pub line_of: LineOf,
    /// Its offset in the document in bytes.
    pub offset_bytes: u64,
    /// The text before it in the document, at most 40 characters.
    pub before: String,
    /// The text after it, at most 40 characters.
    pub after: String,
}

impl Documents {
    /// The documents of a split of a prepared folder, decoded by its tokenizer; `sources` are the
    /// files that they came from, with the number of documents of each, in order. If these numbers
    /// do not add up to the number of documents, all documents get the name `together`.
    ///
    /// # Errors
    /// When the tokens cannot be read, or are not the tokenizer's.
    pub fn from_tokens(
        tokens: &TokenFile,
        tokenizer: &Tokenizer,
        end_of_text: Option<u32>,
        sources: &[(String, u64)],
        together: &str,
    ) -> Result<Self> {
        // Each token is decoded once. In some foreign tokenizers a single token has no text.
        let table: Option<Vec<Vec<u8>>> =
            (0..tokenizer.vocab_size() as u32).map(|id| tokenizer.token_bytes(id)).collect();
        let text_of = |ids: &[u32]| match &table {
            Some(table) => {
                let bytes: Vec<u8> = ids.iter().flat_map(|&id| table[id as usize].iter().copied()).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            None => tokenizer.decode_text(ids),
        };
        let mut this = Self { sources: vec![together.to_owned()], ..Self::default() };
        let (mut block, mut document) = (Vec::new(), Vec::new());
        for start in (0..tokens.len()).step_by(BLOCK) {
            block.clear();
            tokens.get(start..tokens.len().min(start + BLOCK), &mut block)?;
            let mut pieces = block.split(|&id| Some(id) == end_of_text);
            document.extend_from_slice(pieces.next().unwrap_or_default());
            for piece in pieces {
                if !document.is_empty() {
                    this.push(&text_of(&document)?, LineOf::SplitDocument, 1, None);
                }
                document.clear();
                document.extend_from_slice(piece);
            }
        }
        if !document.is_empty() {
            this.push(&text_of(&document)?, LineOf::SplitDocument, 1, None);
        }
        if sources.iter().map(|(_, count)| count).sum::<u64>() == this.documents.len() as u64 {
            this.attribute(sources);
        }
        Ok(this)
    }

    /// Assigns a source to each document: in order, as many documents as each source has.
    fn attribute(&mut self, sources: &[(String, u64)]) {
        self.sources = sources.iter().map(|(name, _)| name.clone()).collect();
        let places = sources
            .iter()
            .enumerate()
            .flat_map(|(source, &(_, count))| (1..=count).map(move |number| (source, number)));
        for (document, (source, number)) in self.documents.iter_mut().zip(places) {
            (document.source, document.number) = (source, number);
        }
    }

    /// The documents of files and folders, read as `run` and `prepare` do.
    ///
    /// # Errors
    /// When a file cannot be read, is no text, or lacks the field; the error names it. In a folder
    /// such a file is skipped.
    pub fn from_files(paths: &[PathBuf], options: &ReadOptions) -> Result<Self> {
        let mut listing = Listing::new(options);
        paths.iter().try_for_each(|path| listing.add_path(path))?;
        let mut this = Self { left_out: std::mem::take(&mut listing.left_out), ..Self::default() };
        for file in &listing.files {
            let before = (this.bytes.len(), this.documents.len(), this.sources.len());
            this.sources.push(file.name.to_string());
            let (mut document, mut title, mut line) = (String::new(), None, 1);
            let line_of = if file.kind == Kind::text() { LineOf::File } else { LineOf::Document };
            let read = source::read::<source::Error>(file, options, &AtomicU64::new(0), &mut |event| {
                match event {
                    Event::Title(words) => title = Some(words.to_owned()),
                    Event::Dated(_) => {}
                    Event::Text(text) => document.push_str(text),
                    Event::EndOfDocument => {
                        this.push(&document, line_of, line, title.take());
                        if line_of == LineOf::File {
                            line += lines(document.as_bytes());
                        }
                        document.clear();
                    }
                }
                Ok(())
            });
            match read {
                // Skipped, as by `run` and `prepare`.
                Err(_) if file.found => {
                    this.truncate(before);
                    this.skipped.push(file.name.to_string());
                }
                read => drop(read?),
            }
        }
        Ok(this)
    }

    /// The files that were found in a folder or an archive, but cannot be read.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// What else was found in a folder or an archive and is not read, such as empty and binary files.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Whether there is nothing but white space.
    pub fn is_blank(&self) -> bool {
        self.bytes.iter().all(|&byte| byte == SEPARATOR || byte.is_ascii_whitespace())
    }

    /// Removes everything after this many bytes, documents and sources.
    fn truncate(&mut self, (bytes, documents, sources): (usize, usize, usize)) {
        self.bytes.truncate(bytes);
        self.documents.truncate(documents);
        self.sources.truncate(sources);
    }

    /// Adds a document to the last source.
    fn push(&mut self, text: &str, line_of: LineOf, first_line: u64, title: Option<String>) {
        let source = self.sources.len() - 1;
        let number = match self.documents.last() {
            Some(last) if last.source == source => last.number + 1,
            _ => 1,
        };
        self.documents.push(Document { start: self.bytes.len(), source, number, line_of, first_line, title });
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(SEPARATOR);
    }

    /// Builds the index for searching.
    ///
    /// # Errors
    /// When it is larger than 2 GiB.
    pub fn index(self) -> Result<TrainingText> {
        let Self { bytes, documents, sources, .. } = self;
        let mut line_ends = vec![0];
        for piece in bytes.chunks(COUNTED) {
            line_ends.push(line_ends[line_ends.len() - 1] + lines(piece));
        }
        Ok(TrainingText { index: Index::new(bytes)?, documents, sources, line_ends })
    }
}

/// Documents that can be searched.
pub struct TrainingText {
    /// The index of all documents.
    pub index: Index,
    documents: Vec<Document>,
    sources: Vec<String>,
    /// Number of line ends before each multiple of [`COUNTED`] bytes.
    line_ends: Vec<u64>,
}

impl TrainingText {
    /// Every document's text, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        // All documents are valid text, so none is skipped.
        self.index.text.split(|&byte| byte == SEPARATOR).filter_map(|document| std::str::from_utf8(document).ok())
    }

    /// How often `wanted` occurs in the text, and the first place.
    pub fn find(&self, wanted: &str) -> (usize, Option<Place>) {
        let places = self.index.places(wanted.as_bytes());
        (places.len(), places.min().map(|at| self.place(at, wanted.len())))
    }

    /// The place of the `length` bytes at `at`.
    fn place(&self, at: usize, length: usize) -> Place {
        let all = &self.index.text;
        let &Document { start, source, number, line_of, first_line, ref title } =
            &self.documents[self.documents.partition_point(|document| document.start <= at) - 1];
        let rest = &all[at + length..];
        let rest = &rest[..rest.len().min(4 * AROUND)]; // the rest of the document may be long
        let end = rest.iter().position(|&byte| byte == SEPARATOR).unwrap_or(rest.len());
        let before = String::from_utf8_lossy(&all[at.saturating_sub(4 * (AROUND + 1)).max(start)..at]);
        let after = String::from_utf8_lossy(&rest[..end]);
        let first = before.char_indices().rev().nth(AROUND - 1).map_or(0, |(at, _)| at);
        Place {
            source: self.sources[source].clone(),
            document: number,
            title: title.clone(),
            line: first_line + self.line_ends_before(at) - self.line_ends_before(start),
            line_of,
            offset_bytes: (at - start) as u64,
            before: before[first..].to_owned(),
            after: after.chars().take(AROUND).collect(),
        }
    }

    /// Number of line ends before a byte.
    fn line_ends_before(&self, at: usize) -> u64 {
        let piece = at / COUNTED;
        self.line_ends[piece] + lines(&self.index.text[piece * COUNTED..at])
    }
}

/// Number of line ends.
fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ember_data::prepare::{Input, PrepareOptions, Silent, prepare};

    #[test]
    fn a_place_in_a_file_is_its_line_and_its_document() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, json) = (folder.path().join("a.txt"), folder.path().join("b.jsonl"));
        std::fs::write(&plain, "one\ntwo\n<|endoftext|>three\nfour é five\n").unwrap();
        std::fs::write(&json, "{\"text\": \"six\\nseven\"}\n{\"text\": \"eight\\nnine\"}\n").unwrap();
        let text = Documents::from_files(&[plain.clone(), json], &ReadOptions::default()).unwrap().index().unwrap();
        assert_eq!(text.texts().count(), 5, "four documents, and nothing behind the last separator");
        let (times, place) = text.find("é f");
        assert_eq!(times, 1);
        let expected = Place {
            source: plain.display().to_string(),
            document: 2,
            title: None,
            line: 4,
            line_of: LineOf::File,
            offset_bytes: 11,
            before: "three\nfour ".into(),
            after: "ive\n".into(),
        };
        assert_eq!(place.unwrap(), expected);
        let place = text.find("nine").1.unwrap();
        assert_eq!((place.document, place.line, place.before.as_str()), (2, 2, "eight\n"));
        assert_eq!(place.line_of, LineOf::Document, "in its file the text is one line");
        assert_eq!(text.find("two\nthree"), (0, None), "nothing goes from one document into the next");
        assert_eq!(text.find("e").0, 8);
    }

    #[test]
    fn a_file_of_a_folder_that_cannot_be_read_is_skipped_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let lines = ["{\"text\": \"six\"}\n", "{\"text\": \"seven\"}\n{\"body\": \"eight\"}\n"];
        let [good, bad] = ["good.jsonl", "bad.jsonl"].map(|name| folder.path().join(name));
        std::fs::write(good, lines[0]).unwrap();
        std::fs::write(&bad, lines[1]).unwrap();
        let empty = folder.path().join("empty.txt");
        std::fs::write(&empty, "").unwrap();
        let documents = Documents::from_files(&[folder.path().to_owned()], &ReadOptions::default()).unwrap();
        assert_eq!(documents.skipped(), [bad.display().to_string()]);
        assert_eq!(LeftOut::summary(documents.left_out()), [format!("1 empty file: {}", empty.display())]);
        assert_eq!(documents.index().unwrap().texts().filter(|text| !text.is_empty()).collect::<Vec<_>>(), ["six"]);
    }

    #[test]
    fn a_place_far_behind_in_a_long_document_has_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("long.txt");
        let written = (0..40_000).map(|line| format!("line {line} é\n")).collect::<String>();
        std::fs::write(&file, format!("first\n<|endoftext|>{written}")).unwrap();
        let text = Documents::from_files(&[file], &ReadOptions::default()).unwrap().index().unwrap();
        assert!(text.index.text.len() > 7 * COUNTED);
        for line in (0..40_000).step_by(317) {
            let (times, place) = text.find(&format!("line {line} é\n"));
            let place = place.unwrap();
            assert_eq!((times, place.document, place.line), (1, 2, line + 2));
            assert!(place.after.starts_with(&format!("line {}", line + 1)) && place.after.chars().count() == AROUND);
        }
    }

    #[test]
    fn tokens_become_the_documents_they_were() {
        let texts = ["the cat and the hat", "é", "the other cat"];
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.txt");
        std::fs::write(&file, texts.join("<|endoftext|>").repeat(20)).unwrap();
        let options = PrepareOptions {
            inputs: vec![Input::Path(file)],
            tokenizer: "bpe:300".parse().unwrap(),
            out: folder.path().join("data"),
            ..PrepareOptions::default()
        };
        prepare(&options, &Silent).unwrap();
        let tokenizer = Tokenizer::from_folder(&options.out).unwrap();
        let end = tokenizer.end_of_text().unwrap();
        let mut ids = vec![end];
        for text in texts {
            ids.extend(tokenizer.encode(text).unwrap());
            ids.push(end);
        }
        let tokens = TokenFile::from_ids(&ids, tokenizer.vocab_size()).unwrap();
        let documents = Documents::from_tokens(&tokens, &tokenizer, Some(end), &[], "a run").unwrap();
        let documents = documents.index().unwrap();
        assert_eq!(documents.texts().filter(|text| !text.is_empty()).collect::<Vec<_>>(), texts);
        let place = documents.find("other").1.unwrap();
        assert_eq!((place.source.as_str(), place.document, place.offset_bytes), ("a run", 3, 4));
        assert_eq!((place.line_of, place.line), (LineOf::SplitDocument, 1));
    }
}
