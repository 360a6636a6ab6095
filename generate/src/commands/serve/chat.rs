//! `POST /v1/chat/completions`, for checkpoints with a chat template; and the rendering of messages
//! by that template.

use std::ops::Range;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_decoding::completion::ChosenToken;
use ember_decoding::constraint::Grammar;
use ember_decoding::stream::{token_bytes, token_text};
use serde_json::{Map, Value, json};

use super::answer::{AnswerFormat, FINGERPRINT, Results, add_progress, add_score, reason, timings, usage};
use super::body::Object;
use super::error::ApiError;
use super::fields::{GRAMMAR, includes_usage, sample_by_default, settle_length};
use super::handler::{with_model, write};
use super::json::Json;
use super::models::{Model, now};
use super::parameter::Parameter;
use super::parsed_request::ParsedRequest;
use super::request::{Dialect, Fixed, Parameters, list};
use super::server::Server;
use super::special::unmarked;
use super::template::Template;
use super::writing::{Event, Piece, Timings, Work};

pub(super) const MESSAGES: Parameter = Parameter::array("messages", "objects with role and content");

/// Parameters that a template reads besides the messages.
pub(super) const TEMPLATE_PARAMETERS: [Parameter; 4] = [
    Parameter::array("tools", "tools to pass to the chat template"),
    Parameter::object("chat_template_kwargs", "more variables for the chat template"),
    Parameter::boolean("add_generation_prompt", "end the text with the beginning of an answer"),
    Parameter::boolean(
        "continue_final_message",
        "continue the last message if it is an answer; the default, unless add_generation_prompt is sent",
    ),
];

/// The names of OpenAI's API, and of vLLM's and llama.cpp's extensions to it.
pub(super) const DIALECT: Dialect = Dialect {
    own: &[
        MESSAGES,
        Parameter::boolean("logprobs", "return each token's log-probability"),
        Parameter::integer(
            "top_logprobs",
            "number of most probable tokens to return with each, at most 20; needs logprobs",
        ),
        Parameter::object("response_format", "of the type text, json_object or json_schema"),
        GRAMMAR,
        Parameter::object("stream_options", "include_usage"),
        Parameter::boolean("verbose", "return the text that the conversation became"),
        TEMPLATE_PARAMETERS[0],
        TEMPLATE_PARAMETERS[1],
        TEMPLATE_PARAMETERS[2],
        TEMPLATE_PARAMETERS[3],
    ],
    knobs: &[
        ("max_completion_tokens", "max_new_tokens"),
        ("max_tokens", "max_new_tokens"),
        ("n_predict", "max_new_tokens"),
        ("min_tokens", "min_new_tokens"),
    ],
    without_effect: &[
        "cache_prompt",
        "id_slot",
        "metadata",
        "parallel_tool_calls",
        "priority",
        "prompt_cache_key",
        "reasoning_effort",
        "reasoning_format",
        "safety_identifier",
        "service_tier",
        "store",
        "timings_per_token",
        "user",
        "verbosity",
    ],
    fixed: &[
        Fixed { name: "modalities", accepts: |value, _| *value == json!(["text"]), kind: "[\"text\"]" },
        Fixed {
            name: "tool_choice",
            accepts: |value, _| value == "auto" || value == "none",
            kind: "auto or none: tool calls are not parsed from the text",
        },
    ],
    by_folder: true,
};

/// Largest `top_logprobs`, as in OpenAI's API.
const MAX_LOGPROBS: usize = 20;

pub(super) async fn chat_completions(State(server): State<Arc<Server>>, body: Object) -> Result<Response, ApiError> {
    write(server, body, read).await
}

/// `POST /apply-template`: the text that a conversation becomes.
pub(super) async fn apply_template(State(server): State<Arc<Server>>, body: Object) -> Result<Json, ApiError> {
    let rendered = |_: &Server, model: &Arc<Model>, body: &Map<String, Value>| {
        let parameters = Parameters::new(body, model, &DIALECT)?;
        conversation(&parameters, model).map(|text| unmarked(&text))
    };
    Ok(Json(json!({ "prompt": with_model(&server, body, rendered).await? })))
}

/// `POST /v1/chat/completions/input_tokens`: how many tokens a conversation is.
pub(super) async fn input_tokens(State(server): State<Arc<Server>>, body: Object) -> Result<Json, ApiError> {
    let counted = |_: &Server, model: &Arc<Model>, body: &Map<String, Value>| {
        let parameters = Parameters::new(body, model, &DIALECT)?;
        Ok(prompt(&parameters, model)?.1.len())
    };
    Ok(Json(json!({ "input_tokens": with_model(&server, body, counted).await? })))
}

