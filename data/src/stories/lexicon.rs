//! The words that fill in a story: who, what and where.
//!
//! Within a kind all words are equally likely and interchangeable, which makes the forgetful
//! predictor's loss exact (see the [module above](super)). No word is a prefix of another word of
//! its kind, so that parsing is unambiguous.

use std::fmt;

/// What a word of the lexicon stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Someone's name.
    Person,
    /// A thing someone has.
    Thing,
    /// A place someone is in.
    Place,
    /// An animal that comes along.
    Animal,
    /// The food an animal has.
    Food,
}

impl Kind {
    /// All words of this kind; a word's position in the list is its number.
    pub const fn words(self) -> &'static [&'static str] {
        match self {
            Kind::Person => PEOPLE,
            Kind::Thing => THINGS,
            Kind::Place => PLACES,
            Kind::Animal => ANIMALS,
            Kind::Food => FOODS,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

const PEOPLE: &[&str] = &[
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack", "Kate", "Leo", "Mia", "Noah",
    "Olga", "Paul", "Rosa", "Sam", "Tom", "Uma", "Vera", "Will", "Yara", "Zoe", "Alice", "Bruno", "Carl", "Daisy",
    "Ella", "Finn", "Lily", "Max", "Adam", "Beth", "Chloe", "Dora", "Eric", "Fred", "Gus", "Hugo", "Ivan", "Jane",
    "Karl", "Lucy", "Mark", "Nina", "Oscar", "Peter", "Ruby", "Sara", "Tim", "Victor", "Wendy", "Simon", "Lena",
    "Molly", "Nora", "Otto", "Ralph", "Sofia", "Theo", "Hanna", "Julia", "Robin",
];

const THINGS: &[&str] = &[
    "ball", "kite", "drum", "hat", "book", "boat", "doll", "cup", "bell", "basket", "lamp", "pen", "flute", "blanket",
    "box", "shell", "ring", "train", "spoon", "coat", "mask", "flag", "scarf", "key", "wagon", "puzzle", "bucket",
    "robot", "pillow", "stone", "whistle", "feather", "rope", "map", "mirror", "bottle", "candle", "clock", "button",
    "ladder", "brush", "knife", "plate", "pot", "shoe", "sock", "glove", "belt", "crown", "sword", "shield", "coin",
    "pearl", "leaf", "flower", "violin", "trumpet", "wheel", "hammer", "anchor", "chain", "ribbon", "marble", "whip",
];

const ANIMALS: &[&str] = &[
    "fox", "bear", "wolf", "owl", "crow", "swan", "goose", "duck", "cat", "dog", "horse", "cow", "goat", "sheep",
    "pig", "hen", "mouse", "rat", "squirrel", "rabbit", "hare", "badger", "otter", "beaver", "mole", "hedgehog",
    "frog", "toad", "snake", "lizard", "turtle", "tiger", "lion", "zebra", "camel", "monkey", "parrot", "eagle",
    "falcon", "raven", "robin", "sparrow", "seal", "whale", "shark", "crab", "snail", "spider",
];

const FOODS: &[&str] = &[
    "nut", "cake", "pie", "cookie", "lemon", "plum", "carrot", "apple", "pear", "peach", "melon", "berry", "grape",
    "cherry", "onion", "potato", "tomato", "pumpkin", "turnip", "radish", "cabbage", "mushroom", "bean", "corn",
    "olive", "date", "fig", "banana", "mango", "orange", "lime", "waffle", "muffin", "pretzel", "sandwich", "sausage",
    "fish", "cheese", "egg", "bun", "roll", "biscuit", "candy", "pudding", "tart", "pickle", "leek", "herring",
];

const PLACES: &[&str] = &[
    "Paris", "Rome", "Cairo", "London", "Berlin", "Madrid", "Lisbon", "Vienna", "Prague", "Athens", "Oslo", "Dublin",
    "Delhi", "Tokyo", "Lima", "Quito", "Boston", "Chicago", "Denver", "Dallas", "Seattle", "Miami", "Toronto",
    "Havana", "Bogota", "Santiago", "Nairobi", "Lagos", "Accra", "Tunis", "Dakar", "Kabul", "Tehran", "Baghdad",
    "Moscow", "Warsaw", "Helsinki", "Riga", "Vilnius", "Zagreb", "Geneva", "Zurich", "Milan", "Venice", "Naples",
    "Turin", "Munich", "Hamburg", "Cologne", "Brussels", "Antwerp", "Bergen", "Malmo", "Porto", "Seville", "Valencia",
    "Manila", "Jakarta", "Hanoi", "Seoul", "Beijing", "Sydney", "Perth", "Auckland",
];

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn no_word_begins_another_of_its_kind() {
        for kind in [Kind::Person, Kind::Thing, Kind::Place, Kind::Animal, Kind::Food] {
            for (i, a) in kind.words().iter().enumerate() {
                for (j, b) in kind.words().iter().enumerate() {
                    assert!(i == j || !b.starts_with(a), "{kind}: {a} begins {b}");
                }
            }
        }
    }
}
