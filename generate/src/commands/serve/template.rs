//! Chat templates: how a conversation becomes the text that a checkpoint was taught to go on with.
//!
//! They are Jinja with Python's string methods, as transformers runs them. A template may write
//! special tokens; what people say may not: where a message holds the name of one, its characters
//! are what the model reads, unless somebody asks otherwise ([`super::special`]).

mod generation;
mod python;
mod strftime;
mod texts;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use ember_data::tokenizer::Tokenizer;
use ember_host::bounded::{Beyond, Bound};
use minijinja::{Environment, Error, ErrorKind, context};
use minijinja_contrib::globals::joiner;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::special::SpecialNames;

/// A checkpoint's template.
pub(super) struct Template {
    environment: Arc<Environment<'static>>,
    bound: Bound,
    pub(super) source: String,
    /// The tokenizer's special tokens, by the names that templates ask for them by: `bos_token`.
    tokens: Map<String, Value>,
    /// What marks them in what is said.
    pub(super) names: SpecialNames,
}

/// Most steps that a template may take: those of people's checkpoints take some thousands.
const MOST_STEPS: u64 = 500_000;

/// Bytes of the longest template: those of people's checkpoints have less than 32 KiB.
const MOST_SOURCE: usize = 64 << 10;

/// The stack on which templates are compiled and run, and what they hold is dropped: what lies in
/// each other is walked by calls in each other. A step makes a value one deeper, and each level takes
/// less than half a KiB to compare, to show or to drop; here is a KiB for each step. Of a source
/// whatever lies one deeper has a byte at least (`-`), and takes a KiB at most (`{%elif a%}`); here
/// are 8 KiB for each byte.
const STACK: usize = 512 << 20;

/// What a template may hold at once, and how long it may take: a step may double a text, or search
/// all of it.
const MOST_BYTES: usize = 256 << 20;
const MOST_TIME: Duration = Duration::from_secs(10);

/// Bytes of the longest text that a conversation may become.
const MOST_TEXT: usize = 16 << 20;

/// Variables of templates that nobody sets but the server.
const OWN: [&str; 5] = ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"];

impl Template {
    /// That of a folder: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(super) fn of_folder(folder: &Path, tokenizer: Option<&Tokenizer>) -> Result<Option<Self>> {
        let Some(tokenizer) = tokenizer else { return Ok(None) };
        let settings: Value = match std::fs::read(folder.join("tokenizer_config.json")) {
            Ok(bytes) => serde_json::from_slice(&bytes).context("tokenizer_config.json is not JSON")?,
            Err(_) => Value::Null,
        };
        let source = match std::fs::read_to_string(folder.join("chat_template.jinja")) {
            Ok(source) => Some(source),
            Err(_) => chosen(&settings["chat_template"]),
        };
        let Some(source) = source else { return Ok(None) };
        Ok(Some(Self::new(source, tokenizer, tokens(&settings))?))
    }

    fn new(source: String, tokenizer: &Tokenizer, tokens: Map<String, Value>) -> Result<Self> {
        ensure!(source.len() <= MOST_SOURCE, "it is longer than {} KiB", MOST_SOURCE >> 10);
        let (names, bound) = (SpecialNames::new(tokenizer)?, Bound::new(MOST_BYTES, MOST_TIME, STACK, 1));
        // Every end of a line is one character, as Jinja reads it.
        let text = generation::without(&source.replace("\r\n", "\n").replace('\r', "\n"));
        // What it multiplies of texts that stand in it is multiplied when it is compiled.
        let environment = Arc::new(bound.give(|| environment(text)).map_err(|beyond| anyhow!(why(beyond)))??);
        Ok(Self { environment, bound, source, tokens, names })
    }

    /// The text of a conversation; `more` are variables of the request's own, beside those that
    /// transformers sets. What it holds of special tokens' names in the messages is marked, which
    /// [`SpecialNames::ids`] takes out.
    pub(super) fn render(
        &self,
        messages: &[Map<String, Value>],
        tools: Option<&Value>,
        adds_prompt: bool,
        more: &Map<String, Value>,
    ) -> Result<String, ApiError> {
        let mut own = OWN.into_iter().chain(self.tokens.keys().map(String::as_str));
        if let Some(name) = own.find(|name| more.contains_key(*name)) {
            let message = format!("chat_template_kwargs cannot set {name}, which is the server's own");
            return Err(ApiError::param("chat_template_kwargs", message));
        }
        let marked = |map: &Map<String, Value>| self.names.marked(&Value::Object(map.clone()));
        let messages: Vec<Value> = messages.iter().map(marked).collect();
        let (tools, more) = (tools.map(|tools| self.names.marked(tools)), marked(more));
        let own = context! { messages, tools, documents => (), add_generation_prompt => adds_prompt };
        let [more, tokens] = [&more, &Value::Object(self.tokens.clone())].map(minijinja::Value::from_serialize);
        let (environment, values) = (Arc::clone(&self.environment), context! { ..more, ..own, ..tokens });
        let refused = |why: String| ApiError::param("messages", format!("the chat template refuses them: {why}"));
        let rendered = self.bound.give(move || environment.get_template("chat")?.render(values));
        match rendered {
            Ok(Ok(text)) if text.len() <= MOST_TEXT => Ok(text),
            Ok(Err(error)) => Err(refused(error.detail().map_or_else(|| error.to_string(), str::to_owned))),
            Ok(Ok(_)) => Err(refused(format!("what they become is longer than {} MiB", MOST_TEXT >> 20))),
            Err(beyond) => Err(refused(why(beyond))),
        }
    }
}

