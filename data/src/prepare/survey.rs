//! The first reading of the text: what is in it, and which of it validates.

use super::sample::{SAMPLE_BYTES, Sample};
use super::split::{ContentHash, HoldOut, Side, Split, SplitBuilder};
use super::{
    corpus::Corpus, corpus::Reading, corpus::Source, duplicates::Duplicates, error::Error, options::PrepareOptions,
    options::Progress, options::tell,
};
use crate::{near_duplicates::NearDuplicates, sensitive, source::Event};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// What the first reading found.
pub struct Survey {
    pub sources: Vec<Source>,
    pub documents: u64,
    pub bytes: u64,
    /// How often each character occurs.
    pub characters: BTreeMap<char, u64>,
    /// Pieces of text to learn a tokenizer from.
    pub sample: Sample,
    pub split: Split,
    pub duplicates: Duplicates,
    /// How many of each kind were masked.
    pub masked: BTreeMap<sensitive::Kind, u64>,
}

/// Reads the whole corpus once; once more where files in folders turn out to be unusable, which the
/// corpus then leaves out. Of the built-in corpus no story is cut.
pub fn survey(corpus: &mut Corpus, progress: &dyn Progress) -> Result<Survey, Error> {
    let PrepareOptions { seed, val_fraction, hold_out, .. } = *corpus.options;
    let only_stories = corpus.options.only_stories();
    let builder = match hold_out {
        _ if only_stories => SplitBuilder::of_whole_documents,
        HoldOut::Any => SplitBuilder::new,
        HoldOut::Last => SplitBuilder::of_the_last,
    };
    loop {
        let (mut hash, mut split) = (ContentHash::new(seed), builder(val_fraction));
        // The built-in stories are made to differ.
        let mut near = (!only_stories).then(NearDuplicates::default);
        let mut counts = CharacterCounts::default();
        let mut sample = Sample::new(SAMPLE_BYTES);
        let (mut documents, mut bytes, mut document_bytes, mut document_characters) = (0, 0, 0, 0);
        let Reading { sources, unusable, masked } = corpus.read("reading", progress, &mut |event| {
            match event {
                Event::Title(_) => {}
                Event::Dated(when) => split.dated(when),
                Event::Text(text) => {
                    hash.update(text);
                    counts.add(text);
                    sample.add(text);
                    near.iter_mut().for_each(|near| near.add(text));
                    document_bytes += text.len() as u64;
                    document_characters += text.chars().count() as u64;
                }
                Event::EndOfDocument => {
                    let document = split.push(hash.finish(), document_bytes, document_characters);
                    near.iter_mut().for_each(|near| near.end_document(document));
                    sample.end_document();
                    documents += 1;
                    bytes += document_bytes;
                    (document_bytes, document_characters) = (0, 0);
                }
            }
            Ok(())
        })?;
        if unusable.is_empty() {
            tell(progress, "looking for near-duplicates", 0, None)?;
            split.keep_together(near.map(NearDuplicates::finish).unwrap_or_default());
            split.in_sources(sources.iter().map(|source| source.documents[0]));
            let (split, duplicates) = split.finish()?;
            let sources = by_side(sources, &split);
            return Ok(Survey {
                sources,
                documents,
                bytes,
                characters: counts.finish(),
                sample,
                split,
                duplicates,
                masked,
            });
        }
        corpus.leave_out(unusable)?;
    }
}

/// The sources with their documents told apart by what they are for.
fn by_side(mut sources: Vec<Source>, split: &Split) -> Vec<Source> {
    let mut number = 0;
    for source in &mut sources {
        let mut documents = [0; 2];
        for document in number..number + source.documents[0] {
            let (is_cut, side) = (split.cut(document).is_some(), split.side(document));
            documents[0] += u64::from(is_cut || side == Side::Train);
            documents[1] += u64::from(is_cut || side == Side::Val);
        }
        number += source.documents[0];
        source.documents = documents;
    }
    sources
}

/// Counts characters on all cores, a few megabytes at a time.
#[derive(Default)]
struct CharacterCounts {
    waiting: String,
    counts: BTreeMap<char, u64>,
}

const COUNTED_AT_ONCE: usize = 8 << 20;

impl CharacterCounts {
    fn add(&mut self, text: &str) {
        self.waiting.push_str(text);
        if self.waiting.len() >= COUNTED_AT_ONCE {
            self.count();
        }
    }

    fn count(&mut self) {
        let text = std::mem::take(&mut self.waiting);
        let parts = rayon::current_num_threads();
        let edge = |part: usize| text.floor_char_boundary(text.len() * part / parts);
        let counted: Vec<Vec<(char, u64)>> =
            (0..parts).into_par_iter().map(|part| count_characters(&text[edge(part)..edge(part + 1)])).collect();
        for (character, count) in counted.into_iter().flatten() {
            *self.counts.entry(character).or_default() += count;
        }
        self.waiting = text;
        self.waiting.clear();
    }

    fn finish(mut self) -> BTreeMap<char, u64> {
        self.count();
        self.counts
    }
}

fn count_characters(text: &str) -> Vec<(char, u64)> {
    // Flat tables are many times faster than a map; the second is made only for texts that need it.
    let mut ascii = [0u64; 128];
    let mut others: Vec<u32> = Vec::new();
    for character in text.chars() {
        if character.is_ascii() {
            ascii[character as usize] += 1;
        } else {
            if others.is_empty() {
                others.resize(char::MAX as usize + 1, 0);
            }
            others[character as usize] += 1;
        }
    }
    let low = (0u32..128).zip(ascii);
    let high = (0u32..).zip(others.iter().map(|&count| u64::from(count)));
    let occurring = low.chain(high).filter(|&(_, count)| count > 0);
    occurring.filter_map(|(code, count)| Some((char::from_u32(code)?, count))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_counted_across_parts() {
        let mut counts = CharacterCounts::default();
        (0..300_000).for_each(|_| counts.add("aé🙂\nétoile de la mer........"));
        let counts = counts.finish();
        assert_eq!((counts[&'a'], counts[&'é'], counts[&'🙂'], counts[&'.']), (600_000, 600_000, 300_000, 2_400_000));
        assert_eq!(counts.values().sum::<u64>(), 300_000 * 28);
    }
}
