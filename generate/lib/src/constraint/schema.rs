//! Rewrites or rejects those parts of a JSON Schema that the library would handle wrongly, or only
//! with hours and gigabytes.

use serde_json::{Map, Value};

/// Whole numbers beyond this are not distinct, because the library computes with doubles.
const LARGEST: f64 = 9_007_199_254_740_991.0;

/// The smallest number above 0 here. The smallest double has 324 decimals, too many for the
/// library's expressions.
const LEAST: f64 = 1e-50;

/// Limit for the least common multiple of all `multipleOf`. The library has a state for each
/// remainder: a million take seconds and hundreds of megabytes.
const MAX_REMAINDERS: u64 = 100_000;

/// Most decimals of a `multipleOf`; beyond nine the library's arithmetic wraps around.
const MAX_DECIMALS: u32 = 6;

/// Most name patterns of one object. They are compared pairwise, in time that grows with the fourth
/// power: 400 take a minute.
const MAX_NAME_PATTERNS: usize = 64;

/// The keyword before a schema in a Lark grammar.
const IN_LARK: &str = "%json";

/// Keys whose values are literals, never schemas.
const LITERAL: [&str; 5] = ["const", "enum", "default", "example", "examples"];

/// Keys whose values map arbitrary names to schemas.
const NAMING: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Rewrites a schema so that the library follows it correctly.
///
/// # Errors
/// A message about what cannot be followed.
pub(super) fn prepare(schema: &mut Value) -> Result<(), String> {
    Preparation::default().schema(schema)
}

/// Does the same for the schemas in a Lark grammar (`%json { … }`), and keeps its line numbers.
/// Invalid JSON is kept, so that the library reports it.
///
/// # Errors
/// As [`prepare`].
pub(super) fn prepare_within(lark: &str) -> Result<String, String> {
    let (mut prepared, mut rest) = (String::with_capacity(lark.len()), lark);
    while let Some(place) = rest.find(IN_LARK) {
        let (before, behind) = rest.split_at(place + IN_LARK.len());
        prepared.push_str(before);
        rest = behind;
        let mut values = serde_json::Deserializer::from_str(behind).into_iter::<Value>();
        let Some(Ok(given)) = values.next() else { continue };
        let mut schema = given.clone();
        prepare(&mut schema)?;
        let (text, after) = behind.split_at(values.byte_offset());
        rest = after;
        if schema == given {
            prepared.push_str(text);
        } else {
            let breaks = "\n".repeat(text.matches('\n').count());
            prepared.push_str(&schema.to_string().replacen('{', &format!(" {{{breaks}"), 1));
        }
    }
    Ok(prepared + rest)
}

/// State of the traversal.
#[derive(Default)]
struct Preparation {
    multiple: Option<Decimal>,
}

impl Preparation {
    fn schema(&mut self, schema: &mut Value) -> Result<(), String> {
        match schema {
            Value::Array(all) => all.iter_mut().try_for_each(|one| self.schema(one)),
            Value::Object(keys) => self.object(keys),
            _ => Ok(()),
        }
    }

    fn object(&mut self, keys: &mut Map<String, Value>) -> Result<(), String> {
        bounds(keys)?;
        if let Some(multiple) = keys.get("multipleOf").filter(|value| value.is_number()) {
            self.multiple(&multiple.to_string())?;
        }
        let patterns = keys.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        if patterns > MAX_NAME_PATTERNS {
            return Err(format!("patternProperties has {patterns} patterns; at most {MAX_NAME_PATTERNS} are allowed"));
        }
        for (key, value) in keys {
            match value {
                _ if LITERAL.contains(&key.as_str()) => {}
                Value::Object(named) if NAMING.contains(&key.as_str()) => {
                    named.values_mut().try_for_each(|schema| self.schema(schema))?;
                }
                _ => self.schema(value)?,
            }
        }
        Ok(())
    }

    /// Adds a `multipleOf`. A number may have to satisfy several, so the limit applies to the least
    /// common multiple of all.
    fn multiple(&mut self, number: &str) -> Result<(), String> {
        let cannot = |why: &str| format!("multipleOf {number} cannot be followed: {why}");
        let own = Decimal::of(number).ok_or_else(|| cannot("it has too many digits"))?;
        if !own.is_read() {
            return Err(cannot("it cannot be held exactly in 64 bits"));
        }
        let common = self.multiple.map_or(Some(own), |other| own.common(other));
        let too_many = || cannot(&format!("the common multiple of all is above {MAX_REMAINDERS}"));
        self.multiple = Some(common.filter(|common| common.digits <= MAX_REMAINDERS).ok_or_else(too_many)?);
        Ok(())
    }
}

