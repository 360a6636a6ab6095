//! The grammar, written once: generator and parser both run [`tell`] and differ only in the
//! chooser.

use super::lexicon::Kind::{self, Animal, Food, Person, Place, Thing};
use Part::{Another, Elsewhere, First, Known, Says, Stop};

/// A set of word numbers of one kind, one bit per word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words(u64);

impl Words {
    /// All words of `kind`.
    pub fn all(kind: Kind) -> Words {
        Words(u64::MAX >> (64 - kind.words().len()))
    }

    /// Only this word.
    pub fn only(word: usize) -> Words {
        Words(1 << word)
    }

    /// This set without a word.
    pub fn without(self, word: usize) -> Words {
        Words(self.0 & !Words::only(word).0)
    }

    /// Number of words in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether `word` is in the set.
    pub fn contains(self, word: usize) -> bool {
        self.0 >> word & 1 == 1
    }

    /// The words in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |&word| self.contains(word))
    }
}

/// Decides what the story says next.
pub(super) trait Chooser {
    /// Why a choice may fail.
    type Error;
    /// Fixed words, without a choice.
    fn say(&mut self, text: &'static str) -> Result<(), Self::Error>;
    /// One of `phrases`, all equally likely: how the story continues, independently of its people,
    /// things and places.
    fn phrase(&mut self, phrases: &[&'static str]) -> Result<usize, Self::Error>;
    /// One word of `allowed`, all equally likely: the words that are consistent with the story so
    /// far.
    fn word(&mut self, kind: Kind, allowed: Words) -> Result<usize, Self::Error>;
}

/// A part of a sentence.
enum Part {
    /// Fixed words, without a choice.
    Says(&'static str),
    /// Any word of the kind; it becomes the story's word.
    First(Kind),
    /// The story's word of the kind: nothing to choose, only to remember.
    Known(Kind),
    /// A place other than the story's; it becomes the story's place.
    Elsewhere,
    /// Any word of the kind, even one already named in the sentence: a ball may be lost and another
    /// ball found. It becomes the story's word.
    Another(Kind),
    /// The full stop.
    Stop,
}

/// A chooser, the cost of its choices, and the current state of the story.
pub(super) struct Teller<C> {
    pub chooser: C,
    /// -ln of the probability of all choices so far.
    pub nats: f64,
    /// The same for the predictor that remembers only the current sentence.
    pub forgetful_nats: f64,
    /// Number of words of each kind named in the current sentence.
    named: [usize; 5],
    /// The story's current word of each kind: the person, their thing and place, the animal and its
    /// food.
    story: [usize; 5],
}

impl<C: Chooser> Teller<C> {
    pub fn new(chooser: C) -> Self {
        Teller { chooser, nats: 0.0, forgetful_nats: 0.0, named: [0; 5], story: [0; 5] }
    }

    fn phrase(&mut self, phrases: &[&'static str]) -> Result<usize, C::Error> {
        let chosen = self.chooser.phrase(phrases)?;
        let nats = (phrases.len() as f64).ln();
        self.nats += nats;
        self.forgetful_nats += nats;
        Ok(chosen)
    }

    fn say(&mut self, parts: &[Part]) -> Result<(), C::Error> {
        for part in parts {
            match *part {
                Says(text) => self.chooser.say(text)?,
                First(kind) => self.word(kind, Words::all(kind))?,
                Known(kind) => self.word(kind, Words::only(self.story[kind as usize]))?,
                Elsewhere => self.word(Place, Words::all(Place).without(self.story[Place as usize]))?,
                Another(kind) => {
                    self.story[kind as usize] = self.chooser.word(kind, Words::all(kind))?;
                    let nats = (kind.words().len() as f64).ln();
                    self.nats += nats;
                    self.forgetful_nats += nats;
                }
                Stop => {
                    self.named = [0; 5];
                    self.chooser.say(".")?;
                }
            }
        }
        Ok(())
    }

    fn word(&mut self, kind: Kind, allowed: Words) -> Result<(), C::Error> {
        self.story[kind as usize] = self.chooser.word(kind, allowed)?;
        let named = &mut self.named[kind as usize];
        self.nats += (allowed.len() as f64).ln();
        self.forgetful_nats += ((kind.words().len() - *named) as f64).ln();
        *named += 1;
        Ok(())
    }
}

/// Fewest events of a story.
const MIN_EVENTS: usize = 2;
/// Most events of a story.
const MAX_EVENTS: usize = 5;

/// Tells one story from beginning to end.
pub(super) fn tell<C: Chooser>(t: &mut Teller<C>) -> Result<(), C::Error> {
    t.phrase(&["One day ", "One morning ", "One evening ", "Once "])?;
    t.say(&[First(Person), Says(" came to "), First(Place), Says(" with a "), First(Thing), Stop])?;
    t.say(&[Says(" One "), First(Animal), Says(" came with one "), First(Food), Stop])?;
    let mut events = 0;
    while events < MIN_EVENTS || events < MAX_EVENTS && t.phrase(&["", " In the end"])? == 0 {
        match t.phrase(&[" ", " The "])? {
            0 => person_acts(t)?,
            _ => animal_acts(t)?,
        }
        events += 1;
    }
    if events == MAX_EVENTS {
        t.say(&[Says(" In the end")])?;
    }
    t.say(&[Says(" "), Known(Person), Says(" was in "), Known(Place), Says(" with the "), Known(Thing), Stop])?;
    t.say(&[Says(" The "), Known(Animal), Says(" had its "), Known(Food), Stop])
}

/// The person goes elsewhere, plays, or finds another thing in place of the one they had.
fn person_acts<C: Chooser>(t: &mut Teller<C>) -> Result<(), C::Error> {
    t.say(&[Known(Person)])?;
    match t.phrase(&[" left ", " played with the ", " lost the "])? {
        0 => t.say(&[Known(Place), Says(" for "), Elsewhere, Stop]),
        1 => t.say(&[Known(Thing), Says(" in "), Known(Place), Stop]),
        _ => t.say(&[Known(Thing), Says(" in "), Known(Place), Says(" and found a "), Another(Thing), Stop]),
    }
}

/// The animal hides its food, or eats it and gets another.
fn animal_acts<C: Chooser>(t: &mut Teller<C>) -> Result<(), C::Error> {
    t.say(&[Known(Animal)])?;
    match t.phrase(&[" hid its ", " ate its "])? {
        0 => t.say(&[Known(Food), Stop]),
        _ => t.say(&[Known(Food), Says(" and got one "), Another(Food), Stop]),
    }
}
