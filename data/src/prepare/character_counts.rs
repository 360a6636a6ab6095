//! How often each character occurs in the text.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of text that wait to be counted at once.
const BATCH_BYTES: usize = 8 << 20;

/// Counts characters on all cores, a few megabytes at a time.
#[derive(Default, Serialize, Deserialize)]
pub struct CharacterCounts {
    waiting: String,
    counts: BTreeMap<char, u64>,
}

impl CharacterCounts {
    pub fn add(&mut self, text: &str) {
        self.waiting.push_str(text);
        if self.waiting.len() >= BATCH_BYTES {
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

    pub fn finish(mut self) -> BTreeMap<char, u64> {
        self.count();
        self.counts
    }
}

fn count_characters(text: &str) -> Vec<(char, u64)> {
    // Flat tables are many times faster than a map. An ASCII byte is always a character of its own;
    // four tables let successive counts of the same byte proceed independently.
    let mut tables = [[0u64; 256]; 4];
    let (fours, rest) = text.as_bytes().as_chunks::<4>();
    for four in fours {
        tables.iter_mut().zip(four).for_each(|(table, &byte)| table[byte as usize] += 1);
    }
    rest.iter().for_each(|&byte| tables[0][byte as usize] += 1);
    let ascii = |byte: u32| tables.iter().map(|table| table[byte as usize]).sum::<u64>();
    let others = count_others(text);
    let counts = (0..128).map(|byte| (byte, ascii(byte))).chain((0..).zip(others.into_iter().map(u64::from)));
    let occurring = counts.filter(|&(_, count)| count > 0);
    occurring.filter_map(|(code, count)| Some((char::from_u32(code)?, count))).collect()
}

/// Occurrences of each non-ASCII character, indexed by code point; empty if there is none.
fn count_others(text: &str) -> Vec<u32> {
    // All-ASCII blocks of this many bytes are skipped as a whole.
    const BLOCK: usize = 64;
    let (mut counts, mut at) = (Vec::<u32>::new(), 0);
    while at < text.len() {
        let block = &text[at..text.ceil_char_boundary(at + BLOCK)];
        at += block.len();
        if block.is_ascii() {
            continue;
        }
        for code in block.chars().filter(|character| !character.is_ascii()).map(|character| character as usize) {
            // Grown on demand: most texts use only the first few thousand code points.
            if code >= counts.len() {
                counts.resize(code + 1, 0);
            }
            counts[code] += 1;
        }
    }
    counts
}
