//! Chooses the sizes and the length of a run by its predicted loss.

use itertools::{Itertools, iproduct};

use super::candidate::{Candidate, Sizes};
use super::fit::{Fit, Run};
use super::proposal::{Proposal, Request};
use super::speed::Speed;
use super::text::Statistics;
use super::warnings::warnings;
use crate::error::{Error, Result};
use ember_training::config::{ConfigError, DeviceKind, TrainConfig, fitting_context, keys, most_steps};
use ember_training::memory::fit::{Undecided, fit_to_memory, share_of};
use ember_training::memory::prediction::{Kernels, training};
use ember_training::run::time_budget::Pace;
use ember_training::{note::Note, units::duration};

/// Blocks, width and context of the candidates; the context grows as in the recipes.
pub(super) const SHAPES: &[(usize, usize, usize)] = &[
    (2, 64, 64),
    (2, 96, 64),
    (2, 128, 64),
    (3, 128, 64),
    (4, 128, 64),
    (4, 192, 128),
    (6, 256, 128),
    (6, 384, 256),
    (8, 512, 512),
    (12, 768, 1024),
];

/// Tokens per step of the candidates.
const TOKENS_PER_STEP: &[usize] = &[1024, 2048, 4096, 8192, 16384, 32768];

/// Steps of every candidate until its own number is chosen. What is compared before that, sizes and
/// memory, does not depend on it.
const PROVISIONAL_STEPS: u64 = 1000;

/// A shorter run would hardly leave its warm-up.
const MIN_PLANNED_STEPS: u64 = 60;

/// With more parameters per token of the text, a model overfits before it has learned what the
/// formula predicts: on 100 KB, one half as wide was as good in a third of the time
/// (bench/LEARNING.md).
const MAX_PARAMETERS_A_TOKEN: f64 = 10.0;

/// The minimal share of its time for which a run is planned, however long measuring took.
const MIN_SHARE: f64 = 0.2;

/// The maximal share of its time that a run spends on looks, if it has more than one.
const LOOKING_SHARE: f64 = 0.25;

/// The common data of all candidates.
pub(super) struct Planner<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) text: Statistics,
    pub(super) fit: Fit,
    pub(super) device: DeviceKind,
    pub(super) kernels: Kernels,
    /// Whether windows begin where documents do, so that the context follows the documents' length.
    pub(super) by_document: bool,
}

/// A candidate whose number of steps is chosen, and the time that it takes.
struct Scheduled {
    candidate: Candidate,
    /// The reasons for its configuration.
    reasons: Vec<Note>,
    pace: Pace,
    /// Seconds of the whole run.
    seconds: f64,
}

