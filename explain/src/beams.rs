//! The beam search with all its candidates, next to the greedy text and the exact search's.

use std::time::Duration;

use serde::Serialize;

use super::{Subject, record::traced};
use ember_decoding::config::{EarlyStopping, GenerationConfig, Strategy};
use ember_decoding::{Completion, FinishReason};
use ember_decoding::{completion::Finding, error::Result, trace::BeamStep};

/// The longest text that is searched exactly: the number of prefixes multiplies with each token.
const EXACT_TOKENS: usize = 8;

/// Time after which the exact search gives up.
const EXACT_TIME: Duration = Duration::from_secs(10);

/// A text and its log-probability under the unmodified model, in nats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Scored {
    pub(super) ids: Vec<u32>,
    pub(super) logprob_sum: f64,
}

/// The results of the beam search, best first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct BeamResult {
    #[serde(flatten)]
    pub(super) text: Scored,
    /// The sum of the processed log-probabilities, over the length to the power `length_penalty`.
    score: f64,
    #[serde(rename = "text")]
    words: Option<String>,
}

/// The most probable text of a few tokens, and what the other searches find at that length.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Exact {
    #[serde(flatten)]
    best: Scored,
    proven: bool,
    nodes: usize,
    max_new_tokens: usize,
    greedy: Scored,
    beam: Scored,
}

/// A beam search, step by step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Beams {
    num_beams: usize,
    length_penalty: f32,
    early_stopping: EarlyStopping,
    /// The candidates of each step, and which of them were kept.
    steps: Vec<BeamStep>,
    results: Vec<BeamResult>,
    pub(super) greedy: Scored,
    /// `None` if the search was cut short before it had a text.
    exact: Option<Exact>,
}

impl Beams {
    /// Runs beam search with the subject's beams, repetition penalty and length; also greedy
    /// search, and exact search for a short text.
    pub(super) fn search(subject: &Subject) -> Result<Self> {
        let config = knobs(subject);
        let (completions, recorder) = traced(subject, &config)?;
        let result = |completion: Completion| BeamResult {
            score: completion.score,
            words: subject.text(&completion.ids),
            text: Scored::of(completion),
        };
        Ok(Self {
            num_beams: config.num_beams,
            length_penalty: config.length_penalty,
            early_stopping: config.early_stopping,
            steps: recorder.beams,
            results: completions.into_iter().map(result).collect(),
            greedy: greedy(subject, config.max_new_tokens)?,
            exact: Exact::search(subject, &config)?,
        })
    }

    /// The best text of the beam search.
    pub(super) fn best(&self) -> Option<&Scored> {
        self.results.first().map(|result| &result.text)
    }

    /// All ids that occur.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        let candidates = self.steps.iter().flat_map(|step| step.candidates.iter().map(|candidate| candidate.token));
        let exact = self.exact.iter().flat_map(|exact| [&exact.best, &exact.greedy, &exact.beam]);
        let texts = self.results.iter().map(|result| &result.text).chain([&self.greedy]).chain(exact);
        candidates.chain(texts.flat_map(|text| text.ids.iter().copied()))
    }
}

/// The candidates of the subject's beam search at each step, and which of them were kept.
///
/// # Errors
/// As [`generate_batch`](ember_decoding::generate_batch).
pub fn beam_steps(subject: &Subject) -> Result<Vec<BeamStep>> {
    Ok(traced(subject, &knobs(subject))?.1.beams)
}

/// The knobs of the beam search: the run's, without those of sampling.
pub(super) fn knobs(subject: &Subject) -> GenerationConfig {
    let num_beams = subject.num_beams;
    let strategy = Strategy::Beam;
    GenerationConfig { strategy, num_beams, num_return_sequences: num_beams, ..subject.config.clone() }
}

impl Scored {
    pub(super) fn of(completion: Completion) -> Self {
        let logprob_sum = completion.tokens.iter().map(|token| f64::from(token.logprob)).sum();
        Self { ids: completion.ids, logprob_sum }
    }
}

impl Exact {
    /// Searches for the most probable text of a few tokens; `beams` are the knobs of the beam
    /// search.
    fn search(subject: &Subject, beams: &GenerationConfig) -> Result<Option<Self>> {
        let max_new_tokens = beams.max_new_tokens.min(EXACT_TOKENS);
        // Without a length penalty, on texts of one length, beam search and exact search have the
        // same objective.
        let beams = GenerationConfig { max_new_tokens, length_penalty: 0.0, num_return_sequences: 1, ..beams.clone() };
        let config = GenerationConfig {
            strategy: Strategy::Exact,
            max_nodes: subject.exact_nodes,
            max_time_s: Some(EXACT_TIME.as_secs_f64()),
            ..beams.clone()
        };
        let best = subject.write(&config)?;
        let whole = matches!(best.finish_reason, FinishReason::Length | FinishReason::Eos);
        let (true, Some(Finding::Exact { proven, nodes, .. })) = (whole, &best.finding) else { return Ok(None) };
        let (proven, nodes) = (*proven, *nodes);
        Ok(Some(Self {
            best: Scored::of(best),
            proven,
            nodes,
            max_new_tokens,
            greedy: greedy(subject, max_new_tokens)?,
            beam: Scored::of(subject.write(&beams)?),
        }))
    }
}

fn greedy(subject: &Subject, max_new_tokens: usize) -> Result<Scored> {
    let config = GenerationConfig { strategy: Strategy::Greedy, max_new_tokens, ..subject.config.clone() };
    Ok(Scored::of(subject.write(&config)?))
}