fn read(server: &Server, model: &Model, body: &Map<String, Value>) -> Result<(ParsedRequest, Chat), ApiError> {
    let parameters = Parameters::new(body, model, &DIALECT)?;
    let mut knobs = parameters.knobs()?;
    let generates = settle_length(&mut knobs, model, model.engine.config().context_length);
    sample_by_default(&mut knobs, model);
    let config = parameters.config(knobs, server.default_seed())?;
    let logprobs = match (parameters.is_on("logprobs")?, parameters.count("top_logprobs")?) {
        (false, None) => None,
        (false, Some(_)) => return Err(ApiError::param("top_logprobs", "top_logprobs needs logprobs: true")),
        (true, top) => Some(top.unwrap_or(0)),
    };
    if logprobs.is_some_and(|top| top > MAX_LOGPROBS) {
        return Err(ApiError::param("top_logprobs", format!("top_logprobs must be at most {MAX_LOGPROBS}")));
    }
    let (text, ids) = prompt(&parameters, model)?;
    let grammar = grammar(&parameters)?;
    let parsed =
        ParsedRequest { generates, ..parameters.parsed_request("messages", vec![ids], config, logprobs, grammar)? };
    let format = Chat {
        created: now(),
        includes_usage: includes_usage(&parameters)?,
        verbose: parameters.is_on("verbose")?.then_some(text),
    };
    Ok((parsed, format))
}

/// The grammar that the answer must follow: `response_format`, or one of the grammar parameters.
fn grammar(parameters: &Parameters) -> Result<Option<Grammar>, ApiError> {
    let other = parameters.grammar()?;
    let Some(format) = parameters.get("response_format") else { return Ok(other) };
    let schema = match format.get("type").and_then(Value::as_str) {
        Some("text") => return Ok(other),
        Some("json_object") => format.get("schema").cloned().unwrap_or_else(|| json!({ "type": "object" })),
        Some("json_schema") => format["json_schema"].get("schema").cloned().unwrap_or(Value::Null),
        _ => return Err(ApiError::wrong_type("response_format", "of the type text, json_object or json_schema")),
    };
    if !(schema.is_object() || schema.is_boolean()) {
        return Err(ApiError::wrong_type("response_format", "a JSON schema: an object"));
    }
    if let Some(other) = other {
        let message = format!("only one of response_format and {} can be set", other.source());
        return Err(ApiError::param("response_format", message));
    }
    let grammar = Grammar::json_schema("response_format", &schema.to_string());
    Ok(Some(grammar.map_err(|error| ApiError::grammar("response_format", &error))?))
}

/// The text of a conversation and its ids.
fn prompt(parameters: &Parameters, model: &Model) -> Result<(String, Vec<u32>), ApiError> {
    let text = conversation(parameters, model)?;
    let (template, tokenizer) = template(model)?;
    let ids = template.names.ids(tokenizer, &text, parameters.special(SpecialTokens::Text)?);
    Ok((unmarked(&text), ids.map_err(|error| ApiError::param("messages", error.to_string()))?))
}

fn template(model: &Model) -> Result<(&Template, &Tokenizer), ApiError> {
    match (&model.template, &model.tokenizer, &model.template_refused) {
        (Some(template), Some(tokenizer), _) => Ok((template, tokenizer)),
        (_, _, Some(why)) => Err(ApiError::invalid(format!(
            "this checkpoint's chat template cannot be used: {why}; use /v1/completions, which continues a text"
        ))),
        _ => Err(ApiError::invalid(
            "this checkpoint has no chat template, so it cannot answer; use /v1/completions, which continues a text",
        )),
    }
}

/// The text that the model continues: all messages, and the beginning of an answer. If the last
/// message is an answer, it is continued.
fn conversation(parameters: &Parameters, model: &Model) -> Result<String, ApiError> {
    let (template, _) = template(model)?;
    let wrong = || ApiError::wrong_type("messages", "a list of objects, each with a role and a text as its content");
    let messages = parameters.get("messages").and_then(|messages| list(messages, message));
    let mut messages = messages.filter(|messages| !messages.is_empty()).ok_or_else(wrong)?;
    let continues = parameters.flag("continue_final_message")?;
    let adds = parameters.flag("add_generation_prompt")?;
    let partial = take_partial_answer(&mut messages, continues, adds)?;
    let empty = Map::new();
    let kwargs = match parameters.get("chat_template_kwargs") {
        None => &empty,
        Some(Value::Object(kwargs)) => kwargs,
        Some(_) => return Err(ApiError::wrong_type("chat_template_kwargs", "an object")),
    };
    let tools = match parameters.get("tools") {
        Some(Value::Array(tools)) if tools.is_empty() => None,
        Some(tools) if !tools.is_array() => return Err(ApiError::wrong_type("tools", "a list")),
        tools => tools,
    };
    let adds_prompt = partial.is_some() || adds.unwrap_or(true);
    let mut text = template.render(&messages, tools, adds_prompt, kwargs)?;
    if let Some(partial) = partial {
        text += &template.names.mark(partial.get("content").and_then(Value::as_str).unwrap_or_default());
    }
    Ok(text)
}

