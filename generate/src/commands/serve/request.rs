//! What a request for text asks: every parameter that there is, by the names of its dialect and by
//! those of our own flags. A name that is none of them is an error, not passed over.

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
use super::parsed_request::{ParsedRequest, check_prompts, check_ranked, check_slots};

/// A parameter and what it is, in a line that may begin with its type.
pub(super) type Parameter = (&'static str, &'static str);

/// The names of a way to ask.
pub(super) struct Dialect {
    /// What it reads by itself.
    pub(super) own: &'static [Parameter],
    /// What it calls our knobs.
    pub(super) knobs: &'static [(&'static str, &'static str)],
    /// What clients send that can change nothing here.
    pub(super) without_effect: &'static [&'static str],
    /// What is accepted only where it asks for what is done in any case.
    pub(super) only: &'static [Only],
    /// Whether the folder's `generation_config.json` decides what a request leaves open; where not,
    /// only how long texts are at most.
    pub(super) by_folder: bool,
}

/// A parameter that is accepted only where it asks for what is done in any case.
pub(super) struct Only {
    pub(super) name: &'static str,
    /// Whether this value does, with these settings.
    pub(super) is_so: fn(&Value, &GenerationConfig) -> bool,
    /// What it must be.
    pub(super) kind: &'static str,
}

/// What every dialect has.
pub(super) const COMMON: &[Parameter] = &[
    ("model", "string: one of /v1/models; without it the first"),
    ("n", "integer: how many texts of each prompt"),
    ("stream", "boolean: pieces as server-sent events, as they are written"),
    ("stop", "A string that ends the text, or a list of them"),
    ("seed", "integer: names the draws; the same seed writes the same text"),
    ("logit_bias", "Added to tokens' logits: an object of ids with numbers, or a list of pairs"),
    ("stop_token_ids", "array: tokens that end the text, too"),
    ("ignore_eos", "boolean: no token ends the text"),
    ("parse_special", "boolean: names of special tokens in texts are these tokens"),
    ("strategy", "string: greedy, sample, beam, beam-sample, diverse-beam or exact"),
    ("regex", "string: an expression that the text must fulfil"),
    ("json_schema", "object: a JSON schema that the text must fulfil"),
    ("lark_grammar", "string: a grammar that the text must fulfil"),
    ("return_progress", "boolean: a stream tells how far the prompts are read"),
    (
        "draft_tokens",
        "integer: guess so many tokens at a time from what followed the last words before: faster; greedy writes the same \
         text, sampling another of the same distribution",
    ),
];

/// What every dialect calls our knobs.
const COMMON_KNOBS: &[(&str, &str)] = &[("n", "num_return_sequences")];

/// What other programs call what we have, where no likeness tells.
const ELSEWHERE: &[(&str, &str)] = &[
    ("allowed_token_ids", "logit_bias"),
    ("guided_choice", "regex"),
    ("guided_grammar", "lark_grammar"),
    ("guided_json", "json_schema"),
    ("guided_regex", "regex"),
    ("prompt_logprobs", "echo"),
    ("structured_outputs", "json_schema"),
    ("use_beam_search", "num_beams"),
];

/// How alike a name must be to be named as what may be meant.
const ALIKE: f64 = 0.6;

/// Most prompts of a request, and texts of a prompt.
const MOST_TEXTS: usize = 128;

/// What must be said of how many tokens are written at most.
const A_LIMIT: &str = "a whole number; below 0 it is as long as the context allows";

/// Most strings that may end a text: each is looked for behind every token.
const MOST_STOPS: usize = 1024;

/// Most beginnings that an exact search looks at, of which it keeps three times as many in memory.
const MOST_NODES: usize = 1_000_000;

/// The parameters of a request.
pub(super) struct Parameters<'a> {
    body: &'a Map<String, Value>,
    pub(super) model: &'a Model,
    pub(super) dialect: &'a Dialect,
    /// What decides where the request does not.
    folder: FolderSettings,
}

