//! `POST /v1/completions`, OpenAI's API for text completion.

use std::iter::once;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_decoding::completion::ChosenToken;
use ember_decoding::generator::Written;
use ember_decoding::stream::{token_bytes, token_text};
use ember_decoding::trace::ChoiceTrace;
use ember_model::folder::weights_checksum;
use serde_json::{Map, Value, json};

use super::super::trace_file::{self, Header, HeaderPrompt, Machine, PlannedBatch, TRACED_CANDIDATES};
use super::answer::{AnswerFormat, FINGERPRINT, Results, add_progress, add_score, reason, token_name, usage};
use super::body::Object;
use super::error::ApiError;
use super::fields::{PROMPT, includes_usage, sample_by_default, settle_length};
use super::handler::write;
use super::ids::{ids_of, text_ids};
use super::models::{Model, now};
use super::parameter::Parameter;
use super::parsed_request::ParsedRequest;
use super::request::{Dialect, Parameters};
use super::server::Server;
use super::writing::{Event, Piece, Work};

/// The names of OpenAI's API, and of vLLM's extensions to it.
pub(super) const DIALECT: Dialect = Dialect {
    own: &[
        PROMPT,
        Parameter::any(
            "logprobs",
            "Return the log-probability of each token, and of this many most probable ones; true is 1",
        ),
        Parameter::boolean("echo", "repeat the prompt in the answer; with logprobs, score it"),
        Parameter::boolean("return_token_ids", "return token ids, too"),
        Parameter::integer("trace", "return what the knobs did to this many tokens at each step, at most 200"),
        Parameter::boolean("replay", "return the lines of a trace for ember-generate replay"),
        Parameter::object("stream_options", "include_usage"),
        Parameter::integer("best_of", "must equal n"),
        Parameter::string("suffix", "what follows the text; must be empty"),
    ],
    knobs: &[("max_tokens", "max_new_tokens"), ("n_predict", "max_new_tokens"), ("min_tokens", "min_new_tokens")],
    without_effect: &[
        "cache_prompt",
        "metadata",
        "parallel_tool_calls",
        "priority",
        "prompt_cache_key",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    ],
    fixed: &[],
    by_folder: true,
};

/// Default number of new tokens, as in OpenAI's API.
const MAX_TOKENS: usize = 16;

pub(super) async fn completions(State(server): State<Arc<Server>>, body: Object) -> Result<Response, ApiError> {
    write(server, body, read).await
}

fn read(server: &Server, model: &Model, body: &Map<String, Value>) -> Result<(ParsedRequest, Completion), ApiError> {
    let parameters = Parameters::new(body, model, &DIALECT)?;
    let mut knobs = parameters.knobs()?;
    let generates = settle_length(&mut knobs, model, MAX_TOKENS);
    sample_by_default(&mut knobs, model);
    if parameters.get("suffix").is_some_and(|suffix| suffix != "") {
        let message = "suffix is not supported: this model only continues a text; leave it out";
        return Err(ApiError::param("suffix", message));
    }
    let best_of = parameters.count("best_of")?;
    if best_of.is_some_and(|best| best != knobs.num_return_sequences.unwrap_or(1)) {
        let message = "best_of must equal n; use num_beams to find the most probable texts";
        return Err(ApiError::param("best_of", message));
    }
    let config = parameters.config(knobs, server.default_seed())?;
    let logprobs = match parameters.get("logprobs") {
        None | Some(Value::Bool(false)) => None,
        Some(Value::Bool(true)) => Some(1),
        Some(_) => parameters.count("logprobs")?,
    };
    let sent = prompts(model, parameters.get("prompt"), parameters.special(SpecialTokens::Text)?)?;
    let prompts = sent.iter().map(|prompt| prompt.ids.clone()).collect();
    let echo = parameters.is_on("echo")?;
    let mut parsed = ParsedRequest {
        scores_prompts: echo && logprobs.is_some(),
        generates,
        ..parameters.parsed_request("prompt", prompts, config, logprobs, parameters.grammar()?)?
    };
    parsed.check_repeated(if echo { sent.iter().map(|prompt| prompt.text.len()).sum() } else { 0 })?;
    let replays = parameters.is_on("replay")?;
    if replays {
        parsed = traced_for_replay(parsed)?;
    }
    let replay = replays.then(|| header(server, model, &parameters, &parsed)).transpose()?;
    let format = Completion {
        replay,
        created: now(),
        echoed: sent.into_iter().filter(|_| echo).collect(),
        includes_usage: includes_usage(&parameters)?,
        token_ids: parameters.is_on("return_token_ids")?,
        offsets: vec![TextOffset::default(); parsed.prompts.len() * parsed.config.num_return_sequences],
        scored: vec![Vec::new(); parsed.prompts.len()],
    };
    Ok((parsed, format))
}

