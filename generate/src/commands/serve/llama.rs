//! `POST /completion`, as llama.cpp's server answers it: its names, its defaults, its answers.

mod prompts;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ember_data::tokenizer::SpecialTokens;
use ember_decoding::FinishReason;
use ember_decoding::completion::ChosenToken;
use ember_decoding::config::{GenerationConfig, KnobValue, Knobs, Overflow, Semantics, Strategy};
use ember_decoding::generator::Written;
use ember_decoding::stream::{token_bytes, token_text};
use ember_decoding::trace::ChoiceTrace;
use serde_json::{Map, Value, json};

use super::answer::{AnswerFormat, Results, add_progress, timings};
use super::body::Object;
use super::error::ApiError;
use super::fields::{GRAMMAR, PROMPT, settle_length};
use super::handler::write;
use super::models::Model;
use super::parsed_request::ParsedRequest;
use super::request::{Dialect, Only, Parameters, list};
use super::samplers;
use super::server::Server;
use super::writing::{Event, Piece, Work};
use prompts::{are_several, prompts};

/// llama.cpp's names.
pub(super) const DIALECT: Dialect = Dialect {
    own: &[
        PROMPT,
        ("n_probs", "integer: tell so many probable tokens beside each"),
        ("post_sampling_probs", "boolean: by their probabilities behind all knobs"),
        ("return_tokens", "boolean: tell ids, too"),
        ("response_fields", "array: which parts of the answer to tell"),
        GRAMMAR,
        ("t_max_predict_ms", "number: as max_time, in milliseconds; 0 or less is none"),
    ],
    knobs: &[
        ("n_predict", "max_new_tokens"),
        ("max_tokens", "max_new_tokens"),
        ("repeat_penalty", "repetition_penalty"),
        ("n_cmpl", "num_return_sequences"),
    ],
    without_effect: &["backend_sampling", "cache_prompt", "id_slot", "metadata", "timings_per_token", "user"],
    only: &[
        Only { name: "dry_multiplier", is_so: is_zero, kind: "0: there is no DRY here" },
        Only { name: "dynatemp_range", is_so: is_zero, kind: "0: the temperature stays as it is" },
        Only { name: "lora", is_so: |value, _| *value == json!([]), kind: "[]: there are no adapters here" },
        Only {
            name: "min_keep",
            is_so: |value, _| value == 0 || value == 1,
            kind: "0: no knob keeps more than it must",
        },
        Only { name: "mirostat", is_so: is_zero, kind: "0: there is no Mirostat here" },
        Only {
            name: "n_discard",
            is_so: |value, config| value == 0 || config.overflow != Overflow::Slide,
            kind: "0: a window slides by one token",
        },
        Only {
            name: "n_keep",
            is_so: |value, config| value == 0 || config.overflow != Overflow::Slide,
            kind: "0: a window that slides keeps no beginning",
        },
        Only {
            name: "repeat_last_n",
            is_so: |value, config| value == 64 && is_llama_cpps(config) || !penalises(config),
            kind: "64: penalties look at the last 64 tokens",
        },
        Only {
            name: "samplers",
            is_so: |value, config| is_llama_cpps(config) && samplers::are_all_in_order(value),
            kind: "penalties, top_k, typ_p, top_p, min_p, temperature: these, in this order; each is off at its own value",
        },
        Only { name: "xtc_probability", is_so: is_zero, kind: "0: there is no XTC here" },
    ],
    by_folder: false,
};

/// Whether it is off where 0 is off.
fn is_zero(value: &Value, _: &GenerationConfig) -> bool {
    value.as_f64() == Some(0.0)
}

/// Whether knobs are applied as llama.cpp applies them.
fn is_llama_cpps(config: &GenerationConfig) -> bool {
    config.semantics == Semantics::Llamacpp
}

/// Whether there is a penalty that counts tokens.
fn penalises(config: &GenerationConfig) -> bool {
    let GenerationConfig { repetition_penalty, presence_penalty, frequency_penalty, .. } = *config;
    repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0
}

/// Most tokens to tell beside each.
const MOST_PROBS: usize = 200;

pub(super) async fn completion(State(server): State<Arc<Server>>, body: Object) -> Result<Response, ApiError> {
    write(server, body, read).await
}