impl Drop for Template {
    /// What it holds may lie as deep as what it makes.
    fn drop(&mut self) {
        let environment = std::mem::replace(&mut self.environment, Arc::new(Environment::empty()));
        let _ = self.bound.give(move || drop(environment)); // or it stays
    }
}

/// What runs a template.
fn environment(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(MOST_STEPS));
    environment.set_unknown_method_callback(texts::call);
    environment.set_formatter(python::show);
    environment.add_test("iterable", python::is_iterable);
    environment.add_test("sequence", python::is_sequence);
    environment.add_filter("center", texts::center);
    environment.add_filter("int", texts::int);
    environment.add_filter("string", python::string);
    environment.add_filter("title", texts::title);
    environment.add_filter("tojson", python::tojson);
    environment.add_function("joiner", joiner);
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: String| -> Result<String, Error> {
        strftime::now(&format).map_err(|why| Error::new(ErrorKind::InvalidOperation, why))
    });
    environment.add_template_owned("chat", source)?;
    Ok(environment)
}

/// The special tokens that a `tokenizer_config.json` names, each as its text; nothing where it names
/// no beginning or end.
fn tokens(settings: &Value) -> Map<String, Value> {
    let text = |token: &Value| Some(token.get("content").unwrap_or(token).as_str()?.to_owned());
    let of_file = settings.as_object().into_iter().flatten().filter(|(name, _)| name.ends_with("_token"));
    let named = of_file.filter_map(|(name, token)| Some((name.clone(), Value::String(text(token)?))));
    let nothing = ["bos_token", "eos_token"].map(|name| (name.to_owned(), Value::String(String::new())));
    nothing.into_iter().chain(named).collect()
}

