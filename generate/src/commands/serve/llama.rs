//! `POST /completion`, with the parameter names, defaults and answers of llama.cpp's server.

mod prompts;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ember_data::tokenizer::SpecialTokens;
use ember_decoding::FinishReason;
use ember_decoding::completion::ChosenToken;
use ember_decoding::config::{GenerationConfig, KnobValue, Knobs, Overflow, Semantics, Strategy};
use ember_decoding::generator::Written;
use ember_decoding::stream::{TextStream, token_bytes, token_text};
use ember_decoding::trace::ChoiceTrace;
use serde_json::{Map, Value, json};

use super::answer::{AnswerFormat, Results, add_progress, timings};
use super::body::Object;
use super::error::ApiError;
use super::fields::{GRAMMAR, PROMPT, settle_length};
use super::handler::write;
use super::models::Model;
use super::parameter::Parameter;
use super::parsed_request::ParsedRequest;
use super::request::{Dialect, Fixed, Parameters, list};
use super::samplers;
use super::server::Server;
use super::writing::{Event, Piece, Work};
use prompts::{are_several, prompts};

/// llama.cpp's names.
pub(super) const DIALECT: Dialect = Dialect {
    own: &[
        PROMPT,
        Parameter::integer("n_probs", "number of most probable tokens to return with each token"),
        Parameter::boolean("post_sampling_probs", "with n_probs, return probabilities after all knobs"),
        Parameter::boolean("return_tokens", "return token ids, too"),
        Parameter::array("response_fields", "which fields of the answer to return"),
        GRAMMAR,
        Parameter::number("t_max_predict_ms", "as max_time, in milliseconds; 0 or less is off"),
    ],
    knobs: &[
        ("n_predict", "max_new_tokens"),
        ("max_tokens", "max_new_tokens"),
        ("repeat_penalty", "repetition_penalty"),
        ("n_cmpl", "num_return_sequences"),
    ],
    without_effect: &[
        "backend_sampling",
        "cache_prompt",
        "id_slot",
        "metadata",
        "timings_per_token",
        "user",
        // They belong to features that `fixed` accepts only when they are off.
        "dry_allowed_length",
        "dry_base",
        "dry_penalty_last_n",
        "dry_sequence_breakers",
        "dynatemp_exponent",
        "mirostat_eta",
        "mirostat_tau",
        "xtc_threshold",
    ],
    fixed: &[
        Fixed { name: "dry_multiplier", accepts: is_zero, kind: "0: DRY is not supported" },
        Fixed { name: "dynatemp_range", accepts: is_zero, kind: "0: dynamic temperature is not supported" },
        Fixed { name: "lora", accepts: |value, _| *value == json!([]), kind: "[]: adapters are not supported" },
        Fixed {
            name: "min_keep",
            accepts: |value, _| value == 0 || value == 1,
            kind: "0 or 1: others are not supported",
        },
        Fixed { name: "mirostat", accepts: is_zero, kind: "0: Mirostat is not supported" },
        Fixed {
            name: "n_discard",
            accepts: |value, config| value == 0 || config.overflow != Overflow::Slide,
            kind: "0: the window slides by one token",
        },
        Fixed {
            name: "n_keep",
            accepts: |value, config| value == 0 || config.overflow != Overflow::Slide,
            kind: "0: a sliding window does not keep the beginning",
        },
        Fixed {
            name: "repeat_last_n",
            accepts: |value, config| value == 64 && has_llamacpp_semantics(config) || !penalises(config),
            kind: "64: penalties look at the last 64 tokens",
        },
        Fixed {
            name: "samplers",
            accepts: |value, config| has_llamacpp_semantics(config) && samplers::are_all_in_order(value),
            kind: "penalties, top_k, typ_p, top_p, min_p, temperature, in this order; turn off one by its parameter",
        },
        Fixed {
            name: "top_n_sigma",
            accepts: |value, _| value.as_f64().is_some_and(|sigma| sigma <= 0.0),
            kind: "0 or less: top-n-sigma is not supported",
        },
        Fixed { name: "xtc_probability", accepts: is_zero, kind: "0: XTC is not supported" },
    ],
    by_folder: false,
};

/// Whether a parameter that 0 turns off is off.
fn is_zero(value: &Value, _: &GenerationConfig) -> bool {
    value.as_f64() == Some(0.0)
}

/// Whether knobs are applied as in llama.cpp.
fn has_llamacpp_semantics(config: &GenerationConfig) -> bool {
    config.semantics == Semantics::Llamacpp
}