/// Adds the trace that `ember-generate replay` compares with its own: of as many candidates.
fn traced_for_replay(parsed: ParsedRequest) -> Result<ParsedRequest, ApiError> {
    let candidates = TRACED_CANDIDATES.max(parsed.config.logprobs);
    if ![0, candidates].contains(&parsed.traced_candidates) {
        let message = format!("replay returns a trace of {candidates} tokens per step; leave trace out");
        return Err(ApiError::param("trace", message));
    }
    parsed.with_trace("replay", candidates)
}

/// The header of a trace: everything needed to repeat the run.
fn header(server: &Server, model: &Model, parameters: &Parameters, parsed: &ParsedRequest) -> Result<Value, ApiError> {
    if parsed.stream || !parsed.generates {
        return Err(ApiError::param(
            "replay",
            "replay needs a whole answer with at least one new token; leave stream out, or raise max_tokens",
        ));
    }
    let weights = weights_checksum(&model.folder).map_err(|error| ApiError::internal(error.to_string()))?;
    let prompt = |ids: &Vec<u32>| HeaderPrompt { prompt: None, prompt_ids: ids.clone() };
    let header = Header {
        event: "run".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        checkpoint: model.folder.clone(),
        weights,
        weight_type: server.models.weights(),
        device: server.setup.device_kind.clone(),
        machine: Some(Machine::with(&server.setup.device_name)),
        special_tokens: parameters.special(SpecialTokens::Text)?,
        config: parsed.config.clone(),
        grammar: parsed.grammar.clone(),
        prompts: parsed.prompts.iter().map(prompt).collect(),
        batches: vec![PlannedBatch {
            prompts: (0..parsed.prompts.len()).collect(),
            first: 0,
            count: parsed.config.num_return_sequences,
        }],
    };
    header.to_line().map_err(|error| ApiError::param("replay", format!("{error:#}")))
}

/// A prompt, as ids and as it was sent.
struct Prompt {
    ids: Vec<u32>,
    /// Returned with `echo`: a text as it was sent, or ids decoded to text.
    text: String,
    /// Tokens before the text, of which they are no part.
    prefix_tokens: usize,
    /// Whether the text's tokens begin with a space that it lacks, as SentencePiece's do.
    adds_space: bool,
}

impl Prompt {
    /// A prompt with so many tokens before its text; if that is empty, all are.
    fn new(tokenizer: Option<&Tokenizer>, ids: Vec<u32>, text: String, prefix_tokens: usize) -> Self {
        let prefix_tokens = if text.is_empty() { ids.len() } else { prefix_tokens };
        let own = ids.iter().skip(prefix_tokens).flat_map(|id| token_bytes(tokenizer, *id));
        let adds_space = leading_spaces(own) > leading_spaces(text.bytes());
        Self { ids, text, prefix_tokens, adds_space }
    }
}

/// How many spaces a text begins with.
fn leading_spaces(text: impl Iterator<Item = u8>) -> usize {
    text.take_while(|byte| *byte == b' ').count()
}