/// Removes the last message and returns it, if it is an answer to be continued. Without
/// `continues`, an answer in last position is, unless `adds_prompt` says how the text is to end.
fn take_partial_answer(
    messages: &mut Vec<Map<String, Value>>,
    continues: Option<bool>,
    adds_prompt: Option<bool>,
) -> Result<Option<Map<String, Value>>, ApiError> {
    let is_answer = |message: &Map<String, Value>| message["role"] == "assistant";
    if continues == Some(true) && adds_prompt == Some(true) {
        let message = "add_generation_prompt and continue_final_message contradict each other; leave one of them out";
        return Err(ApiError::param("continue_final_message", message));
    }
    let is_last = messages.last().is_some_and(is_answer);
    if continues == Some(true) && !is_last {
        let message = "continue_final_message needs an answer as the last message";
        return Err(ApiError::param("continue_final_message", message));
    }
    let partial = if is_last && continues.unwrap_or(adds_prompt.is_none()) { messages.pop() } else { None };
    if partial.is_some() && messages.last().is_some_and(is_answer) {
        return Err(ApiError::param("messages", "the last two messages are answers; only one can be continued"));
    }
    partial.iter().try_for_each(check_continuable)?;
    Ok(partial)
}

/// Refuses an answer that is not just a text: only the template can write the rest of it, such as
/// tool calls. What clients send empty is no rest.
fn check_continuable(answer: &Map<String, Value>) -> Result<(), ApiError> {
    let is_empty = |value: &Value| value.is_null() || *value == json!([]);
    let mut rest = answer.iter().filter(|&(key, value)| key != "role" && key != "content" && !is_empty(value));
    let what = match rest.next() {
        Some((key, _)) => format!("has {key}"),
        None if !answer.get("content").is_some_and(Value::is_string) => "has no content".to_owned(),
        None => return Ok(()),
    };
    let message = format!("the last message {what}, so it cannot be continued; send continue_final_message: false");
    Err(ApiError::param("messages", message))
}

/// Parses a message, with its content joined to one text; an answer, such as a tool call, may have
/// none.
fn message(value: &Value) -> Option<Map<String, Value>> {
    let mut message = value.as_object()?.clone();
    message.get("role")?.as_str()?;
    let part = |part: &Value| (part["type"] == "text").then(|| Some(part["text"].as_str()?.to_owned()))?;
    let content = match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) if message["role"] == "assistant" => return Some(message),
        Some(parts @ Value::Array(_)) => list(parts, part)?.join("\n"),
        _ => return None,
    };
    message.insert("content".to_owned(), content.into());
    Some(message)
}

/// OpenAI's answers to a conversation.
struct Chat {
    /// Time of the request.
    created: u64,
    includes_usage: bool,
    /// The rendered text, if requested and not sent yet.
    verbose: Option<String>,
}

impl AnswerFormat for Chat {
    fn full(&mut self, work: &Work, results: Results) -> Value {
        let choice = |index: usize, text: &str, logprobs: Option<Value>, reason: &str| {
            let message = json!({ "role": "assistant", "content": text });
            json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": reason })
        };
        let nothing = empty_choices(work).map(|index| choice(index, "", None, "length"));
        let texts = results.finished.iter().map(|(index, written)| {
            let completion = &written.completion;
            let logprobs = logprobs(work, &completion.tokens);
            let mut choice = choice(*index, &written.text, logprobs, reason(completion.finish_reason));
            add_score(&mut choice, written);
            choice
        });
        let choices = nothing.chain(texts).collect();
        let mut answer = self.answer(work, "chat.completion", choices);
        self.add_usage(&mut answer, &results.timings);
        self.add_verbose(&mut answer);
        answer
    }

    fn opening(&mut self, work: &Work) -> Vec<Value> {
        let choices = if work.parsed.searches() { 0 } else { work.parsed.config.num_return_sequences };
        (0..choices).map(|index| self.first_chunk(work, index)).collect()
    }