/// Why a template gave nothing.
fn why(beyond: Beyond) -> String {
    match beyond {
        // The bound is the template's own: what has not ended is an earlier conversation of it.
        Beyond::Bounds | Beyond::Others => {
            format!("it takes more than {} MiB of memory or {} s", MOST_BYTES >> 20, MOST_TIME.as_secs())
        }
        beyond => beyond.to_string(),
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::special::unmarked;
    use super::*;
    use serde_json::json;

    fn template(source: &str) -> Result<Template> {
        let settings = json!({ "eos_token": { "content": "</s>" }, "unk_token": "<unk>", "add_bos_token": true });
        Template::new(source.to_owned(), &Tokenizer::bytes().unwrap(), tokens(&settings))
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

    /// A thread's usual stack would overflow, which ends the process.
    #[test]
    fn what_lies_deep_ends_in_a_text_or_in_an_error() {
        let nest = |one: &str, rounds: usize, end: &str| {
            let loops = "{% for i in range(500) %}{% for j in range(ROUNDS) %}".replace("ROUNDS", &rounds.to_string());
            format!("{{% set ns=namespace(x=[]) %}}{loops}{{% set ns.x={one} %}}{{% endfor %}}{{% endfor %}}{end}")
        };
        for end in ["ok", "{% if ONE == ns.x %}!{% endif %}ok", "{% if ns.x ~ '' %}ok{% endif %}"] {
            for one in ["[ns.x]", "{'a': ns.x}"] {
                let nested = template(&nest(one, 40, &end.replace("ONE", one))).unwrap();
                assert_eq!(render(&nested, json!({})).as_deref(), Ok("ok"), "{one} {end}");
            }
        }
        let endless = template(&nest("[ns.x]", 400, "ok")).unwrap();
        assert!(render(&endless, json!({})).unwrap_err().contains("fuel"));
        for (before, unit, times, behind, told) in [
            ("{{ 1", "+a", 6_500, " }}", "tried to use + operator"),
            ("{{ ", "-", 6_500, "a }}", "invalid operation"),
            ("{{ ", "not ", 6_500, "a }}", "False"),
            ("{% if a %}", "{% elif a %}", 4_000, "{% endif %}ok", "ok"),
            ("{{ a", ".b", 16_000, " }}", "undefined value"),
            ("{{ a", "[0]", 16_000, " }}", "undefined value"),
            ("{{ 1", "|abs", 16_000, " }}ok", "1ok"),
            ("{{ a", "()", 20_000, " }}", "a is unknown"),
            ("{{ a", " and a", 6_500, " }}ok", "ok"),
            ("{{ a", "~a", 6_500, " }}ok", "ok"),
            ("{{ ([1]", "*1", 20_000, ")|length }}", "1"),
        ] {
            let deep = template(&format!("{before}{}{behind}", unit.repeat(times))).unwrap();
            let text = render(&deep, json!({})).unwrap_or_else(|why| why);
            assert!(text.contains(told), "{unit}: {text}");
        }
        let long = "{# #}".repeat(MOST_SOURCE);
        assert!(template(&long).err().unwrap().to_string().contains("longer than 64 KiB"));
    }

    #[test]
    fn a_template_has_the_variables_that_transformers_sets() {
        let names = "messages tools documents add_generation_prompt bos_token eos_token unk_token";
        let others = "enable_thinking datetime date_string functions builtin_tools";
        let told = |names: &str| {
            let tests = names.split(' ').map(|name| format!("{{{{ {name} is defined }}}}"));
            render(&template(&tests.collect::<String>()).unwrap(), json!({})).unwrap()
        };
        assert_eq!((told(names), told(others)), ("True".repeat(7), "False".repeat(5)));
        let none = template("{{ tools is none }}{{ documents is none }}{{ date_string }}").unwrap();
        assert_eq!(render(&none, json!({})).unwrap(), "TrueTrue");
        let set = json!({ "documents": [], "date_string": "today" });
        assert_eq!(render(&none, set).unwrap(), "TrueFalsetoday");
    }

    #[test]
    fn what_a_request_adds_is_text() {
        let template = template("{{ note }}{{ bos_token }}{% if enable_thinking is false %}!{% endif %}").unwrap();
        let text = render(&template, json!({ "note": "<|endoftext|>", "enable_thinking": false })).unwrap();
        assert_eq!(unmarked(&text), "<|endoftext|>!");
        assert!(!text.contains("<|endoftext|>"));
        // What stands for a firm's logo is a character like any other.
        assert_eq!(unmarked(&render(&template, json!({ "note": "\u{f8ff} pie" })).unwrap()), "\u{f8ff} pie");
        assert!(render(&template, json!({ "bos_token": "<|endoftext|>" })).unwrap_err().contains("the server's own"));
    }

    #[test]
    fn a_template_has_every_special_token_and_no_request_sets_one() {
        let source = "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ pad_token }}|{{ add_bos_token }}";
        let named = template(source).unwrap();
        assert_eq!(render(&named, json!({})).unwrap(), "|</s>|<unk>||");
        assert!(render(&named, json!({ "unk_token": "x" })).unwrap_err().contains("the server's own"));
        assert_eq!(render(&named, json!({ "pad_token": "x" })).unwrap(), "|</s>|<unk>|x|");
    }

    #[test]
    fn a_template_of_transformers_gives_what_it_gives_there() {
        let text = |source: &str, more: Value| render(&template(source).unwrap(), more).unwrap();
        let tool = json!({ "tool": { "name": "f", "about": "it's <x> & y", "n": 1.0, "a": [true, null] } });
        let as_json = r#"{"name": "f", "about": "it's <x> & y", "n": 1.0, "a": [true, null]}"#;
        assert_eq!(text("{{ tool | tojson }}", tool.clone()), as_json);
        let as_text = r#"{'name': 'f', 'about': "it's <x> & y", 'n': 1.0, 'a': [True, None]}"#;
        assert_eq!(text("{{ tool }}|{{ tool | string }}", tool), format!("{as_text}|{as_text}"));
        let tagged = "{%- for word in ['a', 'b'] -%}\n{%- generation %} {{ word }}\n{% endgeneration -%}\n{% endfor %}";
        assert_eq!(text(tagged, json!({})), " a\n b\n");
        let parted = "{{ 'a, b, c'.partition(', ') | join('|') }} {{ 'a, b, c'.rpartition(', ')[2] }} {{ 'a'.partition(',')[0] }}";
        assert_eq!(text(parted, json!({})), "a|, |b, c c a");
        let tested =
            "{{ x is iterable }} {{ 'x' is iterable }} {{ x is sequence }} {{ 'x' is sequence }} {{ {} is sequence }}";
        assert_eq!(text(tested, json!({ "x": null })), "False True False True True");
        assert_eq!(text(tested, json!({ "x": [1] })), "True True True True True");
        assert_eq!(text("a\r\n{% if true %}\r\nb{% endif %}\rc", json!({})), "a\nbc");
        assert!(render(&template("{{ strftime_now('%Q') }}").unwrap(), json!({})).unwrap_err().contains("%Q"));
    }

    #[test]
    fn a_name_that_is_said_stays_text_in_json_and_in_what_python_shows() {
        let template = template("{{ said | tojson }}{{ said }}").unwrap();
        let text = render(&template, json!({ "said": ["<|endoftext|>"] })).unwrap();
        assert!(!text.contains("<|endoftext|>"));
        assert_eq!(unmarked(&text), r#"["<|endoftext|>"]['<|endoftext|>']"#);
    }
}
