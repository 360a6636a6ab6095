#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, sync::Arc};

use burn::tensor::Device;
use ember_model::{Gpt, GptConfig};
use proptest::prelude::{ProptestConfig, prop, prop_assert, prop_assert_eq, prop_assume, proptest};
use rand::RngExt;
use serde_json::json;

use super::cases::{Expression, is_json_of, random_schema};
use super::*;
use crate::config::{GenerationConfig, Strategy};
use crate::processors::{Chain, temperature, top_k};
use crate::{completion::FinishReason, generate::generate_batch, plan::Plan, sampler::greedy};

/// A grammar of texts that match an expression, named as the program names it.
fn regex(expression: &str) -> Result<Grammar, GrammarError> {
    Grammar::regex(format!("--regex {expression:?}"), expression)
}

/// Every character that JSON needs, and one that is not ASCII.
fn chars_of_json() -> impl Iterator<Item = char> {
    (' '..='~').chain(['é'])
}

fn chars(alphabet: &str, end_of_text: bool) -> Tokenizer {
    Tokenizer::chars(&alphabet.chars().collect(), end_of_text).unwrap()
}

/// Tokens that cross every boundary in JSON and in the expressions of these tests.
fn bpe() -> Tokenizer {
    let texts =
        [r#"{"name": "abc", "a b": [1, 12, null], "é": true}"#, "aba/b abcab12.é(x]\\", "red green éé null null"];
    Tokenizer::train_bpe(330, texts.repeat(20)).unwrap()
}

/// A constraint with the tokenizer's own end token, if it has one.
fn constraint(grammar: Grammar, tokenizer: &Tokenizer) -> Constraint {
    let ends: Vec<u32> = tokenizer.end_of_text().into_iter().collect();
    Constraint::new(grammar, tokenizer, tokenizer.vocab_size(), &ends).unwrap()
}

/// The ids below `vocab_size` that are allowed after `generated`.
fn allowed(constraint: &Constraint, vocab_size: usize, generated: &[u32]) -> Vec<u32> {
    let mut logits = vec![0.5; vocab_size];
    constraint.process(&Step { prompt: &[0], generated }, &mut logits);
    assert!(logits.iter().all(|&logit| logit == 0.5 || logit == f32::NEG_INFINITY));
    (0..).zip(&logits).filter(|(_, logit)| logit.is_finite()).map(|(id, _)| id).collect()
}

#[test]
fn by_hand() {
    let tokenizer = chars("abcd", true); // ids 0 to 3; the end token is 4
    let constraint = constraint(regex("a(b|c+)").unwrap(), &tokenizer);
    let allowed = |generated: &[u32]| allowed(&constraint, 5, generated);
    let is = |generated: &[u32]| (constraint.is_accepting(generated), constraint.is_complete(generated));
    assert_eq!((allowed(&[]), is(&[])), (vec![0], (false, false)));
    assert_eq!((allowed(&[0]), is(&[0])), (vec![1, 2], (false, false)));
    assert_eq!((allowed(&[0, 1]), is(&[0, 1])), (vec![4], (true, true)));
    assert_eq!((allowed(&[0, 2]), is(&[0, 2])), (vec![2, 4], (true, false)));
    // After an end token the state stays as it was.
    assert_eq!((is(&[0, 2, 4]), is(&[0, 4])), ((true, false), (false, false)));
    // After a token that was not allowed, or does not exist, nothing is allowed.
    for wrong in [&[1][..], &[0, 3], &[0, 1, 1], &[0, 1, 1, 2], &[77], &[0, u32::MAX]] {
        assert_eq!((allowed(wrong), is(wrong)), (vec![], (false, false)), "{wrong:?}");
    }
}

#[test]
fn every_end_token_ends_and_no_other_special_token_or_idle_id_is_allowed() {
    let tokenizer = Tokenizer::bytes().unwrap(); // 256 is special
    let grammar = || regex("(?s:.){2,5}").unwrap();
    let ends = Constraint::new(grammar(), &tokenizer, 300, &[260, 299, 1000]).unwrap();
    let two = [b'x'.into(), b'"'.into()];
    assert_eq!(allowed(&ends, 300, &two[..1]).iter().filter(|&&id| id >= 256).count(), 0);
    assert_eq!(allowed(&ends, 300, &two).into_iter().filter(|&id| id >= 256).collect::<Vec<_>>(), [260, 299]);
    assert!(allowed(&ends, 300, &two).len() > 128);
    // Without an end token the text ends where no token can follow.
    let endless = Constraint::new(grammar(), &tokenizer, 256, &[]).unwrap();
    assert!(allowed(&endless, 256, &two).iter().all(|&id| id < 0xff));
    let five = [b'x'.into(); 5];
    assert!(endless.is_complete(&five) && !endless.is_complete(&five[..4]) && endless.is_accepting(&five[..4]));
    assert!(allowed(&endless, 256, &five).is_empty());
}

#[test]
fn a_character_may_be_spread_over_tokens() {
    let tokenizer = Tokenizer::bytes().unwrap();
    let constraint = constraint(regex("é|ê|z").unwrap(), &tokenizer);
    assert_eq!(allowed(&constraint, 257, &[]), [b'z'.into(), 0xc3]);
    assert_eq!(allowed(&constraint, 257, &[0xc3]), [0xa9, 0xaa]);
    assert!(!constraint.is_accepting(&[0xc3]) && constraint.is_complete(&[0xc3, 0xaa]));
}

#[test]
fn json_has_at_most_one_space_between_its_parts_unless_the_schema_says_otherwise() {
    let tokenizer = chars("{}[]\": ,\n1234567890ab", false);
    let follows = |schema: &str, text: &str| {
        let constraint = constraint(Grammar::json_schema("schema", schema).unwrap(), &tokenizer);
        let ids = allowed(&constraint, tokenizer.vocab_size(), &tokenizer.encode(text).unwrap());
        tokenizer.decode_text(&ids).unwrap()
    };
    let schema = r#"{"type": "array", "items": {"const": 1}}"#;
    assert_eq!(follows(schema, "["), " 1]");
    assert_eq!(follows(schema, "[ "), "1]");
    assert_eq!(follows(schema, "[ 1"), " ,]");
    assert_eq!(follows(schema, "[1]"), "");
    let blank = r#"{"x-guidance": {"whitespace_flexible": true}, "type": "array", "items": {"const": 1}}"#;
    assert_eq!(follows(blank, "[ "), "\n 1]");
    assert_eq!(follows(r#"{"x-guidance": {"whitespace_flexible": false}, "const": [1]}"#, "["), "1");
    assert_eq!(follows("true", "[1"), follows("{}", "[1"));
    let ordered = r#"{"type": "object", "properties": {"b": {}, "a": {}}, "required": ["a", "b"]}"#;
    assert_eq!(follows(ordered, "{\""), "b");
}

#[test]
fn lark_grammars_recur() {
    let tokenizer = chars("()ab+", false);
    let lark = "start: sum\nsum: term | sum \"+\" term\nterm: /[ab]/ | \"(\" sum \")\"";
    let constraint = constraint(Grammar::lark("lark", lark).unwrap(), &tokenizer);
    let ids = |text: &str| tokenizer.encode(text).unwrap();
    let follows = |text: &str| tokenizer.decode_text(&allowed(&constraint, 5, &ids(text))).unwrap();
    assert_eq!(follows("((a"), ")+");
    assert_eq!(follows("((a)+"), "(ab");
    assert_eq!(follows("((a)+b)"), "+");
    assert!(constraint.is_accepting(&ids("((a)+b)")) && !constraint.is_accepting(&ids("((a)+b")));
}

#[test]
fn a_lark_grammar_may_name_special_tokens_and_ids() {
    let tokenizer = chars("ab", true); // the end token is 2
    let new = |lark: &str| Constraint::new(Grammar::lark("lark", lark).unwrap(), &tokenizer, 3, &[2]);
    let named = new("start: /a*/ <[1]> | <|endoftext|>").unwrap();
    assert_eq!((allowed(&named, 3, &[]), allowed(&named, 3, &[0])), (vec![0, 1, 2], vec![0, 1]));
    assert!(named.is_complete(&[0, 1]));
    let unknown = new("start: \"a\" <|nothing|>").err().unwrap();
    assert!(unknown.to_string().contains("unknown special token"), "{unknown}");
    // If it is not an end token, messages show its name.
    let special = Grammar::lark("lark", "start: <|endoftext|> \"c\"").unwrap();
    let special = Constraint::new(special, &tokenizer, 3, &[]).unwrap();
    assert_eq!(allowed(&special, 3, &[]), [2]);
    let error = special.nothing_left(&[2], Vec::new()).to_string();
    assert!(error.starts_with(r#"no token is left after "<|endoftext|>": lark allows nothing here"#), "{error}");
}

#[test]
fn what_this_tokenizer_cannot_say_is_named() {
    let tokenizer = chars("abc", false);
    let new = |grammar: Grammar| Constraint::new(grammar, &tokenizer, 3, &[]);
    let refused = |grammar: Grammar| {
        let error = new(grammar).err().unwrap();
        error.to_string()
    };
    assert_eq!(
        refused(Grammar::json_schema("--json-schema f.json", r#"{"type": "object"}"#).unwrap()),
        "no token is left: --json-schema f.json asks for '{' next, and no token of this tokenizer begins with that; \
         ask for something that this model can write"
    );
    assert_eq!(refused(regex("a{0}").unwrap()), r#"--regex "a{0}" allows the empty text only; give another"#);
    // A dead end found later: the first token fits, the next does not exist.
    let later = new(regex("a[xyé]").unwrap()).unwrap();
    assert_eq!(allowed(&later, 3, &[0]), [0_u32; 0]);
    let error = later.nothing_left(&[0], Vec::new()).to_string();
    assert!(
        error.starts_with(r#"no token is left after "a": --regex "a[xyé]" asks for 'x' or 'y' or a chara"#),
        "{error}"
    );
    // A case that would take minutes and gigabytes.
    let words: Vec<String> = (0..2000).map(|number| format!("ab{number}")).collect();
    let bytes = Vocabulary::of_bytes().unwrap();
    Grammar::json_schema("words", &json!({ "enum": words }).to_string()).unwrap().matcher(&bytes).unwrap();
    let many = regex(&".*".repeat(8000)).unwrap().matcher(&bytes).err().unwrap().to_string();
    assert!(many.contains("it is too complex to follow"), "{many}");
    // The grammar allows a token, but another processor forbids it.
    let why = later.nothing_left(&[], vec!["bad-words"]).why;
    let WhyDeadEnd::Knobs { grammar, allowed: 1, knobs } = why else { panic!("another reason") };
    assert_eq!(knobs, ["bad-words"]);
    assert_eq!(grammar, r#"--regex "a[xyé]""#);
    assert_eq!(last_characters("é".repeat(61).as_bytes()), format!("…{}", "é".repeat(60)));
}

#[test]
fn a_grammar_that_offers_too_much_at_one_place_is_refused_before_it_is_followed() {
    let words = |count: usize| (0..count).map(|word| format!("\"w{word}\"")).collect::<Vec<_>>().join(" | ");
    let nested = format!("start: \"a\"? ({}) \"b\"", words(6000));
    for lark in [format!("start: {}", words(6000)), format!("start: \"a\" all\nall: {}", words(6000)), nested] {
        let error = Grammar::lark("lark", &lark).unwrap_err().to_string();
        assert!(error.contains("it is too complex to follow"), "{error}");
    }
    // More symbols than the library supports.
    let error = Grammar::lark("lark", &format!("start: {}", "\"a\" ".repeat(66_000))).unwrap_err().to_string();
    assert!(error.contains("it is too complex to follow"), "{error}");
    Grammar::lark("lark", &format!("start: {}", words(2000))).unwrap();
    // As a schema's enum they are a single terminal to the parser.
    let each: Vec<String> = (0..6000).map(|word| format!("w{word}")).collect();
    Grammar::json_schema("words", &json!({ "enum": each }).to_string()).unwrap();
}

#[test]
fn a_schema_that_nothing_fulfils_is_refused() {
    for schema in ["false", r#"{"type": "integer", "minimum": 2, "maximum": 1}"#, r#"{"type": "string", "enum": [1]}"#]
    {
        let error = Grammar::json_schema("--json-schema f.json", schema).err().unwrap_or_else(|| panic!("{schema}"));
        assert!(error.to_string().starts_with("--json-schema f.json cannot"), "{error}");
    }
}

/// Prefers one token over all others, whatever the text.
struct Prefer(u32);

impl LogitsProcessor for Prefer {
    fn name(&self) -> &'static str {
        "wish"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        logits[self.0 as usize] = 1e9;
    }
}

#[test]
fn no_other_step_brings_a_forbidden_token_back() {
    let tokenizer = chars("abcd", true);
    let constraint: Arc<dyn LogitsProcessor> = Arc::new(constraint(regex("[bc]{9}").unwrap(), &tokenizer));
    let mut generated = Vec::new();
    for (step, preferred) in [0, 3, 4, 2, 0, 1, 3, 4, 0].into_iter().enumerate() {
        let temperature: Arc<dyn LogitsProcessor> = Arc::new(temperature(50.0));
        let chain = Chain::of(vec![
            Arc::new(Prefer(preferred)),
            constraint.clone(),
            temperature,
            Arc::new(top_k(1 + step % 3)),
        ]);
        let mut logits = vec![0.3, 0.2, 0.1, 0.0, 0.4];
        chain.process(&Step { prompt: &[0], generated: &generated }, &mut logits);
        let expected = if preferred == 2 { 2 } else { 1 };
        assert_eq!(greedy(&logits), expected, "wishing for {preferred}");
        generated.push(expected);
    }
    let config = GenerationConfig { strategy: Strategy::Sample, top_k: 3, temperature: 0.5, ..Default::default() };
    assert_eq!(Chain::new(&config, Some(constraint)).names(), ["constraint", "temperature", "top-k"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The mask is exact: for expressions whose matches can be listed, a token is allowed exactly
    /// if some match continues with it.
    #[test]
    fn a_token_is_left_exactly_when_a_match_goes_on_with_it(seed in 0..u64::MAX, which in 0..3_usize) {
        let mut rng = ember_data::random::rng(seed, &[]);
        let expression = Expression::random(&mut rng, 2, true);
        let language = expression.language(400);
        prop_assume!(language.is_some());
        let language = language.unwrap();
        let tokenizer = match which {
            0 => Tokenizer::chars(&chars_of_json().collect(), false).unwrap(),
            1 => Tokenizer::bytes().unwrap(),
            _ => bpe(),
        };
        let constraint = constraint(regex(&expression.pattern()).unwrap(), &tokenizer);
        let vocab_size = tokenizer.vocab_size();
        let end = tokenizer.end_of_text();
        let mut generated = Vec::new();
        let mut text: Vec<u8> = Vec::new();
        loop {
            let rest: BTreeSet<&[u8]> = language.iter().filter_map(|whole| whole.as_bytes().strip_prefix(&text[..])).collect();
            let ends_here = rest.contains(&b""[..]);
            let expected: Vec<u32> = (0..vocab_size as u32).filter(|&id| {
                let bytes = tokenizer.token_bytes(id).unwrap();
                if Some(id) == end { ends_here } else { rest.iter().any(|rest| rest.starts_with(&bytes)) }
            }).collect();
            let allowed = allowed(&constraint, vocab_size, &generated);
            prop_assert_eq!(&allowed, &expected, "{} after {:?}", expression.pattern(), String::from_utf8_lossy(&text));
            prop_assert_eq!(constraint.is_accepting(&generated), ends_here);
            prop_assert_eq!(constraint.is_complete(&generated), ends_here && rest.len() == 1);
            let going_on: Vec<u32> = allowed.into_iter().filter(|&id| Some(id) != end).collect();
            if going_on.is_empty() {
                prop_assert!(ends_here);
                break;
            }
            let id = going_on[rng.random_range(0..going_on.len())];
            generated.push(id);
            text.extend(tokenizer.token_bytes(id).unwrap());
        }
    }

    /// Whatever was asked before and whatever has been evicted since, the answer depends on the
    /// tokens only.
    #[test]
    fn the_order_of_questions_does_not_matter(
        questions in prop::collection::vec(prop::collection::vec(0..4_u32, 0..12), 1..40),
        budget in 0..800_usize,
    ) {
        let tokenizer = chars("ab()", false);
        let lark = "start: part+\npart: /a|b/ | \"(\" start \")\"";
        let mut asked = constraint(Grammar::lark("lark", lark).unwrap(), &tokenizer);
        let mut fresh = constraint(Grammar::lark("lark", lark).unwrap(), &tokenizer);
        asked.memo = Mutex::new(Memo::of(budget));
        for question in &questions {
            fresh.memo = Mutex::new(Memo::of(BUDGET));
            prop_assert_eq!(allowed(&asked, 4, question), allowed(&fresh, 4, question));
            prop_assert_eq!(asked.is_accepting(question), fresh.is_accepting(question));
        }
    }
}

/// A small model with random weights, which knows no grammar.
struct Writer {
    tokenizer: Tokenizer,
    model: Gpt,
}

/// A check of whether a text is valid.
type Checker = Box<dyn Fn(&str) -> bool>;

const MAX_TOKENS: usize = 200;

impl Writer {
    fn new(tokenizer: Tokenizer, seed: u64) -> Self {
        let config = GptConfig::new(tokenizer.vocab_size(), MAX_TOKENS + 1, 1, 1, 16);
        Self { model: Gpt::new(&config, seed, &Device::flex()).unwrap(), tokenizer }
    }

    /// Samples until the text ends: its tokens, without an end token, and whether it did end.
    fn write(&self, constraint: &Arc<Constraint>, sequence: u64) -> (Vec<u32>, bool) {
        let config = GenerationConfig {
            strategy: Strategy::Sample,
            max_new_tokens: MAX_TOKENS,
            end_tokens: self.tokenizer.end_of_text().into_iter().collect(),
            top_k: if sequence.is_multiple_of(4) { 30 } else { 0 },
            seed: 11,
            ..Default::default()
        };
        let complete = |generated: &[u32]| constraint.is_complete(generated);
        let plan = Plan {
            constraint: Some(constraint.clone()),
            ends: Some(&complete),
            first_sequences: &[sequence],
            ..Plan::new(&config)
        };
        let written = generate_batch(&self.model, &[&[0]], &plan, &mut ()).unwrap();
        let mut completion = written.into_iter().flatten().next().unwrap();
        if completion.finish_reason == FinishReason::Eos {
            completion.ids.pop();
            assert!(constraint.is_accepting(&completion.ids));
        }
        (completion.ids, completion.finish_reason != FinishReason::Length)
    }

    /// The bytes that the tokens stand for.
    fn bytes(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|&id| self.tokenizer.token_bytes(id).unwrap()).collect()
    }
}

#[test]
fn over_a_thousand_forms_every_text_that_ends_is_valid() {
    let writers = [
        Writer::new(Tokenizer::chars(&chars_of_json().collect(), false).unwrap(), 1),
        Writer::new(Tokenizer::bytes().unwrap(), 2),
        Writer::new(bpe(), 3),
    ];
    let (mut ended, mut cut_off, mut cut_off_valid) = (0, 0, 0);
    for number in 0..1200_u64 {
        let mut rng = ember_data::random::rng(5, &[number]);
        let writer = &writers[number as usize / 2 % 3];
        let (grammar, check): (_, Checker) = if number.is_multiple_of(2) {
            let schema = random_schema(&mut rng, 1 + number as usize / 6 % 3);
            let grammar = Grammar::json_schema(schema.to_string(), &schema.to_string()).unwrap();
            (grammar, Box::new(move |text| is_json_of(&schema, text)))
        } else {
            let expression = Expression::random(&mut rng, 1 + number as usize / 6 % 3, false);
            (regex(&expression.pattern()).unwrap(), Box::new(move |text| expression.matches(text)))
        };
        let source = grammar.source().to_owned();
        let ends: Vec<u32> = writer.tokenizer.end_of_text().into_iter().collect();
        let constraint = Constraint::new(grammar, &writer.tokenizer, writer.tokenizer.vocab_size(), &ends);
        let constraint = Arc::new(constraint.unwrap());
        let (generated, has_ended) = writer.write(&constraint, number);
        // This holds for prefixes, too: wherever the constraint calls the text complete, it is
        // valid.
        for len in 0..=generated.len().min(40) {
            if constraint.is_accepting(&generated[..len]) {
                let text = String::from_utf8(writer.bytes(&generated[..len])).unwrap();
                assert!(check(&text), "{source}: {text:?} on the way");
            }
        }
        if has_ended {
            let text = String::from_utf8(writer.bytes(&generated)).unwrap();
            assert!(check(&text), "{source}: {text:?}");
            ended += 1;
        } else {
            cut_off += 1;
            cut_off_valid += u32::from(constraint.is_accepting(&generated));
        }
    }
    println!(
        "{ended} ended and are valid, {cut_off} were cut off, {cut_off_valid} of them where they might have ended"
    );
    assert!(ended >= 1000, "only {ended} texts ended");
}

#[test]
fn bounds_are_kept_to_wherever_they_come_from() {
    let tokenizer = chars("0123456789.-", false);
    let numbers: Vec<f64> = (-8..=8).map(|eighths| f64::from(eighths) / 4.0).collect();
    let mut texts: Vec<String> = numbers.iter().flat_map(|n| [n.to_string(), format!("{n:.2}")]).collect();
    texts.extend(["-0", "-0.0"].map(String::from));
    let keys = [("minimum", "maximum"), ("exclusiveMinimum", "maximum"), ("minimum", "exclusiveMaximum")];
    let (mut allowed, mut of_all) = (0, 0);
    for (least, most) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b))).filter(|(a, b)| a < b) {
        for (low, high) in keys {
            let one = json!({ "type": "number", low: least });
            let together = json!({ "$defs": { "low": one }, "allOf": [{ "$ref": "#/$defs/low" }, { high: most }] });
            let grammar = Grammar::json_schema("schema", &together.to_string()).unwrap();
            let constraint = constraint(grammar, &tokenizer);
            for text in &texts {
                let n: f64 = text.parse().unwrap();
                let is_within = n >= least && n <= most && (low == "minimum" || n > least);
                let is_within = is_within && (high == "maximum" || n < most);
                let is_accepted = constraint.is_accepting(&tokenizer.encode(text).unwrap());
                assert!(is_within || !is_accepted, "{together}: {text}");
                allowed += u32::from(is_accepted);
                of_all += u32::from(is_within);
            }
        }
    }
    assert!(allowed * 5 > of_all * 4, "{allowed} of {of_all}: zeros at the end are not always allowed, most is");
}

#[test]
fn the_same_judges_refuse_texts_without_a_constraint() {
    let schema =
        json!({ "type": "object", "properties": { "a": { "type": "string" } }, "additionalProperties": false });
    let writer = Writer::new(Tokenizer::bytes().unwrap(), 2);
    let free = constraint(regex("(?s:.){0,30}").unwrap(), &writer.tokenizer);
    let (generated, _) = writer.write(&Arc::new(free), 1);
    let text = String::from_utf8_lossy(&writer.bytes(&generated)).into_owned();
    assert!(!is_json_of(&schema, &text) && !Expression::Literal("abc".into()).matches(&text));
}
