//! Random schemas and expressions, with checkers that share no code with the tested library.

use std::collections::BTreeSet;

use rand::{Rng, RngExt};
use serde_json::{Map, Value, json};

/// A regular expression as a tree.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    Literal(String),
    /// One character of a range.
    Range(char, char),
    /// One character that is not in this list.
    NoneOf(Vec<char>),
    All(Vec<Expression>),
    AnyOf(Vec<Expression>),
    Repeat(Box<Expression>, usize, Option<usize>),
}

use Expression::{All, AnyOf, Literal, NoneOf, Range, Repeat};

impl Expression {
    /// A random tree of this depth; repetitions are bounded if `finite`.
    pub(crate) fn random(rng: &mut impl Rng, depth: usize, finite: bool) -> Self {
        const WORDS: [&str; 10] = ["a", "b", "ab", "abc", "12", ".", "a/b", "\\", "é", "(x]"];
        if depth == 0 {
            return match rng.random_range(0..6) {
                0..4 => Literal(WORDS[rng.random_range(0..WORDS.len())].to_owned()),
                4 => Range('a', ['c', 'd'][rng.random_range(0..2)]),
                _ if finite => Range('0', '2'),
                _ => NoneOf(vec!['a', '"', ']']),
            };
        }
        let some = |rng: &mut _| (0..2 + depth % 2).map(|_| Self::random(rng, depth - 1, finite)).collect();
        match rng.random_range(0..4) {
            0 | 1 => All(some(rng)),
            2 => AnyOf(some(rng)),
            _ => {
                let least = rng.random_range(0..3);
                let most = (finite || rng.random_range(0..2) == 0).then(|| least.max(1) + rng.random_range(0..2));
                Repeat(Box::new(Self::random(rng, depth - 1, finite)), least, most)
            }
        }
    }

    /// The expression in regex syntax.
    pub(crate) fn pattern(&self) -> String {
        let join = |parts: &[Self], between: &str| parts.iter().map(Self::pattern).collect::<Vec<_>>().join(between);
        match self {
            Literal(text) => text.chars().map(escaped).collect(),
            Range(first, last) => format!("[{first}-{last}]"),
            NoneOf(characters) => format!("[^{}]", characters.iter().copied().map(escaped).collect::<String>()),
            All(parts) => join(parts, ""),
            AnyOf(parts) => format!("({})", join(parts, "|")),
            Repeat(part, least, Some(most)) => format!("({}){{{least},{most}}}", part.pattern()),
            Repeat(part, least, None) => format!("({}){{{least},}}", part.pattern()),
        }
    }

    /// Whether the whole text matches.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let characters: Vec<char> = text.chars().collect();
        self.ends(&characters, 0).contains(&characters.len())
    }

    /// All positions at which a match beginning at `start` may end.
    fn ends(&self, text: &[char], start: usize) -> BTreeSet<usize> {
        let one = |fits: &dyn Fn(char) -> bool| text.get(start).filter(|c| fits(**c)).map(|_| start + 1);
        let from_each = |part: &Self, starts: &BTreeSet<usize>| -> BTreeSet<usize> {
            starts.iter().flat_map(|&start| part.ends(text, start)).collect()
        };
        match self {
            Literal(word) => {
                let word: Vec<char> = word.chars().collect();
                text[start..].starts_with(&word).then_some(start + word.len()).into_iter().collect()
            }
            Range(first, last) => one(&|c| (*first..=*last).contains(&c)).into_iter().collect(),
            NoneOf(characters) => one(&|c| !characters.contains(&c)).into_iter().collect(),
            All(parts) => parts.iter().fold(BTreeSet::from([start]), |starts, part| from_each(part, &starts)),
            AnyOf(parts) => parts.iter().flat_map(|part| part.ends(text, start)).collect(),
            Repeat(part, least, most) => {
                let mut ends = (0..*least).fold(BTreeSet::from([start]), |starts, _| from_each(part, &starts));
                // Once an iteration finds no new end, later ones do not either.
                for _ in *least..most.unwrap_or(usize::MAX) {
                    let before = ends.len();
                    ends.extend(from_each(part, &ends));
                    if ends.len() == before {
                        break;
                    }
                }
                ends
            }
        }
    }

    /// All matching texts, if there are at most `most`.
    pub(crate) fn language(&self, most: usize) -> Option<BTreeSet<String>> {
        let joined = |heads: &BTreeSet<String>, tails: &BTreeSet<String>| -> BTreeSet<String> {
            heads.iter().flat_map(|head| tails.iter().map(move |tail| format!("{head}{tail}"))).collect()
        };
        let language = match self {
            Literal(text) => BTreeSet::from([text.clone()]),
            Range(first, last) => (*first..=*last).map(String::from).collect(),
            All(parts) => {
                let mut texts = BTreeSet::from([String::new()]);
                for part in parts {
                    texts = joined(&texts, &part.language(most)?);
                }
                texts
            }
            AnyOf(parts) => {
                let languages: Option<Vec<_>> = parts.iter().map(|part| part.language(most)).collect();
                languages?.into_iter().flatten().collect()
            }
            Repeat(part, least, Some(end)) => {
                let once = part.language(most)?;
                let mut texts = BTreeSet::from([String::new()]);
                let mut all = BTreeSet::new();
                for round in 0..=*end {
                    if round >= *least {
                        all.extend(texts.clone());
                    }
                    if texts.len() * once.len() > most {
                        return None;
                    }
                    texts = joined(&texts, &once);
                }
                all
            }
            NoneOf(_) | Repeat(_, _, None) => return None,
        };
        (language.len() <= most).then_some(language)
    }
}