impl<'a> Parameters<'a> {
    /// # Errors
    /// When there is a name that the dialect has not, or two names of one knob say different things.
    pub(super) fn new(body: &'a Map<String, Value>, model: &'a Model, dialect: &'a Dialect) -> Result<Self, ApiError> {
        let mut set: Vec<(&Knob, &str, &Value)> = Vec::new();
        for (name, value) in body {
            let is_known = has(COMMON, name)
                || has(dialect.own, name)
                || dialect.without_effect.contains(&&**name)
                || dialect.only.iter().any(|only| only.name == name)
                || find(dialect, name).is_some();
            if !is_known {
                return Err(unknown(dialect, name));
            }
            let Some(knob) = find(dialect, name) else { continue };
            let twin = set.iter().find(|(other, _, said)| other.name == knob.name && *said != value);
            if let Some((_, other, _)) = twin {
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

    /// What was sent under this name.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.body.get(name)
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.get(name).map(|value| value.as_bool().ok_or_else(|| ApiError::wrong(name, "true or false"))).transpose()
    }

    pub(super) fn is_on(&self, name: &str) -> Result<bool, ApiError> {
        Ok(self.flag(name)?.unwrap_or(false))
    }

    pub(super) fn count(&self, name: &str) -> Result<Option<usize>, ApiError> {
        let whole = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
        let count = |value| whole(value).ok_or_else(|| ApiError::wrong(name, "a whole number, 0 or more"));
        self.get(name).map(count).transpose()
    }

    /// What the names of special tokens are in the texts of this request; `otherwise` where it does
    /// not say.
    pub(super) fn special(&self, otherwise: SpecialTokens) -> Result<SpecialTokens, ApiError> {
        Ok(match self.flag("parse_special")? {
            Some(true) => SpecialTokens::Parse,
            Some(false) => SpecialTokens::Text,
            None => otherwise,
        })
    }

    /// The knobs that are set.
    pub(super) fn knobs(&self) -> Result<Knobs, ApiError> {
        let (mut knobs, dialect, mut never) = (Knobs::default(), self.dialect, Vec::new());
        for (name, value) in self.body {
            match name.as_str() {
                "stop" => {
                    let one = value.as_str().map(|stop| vec![stop.to_owned()]);
                    let stop = one.or_else(|| list(value, |stop| Some(stop.as_str()?.to_owned())));
                    let stop = stop.ok_or_else(|| ApiError::wrong("stop", "a string or a list of strings"))?;
                    knobs.stop_strings = Some(stop);
                }
                "logit_bias" => never = self.logit_bias(value, &mut knobs)?,
                // vLLM's and llama.cpp's ways to say that it is off.
                "top_k" if value.as_i64().is_some_and(|k| k < 0) => knobs.top_k = Some(0),
                // As long as the context allows.
                name if is_limit(dialect, name) && value.as_i64().is_some_and(|most| most < 0) => {
                    knobs.max_new_tokens = Some(self.model.engine.config().context_length);
                }
                name if is_limit(dialect, name) && value == 0 => knobs.max_new_tokens = Some(0),
                "strategy" => {
                    let strategy = value.as_str().and_then(Strategy::from_name);
                    let kinds = "greedy, sample, beam, beam-sample, diverse-beam or exact";
                    knobs.strategy = Some(strategy.ok_or_else(|| ApiError::wrong("strategy", kinds))?);
                }
                "bad_words" if value.as_array().is_some_and(|words| words.iter().all(Value::is_string)) => {
                    knobs.bad_words.get_or_insert_default().extend(self.bad_words(value)?);
                }
                _ if has(dialect.own, name) || dialect.without_effect.contains(&&**name) => {}
                _ => {
                    if let Some(knob) = find(dialect, name) {
                        let limit = is_limit(dialect, name).then_some(A_LIMIT);
                        let read = knob.read(&mut knobs, value);
                        read.map_err(|kind| ApiError::wrong(name, limit.unwrap_or(&kind)))?;
                    }
                }
            }
        }
        // Clients send one that is empty where they mean none, under either name.
        if let Some(stops) = &mut knobs.stop_strings {
            stops.retain(|stop| !stop.is_empty());
        }
        // At last, since it joins what else is never to come: by the request, else by the folder.
        if !never.is_empty() {
            let folder = &self.folder.knobs.suppress_tokens;
            knobs.suppress_tokens.get_or_insert_with(|| folder.clone().unwrap_or_default()).extend(never);
        }
        Ok(knobs)
    }

    /// What decides the text: `knobs`, the folder's settings, seed and ends.
    pub(super) fn config(&self, mut knobs: Knobs, any_seed: u64) -> Result<GenerationConfig, ApiError> {
        if self.folder.knobs.overflow.is_none() {
            knobs.overflow.get_or_insert(Overflow::Stop);
        }
        knobs.draft_tokens = self.count("draft_tokens")?;
        if let Some((knob, id)) = knobs.outside_vocabulary(self.model.engine.config().vocab_size) {
            return Err(ApiError::unknown_token(self.sent_as(knob.name).unwrap_or(knob.name), id));
        }
        let mut config = GenerationConfig::resolve(&knobs, &self.folder).map_err(|error| self.blamed(&error))?.0;
        let stops_are_asked = knobs.stop_strings.is_some_and(|stops| !stops.is_empty());
        self.check_stops(stops_are_asked, &mut config.stop_strings)?;
        if config.strategy == Strategy::Exact && config.max_nodes > MOST_NODES {
            return Err(ApiError::param("max_nodes", format!("max_nodes can be {MOST_NODES} at most")));
        }
        config.seed = self.seed(any_seed)?;
        config.end_tokens = self.end_tokens()?;
        let is_other = |only: &&Only| self.get(only.name).is_some_and(|value| !(only.is_so)(value, &config));
        match self.dialect.only.iter().find(is_other) {
            Some(only) => Err(ApiError::wrong(only.name, only.kind)),
            None => Ok(config),
        }
    }

    /// Refuses strings that cannot be looked for. Without a tokenizer those of the folder are left out, and those
    /// that the request asks for are refused.
    fn check_stops(&self, are_asked: bool, stops: &mut Vec<String>) -> Result<(), ApiError> {
        let name = self.sent_as("stop_strings").unwrap_or("stop");
        if self.model.tokenizer.is_none() {
            if are_asked {
                let message = format!("{name} needs a tokenizer, and the checkpoint holds none; send stop_token_ids");
                return Err(ApiError::param(name, message));
            }
            stops.clear();
        }
        if stops.len() > MOST_STOPS {
            return Err(ApiError::param(name, format!("{name} can have {MOST_STOPS} strings at most")));
        }
        Ok(())
    }

    /// The request's seed; where it names none, or -1 as llama.cpp's clients do for none, `any_seed`.
    fn seed(&self, any_seed: u64) -> Result<u64, ApiError> {
        let Some(seed) = self.get("seed").filter(|seed| seed.as_i64() != Some(-1)) else { return Ok(any_seed) };
        let number = seed.as_u64().or(seed.as_i64().map(|seed| seed as u64));
        number.ok_or_else(|| ApiError::wrong("seed", "a whole number"))
    }

    /// The tokens that end the text: the model's own, unless they are to be ignored, then the request's.
    fn end_tokens(&self) -> Result<Vec<u32>, ApiError> {
        let mut end_tokens = if self.is_on("ignore_eos")? { Vec::new() } else { self.model.end_tokens.clone() };
        let Some(ids) = self.get("stop_token_ids") else { return Ok(end_tokens) };
        let ids = ids_of(ids).ok_or_else(|| ApiError::wrong("stop_token_ids", "a list of token ids"))?;
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
    fn sent_as(&self, key: &str) -> Option<&'a str> {
        self.sent().find(|(_, knob)| knob.name == key).map(|(name, _)| name)
    }

    /// What is wrong with knobs, by the names that they were sent under.
    fn blamed(&self, error: &KnobError) -> ApiError {
        let message = match error {
            KnobError::OutOfRange { knob, value } if knob.name == "num_return_sequences" => {
                format!("{} is {value}; it must be from 1 to {MOST_TEXTS}", knob.name)
            }
            error => error.to_string(),
        };
        let message = self.sent().fold(message, |message, (name, knob)| message.replace(knob.name, name));
        let at_fault = match error {
            KnobError::OutOfRange { knob, .. }
            | KnobError::Ignored { knob, .. }
            | KnobError::Greedy { knob }
            | KnobError::GreedyStack { knob, .. } => self.sent().find(|(_, other)| other.name == knob.name),
            KnobError::Contradiction(Contradiction::Drafts(_)) => {
                return ApiError::param("draft_tokens", format!("{message}; leave draft_tokens out"));
            }
            _ => None,
        };
        let Some((name, knob)) = at_fault else { return ApiError::invalid(message) };
        // What ignores a knob calls it as people do.
        match message.strip_suffix(&format!(" ignores {}", knob.label)) {
            Some(who) => ApiError::param(name, format!("{who} ignores {name}; leave it out")),
            None => ApiError::param(name, message),
        }
    }

    /// A request for these prompts; `param` is where they stand, and `logprobs` how many probable
    /// tokens are told beside each, where that is asked.
    pub(super) fn parsed(
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
        if prompts.len().saturating_mul(each) > MOST_TEXTS {
            return Err(ApiError::param("n", format!("at most {MOST_TEXTS} texts can be asked for at once")));
        }
        check_ranked(prompts.len(), &config)?;
        let rows = if config.strategy.has_beams() { config.num_beams.max(each) } else { each };
        check_slots(&prompts, rows, config.max_new_tokens, shape.context_length, self.model.usable_slots)?;
        let echoes = self.is_on("echo")?;
        let told = |ids: &Vec<u32>| {
            let told = config.max_new_tokens.saturating_add(if echoes { ids.len() } else { 0 });
            if config.overflow == Overflow::Slide { told } else { told.min(shape.context_length) }
        };
        let written = prompts.len().saturating_mul(rows).saturating_mul(config.max_new_tokens);
        let parsed = ParsedRequest {
            tokens: prompts.iter().map(told).fold(0, usize::saturating_add).saturating_mul(rows),
            prompts,
            traced_candidates: 0,
            grammar,
            logprobs,
            measures: false,
            writes: true,
            stream: self.is_on("stream")?,
            tells_progress: self.is_on("stream")? && self.is_on("return_progress")?,
            config,
        };
        parsed.traced("trace", self.count("trace")?.unwrap_or(0))?.ending(written)
    }

    /// The grammar that the text must follow; `gbnf` is where llama.cpp's grammars may stand.
    pub(super) fn grammar(&self, gbnf: Option<&str>) -> Result<Option<Grammar>, ApiError> {
        let text = |name: &'static str| match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(schema @ (Value::Object(_) | Value::Bool(_))) if name == "json_schema" => Ok(Some(schema.to_string())),
            Some(_) if name == "json_schema" => {
                Err(ApiError::wrong(name, "a schema: an object, true, false, or their text"))
            }
            Some(_) => Err(ApiError::wrong(name, "a string")),
        };
        let refused = |name: &'static str| move |error: GrammarError| ApiError::param(name, error.to_string());
        let lark = |name, text: String| Grammar::lark(name, &text).map_err(refused(name));
        let found = [
            text("regex")?.map(|text| Grammar::regex("regex", &text).map_err(refused("regex"))),
            text("json_schema")?.map(|text| Grammar::json_schema("json_schema", &text).map_err(refused("json_schema"))),
            text("lark_grammar")?.map(|text| lark("lark_grammar", text)),
            match gbnf {
                Some(_) => text("grammar")?.map(|text| lark("grammar", gbnf::to_lark(&text)?)),
                None => None,
            },
        ];
        let mut found = found.into_iter().flatten();
        let first = found.next().transpose()?;
        match found.next() {
            None => Ok(first),
            Some(_) => {
                Err(ApiError::invalid("only one of regex, json_schema, lark_grammar and grammar can hold a text"))
            }
        }
    }
}

fn has(parameters: &[Parameter], name: &str) -> bool {
    parameters.iter().any(|(other, _)| *other == name)
}

/// The knob of this name: its key in a file, its flag, or what the dialect calls it.
pub(super) fn find(dialect: &Dialect, name: &str) -> Option<&'static Knob> {
    let own = dialect.knobs.iter().chain(COMMON_KNOBS).find(|(other, _)| *other == name).map_or(name, |(_, own)| own);
    KNOBS.iter().find(|knob| knob.name == own || knob.label.replace('-', "_") == own)
}

