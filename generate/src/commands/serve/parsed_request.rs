//! A request that was parsed, and what it may take: much can be asked for in few words.

use ember_decoding::config::{GenerationConfig, Overflow};
use ember_decoding::constraint::Grammar;
use ember_model::GptConfig;

use super::error::ApiError;

/// Most tokens of a step to give account of: each is ranked among all.
const MOST_TRACED: usize = 200;

/// Most candidates to tell of in all: as an answer each takes about a kilobyte. Where nothing else
/// bounds a text that is told whole, as many tokens.
pub(super) const MOST_TOLD: usize = 1 << 18;

/// Most candidates that a beam search ranks in a step: a quarter of a gigabyte.
const MOST_RANKED: usize = 1 << 22;

/// Bytes of what a request sent that its texts may tell again in all, each for itself.
const MOST_REPEATED: usize = 4 << 20;

/// What a request asks for, whatever its dialect.
#[derive(Clone, Debug)]
pub(super) struct ParsedRequest {
    pub(super) prompts: Vec<Vec<u32>>,
    pub(super) config: GenerationConfig,
    pub(super) grammar: Option<Grammar>,
    /// How many of the most probable tokens to tell beside each; none where nobody asks.
    pub(super) logprobs: Option<usize>,
    /// How many candidates of each step to give account of; 0 is none.
    pub(super) traced_candidates: usize,
    /// Whether the prompts' tokens are measured.
    pub(super) measures: bool,
    /// Whether anything is written at all: `max_tokens` may be 0.
    pub(super) writes: bool,
    pub(super) stream: bool,
    /// Whether it is told how far the prompts are read.
    pub(super) tells_progress: bool,
    /// Most tokens that are told of, of all its texts.
    pub(super) tokens: usize,
}

impl ParsedRequest {
    /// The same with account of so many candidates of each step; `param` is what asks for it.
    pub(super) fn traced(self, param: &str, candidates: usize) -> Result<Self, ApiError> {
        if candidates > MOST_TRACED {
            return Err(ApiError::param(param, format!("{param} can tell of {MOST_TRACED} tokens a step at most")));
        }
        if candidates > 0 && self.config.draft_tokens > 0 {
            let message =
                format!("{param} tells how each token was chosen, which drafts leave out; leave draft_tokens out");
            return Err(ApiError::param(param, message));
        }
        let traced = Self { traced_candidates: candidates, ..self };
        if traced.told() > MOST_TOLD {
            let (tokens, beside) = (traced.tokens, traced.beside());
            return Err(ApiError::invalid(format!(
                "this may tell of {tokens} tokens with {beside} candidates each; at most {MOST_TOLD} candidates can be told \
                 of in all: ask for fewer or shorter texts, or fewer candidates"
            )));
        }
        Ok(traced)
    }

    /// The same, which may write so many tokens, if its answer has an end: a text whose window slides
    /// grows as long as it may, and is held until it is told.
    pub(super) fn ending(self, written: usize) -> Result<Self, ApiError> {
        let has_end = self.config.overflow != Overflow::Slide || self.is_told_by_token();
        if !has_end && written > MOST_TOLD {
            return Err(ApiError::invalid(format!(
                "this may write {written} tokens in a window that slides; an answer that is told whole can have {MOST_TOLD}: ask \
                 for fewer, or for a stream that tells token by token"
            )));
        }
        Ok(self)
    }

    /// The same, if it does not tell too much again beside its texts: `bytes` with one text of each
    /// prompt.
    pub(super) fn repeating(self, bytes: usize) -> Result<Self, ApiError> {
        let each = self.config.num_return_sequences;
        if bytes.saturating_mul(each) > MOST_REPEATED {
            return Err(ApiError::invalid(format!(
                "this would tell the prompts, and what was asked, again in {bytes} bytes {each} times; {} MiB can be told again in all: \
                 ask for fewer texts, or for less in each",
                MOST_REPEATED >> 20
            )));
        }
        Ok(self)
    }