/// Whether a penalty for earlier tokens is active.
fn penalises(config: &GenerationConfig) -> bool {
    let GenerationConfig { repetition_penalty, presence_penalty, frequency_penalty, .. } = *config;
    repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0
}

/// Largest `n_probs`.
const MAX_PROBS: usize = 200;

pub(super) async fn completion(State(server): State<Arc<Server>>, body: Object) -> Result<Response, ApiError> {
    write(server, body, read).await
}

fn read(server: &Server, model: &Model, body: &Map<String, Value>) -> Result<(ParsedRequest, Completion), ApiError> {
    let parameters = Parameters::new(body, model, &DIALECT)?;
    let (config, generates) = config(server, &parameters)?;
    let probs = parameters.count("n_probs")?.unwrap_or(0);
    if probs > MAX_PROBS {
        return Err(ApiError::param("n_probs", format!("n_probs is {probs}; it must be at most {MAX_PROBS}")));
    }
    let probs = probs.min(model.engine.config().vocab_size);
    let after_sampling = probs > 0 && parameters.is_on("post_sampling_probs")?;
    let special = parameters.special(SpecialTokens::Text)?;
    let prompts = prompts(model, parameters.get("prompt"), special)?;
    let logprobs = (probs > 0).then_some(probs);
    let mut parsed = parameters.parsed_request("prompt", prompts, config, logprobs, parameters.grammar()?)?;
    let mut settings = settings(model, &parsed.config);
    if !generates {
        (settings["max_new_tokens"], settings["n_predict"]) = (json!(0), json!(0));
    }
    let prompts: Vec<String> = parsed.prompts.iter().map(|ids| text_of(model, ids)).collect();
    let settings_bytes = settings.to_string().len();
    parsed.check_repeated(prompts.iter().map(|text| text.len() + settings_bytes).sum())?;
    parsed.generates = generates;
    if after_sampling {
        if parsed.config.strategy.ranks_texts() {
            let message = "post_sampling_probs does not work with beams or an exact search; leave it out";
            return Err(ApiError::param("post_sampling_probs", message));
        }
        parsed = parsed.with_trace("post_sampling_probs", probs)?;
    }
    let fields = parameters.get("response_fields").map(|fields| {
        let fields = list(fields, |field| Some(field.as_str()?.to_owned()));
        fields.ok_or_else(|| ApiError::wrong_type("response_fields", "a list of strings"))
    });
    let format = Completion {
        probs,
        after_sampling,
        tokens: parameters.is_on("return_tokens")?,
        settings,
        prompts,
        fields: fields.transpose()?.filter(|fields| !fields.is_empty()),
        are_several: parsed.config.num_return_sequences > 1 || body.get("prompt").is_some_and(are_several),
        finished: Vec::new(),
    };
    Ok((parsed, format))
}

/// The settings of a request without parameters, by llama.cpp's names.
pub(super) fn defaults(server: &Server, model: &Model) -> Result<Value, ApiError> {
    let nothing = Map::new();
    let parameters = Parameters::new(&nothing, model, &DIALECT)?;
    Ok(settings(model, &config(server, &parameters)?.0))
}

/// The configuration, and whether anything is to be generated.
fn config(server: &Server, parameters: &Parameters) -> Result<(GenerationConfig, bool), ApiError> {
    let model = parameters.model;
    let mut knobs = parameters.knobs()?;
    let generates = settle_length(&mut knobs, model, model.engine.config().context_length);
    if let Some(most) = parameters.get("t_max_predict_ms") {
        let milliseconds = most.as_f64().ok_or_else(|| ApiError::wrong_type("t_max_predict_ms", "a number"))?;
        let seconds = (milliseconds > 0.0).then_some(milliseconds / 1e3);
        knobs.max_time_s = seconds.into_iter().chain(knobs.max_time_s).reduce(f64::min);
    }
    apply_defaults(&mut knobs);
    let mut config = parameters.config(knobs, server.default_seed())?;
    if parameters.is_on("ignore_eos")? {
        // llama.cpp then bans the end tokens; vLLM only does not stop at them.
        config.suppress_tokens.extend(&model.end_tokens);
    }
    Ok((config, generates))
}

/// Applies llama.cpp's defaults, unless the request itself asks for ranked texts; the folder's
/// beams are ignored, since llama.cpp has none.
fn apply_defaults(knobs: &mut Knobs) {
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
    /// How many tokens to return with each token.
    probs: usize,
    /// Whether to return the probabilities after all knobs.
    after_sampling: bool,
    tokens: bool,
    /// The request's settings, returned with each text.
    settings: Value,
    prompts: Vec<String>,
    fields: Option<Vec<String>>,
    /// Whether several texts were asked for: the answer is then a list, even if a search finds one.
    are_several: bool,
    /// In a stream: finished texts, whose last chunks wait for the timings.
    finished: Vec<(usize, Box<Written>)>,
}

