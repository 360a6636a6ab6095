//! A parsed request, and limits on its resources: a short request can ask for a lot.

use ember_decoding::config::{GenerationConfig, Overflow};
use ember_decoding::constraint::Grammar;
use ember_decoding::generate::rows_at_once;
use ember_model::GptConfig;

use super::error::ApiError;

/// Most traced candidates per step: each is ranked among all tokens.
const MAX_TRACED: usize = 200;

/// Most candidates reported in an answer: each takes about a kilobyte. Also the limit of tokens in
/// a whole answer whose length nothing else bounds.
pub(super) const MAX_CANDIDATES: usize = 1 << 18;

/// Most candidates that a beam search ranks in a step: a quarter of a gigabyte.
const MAX_RANKED: usize = 1 << 22;

/// Most bytes of the request that an answer may repeat, summed over its texts.
const MAX_REPEATED_BYTES: usize = 4 << 20;

/// A request of any dialect.
#[derive(Clone, Debug)]
pub(super) struct ParsedRequest {
    pub(super) prompts: Vec<Vec<u32>>,
    pub(super) config: GenerationConfig,
    pub(super) grammar: Option<Grammar>,
    /// Most probable tokens to return with each token; `None` for no log-probabilities.
    pub(super) logprobs: Option<usize>,
    /// Traced candidates per step; 0 means no trace.
    pub(super) traced_candidates: usize,
    /// Whether to score the prompts' tokens.
    pub(super) scores_prompts: bool,
    /// Whether anything is generated: `max_tokens` may be 0.
    pub(super) generates: bool,
    pub(super) stream: bool,
    /// Whether to report the progress of prompt processing.
    pub(super) reports_progress: bool,
    /// Most tokens that the answer reports, over all rows: beams, if there are more of them than
    /// texts.
    pub(super) reported_tokens: usize,
}

impl ParsedRequest {
    /// Adds a trace of so many candidates per step; `param` is the parameter that requests it.
    pub(super) fn with_trace(self, param: &str, candidates: usize) -> Result<Self, ApiError> {
        if candidates > MAX_TRACED {
            return Err(ApiError::param(param, format!("{param} can return at most {MAX_TRACED} tokens per step")));
        }
        if candidates > 0 && self.config.draft_tokens > 0 {
            let message = format!("{param} does not work with drafts; leave draft_tokens out");
            return Err(ApiError::param(param, message));
        }
        let traced = Self { traced_candidates: candidates, ..self };
        if traced.reported_candidates() > MAX_CANDIDATES {
            let (tokens, beside) = (traced.reported_tokens, traced.candidates_per_token());
            return Err(ApiError::invalid(format!(
                "the answer may have {tokens} tokens with {beside} candidates each, but at most {MAX_CANDIDATES} \
                 candidates in all are allowed; ask for fewer or shorter texts, or fewer candidates"
            )));
        }
        Ok(traced)
    }

    /// Checks that the answer's length is bounded, for `written` tokens at most: with a sliding
    /// window a text may grow without limit, and is held until it is sent.
    pub(super) fn check_end(&self, written: usize) -> Result<(), ApiError> {
        let has_end = self.config.overflow != Overflow::Slide || self.streams_tokens();
        if !has_end && written > MAX_CANDIDATES {
            return Err(ApiError::invalid(format!(
                "this may write {written} tokens with a sliding window, but an answer that is sent whole can have at \
                 most {MAX_CANDIDATES} tokens; ask for fewer, or for a stream that sends token by token"
            )));
        }
        Ok(())
    }

    /// Checks that the answer does not repeat too much of the request: `bytes` with one text of
    /// each prompt.
    pub(super) fn check_repeated(&self, bytes: usize) -> Result<(), ApiError> {
        let each = self.config.num_return_sequences;
        if bytes.saturating_mul(each) > MAX_REPEATED_BYTES {
            return Err(ApiError::invalid(format!(
                "the answer would repeat {bytes} bytes of the request {each} times, but can repeat at most {} MiB in \
                 all; ask for fewer texts, or send less",
                MAX_REPEATED_BYTES >> 20
            )));
        }
        Ok(())
    }

    /// The prompt that a choice continues: a prompt's choices are consecutive.
    pub(super) fn prompt_of(&self, choice: usize) -> usize {
        choice / self.config.num_return_sequences
    }

    /// Whether a search finds the texts: all at its end, and perhaps fewer than were asked for. A
    /// stream then has no beginning of a text before the text is found.
    pub(super) fn searches(&self) -> bool {
        self.generates && self.config.strategy.ranks_texts()
    }

    /// Candidates that its answer may hold at once. A stream frees what it has sent, but scored
    /// prompts and ranked texts are sent whole.
    pub(super) fn held_candidates(&self) -> usize {
        if self.streams_tokens() { 0 } else { self.reported_candidates() }
    }

    fn streams_tokens(&self) -> bool {
        self.stream && !self.scores_prompts && !self.config.strategy.ranks_texts()
    }

    /// Candidates that the answer may report.
    fn reported_candidates(&self) -> usize {
        self.reported_tokens.saturating_mul(self.candidates_per_token())
    }

