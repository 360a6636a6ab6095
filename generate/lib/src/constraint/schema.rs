//! What of a JSON Schema the library would follow wrongly, or take hours and gigabytes for: it is
//! refused by name before the library sees it.

use serde_json::{Map, Value};

/// Beyond this, numbers are no longer told apart: the library computes with doubles.
const LARGEST: f64 = 9_007_199_254_740_991.0;

/// The common multiple of what numbers are to be multiples of. The library has a state for each
/// remainder: of a million they are seconds and hundreds of megabytes.
const MOST_REMAINDERS: u64 = 100_000;

/// Decimals of a number that others are to be multiples of; the library wraps around beyond nine.
const MOST_DECIMALS: u32 = 6;

/// Patterns for the names of one object. Each is held beside each, in a time that grows with the
/// fourth power: 400 take a minute.
const MOST_NAME_PATTERNS: usize = 64;

/// Keys whose values are no schemas, whatever they hold.
const LITERAL: [&str; 5] = ["const", "enum", "default", "example", "examples"];

/// Keys whose values have schemas under names that anybody chooses.
const NAMING: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Refuses what cannot be followed.
///
/// # Errors
/// In words, what it is.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    Check::default().schema(schema)
}

/// What was met so far.
#[derive(Default)]
struct Check {
    multiple: Option<Decimal>,
}

impl Check {
    fn schema(&mut self, schema: &Value) -> Result<(), String> {
        match schema {
            Value::Array(all) => all.iter().try_for_each(|one| self.schema(one)),
            Value::Object(keys) => self.object(keys),
            _ => Ok(()),
        }
    }

    fn object(&mut self, keys: &Map<String, Value>) -> Result<(), String> {
        bounds(keys)?;
        if let Some(multiple) = keys.get("multipleOf").filter(|value| value.is_number()) {
            self.multiple(&multiple.to_string())?;
        }
        let patterns = keys.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        if patterns > MOST_NAME_PATTERNS {
            return Err(format!("patternProperties has {patterns} patterns, of at most {MOST_NAME_PATTERNS}"));
        }
        for (key, value) in keys {
            match value {
                _ if LITERAL.contains(&key.as_str()) => {}
                Value::Object(named) if NAMING.contains(&key.as_str()) => {
                    named.values().try_for_each(|schema| self.schema(schema))?;
                }
                _ => self.schema(value)?,
            }
        }
        Ok(())
    }

    /// Numbers may have to be multiples of several: so the common multiple of all is what counts.
    fn multiple(&mut self, number: &str) -> Result<(), String> {
        let cannot = |why: &str| format!("multipleOf {number} cannot be followed: {why}");
        let own = Decimal::of(number).ok_or_else(|| cannot("it has too many digits"))?;
        let common = self.multiple.map_or(Some(own), |other| own.common(other));
        let too_many = || cannot(&format!("the common multiple of all is above {MOST_REMAINDERS}"));
        self.multiple = Some(common.filter(|common| common.digits <= MOST_REMAINDERS).ok_or_else(too_many)?);
        Ok(())
    }
}

/// A number of few digits: `digits` / 10 ^ `decimals`.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u64,
    decimals: u32,
}

impl Decimal {
    /// None where it has more digits than can be followed.
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
        Some(Self { digits: digits.checked_mul(shift)?, decimals }).filter(|own| own.decimals <= MOST_DECIMALS)
    }

    /// The least number that both divide.
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

/// A bound of a number: the key that sets it, its value, and whether that is allowed itself.
#[derive(Clone, Copy)]
struct Bound<'a> {
    key: &'a str,
    value: f64,
    is_allowed: bool,
}

