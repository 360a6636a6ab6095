//! The grammar, written once: generator and parser both run [`tell`], and differ only in who chooses.

use super::lexicon::Kind;

/// A set of word numbers of one kind, one bit a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words(u64);

impl Words {
    /// All words of `kind`.
    pub fn all(kind: Kind) -> Words {
        Words(u64::MAX >> (64 - kind.words().len()))
    }

    /// The given words only.
    pub fn only<const N: usize>(words: [usize; N]) -> Words {
        Words(words.iter().fold(0, |bits, &word| bits | 1 << word))
    }

    /// This set without the given words.
    pub fn without<const N: usize>(self, words: [usize; N]) -> Words {
        Words(self.0 & !Words::only(words).0)
    }

    /// How many words there are to choose from.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether `word` is one of them.
    pub fn contains(self, word: usize) -> bool {
        self.0 >> word & 1 == 1
    }

    /// The words in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |&word| self.contains(word))
    }
}

/// Who decides what the story says next.
pub(super) trait Chooser {
    /// Why there may be no story.
    type Error;
    /// Words that stand there without a choice.
    fn say(&mut self, text: &'static str) -> Result<(), Self::Error>;
    /// One of `phrases`, all equally likely: how the story goes on, whatever its people, things and places are.
    fn phrase(&mut self, phrases: &[&'static str]) -> Result<usize, Self::Error>;
    /// One word of `allowed`, all equally likely: what fits the story so far.
    fn word(&mut self, kind: Kind, allowed: Words) -> Result<usize, Self::Error>;
}

/// A chooser and the price of its choices.
pub(super) struct Teller<C> {
    pub chooser: C,
    /// -ln of the probability of all choices so far.
    pub nats: f64,
    /// The same for the predictor that forgets every sentence but the current one.
    pub forgetful_nats: f64,
    /// Words of each kind that the current sentence has named.
    named: [usize; 5],
}

impl<C: Chooser> Teller<C> {
    pub fn new(chooser: C) -> Self {
        Teller { chooser, nats: 0.0, forgetful_nats: 0.0, named: [0; 5] }
    }

    fn say(&mut self, text: &'static str) -> Result<(), C::Error> {
        self.chooser.say(text)
    }

    fn phrase(&mut self, phrases: &[&'static str]) -> Result<usize, C::Error> {
        let chosen = self.chooser.phrase(phrases)?;
        let nats = (phrases.len() as f64).ln();
        self.nats += nats;
        self.forgetful_nats += nats;
        Ok(chosen)
    }

    fn word(&mut self, kind: Kind, allowed: Words) -> Result<usize, C::Error> {
        let chosen = self.chooser.word(kind, allowed)?;
        let named = &mut self.named[kind as usize];
        self.nats += (allowed.len() as f64).ln();
        self.forgetful_nats += ((kind.words().len() - *named) as f64).ln();
        *named += 1;
        Ok(chosen)
    }

    /// Any word of `kind`, whatever the sentence has named: a ball may be lost and another ball found.
    fn new_word(&mut self, kind: Kind) -> Result<usize, C::Error> {
        let chosen = self.chooser.word(kind, Words::all(kind))?;
        let nats = (kind.words().len() as f64).ln();
        self.nats += nats;
        self.forgetful_nats += nats;
        Ok(chosen)
    }

    fn end_sentence(&mut self) -> Result<(), C::Error> {
        self.named = [0; 5];
        self.say(".")
    }
}

/// What is true at this point of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// Who it is about, where they are, and what they have.
    person: usize,
    place: usize,
    thing: usize,
    /// Who came along, and what it has.
    animal: usize,
    food: usize,
}

/// Fewest events of a story.
const MIN_EVENTS: usize = 2;
/// Most events of a story.
const MAX_EVENTS: usize = 5;

/// Tells one story from its first word to its last.
pub(super) fn tell<C: Chooser>(t: &mut Teller<C>) -> Result<(), C::Error> {
    let mut state = introduce(t)?;
    let mut events = 0;
    while events < MIN_EVENTS || events < MAX_EVENTS && t.phrase(&["", " In the end"])? == 0 {
        match t.phrase(&[" ", " The "])? {
            0 => person_acts(t, &mut state)?,
            _ => animal_acts(t, &mut state)?,
        }
        t.end_sentence()?;
        events += 1;
    }
    if events == MAX_EVENTS {
        t.say(" In the end")?;
    }
    close(t, &state)
}

fn introduce<C: Chooser>(t: &mut Teller<C>) -> Result<State, C::Error> {
    t.phrase(&["One day ", "One morning ", "One evening ", "Once "])?;
    let person = t.word(Kind::Person, Words::all(Kind::Person))?;
    t.say(" came to ")?;
    let place = t.word(Kind::Place, Words::all(Kind::Place))?;
    t.say(" with a ")?;
    let thing = t.word(Kind::Thing, Words::all(Kind::Thing))?;
    t.end_sentence()?;
    t.say(" One ")?;
    let animal = t.word(Kind::Animal, Words::all(Kind::Animal))?;
    t.say(" came with one ")?;
    let food = t.word(Kind::Food, Words::all(Kind::Food))?;
    t.end_sentence()?;
    Ok(State { person, place, thing, animal, food })
}

/// The person goes elsewhere, plays, or finds another thing in place of the one they had.
fn person_acts<C: Chooser>(t: &mut Teller<C>, state: &mut State) -> Result<(), C::Error> {
    recall(t, Kind::Person, state.person)?;
    let event = t.phrase(&[" left ", " played with the ", " lost the "])?;
    if event == 0 {
        recall(t, Kind::Place, state.place)?;
        t.say(" for ")?;
        state.place = t.word(Kind::Place, Words::all(Kind::Place).without([state.place]))?;
        return Ok(());
    }
    recall(t, Kind::Thing, state.thing)?;
    t.say(" in ")?;
    recall(t, Kind::Place, state.place)?;
    if event == 2 {
        t.say(" and found a ")?;
        state.thing = t.new_word(Kind::Thing)?;
    }
    Ok(())
}

/// The animal hides what it has, or eats it and gets another.
fn animal_acts<C: Chooser>(t: &mut Teller<C>, state: &mut State) -> Result<(), C::Error> {
    recall(t, Kind::Animal, state.animal)?;
    let event = t.phrase(&[" hid its ", " ate its "])?;
    recall(t, Kind::Food, state.food)?;
    if event == 1 {
        t.say(" and got one ")?;
        state.food = t.new_word(Kind::Food)?;
    }
    Ok(())
}

/// Someone or something that the story knows: there is nothing to choose, only to remember.
fn recall<C: Chooser>(t: &mut Teller<C>, kind: Kind, word: usize) -> Result<(), C::Error> {
    t.word(kind, Words::only([word])).map(|_| ())
}

fn close<C: Chooser>(t: &mut Teller<C>, state: &State) -> Result<(), C::Error> {
    t.say(" ")?;
    recall(t, Kind::Person, state.person)?;
    t.say(" was in ")?;
    recall(t, Kind::Place, state.place)?;
    t.say(" with the ")?;
    recall(t, Kind::Thing, state.thing)?;
    t.end_sentence()?;
    t.say(" The ")?;
    recall(t, Kind::Animal, state.animal)?;
    t.say(" had its ")?;
    recall(t, Kind::Food, state.food)?;
    t.end_sentence()
}
