//! Values in Python's notation: as JSON by transformers' `tojson`, and by `str`, which templates
//! use to show values other than texts.

use minijinja::value::{Kwargs, Rest, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Output, State, escape_formatter};

use super::super::special::MARK;

/// Deepest nesting of values: writing them recurses as deep.
const MAX_DEPTH: usize = 200;

/// Largest indentation.
const MAX_INDENT: i64 = 100;

/// transformers' `tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`,
/// which is `json.dumps`: keys in the order given, and no HTML escaping.
pub(super) fn tojson(value: &Value, args: Rest<Value>) -> Result<Value, Error> {
    let (positional, named): (&[Value], Kwargs) = from_args(&args)?;
    if positional.len() > 4 {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let argument = |place: usize, name: &str| match positional.get(place) {
        Some(value) => Ok(value.clone()),
        None => named.get::<Option<Value>>(name).map(Option::unwrap_or_default),
    };
    let (ensure_ascii, indent) = (argument(0, "ensure_ascii")?, argument(1, "indent")?);
    let (separators, sort_keys) = (argument(2, "separators")?, argument(3, "sort_keys")?);
    named.assert_all_used()?;
    let is_unset = |value: &Value| value.is_none() || value.is_undefined();
    let wrong = |what: &str| Error::new(ErrorKind::InvalidOperation, format!("tojson: {what}"));
    let indent = match indent.as_str() {
        Some(text) => Some(text.to_owned()),
        None if is_unset(&indent) => None,
        None => {
            let blanks = indent.as_i64().ok_or_else(|| wrong("indent must be a number or a text"))?;
            Some(" ".repeat(blanks.clamp(0, MAX_INDENT) as usize))
        }
    };
    let separator = |place: usize, default: &str| match is_unset(&separators) {
        true => Ok(default.to_owned()),
        false => {
            let text = separators.get_item_by_index(place)?;
            text.as_str().map(str::to_owned).ok_or_else(|| wrong("separators must be two texts"))
        }
    };
    let item_separator = separator(0, if indent.is_some() { "," } else { ", " })?;
    let key_separator = separator(1, ": ")?;
    let json =
        Json { is_ascii: ensure_ascii.is_true(), indent, item_separator, key_separator, sorts: sort_keys.is_true() };
    let mut text = String::new();
    json.write(&mut text, value, 0)?;
    Ok(Value::from_safe_string(text))
}

/// JSON formatting options.
struct Json {
    /// Whether non-ASCII characters are escaped.
    is_ascii: bool,
    /// Indentation per nesting level; `None` writes everything on one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    /// Whether keys are sorted.
    sorts: bool,
}

impl Json {
    fn write(&self, text: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        check(depth)?;
        match value.kind() {
            ValueKind::None => text.push_str("null"),
            ValueKind::Bool => text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => text.push_str(&json_number(value)?),
            ValueKind::String => self.quote(text, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.enclose(text, ['[', ']'], &items, depth, |text, item| self.write(text, item, depth + 1))?;
            }
            ValueKind::Map => {
                let mut items = Vec::new();
                for key in value.try_iter()? {
                    items.push((json_key(&key)?, value.get_item(&key)?));
                }
                if self.sorts {
                    items.sort_by(|(a, _), (b, _)| a.cmp(b));
                }
                self.enclose(text, ['{', '}'], &items, depth, |text, (key, item)| {
                    self.quote(text, key);
                    text.push_str(&self.key_separator);
                    self.write(text, item, depth + 1)
                })?;
            }
            _ => return Err(json_error(value)),
        }
        Ok(())
    }

    /// Writes items in brackets.
    fn enclose<T>(
        &self,
        text: &mut String,
        [open, close]: [char; 2],
        items: &[T],
        depth: usize,
        write: impl Fn(&mut String, &T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        text.push(open);
        for (place, item) in items.iter().enumerate() {
            if place > 0 {
                text.push_str(&self.item_separator);
            }
            self.begin_line(text, depth + 1);
            write(text, item)?;
        }
        if !items.is_empty() {
            self.begin_line(text, depth);
        }
        text.push(close);
        Ok(())
    }

    fn begin_line(&self, text: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            text.push('\n');
            (0..depth).for_each(|_| text.push_str(indent));
        }
    }

    fn quote(&self, text: &mut String, content: &str) {
        text.push('"');
        for character in content.chars() {
            match character {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\u{8}' => text.push_str("\\b"),
                '\u{c}' => text.push_str("\\f"),
                MARK => text.push(MARK),
                other if other < ' ' || (self.is_ascii && !is_ascii_text(other)) => {
                    for unit in other.encode_utf16(&mut [0; 2]).iter() {
                        text.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                other => text.push(other),
            }
        }
        text.push('"');
    }
}

fn json_number(value: &Value) -> Result<String, Error> {
    let text = number(value)?;
    Ok(match &*text {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        _ => text,
    })
}

fn json_key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number => json_number(key),
        _ => Err(json_error(key)),
    }
}

fn json_error(value: &Value) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: what is {} cannot be written as JSON", value.kind()))
}

