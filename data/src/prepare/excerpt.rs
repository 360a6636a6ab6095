//! A small sample spread over a large text: enough to judge the text without reading all of it.

use super::{documents::Documents, error::Error, options::PrepareOptions, text_tokenizer::bpe_for};
use crate::source::{self, Input, Listing, ReadOptions, TextFile};
use crate::tokenizer::TokenizerChoice;
use ember_host::file_error::At;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::{fs::File, path::Path, sync::atomic::AtomicU64, sync::atomic::Ordering};

/// Plain text is sampled in blocks of this many bytes.
const BLOCK_BYTES: u64 = 64 << 10;

/// At most about this much text of a file is held, whatever it unpacks to: it is then sampled by
/// less of its beginning.
const MAX_TEXT_BYTES: usize = 128 << 20;

/// Stories generated instead of a larger number: some 600,000 tokens.
const STORIES: u64 = 20_000;

/// The options that prepare a sample, and its size.
pub struct Excerpt {
    /// Options that prepare the sample.
    pub options: PrepareOptions,
    /// The sample's fraction of the whole: divide its counts by this to estimate those of the
    /// whole.
    pub share: f64,
}

/// Options that prepare a sample of about `most_bytes` of the inputs of `options` into
/// `options.out`; `None` if the whole is no larger, or if no file of it can be used: preparing it
/// tells why.
///
/// Plain text is sampled in evenly spaced blocks; compressed files, JSON Lines and Parquet by their
/// beginnings. The sample is written into `folder` as JSON Lines. An automatic tokenizer is chosen
/// by the size of the whole.
///
/// # Errors
/// As [`super::prepare`]: a missing, empty or binary file, a broken line.
pub fn excerpt(options: &PrepareOptions, most_bytes: u64, folder: &Path) -> Result<Option<Excerpt>, Error> {
    if let [Input::Stories { count }] = options.inputs[..] {
        let part = PrepareOptions { inputs: vec![Input::Stories { count: STORIES }], ..options.clone() };
        return Ok((count > STORIES).then(|| Excerpt { options: part, share: STORIES as f64 / count as f64 }));
    }
    let mut listing = Listing::new(&options.reading);
    for input in &options.inputs {
        let Input::Path(path) = input else { return Ok(None) };
        listing.add_path(path)?;
    }
    if listing.bytes() <= most_bytes {
        return Ok(None);
    }
    let part = folder.join("excerpt.jsonl");
    let Written { read, whole, text_bytes } = write_part(&listing, &options.reading, most_bytes, &part)?;
    if whole == 0 {
        return Ok(None);
    }
    let share = (read as f64 / whole as f64).clamp(f64::MIN_POSITIVE, 1.0);
    // Chosen by the size of the whole, not of the sample.
    let tokenizer = match &options.tokenizer {
        TokenizerChoice::Auto => bpe_for((text_bytes as f64 / share) as u64, 0),
        choice => choice.clone(),
    };
    let reading = ReadOptions::default();
    let options = PrepareOptions { inputs: vec![Input::Path(part)], reading, tokenizer, ..options.clone() };
    Ok(Some(Excerpt { options, share }))
}

/// Byte counts of a sample.
struct Written {
    /// Bytes read from the files.
    read: u64,
    /// Bytes of all readable files.
    whole: u64,
    /// Bytes of text in the sample.
    text_bytes: u64,
}

/// Writes a sample of about `most_bytes` to `part`, the same fraction of every file, one document
/// per line.
fn write_part(listing: &Listing, options: &ReadOptions, most_bytes: u64, part: &Path) -> Result<Written, Error> {
    const DOING: &str = "cannot write";
    let mut out = io::BufWriter::new(File::create(part).at(DOING, part)?);
    let listed = listing.bytes();
    let mut written = Written { read: 0, whole: listed, text_bytes: 0 };
    for file in &listing.files {
        let budget = (most_bytes as f64 * file.bytes as f64 / listed as f64).ceil() as u64;
        match part_of(file, options, budget) {
            Ok((documents, bytes)) => {
                written.read += bytes;
                for document in documents {
                    written.text_bytes += document.len() as u64;
                    writeln!(out, "{}", serde_json::json!({ "text": document })).at(DOING, part)?;
                }
            }
            // Skipped, as when the whole is prepared, which then reports it.
            Err(_) if file.found => written.whole -= file.bytes,
            Err(error) => return Err(error.into()),
        }
    }
    out.flush().at(DOING, part)?;
    Ok(written)
}

/// Documents, or blocks of one, from about `budget` bytes of a file, and the number of bytes read.
fn part_of(file: &TextFile, options: &ReadOptions, budget: u64) -> Result<(Vec<String>, u64), source::Error> {
    match source::is_plain(file)? && options.encoding.is_none() {
        true => Ok(blocks(file, budget).at("cannot read", &*file.name)?),
        false => beginning(file, options, budget),
    }
}

