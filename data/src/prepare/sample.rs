//! The text that a tokenizer is trained on: all training text if it is short, otherwise pieces
//! spread over it. Held-out text is excluded: a vocabulary fitted to it would flatter every loss on
//! it.

use super::{split::Side, split::Split};
use serde::{Deserialize, Serialize};

/// The tokenizer is trained on at most about this much text.
pub const SAMPLE_BYTES: usize = 32 << 20;

/// At most this many blocks are kept: those of documents of a few bytes take more memory than their
/// text.
const MAX_BLOCKS: usize = 1 << 20;

/// Evenly spaced blocks of the text, bounded in total size and number.
///
/// At first every block is kept. Whenever the blocks exceed the bounds, the distance doubles and
/// every other block is dropped: so the sample of a short text is all of it, and that of a long one
/// is spread over the whole.
#[derive(Serialize, Deserialize)]
pub struct Sample {
    budget: usize,
    distance: u64,
    /// Number of the open block, whether or not it is kept.
    number: u64,
    block_bytes: usize,
    /// Number of the open document, and how many of its characters were added.
    document: u64,
    characters: u64,
    /// Total size of the blocks.
    pub bytes: usize,
    blocks: Vec<Block>,
}

/// A piece of one document.
#[derive(Serialize, Deserialize)]
struct Block {
    number: u64,
    document: u64,
    /// Characters of the document before the block.
    start: u64,
    text: String,
}

impl Sample {
    /// A block ends at the end of its document, or at this size.
    const BLOCK_BYTES: usize = 64 << 10;

    /// A sample of at most about `budget` bytes.
    pub fn new(budget: usize) -> Self {
        Self {
            budget,
            distance: 1,
            number: 0,
            block_bytes: 0,
            document: 0,
            characters: 0,
            bytes: 0,
            blocks: Vec::new(),
        }
    }

    /// Adds text to the open document.
    pub fn add(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let room = Self::BLOCK_BYTES - self.block_bytes;
            let end = if rest.len() > room { rest.ceil_char_boundary(room) } else { rest.len() };
            let piece = &rest[..end];
            if self.number.is_multiple_of(self.distance) {
                match self.blocks.last_mut() {
                    Some(block) if block.number == self.number => block.text.push_str(piece),
                    _ => {
                        let Self { number, document, characters: start, .. } = *self;
                        self.blocks.push(Block { number, document, start, text: piece.to_owned() });
                    }
                }
                self.bytes += end;
            }
            self.block_bytes += end;
            self.characters += piece.chars().count() as u64;
            if self.block_bytes >= Self::BLOCK_BYTES {
                self.end_block();
            }
            rest = &rest[end..];
        }
    }

    /// Ends the document and returns its number of characters.
    pub fn end_document(&mut self) -> u64 {
        self.end_block();
        self.document += 1;
        std::mem::take(&mut self.characters)
    }

    fn end_block(&mut self) {
        (self.number, self.block_bytes) = (self.number + 1, 0);
        while (self.bytes > self.budget && self.blocks.len() > 1) || self.blocks.len() > MAX_BLOCKS {
            self.distance *= 2;
            self.blocks.retain(|block| block.number.is_multiple_of(self.distance));
            self.bytes = self.blocks.iter().map(|block| block.text.len()).sum();
        }
    }

    /// The blocks, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().map(|block| block.text.as_str())
    }

    /// The training text of the blocks, in order.
    pub fn training_texts(&self, split: &Split) -> impl Iterator<Item = &str> {
        let is_training = |block: &&Block| split.side(block.document) == Side::Train;
        let before_the_cut = |block: &'_ Block| match split.cut(block.document) {
            None => block.text.len(),
            Some(cut) => {
                let characters = cut.saturating_sub(block.start) as usize;
                block.text.char_indices().nth(characters).map_or(block.text.len(), |(end, _)| end)
            }
        };
        let texts = self.blocks.iter().filter(is_training).map(move |block| &block.text[..before_the_cut(block)]);
        texts.filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::split::SplitBuilder;
    use super::*;

    fn texts(sample: &Sample) -> Vec<&str> {
        sample.blocks.iter().map(|block| block.text.as_str()).collect()
    }

    #[test]
    fn a_short_text_is_its_own_sample() {
        let mut sample = Sample::new(1000);
        sample.add("one");
        sample.add(" two");
        sample.end_document();
        sample.add("three");
        assert_eq!(texts(&sample), ["one two", "three"]);
    }

    #[test]
    fn the_sample_of_a_long_text_is_bounded_and_spread() {
        let mut sample = Sample::new(1000);
        for i in 0..10_000 {
            sample.add(&format!("{i:010}"));
            sample.end_document();
        }
        assert!((400..=1000).contains(&sample.bytes), "{}", sample.bytes);
        let numbers: Vec<u32> = texts(&sample).iter().filter_map(|block| block.parse().ok()).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] == numbers[1] - numbers[0]));
        assert!(numbers.last().is_some_and(|&last| last > 9_000));
        let mut one = Sample::new(200 << 10);
        one.add(&"é".repeat(10 << 20));
        assert!(one.bytes <= 200 << 10);
    }

    #[test]
    fn of_very_short_documents_so_many_are_kept() {
        let mut sample = Sample::new(SAMPLE_BYTES);
        for _ in 0..3 * MAX_BLOCKS {
            sample.add("a");
            sample.end_document();
        }
        assert!((MAX_BLOCKS / 2..=MAX_BLOCKS).contains(&sample.blocks.len()), "{}", sample.blocks.len());
        assert_eq!(sample.bytes, sample.blocks.len());
    }

    #[test]
    fn what_validates_is_not_learnt_from() {
        let text: String = (0..100_000).map(|i| char::from_u32(0xe0 + i / 1000).unwrap()).collect();
        let (mut sample, mut split) = (Sample::new(1 << 20), SplitBuilder::new(0.1));
        sample.add(&text);
        sample.end_document();
        split.push(1, text.len() as u64, 100_000);
        let split = split.finish().unwrap().0;
        let taught: String = sample.training_texts(&split).collect();
        assert_eq!(taught, text.chars().take(90_000).collect::<String>());

        let (mut sample, mut split) = (Sample::new(1 << 20), SplitBuilder::new(0.1));
        for number in 0..10 {
            let text = format!("document {number}");
            sample.add(&text);
            sample.end_document();
            split.push(number << 60, text.len() as u64, text.len() as u64);
        }
        let split = split.finish().unwrap().0;
        let taught: Vec<&str> = sample.training_texts(&split).collect();
        let expected: Vec<String> = (0..10)
            .filter(|&number| split.side(number) == Side::Train)
            .map(|number| format!("document {number}"))
            .collect();
        assert_eq!(taught, expected);
        assert_eq!(taught.len(), 9);
    }
}