fn escaped(character: char) -> String {
    let plain = character.is_alphanumeric() || character == '/' || character == '"';
    if plain { character.to_string() } else { format!("\\{character}") }
}

/// A random JSON Schema of this depth, with the keywords that [`fulfils`] knows.
///
/// Numbers have bounds: without them, numbers with hundreds of digits would be valid JSON that
/// 64-bit parsers refuse.
pub(crate) fn random_schema(rng: &mut impl Rng, depth: usize) -> Value {
    let least = rng.random_range(-20..20);
    let leaves = 8;
    match rng.random_range(0..if depth == 0 { leaves } else { leaves + 6 }) {
        0 => json!({ "type": "integer", "minimum": least, "maximum": least + rng.random_range(0..300) }),
        1 => {
            json!({ "type": "number", "minimum": least, "maximum": f64::from(least) + rng.random_range(0..40) as f64 / 8.0 })
        }
        2 => json!({ "type": "string", "maxLength": rng.random_range(0..6) }),
        3 => json!({ "type": "string", "minLength": 2, "maxLength": 4 }),
        4 => json!({ "type": "string" }),
        5 => json!({ "type": ["boolean", "null"] }),
        6 => json!({ "enum": ["red", "green", "gr\"ay\\", 7, null, [1, "x"]] }),
        7 => json!({ "const": random_constant(rng) }),
        8 | 9 => {
            let least = rng.random_range(0..3);
            let items = random_schema(rng, depth - 1);
            json!({ "type": "array", "items": items, "minItems": least, "maxItems": least + rng.random_range(0..3) })
        }
        10 => json!({ "anyOf": [random_schema(rng, depth - 1), random_schema(rng, depth - 1)] }),
        _ => {
            let names: Vec<&str> =
                ["name", "a b", "é", "x\"", "list"].into_iter().take(rng.random_range(0..6)).collect();
            let properties: Map<String, Value> =
                names.iter().map(|name| (name.to_string(), random_schema(rng, depth - 1))).collect();
            let required: Vec<&str> = names.into_iter().filter(|_| rng.random_range(0..2) == 0).collect();
            json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
        }
    }
}

fn random_constant(rng: &mut impl Rng) -> Value {
    [json!("on/off"), json!(-3), json!(true), json!({ "k": [1, 2] }), json!("")][rng.random_range(0..5)].clone()
}

