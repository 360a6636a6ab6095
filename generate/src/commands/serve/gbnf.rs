//! llama.cpp's grammars (GBNF), said in Lark, which is what holds texts to a grammar here.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::error::ApiError;

/// Longest grammar, and how deep its groups may lie in one another.
const MOST_BYTES: usize = 1 << 18;
const DEEPEST: usize = 64;

/// The same grammar in Lark: rule `root` becomes `start`, strings become their characters one by one,
/// sets of characters expressions.
pub(super) fn to_lark(grammar: &str) -> Result<String, ApiError> {
    if grammar.len() > MOST_BYTES {
        return Err(refused("it is too long"));
    }
    let mut reader = Reader { text: grammar.chars().collect(), place: 0, names: HashMap::new(), depth: 0 };
    let mut rules = Vec::new();
    reader.space(true);
    while reader.place < reader.text.len() {
        let name = reader.name()?;
        reader.space(false);
        reader.expect("::=")?;
        reader.space(true);
        let body = reader.alternatives(false)?;
        rules.push((name, body));
        reader.space(true);
    }
    let defined: HashSet<&str> = rules.iter().map(|(name, _)| name.as_str()).collect();
    if !defined.contains("start") {
        return Err(refused("it has no rule named root"));
    }
    if let Some((missing, _)) = reader.names.iter().find(|(_, name)| !defined.contains(name.as_str())) {
        return Err(refused(format!("the rule {missing} is used and not defined")));
    }
    let mut lark = String::new();
    for (name, body) in rules {
        let _ = writeln!(lark, "{name}: {body}");
    }
    Ok(lark)
}

fn refused(why: impl std::fmt::Display) -> ApiError {
    ApiError::param("grammar", format!("the grammar cannot be read: {why}; Lark's syntax goes to lark_grammar"))
}