fn read(server: &Server, model: &Model, body: &Map<String, Value>) -> Result<(ParsedRequest, Completion), ApiError> {
    let parameters = Parameters::new(body, model, &DIALECT)?;
    let (config, writes) = config(server, &parameters)?;
    let probs = parameters.count("n_probs")?.unwrap_or(0);
    if probs > MOST_PROBS {
        return Err(ApiError::param("n_probs", format!("n_probs is {probs}; at most {MOST_PROBS} are told")));
    }
    let probs = probs.min(model.engine.config().vocab_size);
    let after_sampling = probs > 0 && parameters.is_on("post_sampling_probs")?;
    let special = parameters.special(SpecialTokens::Text)?;
    let prompts = prompts(model, parameters.get("prompt"), special)?;
    let logprobs = (probs > 0).then_some(probs);
    let parsed = parameters.parsed("prompt", prompts, config, logprobs, parameters.grammar(Some("grammar"))?)?;
    let mut settings = settings(model, &parsed.config);
    if !writes {
        (settings["max_new_tokens"], settings["n_predict"]) = (json!(0), json!(0));
    }
    let prompts: Vec<String> = parsed.prompts.iter().map(|ids| text_of(model, ids)).collect();
    let settings_bytes = settings.to_string().len();
    let mut parsed = parsed.repeating(prompts.iter().map(|text| text.len() + settings_bytes).sum())?;
    parsed.writes = writes;
    if after_sampling {
        if parsed.config.strategy.ranks_texts() {
            let message =
                "post_sampling_probs are of tokens that are taken one by one; an exact search and beams have none";
            return Err(ApiError::param("post_sampling_probs", message));
        }
        parsed = parsed.traced("post_sampling_probs", probs)?;
    }
    let fields = parameters.get("response_fields").map(|fields| {
        let fields = list(fields, |field| Some(field.as_str()?.to_owned()));
        fields.ok_or_else(|| ApiError::wrong("response_fields", "a list of strings"))
    });
    let format = Completion {
        probs,
        after_sampling,
        tokens: parameters.is_on("return_tokens")?,
        settings,
        prompts,
        fields: fields.transpose()?.filter(|fields| !fields.is_empty()),
        are_several: body.get("prompt").is_some_and(are_several),
        finished: Vec::new(),
    };
    Ok((parsed, format))
}

/// How a request that says nothing is written, by llama.cpp's names.
pub(super) fn defaults(server: &Server, model: &Model) -> Result<Value, ApiError> {
    let nothing = Map::new();
    let parameters = Parameters::new(&nothing, model, &DIALECT)?;
    Ok(settings(model, &config(server, &parameters)?.0))
}

/// What decides the text, and whether anything is to be written.
fn config(server: &Server, parameters: &Parameters) -> Result<(GenerationConfig, bool), ApiError> {
    let model = parameters.model;
    let mut knobs = parameters.knobs()?;
    let writes = settle_length(&mut knobs, model, model.engine.config().context_length);
    if let Some(most) = parameters.get("t_max_predict_ms") {
        let milliseconds = most.as_f64().ok_or_else(|| ApiError::wrong("t_max_predict_ms", "a number"))?;
        let seconds = (milliseconds > 0.0).then_some(milliseconds / 1e3);
        knobs.max_time_s = seconds.into_iter().chain(knobs.max_time_s).reduce(f64::min);
    }
    with_defaults(&mut knobs);
    let mut config = parameters.config(knobs, server.any_seed())?;
    if parameters.is_on("ignore_eos")? {
        // To llama.cpp they are then impossible; to vLLM they end nothing.
        config.suppress_tokens.extend(&model.end_tokens);
    }
    Ok((config, writes))
}

/// llama.cpp's own defaults, where the request does not ask for ranked texts itself: a folder's beams are not
/// llama.cpp's.
fn with_defaults(knobs: &mut Knobs) {
    let several = |count: Option<usize>| count.is_some_and(|count| count > 1);
    let ranks_texts =
        knobs.strategy.is_some_and(Strategy::ranks_texts) || several(knobs.num_beams) || several(knobs.num_beam_groups);
    if knobs.semantics.is_none() && !ranks_texts {
        knobs.semantics = Some(Semantics::Llamacpp);
        knobs.strategy.get_or_insert(Strategy::Sample);
    }
}

/// llama.cpp's answers to requests for completions.
struct Completion {
    /// How many tokens to tell beside each.
    probs: usize,
    /// Whether their probabilities are those after all knobs.
    after_sampling: bool,
    tokens: bool,
    /// What was asked, and of whom, as it is told with each text.
    settings: Value,
    prompts: Vec<String>,
    fields: Option<Vec<String>>,
    are_several: bool,
    /// In a stream: texts that are finished, whose last words come with the times.
    finished: Vec<(usize, Box<Written>)>,
}