/// Parses the prompts: a string, ids, or a list of either.
fn prompts(model: &Model, prompt: Option<&Value>, special: SpecialTokens) -> Result<Vec<Prompt>, ApiError> {
    let kinds =
        || ApiError::wrong_type("prompt", "a string, a list of strings, a list of token ids, or a list of such lists");
    let tokenizer = model.tokenizer.as_ref();
    let one = |value: &Value| match value {
        Value::String(text) => {
            let ids = text_ids(model, "prompt", text, special)?;
            let prefix_tokens = tokenizer.map_or(0, |tokenizer| tokenizer.before(text, special).len());
            Ok(Prompt::new(tokenizer, ids, text.clone(), prefix_tokens))
        }
        Value::Array(_) => {
            let ids = ids_of(value).ok_or_else(kinds)?;
            let known = ids.iter().all(|id| (*id as usize) < model.engine.config().vocab_size);
            let text = tokenizer.filter(|_| known).and_then(|tokenizer| tokenizer.decode_text(&ids).ok());
            Ok(Prompt::new(tokenizer, ids, text.unwrap_or_default(), 0))
        }
        _ => Err(kinds()),
    };
    let value = prompt.ok_or_else(|| ApiError::param("prompt", "there is no prompt; send a string"))?;
    match value {
        Value::Array(list) if !list.is_empty() && !list[0].is_number() => list.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}

/// OpenAI's answers to requests for completions.
struct Completion {
    /// Time of the request.
    created: u64,
    /// With `echo`: the prompts.
    echoed: Vec<Prompt>,
    includes_usage: bool,
    token_ids: bool,
    /// The header of the trace, if one is requested.
    replay: Option<Value>,
    /// Text offsets of each choice's tokens.
    offsets: Vec<TextOffset>,
    /// In a stream of texts that a search finds: each prompt's scored tokens, which wait for them.
    scored: Vec<Vec<ChosenToken>>,
}

/// Tracks at which character of a text each token begins.
#[derive(Clone, Default)]
struct TextOffset {
    tokens: usize,
    characters: usize,
    /// Bytes that may be the start of an incomplete character.
    incomplete: Vec<u8>,
}

impl TextOffset {
    /// The character at which the next bytes begin, or the incomplete one that they continue.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        let whole = [self.incomplete.as_slice(), bytes].concat();
        let mut chunks = whole.utf8_chunks().peekable();
        // An incomplete character that is not continued counts as one character, U+FFFD.
        let breaks_off = !bytes.is_empty()
            && chunks.peek().is_some_and(|chunk| chunk.valid().is_empty() && chunk.invalid() == self.incomplete);
        let offset = self.characters + usize::from(breaks_off);
        self.incomplete.clear();
        while let Some(chunk) = chunks.next() {
            self.characters += chunk.valid().chars().count();
            let may_go_on = std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            if may_go_on && chunks.peek().is_none() {
                self.incomplete = chunk.invalid().to_vec();
            } else {
                self.characters += usize::from(!chunk.invalid().is_empty());
            }
        }
        offset
    }
}

/// A segment of a choice.
#[derive(Default)]
struct Segment<'a> {
    text: &'a str,
    tokens: Vec<&'a ChosenToken>,
    steps: Vec<&'a ChoiceTrace>,
    reason: Option<&'static str>,
}

impl AnswerFormat for Completion {
    fn full(&mut self, work: &Work, results: Results) -> Value {
        let choices: Vec<Value> = if work.parsed.generates {
            let finished = results.finished.iter();
            finished.map(|(choice, written)| self.finished(work, *choice, written, &results)).collect()
        } else {
            (0..self.offsets.len()).map(|choice| self.empty_choice(work, choice, &results)).collect()
        };
        let mut answer = self.answer(work, choices, Some(usage(&results.timings)));
        if !results.beams.is_empty() {
            answer["beams"] = json!(results.beams);
        }
        if let Some(header) = &self.replay {
            answer["replay"] = json!(self.trace(work, &results, header));
        }
        answer
    }

    fn opening(&mut self, work: &Work) -> Vec<Value> {
        if self.echoed.is_empty() || work.parsed.scores_prompts || work.parsed.searches() {
            return Vec::new();
        }
        (0..self.offsets.len()).map(|choice| self.echo_chunk(work, choice, Vec::new())).collect()
    }

