//! The first pass: surveys the text and decides which of it validates.

use super::character_counts::CharacterCounts;
use super::checkpoint::{Checkpoint, Record};
use super::position::{EventPosition, Position};
use super::reading::{Reading, Source, Unusable, empty_text_error};
use super::sample::{SAMPLE_BYTES, Sample};
use super::split::{Candidate, ContentHash, HoldOut, Side, Split, SplitBuilder};
use super::{
    corpus::Corpus, corpus::Purpose, duplicates::Duplicates, error::Error, options::PrepareOptions, options::Progress,
    options::report_progress,
};
use crate::{near_duplicates::NearDuplicates, sensitive, source::Event};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of the first pass.
#[derive(Serialize, Deserialize)]
pub struct Survey {
    pub sources: Vec<Source>,
    /// Unusable files in folders, which the corpus leaves out.
    pub unusable: Vec<Unusable>,
    pub documents: u64,
    pub bytes: u64,
    /// Occurrences of each character.
    pub characters: BTreeMap<char, u64>,
    /// Text to train a tokenizer on; nearly empty if none is trained.
    pub sample: Sample,
    pub split: Split,
    pub duplicates: Duplicates,
    /// Number of masked items per kind.
    pub masked: BTreeMap<sensitive::Kind, u64>,
}

/// Reads the whole corpus once, resuming an interrupted call, and again if a file in a folder fails
/// in the middle. Unusable files are then left out of the corpus.
pub fn survey(corpus: &mut Corpus, checkpoint: &mut Checkpoint, progress: &dyn Progress) -> Result<Survey, Error> {
    if let Some(survey) = checkpoint.load::<Survey>(Record::Surveyed) {
        corpus.leave_out(&survey.unusable)?;
        return Ok(survey);
    }
    let mut unusable: Vec<Unusable> = Vec::new();
    let mut begun = checkpoint.load::<(Position, Vec<Unusable>, SurveyState)>(Record::Survey);
    loop {
        let (from, mut state) = match begun.take() {
            Some((position, known, state)) => {
                corpus.leave_out(&known)?;
                unusable = known;
                checkpoint.note_resuming("the first pass", &corpus.name_of(&position));
                (position, state)
            }
            None => (Position::default(), SurveyState::new(corpus.options)),
        };
        let mut hash = ContentHash::new(corpus.options.seed);
        let reading = corpus.read(Purpose::Surveying, from, progress, &mut |at: EventPosition<'_>, event| {
            match event {
                Event::Text(text) => {
                    if checkpoint.is_due() && !at.is_replayed {
                        state.near.iter_mut().for_each(NearDuplicates::wait_for_worker);
                        checkpoint.save(Record::Survey, &(&at, &unusable, &state))?;
                    }
                    hash.update(text);
                }
                Event::EndOfDocument if at.is_replayed => _ = hash.finish(),
                _ => {}
            }
            if !at.is_replayed {
                state.event(event, &mut hash);
            }
            Ok(())
        })?;
        corpus.leave_out(&reading.unusable)?;
        unusable.extend_from_slice(&reading.unusable);
        if !reading.is_spoilt {
            report_progress(progress, "looking for near-duplicates", 0, None)?;
            return state.finish(reading, unusable);
        }
    }
}

/// State gathered during the first pass.
#[derive(Serialize, Deserialize)]
struct SurveyState {
    split: SplitBuilder,
    near: Option<NearDuplicates<Candidate>>,
    counts: CharacterCounts,
    sample: Sample,
    documents: u64,
    bytes: u64,
    /// Bytes of the open document.
    document_bytes: u64,
}

impl SurveyState {
    /// Stories of the built-in corpus are never cut, and are distinct by construction. If there is
    /// nothing else, none of them is the last: `hold_out` is ignored.
    fn new(options: &PrepareOptions) -> Self {
        let only_stories = options.only_stories();
        let builder = match options.hold_out {
            _ if only_stories => SplitBuilder::of_whole_documents,
            HoldOut::Any => SplitBuilder::new,
            HoldOut::Last => SplitBuilder::of_the_last,
        };
        Self {
            split: builder(options.val_fraction),
            near: (!only_stories).then(NearDuplicates::default),
            counts: CharacterCounts::default(),
            sample: Sample::new(if options.tokenizer.may_be_learnt() { SAMPLE_BYTES } else { 0 }),
            documents: 0,
            bytes: 0,
            document_bytes: 0,
        }
    }

    /// Processes an event; `hash` is that of the open document.
    fn event(&mut self, event: Event<'_>, hash: &mut ContentHash) {
        match event {
            Event::Title(_) => {}
            Event::Dated(when) => self.split.dated(when),
            Event::Text(text) => {
                self.counts.add(text);
                self.sample.add(text);
                self.near.iter_mut().for_each(|near| near.add(text));
                self.document_bytes += text.len() as u64;
            }
            Event::EndOfDocument => {
                let bytes = std::mem::take(&mut self.document_bytes);
                let document = self.split.push(hash.finish(), bytes, self.sample.end_document());
                self.near.iter_mut().for_each(|near| near.end_document(document));
                self.documents += 1;
                self.bytes += bytes;
            }
        }
    }

    fn finish(mut self, reading: Reading, unusable: Vec<Unusable>) -> Result<Survey, Error> {
        let Reading { sources, masked, .. } = reading;
        if self.documents == 0 {
            return Err(empty_text_error(&sources));
        }
        self.split.keep_together(self.near.map(NearDuplicates::finish).unwrap_or_default());
        self.split.in_sources(sources.iter().map(|source| source.documents[0]));
        let (split, duplicates) = self.split.finish().map_err(|error| error.of_text(&sources))?;
        Ok(Survey {
            sources: by_side(sources, &split),
            unusable,
            documents: self.documents,
            bytes: self.bytes,
            characters: self.counts.finish(),
            sample: self.sample,
            split,
            duplicates,
            masked,
        })
    }
}

/// Splits each source's document count into training and validation.
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