/// Whether this names how many tokens are written at most.
fn is_limit(dialect: &Dialect, name: &str) -> bool {
    find(dialect, name).is_some_and(|knob| knob.name == "max_new_tokens")
}

fn unknown(dialect: &Dialect, name: &str) -> ApiError {
    let knobs = KNOBS.iter().map(|knob| knob.name);
    let others = dialect.knobs.iter().map(|(other, _)| *other);
    let named = dialect.own.iter().chain(COMMON).map(|(name, _)| *name);
    let all: Vec<&str> = knobs.chain(others).chain(named).collect();
    // Before it is compared: that takes time and memory by its length.
    let name: String = name.chars().take(60).collect();
    let likeness = |other: &str| strsim::normalized_damerau_levenshtein(&name, other);
    let meant = ELSEWHERE.iter().find(|(elsewhere, ours)| *elsewhere == name && all.contains(ours));
    let alike = || all.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let nearest = meant.map(|(_, ours)| *ours).or_else(|| alike().filter(|other| likeness(other) >= ALIKE));
    let advice = match nearest {
        Some(nearest) => format!("the nearest is {nearest}"),
        None => "/openapi.json lists them".to_owned(),
    };
    ApiError::param(&name, format!("there is no parameter {name:?}; {advice}"))
}

/// A list, if every item is what it should be.
pub(super) fn list<T>(value: &Value, item: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(item).collect()
}