    fn chunks(&mut self, work: &Work, event: Event) -> Vec<Value> {
        let each = work.parsed.config.num_return_sequences;
        match event {
            Event::Scored { prompt, tokens } if work.parsed.searches() => {
                self.scored[prompt] = tokens;
                Vec::new()
            }
            Event::Scored { prompt, tokens } => (prompt * each..(prompt + 1) * each)
                .map(|choice| self.echo_chunk(work, choice, tokens.iter().collect()))
                .collect(),
            Event::Piece(piece) => {
                let Piece { choice, text, token, step } = *piece;
                let segment =
                    Segment { text: &text, tokens: token.iter().collect(), steps: step.iter().collect(), reason: None };
                let choice = self.choice(work, choice, &segment);
                vec![self.answer(work, vec![choice], None)]
            }
            Event::Progress { progress, seconds } => {
                let mut answer = self.answer(work, Vec::new(), None);
                add_progress(&mut answer, progress, seconds);
                vec![answer]
            }
            Event::Beams(step) => {
                let mut answer = self.answer(work, Vec::new(), None);
                answer["beams"] = json!([step]);
                vec![answer]
            }
            Event::Finished { choice, written } => {
                let (completion, mut chunks) = (&written.completion, Vec::new());
                let reason = Some(reason(completion.finish_reason));
                let mut segment = Segment { reason, ..Segment::default() };
                if work.parsed.searches() {
                    if !self.echoed.is_empty() {
                        let scored = self.scored[work.parsed.prompt_of(choice)].clone();
                        chunks.push(self.echo_chunk(work, choice, scored.iter().collect()));
                    }
                    (segment.text, segment.tokens) = (&written.text, completion.tokens.iter().collect());
                }
                let mut choice = self.choice(work, choice, &segment);
                add_score(&mut choice, &written);
                chunks.push(self.answer(work, vec![choice], None));
                chunks
            }
            Event::Done(timings) => {
                let ends = if work.parsed.generates { 0 } else { self.offsets.len() };
                let end = |choice| {
                    let segment = Segment { reason: Some("length"), ..Segment::default() };
                    let choice = self.choice(work, choice, &segment);
                    self.answer(work, vec![choice], None)
                };
                let mut chunks: Vec<Value> = (0..ends).map(end).collect();
                if self.includes_usage {
                    chunks.push(self.answer(work, Vec::new(), Some(usage(&timings))));
                }
                chunks
            }
            Event::Failed(error) => vec![error.body()],
        }
    }
}

impl Completion {
    /// A choice with its whole text, after its prompt with `echo`.
    fn finished(&mut self, work: &Work, choice: usize, written: &Written, results: &Results) -> Value {
        let (prompt, completion) = (work.parsed.prompt_of(choice), &written.completion);
        let text = self.echoed(prompt) + &written.text;
        let segment = Segment {
            text: &text,
            tokens: results.scored[prompt].iter().chain(&completion.tokens).collect(),
            steps: results.steps_of(choice),
            reason: Some(reason(completion.finish_reason)),
        };
        let mut choice = self.choice(work, choice, &segment);
        add_score(&mut choice, written);
        choice
    }

    /// A choice of a request that generates nothing: its prompt with `echo`.
    fn empty_choice(&mut self, work: &Work, choice: usize, results: &Results) -> Value {
        let prompt = work.parsed.prompt_of(choice);
        let text = self.echoed(prompt);
        let tokens = results.scored[prompt].iter().collect();
        let segment = Segment { text: &text, tokens, reason: Some("length"), ..Segment::default() };
        self.choice(work, choice, &segment)
    }

    /// The trace as lines, in the format of `ember-generate replay`.
    fn trace(&self, work: &Work, results: &Results, header: &Value) -> Vec<Value> {
        let each = work.parsed.config.num_return_sequences;
        let text = |id| work.model.tokenizer.as_ref().map(|tokenizer| token_text(Some(tokenizer), id));
        let choices = results.steps.iter().map(|(of, step)| trace_file::choice((of / each, of % each), step, &text));
        let beams = results.beams.iter().map(|step| trace_file::beams(step.prompt, step, &text));
        let ends = results.finished.iter().map(|(_, written)| trace_file::end(written));
        once(header.clone()).chain(choices).chain(beams).chain(ends).collect()
    }

    /// The prompt's text with `echo`, else empty.
    fn echoed(&self, prompt: usize) -> String {
        self.echoed.get(prompt).map(|prompt| prompt.text.clone()).unwrap_or_default()
    }

