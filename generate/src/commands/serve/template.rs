//! Chat templates: how a conversation becomes the text that a checkpoint was taught to go on with.
//!
//! They are Jinja with Python's string methods, as transformers runs them. A template may write
//! special tokens; what people say may not: where a message holds the name of one, its characters
//! are what the model reads, unless somebody asks otherwise ([`super::special`]).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use ember_data::tokenizer::Tokenizer;
use minijinja::{Environment, Error, ErrorKind, context};
use serde_json::{Map, Value};

use super::error::ApiError;
use super::special::SpecialNames;
use crate::allocator::Bound;

/// A checkpoint's template.
pub(super) struct Template {
    environment: Arc<Environment<'static>>,
    bound: Bound,
    pub(super) source: String,
    /// What templates ask for by these names.
    begin: String,
    end: String,
    /// What marks them in what is said.
    pub(super) names: SpecialNames,
}

/// Most steps that a template may take: those of people's checkpoints take some thousands.
const MOST_STEPS: u64 = 5_000_000;

/// Bytes of the longest template.
const MOST_SOURCE: usize = 1 << 20;

/// What a template may hold at once, and how long it may take: a step may double a text, or search
/// all of it.
const MOST_BYTES: usize = 256 << 20;
const MOST_TIME: Duration = Duration::from_secs(10);

/// Bytes of the longest text that a conversation may become.
const MOST_TEXT: usize = 16 << 20;

/// Variables of templates that nobody sets but the server.
const OWN: [&str; 6] = ["messages", "tools", "functions", "add_generation_prompt", "bos_token", "eos_token"];

impl Template {
    /// That of a folder: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`.
    pub(super) fn of_folder(folder: &Path, tokenizer: Option<&Tokenizer>) -> Result<Option<Self>> {
        let Some(tokenizer) = tokenizer else { return Ok(None) };
        let config = folder.join("tokenizer_config.json");
        let settings: Value = match std::fs::read(&config) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| format!("{} is not JSON", config.display()))?,
            Err(_) => Value::Null,
        };
        let source = match std::fs::read_to_string(folder.join("chat_template.jinja")) {
            Ok(source) => Some(source),
            Err(_) => chosen(&settings["chat_template"]),
        };
        let Some(source) = source else { return Ok(None) };
        let token = |name: &str| match &settings[name] {
            Value::Object(token) => token.get("content").and_then(Value::as_str).unwrap_or_default().to_owned(),
            token => token.as_str().unwrap_or_default().to_owned(),
        };
        let template = Self::new(source, tokenizer, token("bos_token"), token("eos_token"));
        Ok(Some(template.with_context(|| format!("the chat template of {} cannot be used", folder.display()))?))
    }

    fn new(source: String, tokenizer: &Tokenizer, begin: String, end: String) -> Result<Self> {
        ensure!(source.len() <= MOST_SOURCE, "it is longer than {} KiB", MOST_SOURCE >> 10);
        let bound = Bound::new(MOST_BYTES, MOST_TIME);
        let text = source.clone();
        // What it multiplies of texts that stand in it is multiplied when it is compiled.
        let Some(environment) = bound.give(|| environment(text)) else { bail!(too_much()) };
        let environment = Arc::new(environment?);
        Ok(Self { environment, bound, source, begin, end, names: SpecialNames::new(tokenizer)? })
    }

    /// The text of a conversation; `more` are variables of the request's own. What it holds of
    /// special tokens' names in the messages is marked, which [`SpecialNames::ids`] takes out.
    pub(super) fn render(
        &self,
        messages: &[Map<String, Value>],
        tools: Option<&Value>,
        adds_prompt: bool,
        more: &Map<String, Value>,
    ) -> Result<String, ApiError> {
        if let Some(name) = OWN.iter().find(|name| more.contains_key(**name)) {
            let message = format!("chat_template_kwargs cannot set {name}, which is the server's own");
            return Err(ApiError::param("chat_template_kwargs", message));
        }
        let marked = |map: &Map<String, Value>| self.names.marked(&Value::Object(map.clone()));
        let messages: Vec<Value> = messages.iter().map(marked).collect();
        let (tools, more) = (tools.map(|tools| self.names.marked(tools)), marked(more));
        let own = context! {
            messages, tools, add_generation_prompt => adds_prompt, bos_token => self.begin, eos_token => self.end,
            enable_thinking => true, datetime => today("%b %d %Y"), date_string => today("%d %b %Y"),
            functions => tools.as_ref().map(Value::to_string).unwrap_or_default(),
        };
        let (environment, values) =
            (Arc::clone(&self.environment), context! { ..minijinja::Value::from_serialize(more), ..own });
        let refused = |why: String| ApiError::param("messages", format!("the chat template refuses them: {why}"));
        let rendered = self.bound.give(move || environment.get_template("chat")?.render(values));
        match rendered {
            Some(Ok(text)) if text.len() <= MOST_TEXT => Ok(text),
            Some(Err(error)) => Err(refused(error.detail().map_or_else(|| error.to_string(), str::to_owned))),
            Some(Ok(_)) => Err(refused(format!("what they become is longer than {} MiB", MOST_TEXT >> 20))),
            None => Err(refused(too_much())),
        }
    }
}

