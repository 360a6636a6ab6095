//! The parameters of a request for text, by the names of its dialect and of our own flags. Unknown
//! names are errors, not ignored.

use std::collections::HashSet;

use ember_data::tokenizer::SpecialTokens;
use ember_decoding::config::{
    Contradiction, FolderSettings, GenerationConfig, KNOBS, Knob, KnobError, Knobs, Overflow, Strategy,
};
use ember_decoding::constraint::{Grammar, GrammarError};
use ember_decoding::named::Named;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::gbnf;
use super::ids::ids_of;
use super::models::Model;
use super::parameter::Parameter;
use super::parsed_request::{ParsedRequest, check_positions, check_prompts, check_ranked};

/// The parameter names of an API.
pub(super) struct Dialect {
    /// Parameters of this dialect.
    pub(super) own: &'static [Parameter],
    /// The dialect's names of our knobs.
    pub(super) knobs: &'static [(&'static str, &'static str)],
    /// Parameters that clients send and that have no effect here.
    pub(super) without_effect: &'static [&'static str],
    /// Parameters that are accepted only with values that change nothing.
    pub(super) fixed: &'static [Fixed],
    /// Whether the folder's `generation_config.json` sets the defaults; if not, only the length
    /// limit comes from it.
    pub(super) by_folder: bool,
}

/// A parameter that is accepted only with values that change nothing.
pub(super) struct Fixed {
    pub(super) name: &'static str,
    /// Whether this value changes nothing, given these settings.
    pub(super) accepts: fn(&Value, &GenerationConfig) -> bool,
    /// Description of the accepted values.
    pub(super) kind: &'static str,
}

/// Parameters of every dialect.
pub(super) const COMMON: &[Parameter] = &[
    Parameter::string("model", "one of /v1/models; by default the first"),
    Parameter::integer("n", "number of texts for each prompt"),
    Parameter::boolean("stream", "send the text as it is written, as server-sent events"),
    Parameter::any("stop", "A string that ends the text, or a list of them"),
    Parameter::integer("seed", "seed of the random draws; the same seed gives the same text"),
    Parameter::any(
        "logit_bias",
        "Numbers to add to tokens' logits: an object with token ids as keys, or a list of pairs",
    ),
    Parameter::array("stop_token_ids", "more token ids that end the text"),
    Parameter::boolean("ignore_eos", "ignore the model's end tokens"),
    Parameter::boolean("parse_special", "read names of special tokens in texts as these tokens"),
    Parameter::string("strategy", "greedy, sample, beam, beam-sample, diverse-beam or exact"),
    Parameter::string("regex", "a regular expression that the text must match"),
    Parameter::any(
        "json_schema",
        "A JSON Schema that the text must follow: an object, true or false, or one as a string",
    ),
    Parameter::string("lark_grammar", "a Lark grammar that the text must follow"),
    Parameter::boolean("return_progress", "report in a stream how much of the prompts has been read"),
    Parameter::integer(
        "draft_tokens",
        "write faster by proposing this many tokens at a time, from what followed the last words earlier in \
         the text; greedy text stays the same, sampled text has the same distribution",
    ),
];

/// Every dialect's names of our knobs.
const COMMON_KNOBS: &[(&str, &str)] = &[("n", "num_return_sequences")];

/// Names in other programs that are not similar to ours, and our names.
const FOREIGN_NAMES: &[(&str, &str)] = &[
    ("allowed_token_ids", "logit_bias"),
    ("guided_choice", "regex"),
    ("guided_grammar", "lark_grammar"),
    ("guided_json", "json_schema"),
    ("guided_regex", "regex"),
    ("prompt_logprobs", "echo"),
    ("structured_outputs", "json_schema"),
    ("use_beam_search", "num_beams"),
];

/// Lowest similarity of a name that is suggested for an unknown one.
const MIN_SIMILARITY: f64 = 0.6;

/// Most texts of a request: prompts times `n`.
const MAX_TEXTS: usize = 128;

/// The knob that limits the length: the most new tokens.
const LIMIT: &str = "max_new_tokens";

/// Description of its values.
const LIMIT_KIND: &str = "a whole number; below 0 means as many as the context allows";

/// Most stop strings: each is searched for after every token.
const MAX_STOPS: usize = 1024;

/// Most nodes of an exact search, which keeps three times as many in memory.
const MAX_NODES: usize = 1_000_000;