struct Reader {
    text: Vec<char>,
    place: usize,
    /// What rules are called in Lark, by their names there.
    names: HashMap<String, String>,
    depth: usize,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.text.get(self.place).copied()
    }

    /// Passes over blanks and comments, and line ends where the grammar goes on behind them.
    fn space(&mut self, lines: bool) {
        while let Some(character) = self.peek() {
            match character {
                '#' => {
                    while self.peek().is_some_and(|character| character != '\n') {
                        self.place += 1;
                    }
                }
                ' ' | '\t' => self.place += 1,
                '\r' | '\n' if lines => self.place += 1,
                _ => return,
            }
        }
    }

    fn expect(&mut self, what: &str) -> Result<(), ApiError> {
        for wanted in what.chars() {
            if self.peek() != Some(wanted) {
                return Err(self.wrong(what));
            }
            self.place += 1;
        }
        Ok(())
    }

    fn wrong(&self, wanted: &str) -> ApiError {
        let line = 1 + self.text[..self.place].iter().filter(|character| **character == '\n').count();
        match self.peek() {
            Some(found) => refused(format!("line {line} has {found:?} where {wanted} should be")),
            None => refused(format!("it ends where {wanted} should be")),
        }
    }

    /// A rule's name, as Lark allows it: one of its own for each.
    fn name(&mut self) -> Result<String, ApiError> {
        let begin = self.place;
        while self.peek().is_some_and(|character| character.is_ascii_alphanumeric() || "-_".contains(character)) {
            self.place += 1;
        }
        let name: String = self.text[begin..self.place].iter().collect();
        match name.as_str() {
            "" => Err(self.wrong("a rule's name")),
            "root" => Ok("start".to_owned()),
            // Small letters name rules in Lark, large ones terminals.
            name => {
                let number = self.names.len();
                let own = || format!("r{number}_{}", name.to_ascii_lowercase().replace('-', "_"));
                Ok(self.names.entry(name.to_owned()).or_insert_with(own).clone())
            }
        }
    }

    fn alternatives(&mut self, in_group: bool) -> Result<String, ApiError> {
        let mut lark = self.sequence(in_group)?;
        while self.peek() == Some('|') {
            self.place += 1;
            self.space(true);
            lark = format!("{lark} | {}", self.sequence(in_group)?);
        }
        Ok(lark)
    }

    fn sequence(&mut self, in_group: bool) -> Result<String, ApiError> {
        let mut lark = Vec::new();
        loop {
            let item = match self.peek() {
                Some('"') => self.string()?,
                Some('[') => self.set()?,
                Some('.') => {
                    self.place += 1;
                    "/(?s:.)/".to_owned()
                }
                Some('(') => {
                    if self.depth == DEEPEST {
                        return Err(refused(format!("groups lie in one another deeper than {DEEPEST}")));
                    }
                    (self.place, self.depth) = (self.place + 1, self.depth + 1);
                    self.space(true);
                    let inner = self.alternatives(true)?;
                    self.expect(")")?;
                    self.depth -= 1;
                    format!("({inner})")
                }
                Some(character) if character.is_ascii_alphanumeric() || "-_".contains(character) => self.name()?,
                _ => break,
            };
            self.space(in_group);
            lark.push(format!("{item}{}", self.repetition()?));
            self.space(in_group);
        }
        Ok(if lark.is_empty() { "\"\"".to_owned() } else { lark.join(" ") })
    }

    fn repetition(&mut self) -> Result<String, ApiError> {
        match self.peek() {
            Some(mark @ ('*' | '+' | '?')) => {
                self.place += 1;
                Ok(mark.to_string())
            }
            Some('{') => {
                let begin = self.place;
                while self.peek().is_some_and(|character| character != '}') {
                    self.place += 1;
                }
                self.expect("}")?;
                let mark: String = self.text[begin..self.place].iter().filter(|character| **character != ' ').collect();
                let is_count =
                    mark[1..mark.len() - 1].chars().all(|character| character.is_ascii_digit() || character == ',');
                if is_count { Ok(mark) } else { Err(refused(format!("{mark} is no number of repetitions"))) }
            }
            _ => Ok(String::new()),
        }
    }

    /// A string, character by character, each in JSON's way of writing it: of whole strings the
    /// longest match would count alone, and hide a shorter one that begins alike.
    fn string(&mut self) -> Result<String, ApiError> {
        self.place += 1;
        let mut characters = Vec::new();
        while self.peek() != Some('"') {
            let character = self.character("the end of a string")?;
            characters.push(serde_json::Value::from(character.to_string()).to_string());
        }
        self.place += 1;
        Ok(match characters.as_slice() {
            [] => "\"\"".to_owned(),
            [one] => one.clone(),
            several => format!("({})", several.join(" ")),
        })
    }

    /// A set of characters, as an expression.
    fn set(&mut self) -> Result<String, ApiError> {
        self.place += 1;
        let mut set = String::from("/[");
        if self.peek() == Some('^') {
            self.place += 1;
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
        self.place += 1;
        set.push_str("]/");
        Ok(set)
    }

    fn character(&mut self, wanted: &str) -> Result<char, ApiError> {
        let character = self.peek().ok_or_else(|| self.wrong(wanted))?;
        self.place += 1;
        if character != '\\' {
            return Ok(character);
        }
        let escaped = self.peek().ok_or_else(|| self.wrong(wanted))?;
        self.place += 1;
        let digits = match escaped {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            other => return Ok(other),
        };
        let end = (self.place + digits).min(self.text.len());
        let hex: String = self.text[self.place..end].iter().collect();
        self.place = end;
        let code = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
        code.ok_or_else(|| refused(format!("\\{escaped}{hex} is no character")))
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
        assert_eq!(lark, "start: \"a\"{5,5}\n");
        let lists = "# lists\nroot ::= item (\",\" item)* # some\nitem ::= [^\\]\"a-c]+ | \"x\\n\" |\n  sub-rule?\nsub-rule ::= [a-zA-Z_-]";
        let lark = to_lark(lists).unwrap();
        assert!(lark.starts_with("start: r0_item (\",\" r0_item)*\n"), "{lark}");
        let lark = to_lark("root ::= \"a\" * \"b\" {2} (\"c\"\n+) ?\n").unwrap();
        assert_eq!(lark, "start: \"a\"* \"b\"{2} (\"c\"+)?\n");
        let lark = to_lark("root ::= \"int\"? \"\\n\\\"\" \"\"").unwrap();
        assert_eq!(lark, "start: (\"i\" \"n\" \"t\")? (\"\\n\" \"\\\"\") \"\"\n");
        let alike = "root ::= Foo foo a-b A-b\nFoo ::= \"1\"\nfoo ::= \"2\"\na-b ::= \"3\"\nA-b ::= \"4\"";
        for grammar in [lists, "root ::= .{2} [\\x41-Z]", alike] {
            Grammar::lark("grammar", &to_lark(grammar).unwrap()).unwrap();
        }
    }

    #[test]
    fn a_longer_string_hides_no_shorter_one_that_begins_alike() {
        let tokenizer = Tokenizer::bytes().unwrap();
        let accepts = |grammar: &str, text: &str| {
            let grammar = Grammar::lark("grammar", &to_lark(grammar).unwrap()).unwrap();
            Constraint::new(grammar, &tokenizer, tokenizer.vocab_size(), &[]).unwrap().accepts(text)
        };
        let alike = "root ::= \"o\" \"n\" | \"on\" \"e\"";
        assert!(accepts(alike, "on") && accepts(alike, "one") && !accepts(alike, "o"));
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
        assert!(words(&format!("root ::= {}", "(".repeat(60_000))).contains("deeper"));
        assert!(words("root = \"a\"").contains("::="));
    }
}