    fn chunks(&mut self, work: &Work, event: Event) -> Vec<Value> {
        match event {
            Event::Piece(piece) => {
                let Piece { choice, text, token, .. } = *piece;
                let delta = json!({ "content": text });
                vec![self.chunk(work, choice, &delta, logprobs(work, token.as_slice()), None)]
            }
            Event::Finished { choice, written } => {
                let completion = &written.completion;
                let mut chunks = Vec::new();
                if work.parsed.config.strategy.ranks_texts() {
                    chunks.push(self.first_chunk(work, choice));
                    let delta = json!({ "content": written.text });
                    chunks.push(self.chunk(work, choice, &delta, logprobs(work, &completion.tokens), None));
                }
                let mut last = self.chunk(work, choice, &json!({}), None, Some(reason(completion.finish_reason)));
                add_score(&mut last["choices"][0], &written);
                self.add_verbose(&mut last);
                chunks.push(last);
                chunks
            }
            Event::Done(timings) => {
                let end = |index| self.chunk(work, index, &json!({}), None, Some("length"));
                let mut chunks: Vec<Value> = empty_choices(work).map(end).collect();
                if let Some(first) = chunks.first_mut() {
                    self.add_verbose(first);
                }
                if self.includes_usage {
                    let mut answer = self.answer(work, "chat.completion.chunk", Vec::new());
                    self.add_usage(&mut answer, &timings);
                    chunks.push(answer);
                }
                chunks
            }
            Event::Progress { progress, seconds } => {
                let mut answer = self.answer(work, "chat.completion.chunk", Vec::new());
                add_progress(&mut answer, progress, seconds);
                vec![answer]
            }
            Event::Failed(error) => vec![error.body()],
            Event::Scored { .. } | Event::Beams(_) => Vec::new(),
        }
    }
}

impl Chat {
    /// The beginning of a choice.
    fn first_chunk(&self, work: &Work, index: usize) -> Value {
        self.chunk(work, index, &json!({ "role": "assistant", "content": null }), None, None)
    }

    fn chunk(&self, work: &Work, index: usize, delta: &Value, logprobs: Option<Value>, reason: Option<&str>) -> Value {
        let choice = json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason });
        self.answer(work, "chat.completion.chunk", vec![choice])
    }

    fn answer(&self, work: &Work, object: &str, choices: Vec<Value>) -> Value {
        let mut answer = json!({
            "id": format!("chatcmpl-{}", work.id), "object": object, "created": self.created,
            "model": work.model.name, "system_fingerprint": FINGERPRINT, "choices": choices,
            "seed": work.parsed.config.seed,
        });
        if self.includes_usage {
            answer["usage"] = Value::Null; // the usage comes in the last chunk
        }
        answer
    }

    /// Adds the rendered text, if requested: once, in a stream as in llama.cpp at a text's end.
    fn add_verbose(&mut self, answer: &mut Value) {
        if let Some(text) = self.verbose.take() {
            answer["__verbose"] = json!({ "prompt": text });
        }
    }

    fn add_usage(&self, answer: &mut Value, took: &Timings) {
        (answer["usage"], answer["timings"]) = (usage(took), timings(took));
    }
}

/// The choices of a request that generates nothing: all or none.
fn empty_choices(work: &Work) -> Range<usize> {
    0..if work.parsed.generates { 0 } else { work.parsed.config.num_return_sequences }
}

/// The tokens' log-probabilities, if requested.
fn logprobs(work: &Work, tokens: &[ChosenToken]) -> Option<Value> {
    work.parsed.logprobs?;
    let tokenizer = work.model.tokenizer.as_ref();
    let one = |id: u32, logprob: f32| json!({ "token": token_text(tokenizer, id), "bytes": token_bytes(tokenizer, id), "logprob": logprob });
    let entries = tokens.iter().map(|token| {
        let mut entry = one(token.id, token.logprob);
        entry["top_logprobs"] = token.top.iter().map(|(id, logprob)| one(*id, *logprob)).collect();
        entry
    });
    Some(json!({ "content": entries.collect::<Vec<_>>() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_may_have_no_content_and_then_has_none_in_the_template() {
        for answer in [json!({ "role": "assistant", "content": null }), json!({ "role": "assistant" })] {
            assert_eq!(message(&answer).map(Value::Object), Some(answer));
        }
        assert_eq!(message(&json!({ "role": "user", "content": null })), None);
        let parts =
            json!({ "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] });
        assert_eq!(message(&parts).map(|message| message["content"].clone()), Some(json!("a\nb")));
    }
}