/// A decimal number with few digits: `digits` / 10 ^ `decimals`.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u64,
    decimals: u32,
}

impl Decimal {
    /// Parses a number; `None` if it has too many digits.
    fn of(number: &str) -> Option<Self> {
        let (digits, exponent) = match number.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
            None => (number, 0),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let fraction = fraction.trim_end_matches('0');
        let digits: u64 = format!("{whole}{fraction}").trim_start_matches('-').parse().ok()?;
        let decimals = i32::try_from(fraction.len()).ok()? - exponent;
        let shift = 10_u64.checked_pow(u32::try_from((-decimals).max(0)).ok()?)?;
        let decimals = u32::try_from(decimals.max(0)).ok()?;
        Some(Self { digits: digits.checked_mul(shift)?, decimals }).filter(|own| own.decimals <= MAX_DECIMALS)
    }

    /// Whether the library reads it exactly: it multiplies by ten until there is no fraction, which
    /// rounding may prevent (0.07 becomes 0.7000000000000001).
    fn is_read(self) -> bool {
        let mut number = self.digits as f64 / 10_f64.powi(self.decimals as i32);
        (0..self.decimals).for_each(|_| number *= 10.0);
        number.fract() == 0.0
    }

    /// The least common multiple.
    fn common(self, other: Self) -> Option<Self> {
        let decimals = self.decimals.max(other.decimals);
        let scaled = |one: Self| one.digits.checked_mul(10_u64.pow(decimals - one.decimals));
        let (a, b) = (scaled(self)?, scaled(other)?);
        let shared = divisor(a, b);
        let digits = a.checked_div(shared).unwrap_or(0).checked_mul(b)?;
        Some(Self { digits, decimals })
    }
}

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Rejects bounds beyond [`LARGEST`], and rewrites those that the library would not enforce.
///
/// The library accepts an exclusive whole bound itself if the other bound lies within 1 of it,
/// wherever that comes from (`allOf`, `$ref`). So the next double becomes an inclusive bound.
fn bounds(keys: &mut Map<String, Value>) -> Result<(), String> {
    for key in ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"] {
        if let Some(value) = keys.get(key).filter(|value| value.as_f64().is_some_and(|value| value.abs() > LARGEST)) {
            return Err(format!("{key} {value} is beyond ±{LARGEST}, where numbers can no longer be told apart"));
        }
    }
    if keys.get("type").is_none_or(|kind| kind != "integer") {
        allow_the_next(keys, "exclusiveMinimum", "minimum", 1.0);
        allow_the_next(keys, "exclusiveMaximum", "maximum", -1.0);
    }
    Ok(())
}