/// Evenly spaced blocks, `budget` bytes in total.
fn blocks(file: &TextFile, budget: u64) -> io::Result<(Vec<String>, u64)> {
    let mut content = File::open(file.path())?;
    let count = budget.div_ceil(BLOCK_BYTES).max(1);
    let (distance, size) = (file.bytes / count, budget.div_ceil(count));
    let (mut documents, mut read) = (Vec::new(), 0);
    for number in 0..count {
        content.seek(SeekFrom::Start(number * distance))?;
        let mut block = Vec::new();
        read += Read::by_ref(&mut content).take(size).read_to_end(&mut block)? as u64;
        // A block may begin or end inside a character.
        let text = String::from_utf8_lossy(&block);
        documents.push(text.trim_matches(char::REPLACEMENT_CHARACTER).to_owned());
    }
    Ok((documents, read))
}

/// The documents at the beginning of a file, until `budget` bytes of it were read. The reader
/// fetches the file in chunks, ahead of the documents it emits: all documents of the last chunk are
/// taken, so that the text matches the bytes counted.
fn beginning(file: &TextFile, options: &ReadOptions, budget: u64) -> Result<(Vec<String>, u64), source::Error> {
    let read = AtomicU64::new(0);
    let (mut documents, mut enough) = (Documents::default(), None);
    // Stops with the file's error, or with `Err(None)` once there is enough.
    let ended: Result<_, Option<source::Error>> = source::read(file, options, &read, &mut |event| {
        let held = documents.add(event);
        let so_far = read.load(Ordering::Relaxed);
        match enough {
            _ if held > MAX_TEXT_BYTES => {
                enough = Some(so_far);
                return Err(None);
            }
            None if so_far >= budget => enough = Some(so_far),
            Some(bytes) if so_far > bytes => return Err(None),
            _ => {}
        }
        Ok(())
    });
    if let Err(Some(error)) = ended {
        return Err(error);
    }
    Ok((documents.into_all(), enough.unwrap_or(read.into_inner()).min(file.bytes)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::prepare::{Silent, prepare};

    fn options(path: &Path, out: &Path) -> PrepareOptions {
        PrepareOptions { inputs: vec![Input::Path(path.to_owned())], out: out.to_owned(), ..PrepareOptions::default() }
    }

    #[test]
    fn counts_of_a_part_estimate_those_of_the_whole() {
        let place = tempfile::tempdir().unwrap();
        let text: String = (0..200_000).map(|i| format!("{} é line of {i}\n", i % 7)).collect();
        let lines: String = (0..200_000).map(|i| format!("{{\"text\": \"{} é line of {i}\"}}\n", i % 7)).collect();
        for (name, content) in [("long.txt", &text), ("long.jsonl", &lines)] {
            let path = place.path().join(name);
            std::fs::write(&path, content).unwrap();
            let mut options = options(&path, &place.path().join("whole"));
            options.tokenizer = TokenizerChoice::Bytes;
            let whole = prepare(&options, &Silent).unwrap();
            options.out = place.path().join("part");
            let part = excerpt(&options, content.len() as u64 / 4, place.path()).unwrap().unwrap();
            assert!((0.2..0.45).contains(&part.share), "{name}: {}", part.share);
            let estimate = prepare(&part.options, &Silent).unwrap();
            // Both splits together: of a few blocks, more than a tenth may be validation.
            let count = |manifest: &crate::prepare::Manifest| (manifest.train.tokens + manifest.val.tokens) as f64;
            let tokens = count(&estimate) / part.share;
            assert!((tokens / count(&whole) - 1.0).abs() < 0.05, "{name}: {tokens}");
            assert!(excerpt(&options, content.len() as u64, place.path()).unwrap().is_none());
        }
    }

    #[test]
    fn of_many_stories_some_are_told() {
        let place = tempfile::tempdir().unwrap();
        let mut options = options(place.path(), place.path());
        options.inputs = vec![Input::Stories { count: 100_000 }];
        let part = excerpt(&options, 1, place.path()).unwrap().unwrap();
        assert_eq!(part.share, 0.2);
        options.inputs = vec![Input::Stories { count: 200 }];
        assert!(excerpt(&options, 1, place.path()).unwrap().is_none());
    }

    #[test]
    fn where_no_file_can_be_used_there_is_no_sample() {
        let place = tempfile::tempdir().unwrap();
        let texts = place.path().join("texts");
        std::fs::create_dir(&texts).unwrap();
        std::fs::write(texts.join("a.jsonl"), "{\"body\": \"no text\"}\n".repeat(1000)).unwrap();
        let options = options(&texts, &place.path().join("out"));
        assert!(excerpt(&options, 1000, place.path()).unwrap().is_none());
        let error = prepare(&options, &Silent).unwrap_err().to_string();
        assert!(error.starts_with("none of the files can be used; give others (1 JSON Lines file"), "{error}");
    }
}