impl AnswerFormat for Completion {
    fn full(&mut self, work: &Work, results: Results) -> Value {
        if !work.parsed.writes {
            let told = self.nothing_written(work, &results).map(|told| self.chosen(told));
            return self.as_asked(told.collect());
        }
        let told = results.finished.iter().map(|(choice, written)| {
            let steps = results.steps_of(*choice);
            let mut told = self.last(work, *choice, written, &results);
            told["content"] = json!(written.text);
            told["tokens"] = if self.tokens { json!(written.completion.ids) } else { json!([]) };
            if self.probs > 0 {
                let tokens = &written.completion.tokens;
                let probabilities = tokens.iter().enumerate();
                told["completion_probabilities"] =
                    probabilities.map(|(i, token)| self.probabilities(work, token, steps.get(i).copied())).collect();
            }
            self.chosen(told)
        });
        self.as_asked(told.collect())
    }

    fn chunks(&mut self, work: &Work, event: Event) -> Vec<Value> {
        match event {
            Event::Failed(error) => vec![error.body()],
            event => self.told(work, event).into_iter().map(|told| self.chosen(told)).collect(),
        }
    }

    /// The last of each text says so itself, unless `response_fields` leave `stop` out; an error is the last of all.
    fn ends_with_done(&self) -> bool {
        false
    }
}

impl Completion {
    /// What is told of an event, with all its parts.
    fn told(&mut self, work: &Work, event: Event) -> Vec<Value> {
        match event {
            Event::Piece(piece) => {
                let Piece { choice, text, token, step } = *piece;
                let ids: Vec<u32> = token.iter().map(|token| token.id).collect();
                let mut told = json!({ "index": choice, "content": text, "tokens": ids, "stop": false });
                if let Some(token) = token.as_ref().filter(|_| self.probs > 0) {
                    told["completion_probabilities"] = json!([self.probabilities(work, token, step.as_ref())]);
                }
                vec![told]
            }
            Event::Finished { choice, written } => {
                let mut told = Vec::new();
                if work.parsed.config.strategy.ranks_texts() {
                    let ids = &written.completion.ids;
                    told.push(json!({ "index": choice, "content": written.text, "tokens": ids, "stop": false }));
                }
                self.finished.push((choice, written));
                told
            }
            Event::Done(timings) => {
                let results = Results { timings, ..Results::default() };
                if !work.parsed.writes {
                    return self.nothing_written(work, &results).collect();
                }
                let finished = std::mem::take(&mut self.finished);
                let last = |(choice, written): &(usize, Box<Written>)| {
                    let mut last = self.last(work, *choice, written, &results);
                    (last["content"], last["tokens"]) = (json!(""), json!([]));
                    last
                };
                finished.iter().map(last).collect()
            }
            Event::Progress { progress, seconds } => {
                let mut told = json!({ "index": 0, "content": "", "tokens": [], "stop": false });
                add_progress(&mut told, progress, seconds);
                vec![told]
            }
            Event::Read { .. } | Event::Beams(_) | Event::Failed(_) => Vec::new(),
        }
    }

    /// What is told at the end of a text.
    fn last(&self, work: &Work, choice: usize, written: &Written, results: &Results) -> Value {
        let parsed = &work.parsed;
        let completion = &written.completion;
        let prompt = parsed.prompt_of(choice);
        let is_full = completion.finish_reason == FinishReason::Length
            && completion.ids.len() < parsed.config.max_new_tokens
            || completion.slid;
        let (stop_type, stopping_word) = match completion.finish_reason {
            FinishReason::Eos => ("eos", String::new()),
            // Where a grammar has nothing to add nothing but an end can come, by llama.cpp's word.
            FinishReason::Stop => match stopping_word(work, written) {
                word if word.is_empty() => ("eos", word),
                word => ("word", word),
            },
            _ => ("limit", String::new()),
        };
        json!({
            "index": choice,
            "content": null,
            "tokens": null,
            "id_slot": 0,
            "stop": true,
            "model": work.model.name,
            "tokens_predicted": completion.ids.len(),
            "tokens_evaluated": parsed.prompts[prompt].len(),
            "tokens_cached": results.timings.cached_tokens,
            "generation_settings": self.settings,
            "prompt": self.prompts[prompt],
            "has_new_line": written.text.contains('\n'),
            "truncated": is_full,
            "stop_type": stop_type,
            "stopping_word": stopping_word,
            "timings": timings(&results.timings),
        })
    }