/// Replaces an exclusive whole bound by the next double; `inward` is the sign of its direction.
/// Bounds below 0 in that direction are enforced correctly and stay as they are.
fn allow_the_next(keys: &mut Map<String, Value>, exclusive: &str, inclusive: &str, inward: f64) {
    let allowed = keys.get(inclusive).and_then(Value::as_f64).map(|value| value * inward);
    let bound = match keys.get(exclusive) {
        Some(Value::Bool(true)) => allowed, // draft 4: the other key has the number
        other => other.and_then(Value::as_f64).map(|value| value * inward),
    };
    let Some(bound) = bound.filter(|bound| *bound >= 0.0 && bound.fract() == 0.0) else { return };
    let next = if bound == 0.0 { LEAST } else { bound.next_up() };
    keys.remove(exclusive);
    keys.insert(inclusive.to_owned(), (allowed.map_or(next, |allowed| allowed.max(next)) * inward).into());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn refused(schema: &Value) -> Option<String> {
        prepare(&mut schema.clone()).err()
    }

    #[test]
    fn bounds_that_are_not_told_apart_are_refused() {
        for bound in [json!(-1e19), json!(i64::MIN), json!(u64::MAX), json!(9_007_199_254_740_993_i64), json!(1e300)] {
            for key in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] {
                let line = refused(&json!({ "properties": { "a": { "type": "integer", key: bound } } })).unwrap();
                assert!(line.starts_with(&format!("{key} ")) && line.contains("9007199254740991"), "{line}");
            }
        }
        assert_eq!(refused(&json!({ "type": "integer", "minimum": -9_007_199_254_740_991_i64, "maximum": 0 })), None);
        assert_eq!(refused(&json!({ "const": { "minimum": 1e300 }, "properties": { "minimum": {} } })), None);
        assert!(refused(&json!({ "properties": { "const": { "minimum": 1e300 } } })).is_some());
    }

    #[test]
    fn an_exclusive_whole_bound_becomes_the_next_number() {
        for (given, expected) in [
            (json!({ "exclusiveMinimum": 0 }), json!({ "minimum": 1e-50 })),
            (json!({ "exclusiveMinimum": 1.0, "minimum": -3 }), json!({ "minimum": 1.000_000_000_000_000_2 })),
            (json!({ "exclusiveMinimum": 1, "minimum": 3 }), json!({ "minimum": 3.0 })),
            (json!({ "exclusiveMinimum": true, "minimum": 0 }), json!({ "minimum": 1e-50 })),
            (json!({ "exclusiveMaximum": 0 }), json!({ "maximum": -1e-50 })),
            (json!({ "exclusiveMaximum": -1, "maximum": -1 }), json!({ "maximum": -1.000_000_000_000_000_2 })),
        ] {
            let mut schema = json!({ "allOf": [given] });
            prepare(&mut schema).unwrap();
            assert_eq!(schema, json!({ "allOf": [expected] }), "{given}");
        }
        for kept in [
            json!({ "exclusiveMinimum": 0.5 }),
            json!({ "exclusiveMinimum": -1 }),
            json!({ "exclusiveMaximum": 1 }),
            json!({ "exclusiveMinimum": false, "minimum": 0 }),
            json!({ "exclusiveMinimum": true }),
            json!({ "type": "integer", "exclusiveMinimum": 0 }),
            json!({ "const": { "exclusiveMinimum": 0 } }),
        ] {
            let mut schema = kept.clone();
            prepare(&mut schema).unwrap();
            assert_eq!(schema, kept);
        }
    }

    #[test]
    fn schemas_of_a_lark_grammar_are_prepared_where_they_stand() {
        let lark = "start: a | b | c\na: %json {\n \"exclusiveMinimum\": 0}\nb: %json { \"const\": \"%json{}\" }\n# %json c\nc: /x/\n";
        let prepared = prepare_within(lark).unwrap();
        assert_eq!(prepared, lark.replace("{\n \"exclusiveMinimum\": 0}", "{\n\"minimum\":1e-50}"));
        assert_eq!(prepare_within("start: \"a\" ").unwrap(), "start: \"a\" ");
        let beyond = "start: %json { \"minimum\": 1e300 }";
        assert!(prepare_within(beyond).unwrap_err().starts_with("minimum 1e+300 is beyond"), "{beyond}");
    }

    #[test]
    fn multiples_stay_within_what_can_be_followed() {
        let each = |numbers: &[&str]| {
            let all = numbers.iter().map(|number| format!("{{\"multipleOf\": {number}}}")).collect::<Vec<_>>();
            refused(&serde_json::from_str(&format!("{{\"allOf\": [{}]}}", all.join(", "))).unwrap())
        };
        for fine in [&["0.01", "5", "10", "1000"][..], &["0.006"], &["1e2"], &["99991"], &["2.50"], &["0"], &["0", "3"]]
        {
            assert_eq!(each(fine), None, "{fine:?}");
        }
        for refused in
            [&["10000019"][..], &["9973", "9967"], &["3e-9"], &["1e300"], &["0.12345678901234567"], &["0.07"]]
        {
            assert!(each(refused).unwrap().starts_with("multipleOf "), "{refused:?}");
        }
    }

    #[test]
    fn names_have_few_patterns() {
        let with = |count: usize| {
            let patterns: Map<_, _> = (0..count).map(|number| (format!("^k{number}$"), json!(true))).collect();
            refused(&json!({ "items": { "patternProperties": patterns } }))
        };
        assert_eq!(with(64), None);
        assert_eq!(with(65).as_deref(), Some("patternProperties has 65 patterns; at most 64 are allowed"));
    }
}