    /// The prompt of a choice, as the first chunk of its stream.
    fn echo_chunk(&mut self, work: &Work, choice: usize, tokens: Vec<&ChosenToken>) -> Value {
        let text = self.echoed(work.parsed.prompt_of(choice));
        let choice = self.choice(work, choice, &Segment { text: &text, tokens, ..Segment::default() });
        self.answer(work, vec![choice], None)
    }

    fn choice(&mut self, work: &Work, index: usize, segment: &Segment) -> Value {
        let Segment { text, tokens, steps, reason } = segment;
        let logprobs = work.parsed.logprobs.map(|_| self.logprobs(work, index, tokens));
        let mut choice = json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": reason });
        if self.token_ids {
            choice["token_ids"] = tokens.iter().map(|token| json!(token.id)).collect();
            choice["top_token_ids"] = tokens.iter().map(|token| json!(token.top)).collect();
        }
        if work.parsed.traced_candidates > 0 {
            choice["trace"] = json!(steps);
        }
        choice
    }

    fn logprobs(&mut self, work: &Work, index: usize, tokens: &[&ChosenToken]) -> Value {
        let offsets: Vec<usize> = tokens.iter().map(|token| self.offset(work, index, token.id)).collect();
        let tokenizer = work.model.tokenizer.as_ref();
        let top = |token: &&ChosenToken| match token.logprob.is_nan() {
            true => Value::Null,
            false => token.top.iter().map(|(id, logprob)| (token_name(tokenizer, *id), json!(logprob))).collect(),
        };
        json!({
            "tokens": tokens.iter().map(|token| token_name(tokenizer, token.id)).collect::<Vec<_>>(),
            "token_logprobs": tokens.iter().map(|token| token.logprob).collect::<Vec<_>>(),
            "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
            "text_offset": offsets,
        })
    }

    /// The character of the choice's text at which the next token begins; tokens that share a
    /// character all begin at it.
    fn offset(&mut self, work: &Work, index: usize, id: u32) -> usize {
        let prompt = self.echoed.get(work.parsed.prompt_of(index)).filter(|_| work.parsed.scores_prompts);
        let (prefix, adds_space) = prompt.map_or((0, false), |prompt| (prompt.prefix_tokens, prompt.adds_space));
        let offset = &mut self.offsets[index];
        offset.tokens += 1;
        // Tokens before the text are not part of it, nor is a space that it lacks.
        if offset.tokens <= prefix {
            return offset.characters;
        }
        let bytes = token_bytes(work.model.tokenizer.as_ref(), id);
        let begins_with_space = adds_space && offset.tokens == prefix + 1;
        offset.advance(bytes.strip_prefix(b" ").filter(|_| begins_with_space).unwrap_or(&bytes))
    }

    fn answer(&self, work: &Work, choices: Vec<Value>, usage: Option<Value>) -> Value {
        let mut answer = json!({
            "id": format!("cmpl-{}", work.id), "object": "text_completion", "created": self.created,
            "model": work.model.name, "system_fingerprint": FINGERPRINT, "choices": choices,
            "seed": work.parsed.config.seed,
        });
        if self.includes_usage || usage.is_some() {
            answer["usage"] = usage.unwrap_or(Value::Null);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An incomplete character gives a replacement character, which counts as one.
    #[test]
    fn bytes_that_are_no_text_are_characters() {
        let texts: [(&[&[u8]], &[usize]); 4] = [
            (&[b"K", b"\x14", b"\xe2", b"K", b"3"], &[0, 1, 2, 3, 4]),
            (&[b"\xe2", b"\x82", b"\xac", b"a"], &[0, 0, 0, 1]),
            (&[b"\xf0", b"\x9fa", b"b"], &[0, 0, 2]),
            (&[b"\xff", b"", b"\xe2", b"", b"\xe2", b"a"], &[0, 1, 1, 1, 2, 3]),
        ];
        for (tokens, offsets) in texts {
            let mut measured = TextOffset::default();
            let found: Vec<usize> = tokens.iter().map(|token| measured.advance(token)).collect();
            assert_eq!(found, offsets, "{tokens:?}");
        }
    }
}