/// The parameters of a request.
pub(super) struct Parameters<'a> {
    body: &'a Map<String, Value>,
    pub(super) model: &'a Model,
    pub(super) dialect: &'a Dialect,
    /// The defaults for what the request leaves open.
    folder: FolderSettings,
}

impl<'a> Parameters<'a> {
    /// # Errors
    /// When a name is unknown to the dialect, or two names of one knob have different values.
    pub(super) fn new(body: &'a Map<String, Value>, model: &'a Model, dialect: &'a Dialect) -> Result<Self, ApiError> {
        let mut set: Vec<(&Knob, &str, &Value)> = Vec::new();
        for (name, value) in body {
            let is_known = has(COMMON, name)
                || has(dialect.own, name)
                || dialect.without_effect.contains(&&**name)
                || dialect.fixed.iter().any(|fixed| fixed.name == name)
                || find(dialect, name).is_some();
            if !is_known {
                return Err(unknown(dialect, name));
            }
            let Some(knob) = find(dialect, name) else { continue };
            let duplicate = set.iter().find(|(other, _, sent)| other.name == knob.name && *sent != value);
            if let Some((_, other, _)) = duplicate {
                return Err(ApiError::param(name, format!("{other} and {name} are the same; send one of them")));
            }
            set.push((knob, name, value));
        }
        let folder = if dialect.by_folder {
            model.settings.clone()
        } else {
            let max_new_tokens = model.settings.knobs.max_new_tokens;
            FolderSettings { knobs: Knobs { max_new_tokens, ..Knobs::default() }, not_applied: Vec::new() }
        };
        Ok(Self { body, model, dialect, folder })
    }

