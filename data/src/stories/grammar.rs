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
    /// Words of each kind that the current sentence has named; colours, which may come twice, are not counted.
    named: [usize; 4],
}

impl<C: Chooser> Teller<C> {
    pub fn new(chooser: C) -> Self {
        Teller { chooser, nats: 0.0, forgetful_nats: 0.0, named: [0; 4] }
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
        if kind != Kind::Colour {
            *named += 1;
        }
        Ok(chosen)
    }

    fn end_sentence(&mut self) -> Result<(), C::Error> {
        self.named = [0; 4];
        self.say(".")
    }
}

/// A thing someone has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Thing {
    colour: usize,
    noun: usize,
}

/// What is true of someone at this point of the story.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Person {
    name: usize,
    place: usize,
    thing: Thing,
}

/// Tells one story from its first word to its last.
pub(super) fn tell<C: Chooser>(t: &mut Teller<C>) -> Result<(), C::Error> {
    t.phrase(&["One day", "One morning", "One evening", "Once"])?;
    let names = Words::all(Kind::Person);
    let mut people = [Person::default(); 2];
    people[0] = introduce(t, names, Words::all(Kind::Thing), Words::all(Kind::Place))?;
    people[1] = introduce(
        t,
        names.without([people[0].name]),
        Words::all(Kind::Thing).without([people[0].thing.noun]),
        Words::all(Kind::Place).without([people[0].place]),
    )?;
    let mut just_met = false;
    for event in 0.. {
        if event == MAX_EVENTS {
            t.say(" In the end")?;
            break;
        }
        if event >= MIN_EVENTS && t.phrase(&["", " In the end"])? == 1 {
            break;
        }
        just_met = happen(t, &mut people, just_met)?;
    }
    close(t, &people)
}

/// Fewest events of a story.
pub(super) const MIN_EVENTS: usize = 2;
/// Most events of a story.
pub(super) const MAX_EVENTS: usize = 4;

fn introduce<C: Chooser>(t: &mut Teller<C>, names: Words, nouns: Words, places: Words) -> Result<Person, C::Error> {
    t.say(" ")?;
    let name = t.word(Kind::Person, names)?;
    t.say(" was in the ")?;
    let place = t.word(Kind::Place, places)?;
    t.say(" with a ")?;
    let colour = t.word(Kind::Colour, Words::all(Kind::Colour))?;
    t.say(" ")?;
    let noun = t.word(Kind::Thing, nouns)?;
    t.end_sentence()?;
    Ok(Person { name, place, thing: Thing { colour, noun } })
}

/// One event; says whether it was a meeting.
fn happen<C: Chooser>(t: &mut Teller<C>, people: &mut [Person; 2], just_met: bool) -> Result<bool, C::Error> {
    let [a, b] = *people;
    t.say(" ")?;
    let name = t.word(Kind::Person, Words::only([a.name, b.name]))?;
    let who = usize::from(name == b.name);
    let other = 1 - who;
    let free_place = Words::all(Kind::Place).without([a.place, b.place]);
    let events = [" went to the ", " took the ", " played with the ", " lost the ", " and "];
    let events = if just_met { &events[..4] } else { &events[..] };
    let event = t.phrase(events)?;
    match event {
        0 => people[who].place = t.word(Kind::Place, free_place)?,
        1 => {
            thing(t, people[who].thing)?;
            t.say(" to the ")?;
            people[who].place = t.word(Kind::Place, free_place)?;
        }
        2 => {
            thing(t, people[who].thing)?;
            t.say(" in the ")?;
            t.word(Kind::Place, Words::only([people[who].place]))?;
        }
        3 => {
            thing(t, people[who].thing)?;
            t.say(" in the ")?;
            t.word(Kind::Place, Words::only([people[who].place]))?;
            t.say(" and found a ")?;
            let colour = t.word(Kind::Colour, Words::all(Kind::Colour))?;
            t.say(" ")?;
            let noun = t.word(Kind::Thing, Words::all(Kind::Thing).without([a.thing.noun, b.thing.noun]))?;
            people[who].thing = Thing { colour, noun };
        }
        _ => {
            t.word(Kind::Person, Words::only([people[other].name]))?;
            t.say(" met in the ")?;
            let place = t.word(Kind::Place, free_place)?;
            t.say(" and swapped")?;
            t.end_sentence()?;
            *people = [Person { place, thing: b.thing, ..a }, Person { place, thing: a.thing, ..b }];
            t.say(" Now ")?;
            t.word(Kind::Person, Words::only([name]))?;
            t.say(" had the ")?;
            thing(t, people[who].thing)?;
            t.say(" and ")?;
            t.word(Kind::Person, Words::only([people[other].name]))?;
            t.say(" had the ")?;
            thing(t, people[other].thing)?;
        }
    }
    t.end_sentence()?;
    Ok(event == 4)
}

/// A thing that the story knows: there is nothing to choose, only to remember.
fn thing<C: Chooser>(t: &mut Teller<C>, thing: Thing) -> Result<(), C::Error> {
    t.word(Kind::Colour, Words::only([thing.colour]))?;
    t.say(" ")?;
    t.word(Kind::Thing, Words::only([thing.noun]))?;
    Ok(())
}

fn close<C: Chooser>(t: &mut Teller<C>, people: &[Person; 2]) -> Result<(), C::Error> {
    for person in people {
        t.say(" ")?;
        t.word(Kind::Person, Words::only([person.name]))?;
        t.say(" was in the ")?;
        t.word(Kind::Place, Words::only([person.place]))?;
        t.say(" with the ")?;
        thing(t, person.thing)?;
        t.end_sentence()?;
    }
    Ok(())
}