    /// The prompt that a choice continues: those of a prompt follow one another.
    pub(super) fn prompt_of(&self, choice: usize) -> usize {
        choice / self.config.num_return_sequences
    }

    /// Candidates that its answer may hold at once: a stream lets go of what it has told, but prompts
    /// and ranked texts it tells whole.
    pub(super) fn held(&self) -> usize {
        if self.is_told_by_token() { 0 } else { self.told() }
    }

    fn is_told_by_token(&self) -> bool {
        self.stream && !self.measures && !self.config.strategy.ranks_texts()
    }

    /// Candidates that it may tell of in all.
    fn told(&self) -> usize {
        self.tokens.saturating_mul(self.beside())
    }

    /// Candidates that it tells of at each token, itself at least where its log-probability is told; of
    /// beams that are given account of, all that a beam is followed by.
    fn beside(&self) -> usize {
        let gives_account = self.traced_candidates > 0 && self.config.strategy.has_beams();
        let followers = if gives_account { followers(&self.config) } else { 0 };
        let measured = self.logprobs.map_or(0, |_| self.config.logprobs.max(1));
        self.traced_candidates.max(measured).max(followers)
    }
}

/// Refuses prompts that the model cannot go on with; `param` is where they stand.
pub(super) fn check_prompts(
    param: &str,
    prompts: &[Vec<u32>],
    config: &GenerationConfig,
    shape: &GptConfig,
) -> Result<(), ApiError> {
    for ids in prompts {
        if ids.is_empty() {
            return Err(ApiError::param(param, "a prompt is empty; send at least one token"));
        }
        if let Some(id) = ids.iter().find(|id| **id as usize >= shape.vocab_size) {
            let message = format!("the token {id} is outside the vocabulary of {}", shape.vocab_size);
            return Err(ApiError::param(param, message));
        }
        if ids.len() > shape.context_length && config.overflow != Overflow::Slide {
            return Err(ApiError::too_long(param, ids.len(), shape.context_length));
        }
    }
    Ok(())
}

/// Refuses texts for which the cache has no room. Each prompt takes its positions once and those of its `rows`
/// texts behind it, and never more than as many whole contexts.
pub(super) fn check_slots(
    prompts: &[Vec<u32>],
    rows: usize,
    max_new_tokens: usize,
    context_length: usize,
    usable_slots: usize,
) -> Result<(), ApiError> {
    let longest = |ids: &Vec<u32>| ids.len().saturating_add(rows.saturating_mul(max_new_tokens));
    let most = |ids: &Vec<u32>| longest(ids).min(rows.saturating_mul(context_length));
    let slots = prompts.iter().map(most).fold(0, usize::saturating_add);
    if slots > usable_slots {
        return Err(ApiError::invalid(format!(
            "this may take {slots} positions of the cache, which has {usable_slots}; ask for fewer or shorter texts, \
             or start the server with more --cache-mib"
        )));
    }
    Ok(())
}

/// Refuses a beam search that would rank too much in a step.
pub(super) fn check_ranked(prompts: usize, config: &GenerationConfig) -> Result<(), ApiError> {
    let ranked = prompts.saturating_mul(config.num_beams).saturating_mul(followers(config));
    if config.strategy.has_beams() && ranked > MOST_RANKED {
        let (beams, ends) = (config.num_beams, config.end_tokens.len());
        return Err(ApiError::invalid(format!(
            "{beams} beams of each prompt with {ends} tokens that end a text are {ranked} candidates a step, of which \
             {MOST_RANKED} can be ranked; send fewer of one of them"
        )));
    }
    Ok(())
}

/// How many tokens are ranked behind each beam: enough that all beams go on where every token that
/// ends a text comes first.
fn followers(config: &GenerationConfig) -> usize {
    config.num_beams.saturating_mul(config.tokens_for_a_beam())
}