    /// The value sent under this name.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.body.get(name)
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.get(name)
            .map(|value| value.as_bool().ok_or_else(|| ApiError::wrong_type(name, "true or false")))
            .transpose()
    }

    pub(super) fn is_on(&self, name: &str) -> Result<bool, ApiError> {
        Ok(self.flag(name)?.unwrap_or(false))
    }

    pub(super) fn count(&self, name: &str) -> Result<Option<usize>, ApiError> {
        let whole = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
        let count = |value| whole(value).ok_or_else(|| ApiError::wrong_type(name, "a whole number, 0 or more"));
        self.get(name).map(count).transpose()
    }

    /// How names of special tokens in the request's texts are read; `default` if it does not say.
    pub(super) fn special(&self, default: SpecialTokens) -> Result<SpecialTokens, ApiError> {
        Ok(match self.flag("parse_special")? {
            Some(true) => SpecialTokens::Parse,
            Some(false) => SpecialTokens::Text,
            None => default,
        })
    }

    /// The knobs that the request sets.
    pub(super) fn knobs(&self) -> Result<Knobs, ApiError> {
        let (mut knobs, mut banned) = (Knobs::default(), Vec::new());
        for (name, value) in self.body {
            match name.as_str() {
                "stop" => knobs.stop_strings = Some(stop_strings(value)?),
                "strategy" => knobs.strategy = Some(strategy(value)?),
                "logit_bias" => banned = self.logit_bias(value, &mut knobs)?,
                "bad_words" if value.as_array().is_some_and(|words| words.iter().all(Value::is_string)) => {
                    knobs.bad_words.get_or_insert_default().extend(self.bad_words(value)?);
                }
                name => self.read_knob(name, value, &mut knobs)?,
            }
        }
        // Last, since these are added to the request's suppressed tokens, else to the folder's.
        if !banned.is_empty() {
            let folder = &self.folder.knobs.suppress_tokens;
            knobs.suppress_tokens.get_or_insert_with(|| folder.clone().unwrap_or_default()).extend(banned);
        }
        Ok(knobs)
    }

    /// Reads a parameter that is a knob: it takes the same values as in a file, and two knobs also
    /// negative ones. Other parameters are read elsewhere.
    fn read_knob(&self, name: &str, value: &Value, knobs: &mut Knobs) -> Result<(), ApiError> {
        let Some(knob) = find(self.dialect, name) else { return Ok(()) };
        let is_negative = value.as_i64().is_some_and(|number| number < 0);
        match knob.name {
            // In vLLM and llama.cpp a negative value means off.
            "top_k" if is_negative => knobs.top_k = Some(0),
            // As long as the context allows.
            LIMIT if is_negative => knobs.max_new_tokens = Some(self.model.engine.config().context_length),
            LIMIT => knob.read(knobs, value).map_err(|_| ApiError::wrong_type(name, LIMIT_KIND))?,
            _ => knob.read(knobs, value).map_err(|kind| ApiError::wrong_type(name, &kind))?,
        }
        Ok(())
    }

    /// The configuration: `knobs`, the folder's settings, the seed and the end tokens.
    pub(super) fn config(&self, mut knobs: Knobs, default_seed: u64) -> Result<GenerationConfig, ApiError> {
        if self.folder.knobs.overflow.is_none() {
            knobs.overflow.get_or_insert(Overflow::Stop);
        }
        knobs.draft_tokens = self.count("draft_tokens")?;
        // The folder's minimum yields to the request's maximum: the request does not know it.
        if let (Some(most), None) = (knobs.max_new_tokens, knobs.min_new_tokens) {
            knobs.min_new_tokens = self.folder.knobs.min_new_tokens.map(|least| least.min(most));
        }
        // First, so that a wrong value is told even where it has no effect.
        knobs.check_ranges().map_err(|error| self.knob_error(&error))?;
        // At a temperature of 0 nothing is drawn, so the other knobs of sampling have no effect, and
        // clients send them whatever the temperature.
        if knobs.temperature == Some(0.0) {
            knobs.unset_sampling();
        }
        if let Some((knob, id)) = knobs.outside_vocabulary(self.model.engine.config().vocab_size) {
            return Err(ApiError::unknown_token(self.sent_as(knob.name).unwrap_or(knob.name), id));
        }
        let mut config = GenerationConfig::resolve(&knobs, &self.folder).map_err(|error| self.knob_error(&error))?.0;
        let stops_are_asked = knobs.stop_strings.is_some_and(|stops| !stops.is_empty());
        self.check_stops(stops_are_asked, &mut config.stop_strings)?;
        self.check_sequences(&config)?;
        // As with biases, a token that is banned several times counts once: that bounds the list by
        // the vocabulary.
        let mut known = HashSet::new();
        config.suppress_tokens.retain(|id| known.insert(*id));
        if config.strategy == Strategy::Exact && config.max_nodes > MAX_NODES {
            return Err(ApiError::param("max_nodes", format!("max_nodes must be at most {MAX_NODES}")));
        }
        config.seed = self.seed(default_seed)?;
        config.end_tokens = self.end_tokens()?;
        let is_other = |fixed: &&Fixed| self.get(fixed.name).is_some_and(|value| !(fixed.accepts)(value, &config));
        match self.dialect.fixed.iter().find(is_other) {
            Some(fixed) => Err(ApiError::wrong_type(fixed.name, fixed.kind)),
            None => Ok(config),
        }
    }

    /// Checks the stop strings. Without a tokenizer the folder's are dropped, and the request's are
    /// refused.
    fn check_stops(&self, are_asked: bool, stops: &mut Vec<String>) -> Result<(), ApiError> {
        let name = self.sent_as("stop_strings").unwrap_or("stop");
        if self.model.tokenizer.is_none() {
            if are_asked {
                let message = format!("{name} needs a tokenizer, and the checkpoint holds none; send stop_token_ids");
                return Err(ApiError::param(name, message));
            }
            stops.clear();
        }
        if stops.len() > MAX_STOPS {
            return Err(ApiError::param(name, format!("{name} can have at most {MAX_STOPS} strings")));
        }
        Ok(())
    }

    /// The request's seed; `default` if it sets none, or -1 as llama.cpp's clients do for none.
    fn seed(&self, default: u64) -> Result<u64, ApiError> {
        let Some(seed) = self.get("seed").filter(|seed| seed.as_i64() != Some(-1)) else { return Ok(default) };
        let number = seed.as_u64().or(seed.as_i64().map(|seed| seed as u64));
        number.ok_or_else(|| ApiError::wrong_type("seed", "a whole number"))
    }

    /// The tokens that end the text: the model's, unless ignored, then the request's.
    fn end_tokens(&self) -> Result<Vec<u32>, ApiError> {
        let mut end_tokens = if self.is_on("ignore_eos")? { Vec::new() } else { self.model.end_tokens.clone() };
        let Some(ids) = self.get("stop_token_ids") else { return Ok(end_tokens) };
        let ids = ids_of(ids).ok_or_else(|| ApiError::wrong_type("stop_token_ids", "a list of token ids"))?;
        if let Some(id) = ids.iter().find(|id| **id as usize >= self.model.engine.config().vocab_size) {
            return Err(ApiError::unknown_token("stop_token_ids", *id));
        }
        let mut known: HashSet<u32> = end_tokens.iter().copied().collect();
        end_tokens.extend(ids.into_iter().filter(|id| known.insert(*id)));
        Ok(end_tokens)
    }

    /// The knobs that were sent, by the names that they were sent under.
    fn sent(&self) -> impl Iterator<Item = (&'a str, &'static Knob)> {
        self.body.keys().filter_map(move |name| Some((name.as_str(), find(self.dialect, name)?)))
    }

    /// The name that the knob with this key was sent under, if it was.
    pub(super) fn sent_as(&self, key: &str) -> Option<&'a str> {
        self.sent().find(|(_, knob)| knob.name == key).map(|(name, _)| name)
    }

    /// Converts a knob error, with the names under which the knobs were sent.
    fn knob_error(&self, error: &KnobError) -> ApiError {
        let ignored = |who: &str, knob: &Knob| match self.sent_as(knob.name) {
            Some(name) => ApiError::param(name, format!("{who} ignores {name}; leave it out")),
            None => ApiError::invalid(format!("{who} ignores {}", knob.label)),
        };
        match error {
            KnobError::OutOfRange { knob, value } => self.out_of_range(knob, value),
            KnobError::Ignored { knob, strategy, .. } => ignored(strategy.words(), knob),
            KnobError::GreedyStack { semantics, knob } => {
                let stack = semantics.stack();
                ignored(&format!("{stack} has a temperature of 0 by default, which means greedy and"), knob)
            }
            KnobError::Contradiction(Contradiction::Drafts(_)) => {
                ApiError::param("draft_tokens", format!("{error}; leave draft_tokens out"))
            }
            // The message may name several knobs.
            error => {
                let own_names = error.to_string();
                ApiError::invalid(self.sent().fold(own_names, |message, (name, knob)| message.replace(knob.name, name)))
            }
        }
    }

    /// The error of a knob with a value out of its range.
    fn out_of_range(&self, knob: &Knob, value: &str) -> ApiError {
        let range = match knob.name {
            "num_return_sequences" => format!("from 1 to {MAX_TEXTS}"),
            _ => knob.range.words(),
        };
        let message = |name: &str| format!("{name} is {value}; it must be {range}");
        match self.sent_as(knob.name) {
            Some(name) => ApiError::param(name, message(name)),
            None => ApiError::invalid(message(knob.name)),
        }
    }

    /// Builds the request for these prompts; `param` is the parameter that held them, and
    /// `logprobs` how many of the most probable tokens are returned with each, if requested.
    pub(super) fn parsed_request(
        &self,
        param: &str,
        prompts: Vec<Vec<u32>>,
        mut config: GenerationConfig,
        logprobs: Option<usize>,
        grammar: Option<Grammar>,
    ) -> Result<ParsedRequest, ApiError> {
        let shape = self.model.engine.config();
        config.logprobs = logprobs.unwrap_or(0).min(shape.vocab_size);
        check_prompts(param, &prompts, &config, shape)?;
        let each = config.num_return_sequences;
        if prompts.len().saturating_mul(each) > MAX_TEXTS {
            return Err(ApiError::param("n", format!("a request can ask for at most {MAX_TEXTS} texts")));
        }
        check_ranked(prompts.len(), &config)?;
        let (usable, most_usable) = (self.model.usable_positions, self.model.most_usable_positions);
        check_positions(&prompts, &config, shape.context_length, usable, most_usable)?;
        let rows = if config.strategy.has_beams() { config.num_beams.max(each) } else { each };
        let echoes = self.is_on("echo")?;
        let reported = |ids: &Vec<u32>| {
            let tokens = config.max_new_tokens.saturating_add(if echoes { ids.len() } else { 0 });
            if config.overflow == Overflow::Slide { tokens } else { tokens.min(shape.context_length) }
        };
        let written = prompts.len().saturating_mul(rows).saturating_mul(config.max_new_tokens);
        let parsed = ParsedRequest {
            reported_tokens: prompts.iter().map(reported).fold(0, usize::saturating_add).saturating_mul(rows),
            prompts,
            traced_candidates: 0,
            grammar,
            logprobs,
            scores_prompts: false,
            generates: true,
            stream: self.is_on("stream")?,
            reports_progress: self.is_on("stream")? && self.is_on("return_progress")?,
            config,
        };
        let parsed = parsed.with_trace("trace", self.count("trace")?.unwrap_or(0))?;
        parsed.check_end(written)?;
        Ok(parsed)
    }

    /// The grammar that the text must follow, from whichever of the four parameters is set. Where
    /// the dialect has no `grammar`, in llama.cpp's notation, [`Self::new`] has refused it.
    pub(super) fn grammar(&self) -> Result<Option<Grammar>, ApiError> {
        let text = |name: &'static str| match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(schema @ (Value::Object(_) | Value::Bool(_))) if name == "json_schema" => Ok(Some(schema.to_string())),
            Some(_) if name == "json_schema" => {
                Err(ApiError::wrong_type(name, "a schema: an object, true or false, or one of these as a string"))
            }
            Some(_) => Err(ApiError::wrong_type(name, "a string")),
        };
        let refused = |name: &'static str| move |error: GrammarError| ApiError::grammar(name, &error);
        let lark = |name, text: String| Grammar::lark(name, &text).map_err(refused(name));
        let found = [
            text("regex")?.map(|text| Grammar::regex("regex", &text).map_err(refused("regex"))),
            text("json_schema")?.map(|text| Grammar::json_schema("json_schema", &text).map_err(refused("json_schema"))),
            text("lark_grammar")?.map(|text| lark("lark_grammar", text)),
            text("grammar")?.map(|text| lark("grammar", gbnf::to_lark(&text)?)),
        ];
        let mut found = found.into_iter().flatten();
        let first = found.next().transpose()?;
        match found.next() {
            None => Ok(first),
            Some(_) => Err(ApiError::invalid("only one of regex, json_schema, lark_grammar and grammar can be set")),
        }
    }
}