/// Whether `value` matches the schema, for the keywords that [`random_schema`] uses.
pub(crate) fn fulfils(schema: &Value, value: &Value) -> bool {
    let number = |key: &str| schema[key].as_f64();
    let within = |size: f64, least: &str, most: &str| {
        number(least).is_none_or(|least| size >= least) && number(most).is_none_or(|most| size <= most)
    };
    if let Some(options) = schema["anyOf"].as_array() {
        return options.iter().any(|option| fulfils(option, value));
    }
    if let Some(options) = schema["enum"].as_array() {
        return options.contains(value);
    }
    if let Some(constant) = schema.get("const") {
        return constant == value;
    }
    let is_a = |name: &Value| match value {
        Value::Null => name == "null",
        Value::Bool(_) => name == "boolean",
        Value::Number(n) => {
            n.as_f64().is_some_and(|n| {
                // An integer is a number without a fraction, in any notation (JSON Schema 2020-12,
                // validation, 6.1.1).
                (name == "number" || name == "integer" && n.fract() == 0.0) && within(n, "minimum", "maximum")
            })
        }
        Value::String(text) => name == "string" && within(text.chars().count() as f64, "minLength", "maxLength"),
        Value::Array(items) => {
            name == "array"
                && within(items.len() as f64, "minItems", "maxItems")
                && items.iter().all(|item| fulfils(&schema["items"], item))
        }
        Value::Object(members) => {
            let required = schema["required"].as_array().into_iter().flatten();
            let known = |(key, value): (&String, &Value)| {
                schema["properties"].get(key).is_some_and(|property| fulfils(property, value))
            };
            name == "object"
                && members.iter().all(known)
                && required.filter_map(Value::as_str).all(|key| members.contains_key(key))
        }
    };
    match &schema["type"] {
        Value::Array(names) => names.iter().any(is_a),
        name => is_a(name),
    }
}

/// Whether `text` is JSON that matches the schema.
pub(crate) fn is_json_of(schema: &Value, text: &str) -> bool {
    serde_json::from_str(text).is_ok_and(|value| fulfils(schema, &value))
}

#[test]
fn the_judge_of_expressions_worked_by_hand() {
    // (a|ab){2,3}[b-c]
    let part = AnyOf(vec![Literal("a".into()), Literal("ab".into())]);
    let expression = All(vec![Repeat(Box::new(part), 2, Some(3)), Range('b', 'c')]);
    assert_eq!(expression.pattern(), "((a|ab)){2,3}[b-c]");
    for text in ["aab", "aabb", "ababc", "aabac", "abababb"] {
        assert!(expression.matches(text), "{text}");
    }
    for text in ["", "ab", "aa", "aaaab", "aabbb", "xaab", "aabx"] {
        assert!(!expression.matches(text), "{text}");
    }
    let language = expression.language(1000).unwrap_or_default();
    assert!(language.iter().all(|text| expression.matches(text)));
    assert_eq!(language.len(), 24, "4 pairs and 8 triples, times 2 letters");
    assert!(Repeat(Box::new(Literal(String::new())), 0, None).matches(""));
    assert!(!Repeat(Box::new(NoneOf(vec!['a'])), 1, None).matches("bca"));
}

#[test]
fn the_judge_of_schemas_worked_by_hand() {
    let schema = json!({
        "type": "object",
        "properties": {
            "n": { "type": "integer", "minimum": 1, "maximum": 5 },
            "list": { "type": "array", "items": { "anyOf": [{ "const": "x" }, { "type": ["null", "boolean"] }] }, "minItems": 1 },
            "s": { "type": "string", "maxLength": 2 },
        },
        "required": ["n"],
        "additionalProperties": false,
    });
    for text in [r#"{"n":1}"#, r#"{"list": ["x", null, true], "n":5}"#, r#"{"n":2,"s":"\u00e9é"}"#] {
        assert!(is_json_of(&schema, text), "{text}");
    }
    for text in [
        "",
        "{",
        "{}",
        "1",
        r#"{"n":0}"#,
        r#"{"n":6}"#,
        r#"{"n":1.5}"#,
        r#"{"n":"1"}"#,
        r#"{"n":1,"other":1}"#,
        r#"{"n":1,"list":[]}"#,
        r#"{"n":1,"list":["y"]}"#,
        r#"{"n":1,"s":"abc"}"#,
        r#"{"n":1} {"#,
    ] {
        assert!(!is_json_of(&schema, text), "{text}");
    }
}