/// Both bounds, where there are any: the tighter of two.
fn bounds(keys: &Map<String, Value>) -> Result<(), String> {
    let bound = |key: &'static str, is_allowed| {
        let value = keys.get(key)?.as_f64()?;
        Some(Bound { key, value, is_allowed })
    };
    let all = [
        bound("minimum", true),
        bound("exclusiveMinimum", false),
        bound("maximum", true),
        bound("exclusiveMaximum", false),
    ];
    if let Some(Bound { key, .. }) = all.iter().flatten().find(|bound| bound.value.abs() > LARGEST) {
        return Err(format!("{key} {} is beyond ±{LARGEST}, where numbers are no longer told apart", keys[*key]));
    }
    let [minimum, exclusive_minimum, maximum, exclusive_maximum] = all;
    let at_least = tighter(minimum, exclusive_minimum, |a, b| a.value > b.value);
    let at_most = tighter(maximum, exclusive_maximum, |a, b| a.value < b.value);
    let (Some(lower), Some(upper)) = (at_least, at_most) else { return Ok(()) };
    let is_whole = |bound: Bound<'_>| !bound.is_allowed && bound.value.fract() == 0.0;
    let is_of_whole_numbers = keys.get("type").is_some_and(|kind| kind == "integer");
    // The library lets the bound itself through where the other lies within the same unit.
    let lets_through = match () {
        () if is_of_whole_numbers => None,
        () if is_whole(lower) && lower.value >= 0.0 && upper.value < lower.value + 1.0 => Some((lower, upper)),
        () if is_whole(upper) && upper.value <= 0.0 && lower.value > upper.value - 1.0 => Some((upper, lower)),
        () => None,
    };
    lets_through.map_or(Ok(()), |(bound, other)| {
        let Bound { key, value, .. } = bound;
        Err(format!("{key} {value} cannot be kept to beside {} {}, which is less than 1 away", other.key, other.value))
    })
}

/// Of two bounds the one that counts; of equal ones the one that does not allow itself.
fn tighter<'a>(
    allowed: Option<Bound<'a>>,
    exclusive: Option<Bound<'a>>,
    is_tighter: impl Fn(&Bound<'a>, &Bound<'a>) -> bool,
) -> Option<Bound<'a>> {
    match (allowed, exclusive) {
        (Some(a), Some(b)) if is_tighter(&a, &b) => Some(a),
        (a, b) => b.or(a),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn refused(schema: &Value) -> Option<String> {
        check(schema).err()
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
    fn a_bound_that_would_be_let_through_is_refused() {
        for (low, high) in [
            (json!({ "exclusiveMinimum": 0 }), json!({ "maximum": 0.5 })),
            (json!({ "exclusiveMinimum": 1 }), json!({ "maximum": 1.5 })),
            (json!({ "minimum": -0.5 }), json!({ "exclusiveMaximum": 0 })),
            (json!({ "minimum": -2, "exclusiveMinimum": 0 }), json!({ "exclusiveMaximum": 0.25 })),
        ] {
            let schema = json!({ "allOf": [joined(&low, &high)] });
            assert!(refused(&schema).unwrap().contains("less than 1 away"), "{schema}");
        }
        for schema in [
            json!({ "exclusiveMinimum": 0, "maximum": 1 }),
            json!({ "exclusiveMinimum": 0.5, "exclusiveMaximum": 0.75 }),
            json!({ "minimum": 0.25, "exclusiveMinimum": 0, "maximum": 0.5 }),
            json!({ "type": "integer", "exclusiveMinimum": 0, "maximum": 0.5 }),
            json!({ "exclusiveMinimum": 0 }),
        ] {
            assert_eq!(refused(&schema), None, "{schema}");
        }
    }

    fn joined(one: &Value, other: &Value) -> Value {
        let all = [one, other].into_iter().filter_map(Value::as_object).flatten();
        all.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>().into()
    }

    #[test]
    fn multiples_stay_within_what_can_be_followed() {
        let each = |numbers: &[&str]| {
            let all = numbers.iter().map(|number| format!("{{\"multipleOf\": {number}}}")).collect::<Vec<_>>();
            refused(&serde_json::from_str(&format!("{{\"allOf\": [{}]}}", all.join(", "))).unwrap())
        };
        for fine in [&["0.01", "5", "10", "1000"][..], &["0.007"], &["1e2"], &["99991"], &["2.50"], &["0"], &["0", "3"]]
        {
            assert_eq!(each(fine), None, "{fine:?}");
        }
        for refused in [&["10000019"][..], &["9973", "9967"], &["3e-9"], &["1e300"], &["0.12345678901234567"]] {
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
        assert_eq!(with(65).as_deref(), Some("patternProperties has 65 patterns, of at most 64"));
    }
}