fn has(parameters: &[Parameter], name: &str) -> bool {
    parameters.iter().any(|parameter| parameter.name == name)
}

/// The knob of this name: its key in a file, its flag, or the dialect's name.
pub(super) fn find(dialect: &Dialect, name: &str) -> Option<&'static Knob> {
    let own = dialect.knobs.iter().chain(COMMON_KNOBS).find(|(other, _)| *other == name).map_or(name, |(_, own)| own);
    KNOBS.iter().find(|knob| knob.name == own || knob.label.replace('-', "_") == own)
}

/// Parses `stop`: a string or a list of them. Clients send an empty string when they mean none.
fn stop_strings(value: &Value) -> Result<Vec<String>, ApiError> {
    let string = |value: &Value| value.as_str().map(str::to_owned);
    let stops = string(value).map(|stop| vec![stop]).or_else(|| list(value, string));
    let mut stops = stops.ok_or_else(|| ApiError::wrong_type("stop", "a string or a list of strings"))?;
    stops.retain(|stop| !stop.is_empty());
    Ok(stops)
}

/// Parses `strategy`.
fn strategy(value: &Value) -> Result<Strategy, ApiError> {
    let kinds = "greedy, sample, beam, beam-sample, diverse-beam or exact";
    value.as_str().and_then(Strategy::from_name).ok_or_else(|| ApiError::wrong_type("strategy", kinds))
}

fn unknown(dialect: &Dialect, name: &str) -> ApiError {
    let knobs = KNOBS.iter().map(|knob| knob.name);
    let others = dialect.knobs.iter().map(|(other, _)| *other);
    let named = dialect.own.iter().chain(COMMON).map(|parameter| parameter.name);
    let all: Vec<&str> = knobs.chain(others).chain(named).collect();
    // Truncated before the comparison, whose time and memory grow with the length.
    let name: String = name.chars().take(60).collect();
    let similarity = |other: &str| strsim::normalized_damerau_levenshtein(&name, other);
    let meant = FOREIGN_NAMES.iter().find(|(foreign, ours)| *foreign == name && all.contains(ours));
    let closest = || all.iter().copied().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let nearest =
        meant.map(|(_, ours)| *ours).or_else(|| closest().filter(|other| similarity(other) >= MIN_SIMILARITY));
    let advice = match nearest {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => "/openapi.json lists them".to_owned(),
    };
    ApiError::param(&name, format!("there is no parameter {name:?}; {advice}"))
}

/// Parses a list; `None` if any item fails.
pub(super) fn list<T>(value: &Value, item: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(item).collect()
}