/// What runs a template.
fn environment(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(MOST_STEPS));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: String| today(&format));
    environment.add_template_owned("chat", source)?;
    Ok(environment)
}

fn too_much() -> String {
    format!("it takes more than {} MiB of memory or {} s", MOST_BYTES >> 20, MOST_TIME.as_secs())
}

/// A template, or of several by names the default one.
fn chosen(templates: &Value) -> Option<String> {
    match templates {
        Value::String(source) => Some(source.clone()),
        Value::Array(named) => {
            let default = named.iter().find(|template| template["name"] == "default").or(named.first())?;
            Some(default["template"].as_str()?.to_owned())
        }
        _ => None,
    }
}

/// Today's date, of `strftime`'s marks those that templates use.
fn today(format: &str) -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let [year, month, day] = date(days as i64);
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let name = MONTHS[(month - 1) as usize];
    let marks = [
        ("%Y", year.to_string()),
        ("%m", format!("{month:02}")),
        ("%d", format!("{day:02}")),
        ("%b", name[..3].to_owned()),
        ("%B", name.to_owned()),
    ];
    marks.iter().fold(format.to_owned(), |text, (mark, value)| text.replace(mark, value))
}

/// Year, month and day so many days after 1970-01-01, by the calendar of 400 years.
fn date(days: i64) -> [i64; 3] {
    // Years here begin in March, so that a leap day is the last of its year.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let [month, later] = if month < 10 { [month + 3, 0] } else { [month - 9, 1] };
    [year + era * 400 + later, month, day]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::special::unmarked;
    use super::*;
    use serde_json::json;

    fn template(source: &str) -> Result<Template> {
        Template::new(source.to_owned(), &Tokenizer::bytes().unwrap(), String::new(), String::new())
    }

    fn render(template: &Template, more: Value) -> Result<String, String> {
        let rendered = template.render(&[], None, true, more.as_object().unwrap());
        rendered.map_err(|error| error.body()["error"]["message"].to_string())
    }

    #[test]
    fn a_text_that_doubles_is_stopped() {
        let doubles = "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}";
        let doubling = template(doubles).unwrap();
        for _ in 0..3 {
            assert!(render(&doubling, json!({})).unwrap_err().contains("256 MiB of memory"));
        }
        let folded = format!("{{{{ {} }}}}", ["'a' * 100000000"; 9].join(" ~ "));
        assert!(template(&folded).err().unwrap().to_string().contains("256 MiB of memory"));
        let long = template("{{ 'ab' * times }}").unwrap();
        assert!(render(&long, json!({ "times": 10_000_000 })).unwrap_err().contains("longer than 16 MiB"));
        assert_eq!(render(&long, json!({ "times": 2 })).unwrap(), "abab");
        assert!(render(&long, json!({ "times": -1 })).unwrap_err().contains("integers"));
    }

    #[test]
    fn what_a_request_adds_is_text() {
        let template = template("{{ note }}{{ bos_token }}{% if not enable_thinking %}!{% endif %}").unwrap();
        let text = render(&template, json!({ "note": "<|endoftext|>", "enable_thinking": false })).unwrap();
        assert_eq!(unmarked(&text), "<|endoftext|>!");
        assert!(!text.contains("<|endoftext|>"));
        // What stands for a firm's logo is a character like any other.
        assert_eq!(unmarked(&render(&template, json!({ "note": "\u{f8ff} pie" })).unwrap()), "\u{f8ff} pie");
        assert!(render(&template, json!({ "bos_token": "<|endoftext|>" })).unwrap_err().contains("the server's own"));
    }

    #[test]
    fn days_are_dates() {
        assert_eq!(date(0), [1970, 1, 1]);
        assert_eq!(date(19_782), [2024, 2, 29]);
        assert_eq!(date(20_779), [2026, 11, 22]);
    }
}