impl AnswerFormat for Completion {
    fn full(&mut self, work: &Work, results: Results) -> Value {
        if !work.parsed.generates {
            let answers = self.empty_answers(work, &results).map(|answer| self.selected_fields(answer));
            return self.one_or_list(answers.collect());
        }
        let answers = results.finished.iter().map(|(choice, written)| {
            let steps = results.steps_of(*choice);
            let mut answer = self.final_answer(work, *choice, written, &results);
            answer["content"] = json!(written.text);
            answer["tokens"] = if self.tokens { json!(written.completion.ids) } else { json!([]) };
            if self.probs > 0 {
                answer["completion_probabilities"] = self.all_probabilities(work, written, &steps);
            }
            self.selected_fields(answer)
        });
        self.one_or_list(answers.collect())
    }

    fn chunks(&mut self, work: &Work, event: Event) -> Vec<Value> {
        match event {
            Event::Failed(error) => vec![error.body()],
            event => self.event_chunks(work, event).into_iter().map(|chunk| self.selected_fields(chunk)).collect(),
        }
    }

    /// The last chunk of each text has `stop: true`, unless `response_fields` omits it; an error
    /// ends the stream.
    fn ends_with_done(&self) -> bool {
        false
    }
}

impl Completion {
    /// The chunks of an event, with all fields.
    fn event_chunks(&mut self, work: &Work, event: Event) -> Vec<Value> {
        match event {
            Event::Piece(piece) => {
                let Piece { choice, text, token, step } = *piece;
                let ids: Vec<u32> = token.iter().map(|token| token.id).collect();
                let mut chunk = json!({ "index": choice, "content": text, "tokens": ids, "stop": false });
                if let Some(token) = token.as_ref().filter(|_| self.probs > 0) {
                    chunk["completion_probabilities"] = json!([self.probabilities(work, token, step.as_ref())]);
                }
                vec![chunk]
            }
            Event::Finished { choice, written } => {
                let ranks_texts = work.parsed.config.strategy.ranks_texts();
                let whole = ranks_texts.then(|| self.whole_text(work, choice, &written));
                self.finished.push((choice, written));
                whole.into_iter().collect()
            }
            Event::Done(timings) => {
                let results = Results { timings, ..Results::default() };
                if !work.parsed.generates {
                    return self.empty_answers(work, &results).collect();
                }
                let finished = std::mem::take(&mut self.finished);
                let last = |(choice, written): &(usize, Box<Written>)| {
                    let mut last = self.final_answer(work, *choice, written, &results);
                    (last["content"], last["tokens"]) = (json!(""), json!([]));
                    last
                };
                finished.iter().map(last).collect()
            }
            Event::Progress { progress, seconds } => {
                let mut chunk = json!({ "index": 0, "content": "", "tokens": [], "stop": false });
                add_progress(&mut chunk, progress, seconds);
                vec![chunk]
            }
            Event::Scored { .. } | Event::Beams(_) | Event::Failed(_) => Vec::new(),
        }
    }

    /// The chunk of a text that a search found: all of it.
    fn whole_text(&self, work: &Work, choice: usize, written: &Written) -> Value {
        let ids = &written.completion.ids;
        let mut chunk = json!({ "index": choice, "content": written.text, "tokens": ids, "stop": false });
        if self.probs > 0 {
            chunk["completion_probabilities"] = self.all_probabilities(work, written, &[]);
        }
        chunk
    }