    /// Candidates reported per token: at least the token itself if its log-probability is; for
    /// traced beams, all ranked followers of a beam.
    fn candidates_per_token(&self) -> usize {
        let traces_beams = self.traced_candidates > 0 && self.config.strategy.has_beams();
        let followers = if traces_beams { followers(&self.config) } else { 0 };
        let with_logprobs = self.logprobs.map_or(0, |_| self.config.logprobs.max(1));
        self.traced_candidates.max(with_logprobs).max(followers)
    }
}

/// Refuses prompts that the model cannot continue; `param` is the parameter that held them.
pub(super) fn check_prompts(
    param: &str,
    prompts: &[Vec<u32>],
    config: &GenerationConfig,
    shape: &GptConfig,
) -> Result<(), ApiError> {
    for ids in prompts {
        if ids.is_empty() {
            let message = "a prompt is empty; send at least one token, or a text of at least one character";
            return Err(ApiError::param(param, message));
        }
        if let Some(id) = ids.iter().find(|id| **id as usize >= shape.vocab_size) {
            return Err(ApiError::unknown_token(param, *id));
        }
        if ids.len() > shape.context_length && config.overflow != Overflow::Slide {
            return Err(ApiError::too_long(param, ids.len(), shape.context_length));
        }
    }
    Ok(())
}

/// Refuses texts that do not fit in the cache. A prompt takes its own positions once, and those of
/// its rows, but never more than as many whole contexts. Prompts that are continued one after
/// another take their positions one after another. The largest cache has `most_usable_positions`.
pub(super) fn check_positions(
    prompts: &[Vec<u32>],
    config: &GenerationConfig,
    context_length: usize,
    usable_positions: usize,
    most_usable_positions: usize,
) -> Result<(), ApiError> {
    let (together, rows) = rows_at_once(config, prompts.len());
    let new_tokens = config.max_new_tokens.saturating_add(config.draft_tokens);
    let longest = |ids: &Vec<u32>| ids.len().saturating_add(rows.saturating_mul(new_tokens));
    let most = |ids: &Vec<u32>| longest(ids).min(rows.saturating_mul(context_length));
    let batch = |prompts: &[Vec<u32>]| prompts.iter().map(most).fold(0, usize::saturating_add);
    let positions = prompts.chunks(together.max(1)).map(batch).max().unwrap_or(0);
    if positions > usable_positions {
        let may_fit = positions <= most_usable_positions;
        let larger = if may_fit { ", or start the server with a larger --cache-mib" } else { "" };
        return Err(ApiError::invalid(format!(
            "this may take {positions} positions of the KV cache, which has {usable_positions}; ask for fewer or \
             shorter texts{larger}"
        )));
    }
    Ok(())
}

/// Refuses a beam search that would rank too many candidates per step.
pub(super) fn check_ranked(prompts: usize, config: &GenerationConfig) -> Result<(), ApiError> {
    let ranked = prompts.saturating_mul(config.num_beams).saturating_mul(followers(config));
    if config.strategy.has_beams() && ranked > MAX_RANKED {
        let (beams, ends) = (config.num_beams, config.end_tokens.len());
        return Err(ApiError::invalid(format!(
            "{beams} beams per prompt and {ends} end tokens give {ranked} candidates per step, but at most \
             {MAX_RANKED} can be ranked; ask for fewer prompts, beams or end tokens"
        )));
    }
    Ok(())
}

/// How many followers of each beam are ranked: enough that all beams can continue even if every end
/// token ranks first.
fn followers(config: &GenerationConfig) -> usize {
    config.num_beams.saturating_mul(config.tokens_for_a_beam())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use ember_decoding::config::Strategy;

    use super::*;

    /// The rows of an exact search are more than the texts that it returns.
    #[test]
    fn a_request_has_room_in_the_cache_for_all_of_its_rows() {
        let texts = |strategy| GenerationConfig { strategy, max_new_tokens: 10, ..GenerationConfig::default() };
        let beams = GenerationConfig { num_beams: 3, ..texts(Strategy::Beam) };
        let few_nodes = GenerationConfig { max_nodes: 5, ..texts(Strategy::Exact) };
        let drafts = GenerationConfig { draft_tokens: 4, ..texts(Strategy::Greedy) };
        for (config, prompts, positions) in [
            (texts(Strategy::Greedy), 1, 14),
            (texts(Strategy::Greedy), 3, 42),
            (beams, 3, 3 * 34),
            (texts(Strategy::Exact), 1, 4 + 16 * 10),
            // One prompt after another.
            (texts(Strategy::Exact), 3, 4 + 16 * 10),
            (few_nodes, 3, 4 + 5 * 10),
            (drafts, 3, 4 + 10 + 4),
            (GenerationConfig { max_new_tokens: 1000, ..texts(Strategy::Exact) }, 1, 16 * 64),
        ] {
            let fits = |usable| check_positions(&vec![vec![1; 4]; prompts], &config, 64, usable, usable).is_ok();
            assert!(fits(positions) && !fits(positions - 1), "{prompts} of {config:?}");
        }
    }

    #[test]
    fn a_larger_cache_is_advised_only_if_the_texts_can_fit_in_one() {
        let config = GenerationConfig { max_new_tokens: 64, strategy: Strategy::Greedy, ..GenerationConfig::default() };
        let is_advised = |prompts| {
            let refused = check_positions(&vec![vec![1; 4]; prompts], &config, 64, 100, 192 * 64).unwrap_err();
            format!("{refused:?}").contains("larger --cache-mib")
        };
        assert!(is_advised(192) && !is_advised(193));
    }
}
