//! Translates llama.cpp's grammars (GBNF) to Lark, the grammar language of this program's
//! constraints.
//!
//! The Lark grammar has four kinds of rules: `start`, which is GBNF's `root`; `r0_item`, the first
//! of the other rules to be named, here `item`; `c61`, the character with this code; and `e0`, the
//! ends of strings that begin alike.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;

use super::error::ApiError;

/// Longest grammar, and deepest nesting of its groups.
const MAX_BYTES: usize = 1 << 18;
const MAX_DEPTH: usize = 64;

/// Translates a grammar to Lark: rule `root` becomes `start`, strings become sequences of shared
/// rules with a character each, and character classes become regular expressions.
pub(super) fn to_lark(grammar: &str) -> Result<String, ApiError> {
    if grammar.len() > MAX_BYTES {
        return Err(refused("it is too long"));
    }
    let mut parser = Parser { text: grammar.chars().collect(), ..Parser::default() };
    let mut rules = Vec::new();
    parser.skip_space(true);
    while parser.position < parser.text.len() {
        let name = parser.name()?;
        parser.skip_space(false);
        parser.expect("::=")?;
        parser.skip_space(true);
        let body = parser.alternatives(false)?;
        rules.push((name, body));
        parser.skip_space(true);
    }
    let defined: HashSet<&str> = rules.iter().map(|(name, _)| name.as_str()).collect();
    if !defined.contains("start") {
        return Err(refused("it has no rule named root"));
    }
    if let Some((missing, _)) = parser.names.iter().find(|(_, name)| !defined.contains(name.as_str())) {
        return Err(refused(format!("the rule {missing} is used but not defined")));
    }
    let mut lark = String::new();
    for (name, body) in rules {
        let _ = writeln!(lark, "{name}: {body}");
    }
    for (number, suffixes) in parser.suffixes.iter().enumerate() {
        let _ = writeln!(lark, "{}: {suffixes}", suffix_rule(number));
    }
    for &character in &parser.characters {
        let _ = writeln!(lark, "{}: {}", character_rule(character), quoted(character));
    }
    Ok(lark)
}

fn refused(why: impl std::fmt::Display) -> ApiError {
    ApiError::param("grammar", format!("the grammar cannot be read: {why}; Lark's syntax belongs in lark_grammar"))
}

/// Name of a character's rule.
fn character_rule(character: char) -> String {
    format!("c{:x}", u32::from(character))
}

/// Name of a rule for the suffixes of strings with a common prefix.
fn suffix_rule(number: usize) -> String {
    format!("e{number}")
}

/// A character as a Lark string: in JSON notation, except DEL, which Lark wants escaped.
fn quoted(character: char) -> String {
    match character {
        '\u{7f}' => "\"\\u007f\"".to_owned(),
        character => serde_json::Value::from(character.to_string()).to_string(),
    }
}

/// One alternative of a rule or group.
struct Alternative {
    lark: String,
    /// Its characters, if it is a plain string.
    characters: Option<Vec<char>>,
}