/// Writes a value into a template's text, as Python's `str` does.
pub(super) fn show(out: &mut Output, state: &State, value: &Value) -> Result<(), Error> {
    match python_str(value)? {
        Some(text) => out.write_str(&text).map_err(Error::from),
        None => escape_formatter(out, state, value),
    }
}

/// Jinja's filter `string`, which is Python's `str`.
pub(super) fn string(value: &Value) -> Result<Value, Error> {
    match python_str(value)? {
        Some(text) => Ok(Value::from(text)),
        None if value.kind() == ValueKind::String => Ok(value.clone()),
        None => Ok(Value::from(value.to_string())),
    }
}

/// Jinja's test `iterable`: none is not iterable.
pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Jinja's test `sequence`: anything with a length and items, including strings and mappings.
pub(super) fn is_sequence(value: &Value) -> bool {
    value.len().is_some() || value.is_undefined()
}

/// Python's `str` of a value, if minijinja writes it differently.
fn python_str(value: &Value) -> Result<Option<String>, Error> {
    let differs = match value.kind() {
        ValueKind::Number => !value.is_integer(),
        ValueKind::Seq | ValueKind::Map => true,
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    };
    let mut text = String::new();
    Ok(if differs { repr(&mut text, value, 0).map(|()| Some(text))? } else { None })
}

/// Writes a value as Python's `repr` does.
fn repr(text: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    check(depth)?;
    match value.kind() {
        ValueKind::String => quote(text, value.as_str().unwrap_or_default()),
        ValueKind::Number => text.push_str(&number(value)?),
        ValueKind::Undefined => text.push_str("Undefined"),
        ValueKind::Map => {
            text.push('{');
            for (place, key) in value.try_iter()?.enumerate() {
                text.push_str(if place > 0 { ", " } else { "" });
                repr(text, &key, depth + 1)?;
                text.push_str(": ");
                repr(text, &value.get_item(&key)?, depth + 1)?;
            }
            text.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => {
            text.push('[');
            for (place, item) in value.try_iter()?.enumerate() {
                text.push_str(if place > 0 { ", " } else { "" });
                repr(text, &item, depth + 1)?;
            }
            text.push(']');
        }
        _ => text.push_str(&value.to_string()),
    }
    Ok(())
}

/// Writes a text in quotes as Python does: double quotes only if the text contains single and no
/// double ones.
fn quote(text: &mut String, content: &str) {
    let mark = if content.contains('\'') && !content.contains('"') { '"' } else { '\'' };
    text.push(mark);
    for character in content.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            other if other == mark => text.extend(['\\', other]),
            other if other == MARK || is_printable(other) => text.push(other),
            other => text.push_str(&match u32::from(other) {
                code @ ..=0xff => format!("\\x{code:02x}"),
                code @ 0x100..=0xffff => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            }),
        }
    }
    text.push(mark);
}

fn is_ascii_text(character: char) -> bool {
    (' '..='~').contains(&character)
}

/// Whether Python's `repr` leaves a character unescaped. Rust's `escape_debug` uses the same
/// Unicode categories, and escapes a combining mark only at the start of a text.
fn is_printable(character: char) -> bool {
    let is_escaped = || ['a', character].iter().collect::<String>().escape_debug().any(|written| written == '\\');
    is_ascii_text(character) || !(character.is_ascii() || is_escaped())
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    Ok(float(f64::try_from(value.clone())?))
}