impl Planner<'_> {
    /// One candidate for each shape and batch size that the set keys allow and that fits into
    /// memory, smallest step first; the number of steps is still open.
    pub(super) fn candidates(&self) -> Result<Vec<Candidate>> {
        let (candidates, refused): (Vec<_>, Vec<_>) = iproduct!(SHAPES, TOKENS_PER_STEP)
            .map(|(&(n_layer, n_embd, context), tokens)| {
                let context = if self.by_document { context.clamp(96, 128) } else { context };
                let context_length = fitting_context(context, &self.text.facts());
                let batch_size = (tokens / context_length).max(1).next_multiple_of(self.request.processes);
                self.resolve(Sizes { n_layer, n_embd, context_length, batch_size }, PROVISIONAL_STEPS, None)
            })
            .partition_result();
        // The first one rejected is the smallest.
        if let (true, Some(error)) = (candidates.is_empty(), refused.into_iter().next()) {
            return Err(error);
        }
        let candidates = candidates.into_iter().map(|(candidate, _)| candidate);
        let mut candidates: Vec<Candidate> = candidates.unique_by(Candidate::sizes).collect();
        candidates.sort_by(|a, b| a.flops().total_cmp(&b.flops()));
        Ok(candidates)
    }

    /// The candidate with these sizes, steps and steps between looks (`None`: the usual ones),
    /// except where the user set others, and the reasons for everything that follows from them.
    fn resolve(&self, sizes: Sizes, steps: u64, interval: Option<u64>) -> Result<(Candidate, Vec<Note>)> {
        let mut settings = self.request.settings.clone();
        let Sizes { n_layer, n_embd, context_length, batch_size } = sizes;
        settings.n_layer.get_or_insert(n_layer);
        settings.n_embd.get_or_insert(n_embd);
        settings.context_length.get_or_insert(context_length);
        settings.batch_size.get_or_insert(batch_size);
        settings.max_steps.get_or_insert(steps);
        if let Some(interval) = interval {
            settings.eval_interval.get_or_insert(interval);
            settings.checkpoint_interval.get_or_insert(interval);
            settings.sample_interval.get_or_insert(interval);
        }
        let (mut config, reasons) = settings.resolve(&self.text.facts(), self.device)?;
        let (windows, processes) = (config.windows_per_step(), self.request.processes);
        if !windows.is_multiple_of(processes) {
            let TrainConfig { batch_size, grad_accum_steps, .. } = config;
            let line = format!(
                "batch_size = {batch_size} times grad_accum_steps = {grad_accum_steps} windows do not divide among {processes} processes"
            );
            return Err(ConfigError::Contradiction(line).into());
        }
        let (mut share, shape) = (share_of(&config, processes), (self.request.shape)(&config));
        let available = self.request.memory_bytes;
        if let Some(available) = available {
            let open = Undecided::by(&self.request.settings);
            let fitted = fit_to_memory(&share, &shape, self.kernels, open, available)?;
            (config, share) = (fitted.in_whole(&config), fitted.config);
        }
        Ok((Candidate { config, share, shape, available }, reasons))
    }

    /// Seconds for the run: all requested ones, or what measuring the device leaves of them.
    fn available_s(&self, speed: &Speed) -> f64 {
        let Request { seconds, measured_within, .. } = *self.request;
        if measured_within { (seconds - speed.measured_s).max(MIN_SHARE * seconds) } else { seconds }
    }

    /// The candidate with the lowest predicted loss, among those that the time allows.
    pub(super) fn best(&self, candidates: &[Candidate], speed: &Speed) -> Result<Proposal> {
        let (proposals, refused): (Vec<Proposal>, Vec<Error>) =
            candidates.iter().map(|candidate| self.proposal(candidate, speed)).partition_result();
        let long_enough = |proposal: &Proposal| proposal.config.max_steps >= MIN_PLANNED_STEPS || candidates.len() == 1;
        let most = MAX_PARAMETERS_A_TOKEN * self.text.train_tokens as f64;
        let suits_the_text = |proposal: &Proposal| proposal.parameters as f64 <= most;
        let better = |best: Proposal, next: Proposal| {
            let is_better = next.loss.loss < best.loss.loss;
            if is_better && long_enough(&next) && suits_the_text(&next) { next } else { best }
        };
        let best = proposals.into_iter().reduce(better);
        best.ok_or_else(|| refused.into_iter().next().unwrap_or(Error::NothingToPlan))
    }

    /// The proposal, or an error if one step takes longer than the time for the run.
    pub(super) fn require_step_fits(&self, proposal: Proposal, speed: &Speed) -> Result<Proposal> {
        let left = self.available_s(speed);
        if proposal.step_s > left {
            return Err(Error::NoStepFits { step: duration(proposal.step_s), left: duration(left) });
        }
        Ok(proposal)
    }

    /// The proposal for a candidate, with its number of steps and its predictions: with the usual
    /// number of looks, or with fewer if those would exceed their share of the time.
    pub(super) fn proposal(&self, candidate: &Candidate, speed: &Speed) -> Result<Proposal> {
        let usual = self.schedule(candidate, None, speed)?;
        let available_s = self.available_s(speed);
        let looking_s = usual.seconds - usual.candidate.config.max_steps as f64 * usual.pace.step_s;
        if looking_s <= LOOKING_SHARE * available_s || self.request.settings.has("eval_interval") {
            return Ok(self.predict(usual, speed));
        }
        let interval = interval_of_share(usual.pace, available_s);
        let mut fewer = self.schedule(candidate, Some(interval), speed)?;
        let steps = fewer.pace.look_s / fewer.pace.step_s.max(1e-9);
        let reason = format!("eval_interval = {interval}: an evaluation takes as long as {steps:.0} steps");
        fewer.reasons.push(reason.into());
        Ok(self.predict(fewer, speed))
    }

    /// The candidate with the number of steps that the user set, or else with as many as fit into
    /// the time, but no more than its model learns from; with `interval` steps between looks.
    fn schedule(&self, candidate: &Candidate, interval: Option<u64>, speed: &Speed) -> Result<Scheduled> {
        let with_steps = |steps: u64| self.resolve(candidate.sizes(), steps, interval);
        let steps = if self.length_is_open() {
            let available_s = self.available_s(speed);
            let affordable = (available_s / speed.step_s(candidate.flops()).max(1e-9)).clamp(1.0, 1e12) as u64;
            // The number of looks and their cost depend on the number of steps.
            largest_that_fits(affordable.min(self.most_steps(candidate)), |steps| {
                let (run, _) = with_steps(steps)?;
                Ok(run.seconds(self.pace(&run, speed)) <= available_s)
            })?
        } else {
            candidate.config.max_steps
        };
        let (candidate, reasons) = with_steps(steps)?;
        let pace = self.pace(&candidate, speed);
        Ok(Scheduled { seconds: candidate.seconds(pace), candidate, reasons, pace })
    }

    /// The time of the candidate's steps and looks.
    fn pace(&self, candidate: &Candidate, speed: &Speed) -> Pace {
        let look_s = speed.look_s(&candidate.share, &candidate.shape, self.text.val_tokens);
        Pace { step_s: speed.step_s(candidate.flops()), look_s }
    }

    /// Whether the user left the number of steps open.
    fn length_is_open(&self) -> bool {
        self.request.settings.max_steps.is_none()
    }

    /// The number of steps after which the candidate's model learns no more from the text.
    fn most_steps(&self, candidate: &Candidate) -> u64 {
        let parameters = candidate.shape.parameters() as u64;
        most_steps(parameters, self.text.train_tokens, candidate.config.tokens_per_step())
    }

    /// The proposal for a run whose length is chosen: predicts its loss and its memory.
    fn predict(&self, scheduled: Scheduled, speed: &Speed) -> Proposal {
        let Scheduled { candidate, reasons, pace: Pace { step_s, look_s }, seconds } = scheduled;
        let most = self.most_steps(&candidate);
        let Candidate { config, share, shape, .. } = candidate;
        let run = Run::new(&self.text, config.n_layer, config.n_embd, config.max_steps, config.tokens_per_step());
        let (length_is_open, available_s) = (self.length_is_open(), self.available_s(speed));
        let ends_early = length_is_open && config.max_steps == most && seconds < 0.9 * available_s;
        let mut warnings = warnings(run, &config, self.fit.fewest_tokens, ends_early);
        if length_is_open && seconds > available_s {
            // This is the shortest possible run.
            let [seconds, left] = [seconds, available_s].map(duration);
            let line = format!(
                "the shortest run of this model takes about {seconds}, and {left} are available; give it more time, or set a \
                 smaller model"
            );
            warnings.insert(0, line);
        }
        Proposal {
            parameters: shape.parameters() as u64,
            tokens: run.tokens as u64,
            passes: run.passes(),
            loss: self.fit.estimate(run),
            memory: training(&share, &shape, self.kernels),
            warnings,
            set: keys::all().map(|key| key.name).filter(|name| self.request.settings.has(name)).collect(),
            text: self.text.clone(),
            speed: speed.clone(),
            config,
            shape,
            step_s,
            look_s,
            seconds,
            reasons: reasons.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The steps between looks of a run that takes `available_s` seconds: at most [`LOOKING_SHARE`] of
/// them for looks, but with one look at least.
///
/// For example, in 600 s with steps of 0.2 s and looks of 20 s, the usual twenty looks leave time
/// for 1,000 steps. A quarter of the time is enough for 7 looks, which leave time for 2,300 steps: a
/// look every 329.
fn interval_of_share(Pace { step_s, look_s }: Pace, available_s: f64) -> u64 {
    let looks = (LOOKING_SHARE * available_s / look_s).max(1.0).floor();
    let steps = (available_s - looks * look_s) / step_s.max(1e-9);
    (steps / looks).clamp(1.0, 1e12).ceil() as u64
}

/// The largest number up to `most` that fits, if all smaller ones do; at least 1.
fn largest_that_fits(most: u64, fits: impl Fn(u64) -> Result<bool>) -> Result<u64> {
    let (mut largest, mut too_large) = (1, most + 1);
    while largest + 1 < too_large {
        let middle = largest + (too_large - largest) / 2;
        if fits(middle)? { largest = middle } else { too_large = middle }
    }
    Ok(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_take_a_quarter_of_the_time_but_there_is_one() {
        assert_eq!(interval_of_share(Pace { step_s: 0.2, look_s: 20.0 }, 600.0), 329);
        assert_eq!(interval_of_share(Pace { step_s: 1.0, look_s: 500.0 }, 600.0), 100);
    }
}
