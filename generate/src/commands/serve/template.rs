//! Chat templates: they render a conversation in the format that a checkpoint was trained on.
//!
//! They are Jinja with Python's string methods, as in transformers. A template may write special
//! tokens, but messages may not: a special token's name in a message is read as plain characters,
//! unless the request says otherwise ([`super::special`]).

mod generation;
mod python;
mod strftime;
mod texts;

use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use ember_data::tokenizer::Tokenizer;
use ember_host::bounded::{Bound, BoundError};
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
    /// The tokenizer's special tokens, by their variable names in templates, such as `bos_token`.
    tokens: Map<String, Value>,
    /// Marks special tokens' names in messages.
    pub(super) names: SpecialNames,
}

/// Most steps of a template: those of published checkpoints take some thousands.
const MAX_STEPS: u64 = 500_000;

/// Longest template in bytes: those of published checkpoints have less than 32 KiB.
const MAX_SOURCE_BYTES: usize = 64 << 10;

/// The stack for compiling, running and dropping templates, all of which recurse into nested
/// values. A step nests a value one level deeper, and each level takes less than half a KiB to
/// compare, show or drop; this allows a KiB for each step. In a source, each nesting level takes at
/// least one byte (`-`), and at most a KiB of stack (`{%elif a%}`); this allows 8 KiB for each
/// byte.
const STACK: usize = 512 << 20;

/// Limits of a template's memory and time: a single step may double a text, or search all of it.
const MAX_BYTES: usize = 256 << 20;
const MAX_TIME: Duration = Duration::from_secs(10);

/// Longest rendered text in bytes.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// Template variables that only the server sets.
const RESERVED: [&str; 5] = ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"];

impl Template {
    /// A folder's template: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`.
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
            Err(_) => default_template(&settings["chat_template"]),
        };
        let Some(source) = source else { return Ok(None) };
        Ok(Some(Self::new(source, tokenizer, tokens(&settings))?))
    }

    fn new(source: String, tokenizer: &Tokenizer, tokens: Map<String, Value>) -> Result<Self> {
        ensure!(source.len() <= MAX_SOURCE_BYTES, "it is longer than {} KiB", MAX_SOURCE_BYTES >> 10);
        let (names, bound) = (SpecialNames::new(tokenizer)?, Bound::new(MAX_BYTES, MAX_TIME, STACK, 1));
        // Jinja normalizes line endings to `\n`.
        let text = generation::strip_tags(&source.replace("\r\n", "\n").replace('\r', "\n"));
        // Bounded: constant expressions such as a repeated text are evaluated at compile time.
        let environment = Arc::new(bound.run(|| environment(text)).map_err(|error| anyhow!(bound_message(error)))??);
        Ok(Self { environment, bound, source, tokens, names })
    }

    /// Renders a conversation; `kwargs` are the request's variables, in addition to those that
    /// transformers sets. Special tokens' names from messages are marked in the result;
    /// [`SpecialNames::ids`] removes the marks.
    pub(super) fn render(
        &self,
        messages: &[Map<String, Value>],
        tools: Option<&Value>,
        adds_prompt: bool,
        kwargs: &Map<String, Value>,
    ) -> Result<String, ApiError> {
        let mut own = RESERVED.into_iter().chain(self.tokens.keys().map(String::as_str));
        if let Some(name) = own.find(|name| kwargs.contains_key(*name)) {
            let message = format!("chat_template_kwargs cannot set {name}, which is the server's own");
            return Err(ApiError::param("chat_template_kwargs", message));
        }
        let marked = |map: &Map<String, Value>| self.names.marked(&Value::Object(map.clone()));
        let messages: Vec<Value> = messages.iter().map(marked).collect();
        let (tools, kwargs) = (tools.map(|tools| self.names.marked(tools)), marked(kwargs));
        let own = context! { messages, tools, documents => (), add_generation_prompt => adds_prompt };
        let [kwargs, tokens] = [&kwargs, &Value::Object(self.tokens.clone())].map(minijinja::Value::from_serialize);
        let (environment, values) = (Arc::clone(&self.environment), context! { ..kwargs, ..own, ..tokens });
        let refused = |why: String| ApiError::param("messages", format!("the chat template cannot render them: {why}"));
        let rendered = self.bound.run(move || environment.get_template("chat")?.render(values));
        match rendered {
            Ok(Ok(text)) if text.len() <= MAX_TEXT_BYTES => Ok(text),
            Ok(Err(error)) => Err(refused(error.detail().map_or_else(|| error.to_string(), str::to_owned))),
            Ok(Ok(_)) => Err(refused(format!("the rendered text is longer than {} MiB", MAX_TEXT_BYTES >> 20))),
            Err(error @ BoundError::Exceeded) => Err(refused(bound_message(error))),
            // No fault of this conversation.
            Err(error @ BoundError::EarlierWork) => Err(ApiError::unavailable(format!(
                "the chat template is not done with an earlier conversation, for which {}; try again later, or start \
                 the server again",
                bound_message(error)
            ))),
            Err(error @ BoundError::NoThread) => {
                Err(ApiError::unavailable(format!("the chat template cannot run: {error}; try again later")))
            }
        }
    }
}

