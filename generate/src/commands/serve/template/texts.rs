//! Python's string methods and Jinja's filters that minijinja lacks or implements differently.
//! Positions and widths count characters, as in Python.

use std::borrow::Cow;

use minijinja::value::{Kwargs, Value, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Largest width for padding, in characters.
const MAX_WIDTH: usize = 1 << 20;

/// Python's methods of strings, lists and dictionaries.
pub(super) fn call(state: &State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), name) {
        (Some(text), "partition" | "rpartition") => partition(text, name, args),
        (Some(text), "split" | "rsplit") => split(text, name == "rsplit", args),
        (Some(text), "splitlines") => lines(text, args),
        (Some(text), "removeprefix" | "removesuffix") => remove_affix(text, name, args),
        (Some(text), "find" | "rfind" | "index" | "rindex") => find(text, name, args),
        (Some(text), "center" | "ljust" | "rjust" | "zfill") => pad(text, name, args),
        (Some(text), "title") => from_args(args).map(|()| Value::from(python_title(text))),
        _ => unknown_method_callback(state, value, name, args),
    }
}

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

fn partition(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    if separator.is_empty() {
        return Err(invalid(format!("{name}: the separator is empty")));
    }
    let parts_of = |(before, after)| [before, separator, after];
    let parts = match name {
        "partition" => text.split_once(separator).map_or([text, "", ""], parts_of),
        _ => text.rsplit_once(separator).map_or(["", "", text], parts_of),
    };
    Ok(Value::from(parts.map(str::to_owned)))
}