#[derive(Default)]
struct Parser {
    text: Vec<char>,
    position: usize,
    /// Lark names of the rules, by their GBNF names; sorted, so that of several undefined rules
    /// always the same one is reported.
    names: BTreeMap<String, String>,
    depth: usize,
    /// The characters of all strings, each with one shared rule: every repeated literal would take
    /// another symbol, and there can be only some 65,000.
    characters: BTreeSet<char>,
    /// Suffix rules of strings with a common prefix.
    suffixes: Vec<String>,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.text.get(self.position).copied()
    }

    /// Skips blanks and comments, and with `lines` also line ends.
    fn skip_space(&mut self, lines: bool) {
        while let Some(character) = self.peek() {
            match character {
                '#' => {
                    while self.peek().is_some_and(|character| character != '\n') {
                        self.position += 1;
                    }
                }
                ' ' | '\t' => self.position += 1,
                '\r' | '\n' if lines => self.position += 1,
                _ => return,
            }
        }
    }

    fn expect(&mut self, what: &str) -> Result<(), ApiError> {
        for wanted in what.chars() {
            if self.peek() != Some(wanted) {
                return Err(self.expected(what));
            }
            self.position += 1;
        }
        Ok(())
    }

    fn expected(&self, wanted: &str) -> ApiError {
        let line = 1 + self.text[..self.position].iter().filter(|character| **character == '\n').count();
        match self.peek() {
            Some(found) => refused(format!("line {line} has {found:?} where {wanted} should be")),
            None => refused(format!("it ends where {wanted} should be")),
        }
    }

    /// Parses a rule's name and returns a unique valid Lark name for it.
    fn name(&mut self) -> Result<String, ApiError> {
        let begin = self.position;
        while self.peek().is_some_and(|character| character.is_ascii_alphanumeric() || "-_".contains(character)) {
            self.position += 1;
        }
        let name: String = self.text[begin..self.position].iter().collect();
        match name.as_str() {
            "" => Err(self.expected("a rule's name")),
            "root" => Ok("start".to_owned()),
            // In Lark lower-case names are rules, upper-case names are terminals.
            name => {
                let number = self.names.len();
                let own = || format!("r{number}_{}", name.to_ascii_lowercase().replace('-', "_"));
                Ok(self.names.entry(name.to_owned()).or_insert_with(own).clone())
            }
        }
    }

    fn alternatives(&mut self, in_group: bool) -> Result<String, ApiError> {
        let mut all = vec![self.sequence(in_group)?];
        while self.peek() == Some('|') {
            self.position += 1;
            self.skip_space(true);
            all.push(self.sequence(in_group)?);
        }
        let mut strings: Vec<&[char]> = all.iter().filter_map(|one| one.characters.as_deref()).collect();
        if strings.len() < 2 {
            return Ok(all.iter().map(|one| one.lark.as_str()).collect::<Vec<_>>().join(" | "));
        }
        strings.sort_unstable();
        strings.dedup();
        let mut lark = self.prefix_tree(&strings);
        for other in all.iter().filter(|one| one.characters.is_none()) {
            lark.push_str(" | ");
            lark.push_str(&other.lark);
        }
        Ok(lark)
    }

    /// Turns sorted, unique strings into a prefix tree of alternatives, since Lark's parser would
    /// try each of thousands of strings with a common prefix. Suffixes become rules, since Lark
    /// limits the nesting of groups.
    fn prefix_tree(&mut self, strings: &[&[char]]) -> String {
        let mut lark = Vec::new();
        for group in strings.chunk_by(|one, next| one.first() == next.first()) {
            let [first, .., last] = group else {
                lark.push(self.spell(group[0]));
                continue;
            };
            // In sorted order, a common prefix of the first and the last is shared by all between.
            let common = first.iter().zip(last.iter()).take_while(|(one, other)| one == other).count();
            let suffixes: Vec<&[char]> = group.iter().map(|string| &string[common..]).collect();
            let suffixes = self.prefix_tree(&suffixes);
            lark.push(format!("{} {}", self.spell(&first[..common]), suffix_rule(self.suffixes.len())));
            self.suffixes.push(suffixes);
        }
        lark.join(" | ")
    }

    fn sequence(&mut self, in_group: bool) -> Result<Alternative, ApiError> {
        let (mut lark, mut characters) = (Vec::new(), Some(Vec::new()));
        loop {
            let mut string = None;
            let item = match self.peek() {
                Some('"') => {
                    let read = self.string()?;
                    let item = self.spell(&read);
                    string = Some(read);
                    item
                }
                Some('[') => self.character_class()?,
                Some('.') => {
                    self.position += 1;
                    "/(?s:.)/".to_owned()
                }
                Some('(') => {
                    if self.depth == MAX_DEPTH {
                        return Err(refused(format!("groups are nested more than {MAX_DEPTH} deep")));
                    }
                    (self.position, self.depth) = (self.position + 1, self.depth + 1);
                    self.skip_space(true);
                    let inner = self.alternatives(true)?;
                    self.expect(")")?;
                    self.depth -= 1;
                    format!("({inner})")
                }
                Some(character) if character.is_ascii_alphanumeric() || "-_".contains(character) => self.name()?,
                _ => break,
            };
            self.skip_space(in_group);
            let times = self.repetition()?;
            self.skip_space(in_group);
            let is_several = string.as_ref().is_some_and(|string| string.len() > 1);
            lark.push(if is_several && !times.is_empty() { format!("({item}){times}") } else { item + &times });
            characters = characters.zip(string.filter(|_| times.is_empty())).map(|(mut before, string)| {
                before.extend(string);
                before
            });
        }
        let lark = if lark.is_empty() { "\"\"".to_owned() } else { lark.join(" ") };
        Ok(Alternative { lark, characters })
    }

    fn repetition(&mut self) -> Result<String, ApiError> {
        match self.peek() {
            Some(mark @ ('*' | '+' | '?')) => {
                self.position += 1;
                Ok(mark.to_string())
            }
            Some('{') => {
                let begin = self.position;
                while self.peek().is_some_and(|character| character != '}') {
                    self.position += 1;
                }
                self.expect("}")?;
                let mark: String =
                    self.text[begin..self.position].iter().filter(|character| **character != ' ').collect();
                let is_count =
                    mark[1..mark.len() - 1].chars().all(|character| character.is_ascii_digit() || character == ',');
                if is_count { Ok(mark) } else { Err(refused(format!("{mark} is not a number of repetitions"))) }
            }
            _ => Ok(String::new()),
        }
    }

    fn string(&mut self) -> Result<Vec<char>, ApiError> {
        self.position += 1;
        let mut characters = Vec::new();
        while self.peek() != Some('"') {
            characters.push(self.character("the end of a string")?);
        }
        self.position += 1;
        Ok(characters)
    }

    /// A string as character rules: with whole strings as terminals only the longest match would
    /// count, and hide a shorter one with the same prefix.
    fn spell(&mut self, string: &[char]) -> String {
        if string.is_empty() {
            return "\"\"".to_owned();
        }
        self.characters.extend(string);
        string.iter().copied().map(character_rule).collect::<Vec<_>>().join(" ")
    }

    /// Parses a character class and returns it as a regular expression.
    fn character_class(&mut self) -> Result<String, ApiError> {
        self.position += 1;
        let mut set = String::from("/[");
        if self.peek() == Some('^') {
            self.position += 1;
            set.push('^');
        }
        while self.peek() != Some(']') {
            let is_range = self.peek() == Some('-');
            let character = self.character("the end of a set")?;
            if is_range && set.len() > 2 && self.peek() != Some(']') {
                set.push('-');
            } else {
                let _ = write!(set, "\\u{{{:x}}}", u32::from(character));
            }
        }
        self.position += 1;
        set.push_str("]/");
        Ok(set)
    }

    fn character(&mut self, wanted: &str) -> Result<char, ApiError> {
        let character = self.peek().ok_or_else(|| self.expected(wanted))?;
        self.position += 1;
        if character != '\\' {
            return Ok(character);
        }
        let escaped = self.peek().ok_or_else(|| self.expected(wanted))?;
        self.position += 1;
        let digits = match escaped {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            other => return Ok(other),
        };
        let end = (self.position + digits).min(self.text.len());
        let hex: String = self.text[self.position..end].iter().collect();
        self.position = end;
        let code = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
        code.ok_or_else(|| refused(format!("\\{escaped}{hex} is not a character")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ember_data::tokenizer::Tokenizer;
    use ember_decoding::constraint::{Constraint, Grammar};

    #[test]
    fn grammars_are_said_in_lark() {
        let lark = to_lark("root ::= \"a\"{5,5}").unwrap();
        assert_eq!(lark, "start: c61{5,5}\nc61: \"a\"\n");
        let lists = "# lists\nroot ::= item (\",\" item)* # some\nitem ::= [^\\]\"a-c]+ | \"x\\n\" |\n  sub-rule?\nsub-rule ::= [a-zA-Z_-]";
        let lark = to_lark(lists).unwrap();
        assert!(lark.starts_with("start: r0_item (c2c r0_item)*\n"), "{lark}");
        let lark = to_lark("root ::= \"a\" * \"b\" {2} (\"c\"\n+) ?\n").unwrap();
        assert!(lark.starts_with("start: c61* c62{2} (c63+)?\n"), "{lark}");
        let lark = to_lark("root ::= \"int\"? \"\\n\\\"\" \"\"").unwrap();
        assert!(lark.starts_with("start: (c69 c6e c74)? ca c22 \"\"\nca: \"\\n\"\nc22: \"\\\"\"\n"), "{lark}");
        let group = "root ::= Foo foo a-b A-b\nFoo ::= \"1\"\nfoo ::= \"2\"\na-b ::= \"3\"\nA-b ::= \"4\"";
        for grammar in [lists, "root ::= .{2} [\\x41-Z]", group] {
            Grammar::lark("grammar", &to_lark(grammar).unwrap()).unwrap();
        }
    }

    /// Whether a text matches a grammar.
    fn accepts(grammar: &str, text: &str) -> bool {
        let tokenizer = Tokenizer::bytes().unwrap();
        let grammar = Grammar::lark("grammar", &to_lark(grammar).unwrap()).unwrap();
        Constraint::new(grammar, &tokenizer, tokenizer.vocab_size(), &[]).unwrap().accepts(text)
    }

    #[test]
    fn strings_that_begin_alike_part_where_they_differ() {
        let words = "root ::= \"is\" | [a-c] | \"in\" \"to\" | \"in\" | \"on\" | \"in\" | \"no\"?";
        let lark = to_lark(words).unwrap();
        let tree = "start: c69 e1 | c6f c6e | /[\\u{61}-\\u{63}]/ | (c6e c6f)?\ne0: \"\" | c74 c6f\ne1: c6e e0 | c73\n";
        assert!(lark.starts_with(tree), "{lark}");
        assert!(["is", "into", "in", "on", "no", "b", ""].iter().all(|text| accepts(words, text)));
        assert!(!["i", "int", "o", "into is"].iter().any(|text| accepts(words, text)));
        // As llama.cpp writes a schema's values.
        let values: Vec<String> = (0..3000).map(|value| format!("\"\\\"value {value}\\\"\"")).collect();
        let values = format!("root ::= ({}) \".\"", values.join(" | "));
        assert!(accepts(&values, "\"value 7\".") && accepts(&values, "\"value 2999\"."));
        assert!(!accepts(&values, "\"value 3000\"."));
    }

    #[test]
    fn a_character_may_stand_in_a_grammar_as_often_as_it_has_room() {
        let long = "x".repeat(70_000);
        Grammar::lark("grammar", &to_lark(&format!("root ::= \"{long}\"")).unwrap()).unwrap();
    }

    #[test]
    fn every_character_may_stand_in_a_string() {
        for character in ['\u{1}', '\u{7f}', '\u{85}', '\u{2028}', '\u{10ffff}', '/', '#'] {
            assert!(accepts(&format!("root ::= \"{character}.\""), &format!("{character}.")), "{character:?}");
        }
    }

    #[test]
    fn a_longer_string_hides_no_shorter_one_that_begins_alike() {
        let group = "root ::= \"o\" \"n\" | \"on\" \"e\"";
        assert!(accepts(group, "on") && accepts(group, "one") && !accepts(group, "o"));
        let names = "root ::= (\"if\" \" \" name | name) \".\"\nname ::= [a-z]+";
        assert!(["if x.", "ifs.", "if.", "i."].iter().all(|text| accepts(names, text)));
        assert!(!accepts(names, "is x."));
    }

    #[test]
    fn what_is_none_is_refused_with_its_place() {
        let words = |grammar: &str| to_lark(grammar).unwrap_err().body()["error"]["message"].to_string();
        assert!(words("root ::= this is (not valid GBNF").contains(")"));
        assert!(words("root ::= \"a").contains("end of a string"));
        assert!(words("other ::= \"a\"").contains("no rule named root"));
        assert!(words("root ::= missing").contains("not defined"));
        assert!(words("root ::= e d c b a f g h").contains("the rule a is used but not defined"));
        assert!(words(&format!("root ::= {}", "(".repeat(60_000))).contains("nested more than"));
        assert!(words("root = \"a\"").contains("::="));
    }
}