impl Drop for Template {
    /// The compiled template may be nested deeply, so it is dropped on the large stack.
    fn drop(&mut self) {
        let environment = ManuallyDrop::new(std::mem::replace(&mut self.environment, Arc::new(Environment::empty())));
        // Leaked if the bound refuses: it then drops the closure on this thread's stack.
        let _ = self.bound.run(move || drop(ManuallyDrop::into_inner(environment)));
    }
}

/// The environment that runs a template.
fn environment(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(MAX_STEPS));
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

/// The special tokens of a `tokenizer_config.json`, each as its text; `bos_token` and `eos_token`
/// are empty if not named.
fn tokens(settings: &Value) -> Map<String, Value> {
    let text = |token: &Value| Some(token.get("content").unwrap_or(token).as_str()?.to_owned());
    let of_file = settings.as_object().into_iter().flatten().filter(|(name, _)| name.ends_with("_token"));
    let named = of_file.filter_map(|(name, token)| Some((name.clone(), Value::String(text(token)?))));
    let nothing = ["bos_token", "eos_token"].map(|name| (name.to_owned(), Value::String(String::new())));
    nothing.into_iter().chain(named).collect()
}

/// The message for a template that exceeded a bound.
fn bound_message(error: BoundError) -> String {
    match error {
        // The bound belongs to this template: whatever still runs is an earlier rendering of it.
        BoundError::Exceeded | BoundError::EarlierWork => {
            format!("it takes more than {} MiB of memory or {} s", MAX_BYTES >> 20, MAX_TIME.as_secs())
        }
        error => error.to_string(),
    }
}

/// The template; of several named ones, the default.
fn default_template(templates: &Value) -> Option<String> {
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
    use std::sync::Barrier;

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
        // Later conversations are not at fault.
        for status in [400, 503, 503] {
            let error = doubling.render(&[], None, true, &Map::new()).unwrap_err().body()["error"].clone();
            let names_bound = error["message"].as_str().unwrap().contains("256 MiB of memory");
            assert!(names_bound && error["code"] == status, "{error}");
        }
        let folded = format!("{{{{ {} }}}}", ["'a' * 100000000"; 9].join(" ~ "));
        assert!(template(&folded).err().unwrap().to_string().contains("256 MiB of memory"));
        let long = template("{{ 'ab' * times }}").unwrap();
        assert!(render(&long, json!({ "times": 10_000_000 })).unwrap_err().contains("longer than 16 MiB"));
        assert_eq!(render(&long, json!({ "times": 2 })).unwrap(), "abab");
        assert!(render(&long, json!({ "times": -1 })).unwrap_err().contains("integers"));
    }

    /// It takes neither steps nor memory: only the time is left to stop it.
    #[test]
    fn a_template_that_does_not_end_is_given_up() {
        let gate = Arc::new(Barrier::new(2));
        let (inside, mut waiting) = (Arc::clone(&gate), template("").unwrap());
        let mut environment = environment("{{ wait() }}".to_owned()).unwrap();
        environment.add_function("wait", move || -> String {
            inside.wait();
            String::new()
        });
        waiting.environment = Arc::new(environment);
        waiting.bound = Bound::new(MAX_BYTES, Duration::from_millis(100), STACK, 1); // no need to wait for MAX_TIME
        for status in [400, 503] {
            let error = waiting.render(&[], None, true, &Map::new()).unwrap_err().body()["error"].clone();
            let names_bound = error["message"].as_str().unwrap().contains("or 10 s");
            assert!(names_bound && error["code"] == status, "{error}");
        }
        gate.wait();
    }

    /// It would overflow a thread's default stack, which would end the process.
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
        for (before, unit, times, after, expected) in [
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
            let deep = template(&format!("{before}{}{after}", unit.repeat(times))).unwrap();
            let text = render(&deep, json!({})).unwrap_or_else(|why| why);
            assert!(text.contains(expected), "{unit}: {text}");
        }
        let long = "{# #}".repeat(MAX_SOURCE_BYTES);
        assert!(template(&long).err().unwrap().to_string().contains("longer than 64 KiB"));
    }

    #[test]
    fn a_template_has_the_variables_that_transformers_sets() {
        let names = "messages tools documents add_generation_prompt bos_token eos_token unk_token";
        let others = "enable_thinking datetime date_string functions builtin_tools";
        let defined = |names: &str| {
            let tests = names.split(' ').map(|name| format!("{{{{ {name} is defined }}}}"));
            render(&template(&tests.collect::<String>()).unwrap(), json!({})).unwrap()
        };
        assert_eq!((defined(names), defined(others)), ("True".repeat(7), "False".repeat(5)));
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
        // A private-use character, as for a firm's logo, is a character like any other.
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