    /// A list where a list was asked, or several texts of a prompt.
    fn as_asked(&self, mut told: Vec<Value>) -> Value {
        if self.are_several || told.len() != 1 { Value::Array(told) } else { told.remove(0) }
    }

    /// What is told of each text where nothing was to be written.
    fn nothing_written(&self, work: &Work, results: &Results) -> impl Iterator<Item = Value> {
        let each = work.parsed.config.num_return_sequences;
        let told = move |choice: usize| {
            let prompt = work.parsed.prompt_of(choice);
            json!({
                "index": choice,
                "content": "", "tokens": [], "stop": true, "stop_type": "limit", "stopping_word": "", "truncated": false,
                "has_new_line": false, "model": work.model.name, "prompt": self.prompts[prompt],
                "tokens_predicted": 0, "tokens_evaluated": work.parsed.prompts[prompt].len(),
                "tokens_cached": results.timings.cached_tokens, "generation_settings": self.settings, "timings": timings(&results.timings),
            })
        };
        (0..work.parsed.prompts.len() * each).map(told)
    }

    /// The parts of an answer that were asked for, each by its path.
    fn chosen(&self, answer: Value) -> Value {
        let Some(fields) = &self.fields else { return answer };
        let part = |path: &String| {
            let part = path.split('/').try_fold(&answer, |value, key| value.get(key))?;
            Some((path.clone(), part.clone()))
        };
        fields.iter().filter_map(part).collect()
    }

    /// A token beside the others that were probable.
    fn probabilities(&self, work: &Work, token: &ChosenToken, step: Option<&ChoiceTrace>) -> Value {
        let tokenizer = work.model.tokenizer.as_ref();
        let one =
            |id: u32| json!({ "id": id, "token": token_text(tokenizer, id), "bytes": token_bytes(tokenizer, id) });
        let mut told = one(token.id);
        let Some(step) = step.filter(|_| self.after_sampling) else {
            told["logprob"] = json!(token.logprob);
            let top = token.top.iter().map(|(id, logprob)| {
                let mut top = one(*id);
                top["logprob"] = json!(logprob);
                top
            });
            told["top_logprobs"] = top.collect();
            return told;
        };
        let mut left: Vec<(u32, f32)> =
            step.candidates.iter().filter_map(|other| Some((other.id, other.final_probability()?))).collect();
        left.retain(|(_, probability)| *probability > 0.0);
        left.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        told["prob"] = json!(left.iter().find(|(id, _)| *id == token.id).map_or(0.0, |(_, probability)| *probability));
        let top = left.iter().take(self.probs).map(|(id, probability)| {
            let mut top = one(*id);
            top["prob"] = json!(probability);
            top
        });
        told["top_probs"] = top.collect();
        told
    }
}

/// A prompt as text.
fn text_of(model: &Model, ids: &[u32]) -> String {
    model.tokenizer.as_ref().and_then(|tokenizer| tokenizer.decode_text(ids).ok()).unwrap_or_default()
}

/// The knobs of a request by llama.cpp's names.
fn settings(model: &Model, config: &GenerationConfig) -> Value {
    let biased = config.logit_bias.iter().map(|(ids, bias)| json!({ "token": ids.last(), "bias": bias }));
    let never = config.suppress_tokens.iter().map(|token| json!({ "token": token, "bias": null }));
    let biases: Vec<Value> = biased.chain(never).collect();
    let mut settings = json!(config);
    settings["early_stopping"] = config.early_stopping.to_json(); // as a request may say it: true is no string
    (settings["n_predict"], settings["logit_bias"]) = (json!(config.max_new_tokens), json!(biases));
    settings["n_ctx"] = json!(model.engine.config().context_length);
    settings
}

/// The stop string before which a text ends: of several that begin there the first in the request, as in llama.cpp.
fn stopping_word(work: &Work, written: &Written) -> String {
    let Some(tokenizer) = &work.model.tokenizer else { return String::new() };
    let whole: Vec<u8> = written.completion.ids.iter().flat_map(|id| token_bytes(Some(tokenizer), *id)).collect();
    let whole = String::from_utf8_lossy(&whole);
    let rest = whole.get(written.text.len()..).unwrap_or_default();
    let mut stops = work.parsed.config.stop_strings.iter();
    stops.find(|stop| rest.starts_with(stop.as_str())).cloned().unwrap_or_default()
}