    /// The answer's fields at the end of a text.
    fn final_answer(&self, work: &Work, choice: usize, written: &Written, results: &Results) -> Value {
        let parsed = &work.parsed;
        let completion = &written.completion;
        let prompt = parsed.prompt_of(choice);
        // The context ended the text, or its window slid.
        let truncated = completion.finish_reason == FinishReason::Length
            && completion.ids.len() < parsed.config.max_new_tokens
            || completion.slid;
        let (stop_type, stopping_word) = match completion.finish_reason {
            FinishReason::Eos => ("eos", String::new()),
            // If a grammar allows nothing more, llama.cpp reports an end token.
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
            "truncated": truncated,
            "stop_type": stop_type,
            "stopping_word": stopping_word,
            "timings": timings(&results.timings),
        })
    }

    /// A list for several prompts or several texts, else the one answer.
    fn one_or_list(&self, mut answers: Vec<Value>) -> Value {
        if self.are_several || answers.len() != 1 { Value::Array(answers) } else { answers.remove(0) }
    }

    /// The answers of a request that generates nothing.
    fn empty_answers(&self, work: &Work, results: &Results) -> impl Iterator<Item = Value> {
        let each = work.parsed.config.num_return_sequences;
        let answer = move |choice: usize| {
            let prompt = work.parsed.prompt_of(choice);
            json!({
                "index": choice,
                "content": "", "tokens": [], "stop": true, "stop_type": "limit", "stopping_word": "", "truncated": false,
                "has_new_line": false, "model": work.model.name, "prompt": self.prompts[prompt],
                "tokens_predicted": 0, "tokens_evaluated": work.parsed.prompts[prompt].len(),
                "tokens_cached": results.timings.cached_tokens, "generation_settings": self.settings, "timings": timings(&results.timings),
            })
        };
        (0..work.parsed.prompts.len() * each).map(answer)
    }

    /// The fields of `response_fields`, each by its path; all fields without it.
    fn selected_fields(&self, answer: Value) -> Value {
        let Some(fields) = &self.fields else { return answer };
        let part = |path: &String| {
            let part = path.split('/').try_fold(&answer, |value, key| value.get(key))?;
            Some((path.clone(), part.clone()))
        };
        fields.iter().filter_map(part).collect()
    }

    /// A text's tokens with their most probable alternatives; `steps` are their traces, if any.
    fn all_probabilities(&self, work: &Work, written: &Written, steps: &[&ChoiceTrace]) -> Value {
        let tokens = written.completion.tokens.iter().enumerate();
        tokens.map(|(i, token)| self.probabilities(work, token, steps.get(i).copied())).collect()
    }

    /// A token with the most probable alternatives.
    fn probabilities(&self, work: &Work, token: &ChosenToken, step: Option<&ChoiceTrace>) -> Value {
        let tokenizer = work.model.tokenizer.as_ref();
        let one =
            |id: u32| json!({ "id": id, "token": token_text(tokenizer, id), "bytes": token_bytes(tokenizer, id) });
        let mut entry = one(token.id);
        let Some(step) = step.filter(|_| self.after_sampling) else {
            entry["logprob"] = json!(token.logprob);
            let top = token.top.iter().map(|(id, logprob)| {
                let mut top = one(*id);
                top["logprob"] = json!(logprob);
                top
            });
            entry["top_logprobs"] = top.collect();
            return entry;
        };
        let mut left: Vec<(u32, f32)> =
            step.candidates.iter().filter_map(|other| Some((other.id, other.final_probability()?))).collect();
        left.retain(|(_, probability)| *probability > 0.0);
        left.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        entry["prob"] = json!(left.iter().find(|(id, _)| *id == token.id).map_or(0.0, |(_, probability)| *probability));
        let top = left.iter().take(self.probs).map(|(id, probability)| {
            let mut top = one(*id);
            top["prob"] = json!(probability);
            top
        });
        entry["top_probs"] = top.collect();
        entry
    }
}

/// A prompt as text.
fn text_of(model: &Model, ids: &[u32]) -> String {
    model.tokenizer.as_ref().and_then(|tokenizer| tokenizer.decode_text(ids).ok()).unwrap_or_default()
}

/// The settings of a request, by llama.cpp's names.
fn settings(model: &Model, config: &GenerationConfig) -> Value {
    let biased = config.logit_bias.iter().map(|(ids, bias)| json!({ "token": ids.last(), "bias": bias }));
    let banned = config.suppress_tokens.iter().map(|token| json!({ "token": token, "bias": null }));
    let biases: Vec<Value> = biased.chain(banned).collect();
    let mut settings = json!(config);
    settings["early_stopping"] = config.early_stopping.to_json(); // as in a request: true is not a string
    (settings["n_predict"], settings["logit_bias"]) = (json!(config.max_new_tokens), json!(biases));
    settings["n_ctx"] = json!(model.engine.config().context_length);
    settings
}

/// The stop string that ended a text; of several matches the first in the request.
fn stopping_word(work: &Work, written: &Written) -> String {
    let Some(tokenizer) = &work.model.tokenizer else { return String::new() };
    let bytes: Vec<u8> = written.completion.ids.iter().flat_map(|id| token_bytes(Some(tokenizer), *id)).collect();
    // Decoded as the text was: bytes that may begin a character are not U+FFFD yet.
    let whole = TextStream::default().push(&bytes);
    let rest = whole.get(written.text.len()..).unwrap_or_default();
    let mut stops = work.parsed.config.stop_strings.iter();
    stops.find(|stop| rest.starts_with(stop.as_str())).cloned().unwrap_or_default()
}