/// A float as Python's `repr` writes it: the fewest digits that parse as the same number.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific; // an infinity
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        let text = value.to_string();
        return if text.contains('.') { text } else { text + ".0" };
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn check(depth: usize) -> Result<(), Error> {
    if depth <= MAX_DEPTH {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("values lie more than {MAX_DEPTH} deep in each other")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use minijinja::{Environment, context};
    use serde_json::json;

    fn rendered(source: &str) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.add_filter("tojson", tojson);
        environment.add_filter("string", string);
        environment.set_formatter(show);
        let value = json!({
            "z": 1, "a": [1, 2.0, 1e20, 1e-7, null, true], "s": "it's <b> & \"\u{e9}\"\n\u{2028}", "e": {}, "l": [],
        });
        environment.render_str(source, context! { v => value })
    }

    /// The output of Python's `json.dumps` for the same value.
    #[test]
    fn json_is_that_of_python() {
        let cases = [
            (
                "{{ v | tojson }}",
                "{\"z\": 1, \"a\": [1, 2.0, 1e+20, 1e-07, null, true], \"s\": \"it's <b> & \\\"\u{e9}\\\"\\n\u{2028}\", \
                 \"e\": {}, \"l\": []}",
            ),
            (
                "{{ v | tojson(ensure_ascii=true) }}",
                "{\"z\": 1, \"a\": [1, 2.0, 1e+20, 1e-07, null, true], \"s\": \"it's <b> & \\\"\\u00e9\\\"\\n\\u2028\", \
                 \"e\": {}, \"l\": []}",
            ),
            (
                "{{ v | tojson(separators=(',', ':')) }}",
                "{\"z\":1,\"a\":[1,2.0,1e+20,1e-07,null,true],\"s\":\"it's <b> & \\\"\u{e9}\\\"\\n\u{2028}\",\"e\":{},\"l\":[]}",
            ),
            (
                "{{ v | tojson(indent=4) }}",
                "{\n    \"z\": 1,\n    \"a\": [\n        1,\n        2.0,\n        1e+20,\n        1e-07,\n        null,\n        \
                 true\n    ],\n    \"s\": \"it's <b> & \\\"\u{e9}\\\"\\n\u{2028}\",\n    \"e\": {},\n    \"l\": []\n}",
            ),
            (
                "{{ {'b': [], 'a': {1: none} } | tojson(false, 1, sort_keys=true) }}",
                "{\n \"a\": {\n  \"1\": null\n },\n \"b\": []\n}",
            ),
        ];
        for (source, expected) in cases {
            assert_eq!(rendered(source).unwrap(), expected, "{source}");
        }
        assert!(rendered("{{ v | tojson(sorted=true) }}").is_err());
        assert!(rendered("{{ nothing | tojson }}").is_err());
    }

    /// The output of Python's `str` for the same values.
    #[test]
    fn what_is_no_text_is_shown_as_python_shows_it() {
        let cases = [
            (
                "{{ v }}",
                "{'z': 1, 'a': [1, 2.0, 1e+20, 1e-07, None, True], 's': 'it\\'s <b> & \"\u{e9}\"\\n\\u2028', 'e': {}, 'l': []}",
            ),
            ("{{ [\"it's\", 'x', true] | string }}", "[\"it's\", 'x', True]"),
            ("{{ 'x' }}{{ 2.0 }} {{ none }} {{ 3 }}{{ nothing }}", "x2.0 None 3"),
        ];
        for (source, expected) in cases {
            assert_eq!(rendered(source).unwrap(), expected, "{source}");
        }
        let mut text = String::new();
        quote(&mut text, "a\"b'c\\\n\t\0\u{7f}\u{a0}e\u{301}\u{2028}\u{1f600}");
        assert_eq!(text, "'a\"b\\'c\\\\\\n\\t\\x00\\x7f\\xa0e\u{301}\\u2028\u{1f600}'");
    }

    #[test]
    fn floats_are_written_as_python_writes_them() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e-4, "0.0001"),
            (1e15, "1000000000000000.0"),
        ];
        for (value, expected) in cases {
            assert_eq!(float(value), expected);
        }
        for (value, expected) in [(1e16, "1e+16"), (1.5e-7, "1.5e-07"), (-1e100, "-1e+100"), (f64::INFINITY, "inf")] {
            assert_eq!(float(value), expected);
        }
    }

    #[test]
    fn values_that_lie_too_deep_in_each_other_are_refused() {
        let deep = "{% set n = namespace(x=[]) %}{% for i in range(300) %}{% set n.x = [n.x] %}{% endfor %}";
        for shown in ["{{ n.x }}", "{{ n.x | tojson }}", "{{ n.x | string }}"] {
            let error = rendered(&format!("{deep}{shown}")).unwrap_err().to_string();
            assert!(error.contains("more than 200 deep"), "{error}");
        }
    }
}