/// `split(sep=None, maxsplit=-1)`, or from the right.
fn split(text: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator, most, named): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.map_or_else(|| named.get("sep"), |separator| Ok(Some(separator)))?;
    let most = most.map_or_else(|| named.get("maxsplit"), |most| Ok(Some(most)))?;
    named.assert_all_used()?;
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let mut parts: Vec<&str> = match (separator, from_right) {
        (Some(""), _) => return Err(invalid("split: the separator is empty".to_owned())),
        (Some(separator), false) => text.splitn(most.saturating_add(1), separator).collect(),
        (Some(separator), true) => text.rsplitn(most.saturating_add(1), separator).collect(),
        (None, _) => words(text, most, from_right),
    };
    if from_right {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

/// At most `most` words from one end, starting there, followed by the unsplit rest.
fn words(text: &str, most: usize, from_right: bool) -> Vec<&str> {
    let trim = if from_right { str::trim_end } else { str::trim_start };
    let (mut words, mut rest) = (Vec::new(), trim(text));
    while !rest.is_empty() && words.len() < most {
        let parts = match from_right {
            true => rest.rsplit_once(char::is_whitespace).map(|(others, word)| (word, others)),
            false => rest.split_once(char::is_whitespace),
        };
        let (word, others) = parts.unwrap_or((rest, ""));
        words.push(word);
        rest = trim(others);
    }
    words.extend((!rest.is_empty()).then_some(rest));
    words
}

/// `splitlines(keepends=False)`, at all of Python's line boundaries.
fn lines(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (keeps, named): (Option<bool>, Kwargs) = from_args(args)?;
    let keeps = keeps.map_or_else(|| named.get::<Option<bool>>("keepends"), |keeps| Ok(Some(keeps)))?.unwrap_or(false);
    named.assert_all_used()?;
    let is_end =
        |character: char| matches!(character, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let (mut lines, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let end = rest.find(is_end).unwrap_or(rest.len());
        let mark = match rest[end..].chars().next() {
            Some('\r') if rest[end..].starts_with("\r\n") => 2,
            mark => mark.map_or(0, char::len_utf8),
        };
        lines.push(Value::from(&rest[..if keeps { end + mark } else { end }]));
        rest = &rest[end + mark..];
    }
    Ok(Value::from(lines))
}

fn remove_affix(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (part,): (&str,) = from_args(args)?;
    let rest = if name == "removeprefix" { text.strip_prefix(part) } else { text.strip_suffix(part) };
    Ok(Value::from(rest.unwrap_or(text)))
}

/// The position of a part; if it is missing, `find` returns -1, and `index` fails.
fn find(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (part,): (&str,) = from_args(args)?;
    let at = if name.starts_with('r') { text.rfind(part) } else { text.find(part) };
    match at {
        Some(at) => Ok(Value::from(text[..at].chars().count())),
        None if name.ends_with("find") => Ok(Value::from(-1)),
        None => Err(invalid(format!("{name}: the text does not hold that part"))),
    }
}

fn pad(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, filler): (i64, Option<char>) = from_args(args)?;
    let width = usize::try_from(width).unwrap_or(0);
    if width > MAX_WIDTH {
        return Err(invalid(format!("{name}: the width can be {MAX_WIDTH} at most")));
    }
    let missing = width.saturating_sub(text.chars().count());
    let (sign, digits) = text.split_at(if name == "zfill" && text.starts_with(['-', '+']) { 1 } else { 0 });
    let (before, filler) = match name {
        "zfill" => (missing, '0'),
        "rjust" => (missing, filler.unwrap_or(' ')),
        "center" => (missing / 2 + (missing & width & 1), filler.unwrap_or(' ')), // as CPython rounds it
        _ => (0, filler.unwrap_or(' ')),
    };
    let fill = |count: usize| filler.to_string().repeat(count);
    Ok(Value::from(format!("{sign}{}{digits}{}", fill(before), fill(missing - before))))
}

/// Python's `title`: a letter after a letter becomes lower case.
fn python_title(text: &str) -> String {
    let mut follows = false;
    let mut all = String::new();
    for character in text.chars() {
        match follows {
            true => all.extend(character.to_lowercase()),
            false => all.extend(character.to_uppercase()),
        }
        follows = character.is_lowercase() || character.is_uppercase();
    }
    all
}

/// Jinja's filter `title`, whose words are separated only by blanks, hyphens and opening brackets.
pub(super) fn title(text: Cow<str>) -> String {
    let is_separator = |character: char| character.is_whitespace() || "-({[<".contains(character);
    let words = text.split_inclusive(is_separator).map(|word| match word.chars().next() {
        Some(first) => first.to_uppercase().collect::<String>() + &word[first.len_utf8()..].to_lowercase(),
        None => String::new(),
    });
    words.collect()
}

/// Jinja's filter `center`.
pub(super) fn center(text: Cow<str>, width: Option<usize>) -> Result<Value, Error> {
    pad(&text, "center", &[Value::from(width.unwrap_or(80))])
}

/// Jinja's filter `int(default=0, base=10)`: anything that is not a number becomes `default`.
pub(super) fn int(value: &Value, default: Option<Value>, base: Option<u32>, named: Kwargs) -> Result<Value, Error> {
    let default = default.map_or_else(|| named.get("default"), |default| Ok(Some(default)))?;
    let base = base.map_or_else(|| named.get("base"), |base| Ok(Some(base)))?.unwrap_or(10);
    named.assert_all_used()?;
    if !(2..=36).contains(&base) {
        return Err(invalid(format!("int: the base is {base}; it must be from 2 to 36")));
    }
    let number = match value.as_str().map(str::trim) {
        Some(text) => i128::from_str_radix(text, base).ok().or_else(|| whole(text.parse().ok()?)),
        None => i128::try_from(value.clone()).ok().or_else(|| whole(f64::try_from(value.clone()).ok()?)),
    };
    Ok(number.map(Value::from).or(default).unwrap_or_else(|| Value::from(0)))
}

fn whole(number: f64) -> Option<i128> {
    number.is_finite().then_some(number as i128)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use minijinja::{Environment, context};

    fn rendered(source: &str) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.set_unknown_method_callback(call);
        environment.add_filter("center", center);
        environment.add_filter("int", int);
        environment.add_filter("title", title);
        environment.render_str(source, context! {})
    }

    /// The output of Jinja2 in Python; lists are shown with their items between bars.
    #[test]
    fn texts_are_made_of_texts_as_python_does() {
        for (source, expected) in [
            ("'a,b,c'.rsplit(',', 1)|join('|')", "a,b|c"),
            ("'a,b,c'.rsplit(',')|join('|')", "a|b|c"),
            ("'a,b,c'.split(',', 1)|join('|')", "a|b,c"),
            ("'a b  c '.split(None, 1)|join('|')", "a|b  c "),
            ("'  a b '.rsplit(None, 1)|join('|')", "  a|b"),
            ("' a b c'.split(maxsplit=1)|join('|')", "a|b c"),
            ("' a\\u00e9  b '.split()|join('|')", "a\u{e9}|b"),
            ("' a\\u00e9  b '.rsplit()|join('|')", "a\u{e9}|b"),
            ("' a '.split(' ')|join('|')", "|a|"),
            ("''.split(',')|length", "1"),
            ("''.split()|length", "0"),
            ("'a\\u2028b\\x0bc\\r\\nd\\n'.splitlines()|join('|')", "a|b|c|d"),
            ("'a\\r\\nb\\n'.splitlines(true)|join('|')", "a\r\n|b\n"),
            ("'<x>'.removeprefix('<').removesuffix('>').removesuffix('y')", "x"),
            ("'\\u00e9abc'.index('b')", "2"),
            ("'\\u00e9aXbX'.rindex('X')", "4"),
            ("'\\u00e9ab'.find('b')", "2"),
            ("'ab'.rfind('z')", "-1"),
            ("'5'.zfill(3) ~ '-5'.zfill(3) ~ '5555'.zfill(3)", "005-055555"),
            ("'a'.center(4, '*') ~ 'ab'.center(5, '*') ~ 'a'.ljust(2) ~ 'a'.rjust(-2)", "*a****ab*a a"),
            ("'x'|center(5)", "  x  "),
            ("\"they're foo_bar a1b\".title()", "They'Re Foo_Bar A1B"),
            ("\"they're x-y foo_bar (aB\"|title", "They're X-Y Foo_bar (Ab"),
            ("'x'|int ~ ' 7 '|int ~ '3.9'|int ~ -3.9|int ~ true|int", "073-31"),
            ("'x'|int(5) ~ 'x'|int(default=6) ~ 'ff'|int(base=16) ~ none|int", "562550"),
        ] {
            assert_eq!(rendered(&format!("{{{{ {source} }}}}")).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn what_python_refuses_is_refused() {
        for (source, why) in [
            ("'a'.index('b')", "index: the text does not hold that part"),
            ("'a'.split('')", "split: the separator is empty"),
            ("'a'.partition('')", "partition: the separator is empty"),
            ("'a'.center(999999999999)", "center: the width can be 1048576 at most"),
            ("'a'|int(base=99)", "int: the base is 99"),
        ] {
            assert!(rendered(&format!("{{{{ {source} }}}}")).unwrap_err().to_string().contains(why), "{source}");
        }
    }
}
