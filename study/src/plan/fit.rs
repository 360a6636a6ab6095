//! Predicts the validation loss of a planned run from runs that were measured.
//!
//! The formula has the shape of [Hoffmann et al. 2022](https://arxiv.org/abs/2203.15556), equation
//! 2: a loss that no model can beat, and two terms that fall as powers of the parameters and of the
//! tokens. Five things are added. First, its unit comes from the text, so that one fit serves
//! several texts and tokenizers: it lies between the loss of trigrams with a cache and that of a
//! predictor that only spells, both of which are measured ([`super::text`]), since a trigram of
//! byte pairs looks back much further than one of characters. Second, where a cache predicts much
//! that trigrams do not, as in code, a model learns for longer and goes lower; it also goes lower
//! where sequences of four tokens predict much, as in sayings that recur. Third, repeated tokens
//! count for less and less ([Muennighoff et al. 2023](https://arxiv.org/abs/2305.16264), equation
//! 5). Fourth, tokens teach less in large steps. Fifth, a run of a few hundred steps is still on
//! its way down from the loss of unigrams.
//!
//! ```text
//! late = A (E + (1 - E) ((N0 / N)^a + (D1 / D)^b))    A = HC^p (2 H0 / 3)^(1 - p); HC: trigrams with a cache; H0: spelling
//! E = e (C F)^-c    D1 = D0 C^h                       C = H3 / HC; F = H3 / H4: trigrams, sequences of four
//! loss = late + (H1 - late) / (1 + (S / S0)^g)        H1: loss of unigrams; S: steps
//! D    = W / (1 + B / (5 W^(1/2)))                    N: parameters of the blocks; B: tokens of a step
//! W    = U (1 + R (1 - exp(-r / R)))                  U: tokens seen once; r: how often they are repeated; R = 15.4
//! ```
//!
//! For the built-in stories the entropy floor is known, and no model that was trained for long is
//! far above it: it replaces A E, a tenth of it replaces A (1 - E), and the loss of trigrams
//! replaces H1.
//!
//! The ten constants are fitted anew each time to [`points`], the measured runs stored beside this
//! file, by least squares of the logarithm of the loss. That takes a fraction of a second, and
//! constants and points cannot drift apart.

use std::{array::from_fn, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use super::text::Statistics;
use crate::error::{Error, Result};

/// How slowly repeated tokens lose their value: Muennighoff et al.'s R*_D.
const REPEATS: f64 = 15.387756;

/// The critical batch size of a run, in tokens, divided by the square root of the tokens it learns
/// from: in steps of that size, tokens teach half as much as in the smallest steps ([McCandlish et
/// al. 2018](https://arxiv.org/abs/1812.06162)); [Zhang et al.
/// 2024](https://arxiv.org/abs/2410.21676) found this growth. Any value between 2 and 20 fits the
/// points as well.
const CRITICAL_BATCH: f64 = 5.0;

/// A measured run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The name of its text.
    pub text: String,
    /// The statistics of its text.
    #[serde(flatten)]
    pub statistics: Statistics,
    /// Number of blocks.
    pub n_layer: usize,
    /// Width.
    pub n_embd: usize,
    /// Tokens per window.
    pub context_length: usize,
    /// Windows per step.
    pub batch_size: usize,
    /// Steps.
    pub max_steps: u64,
    /// Dropout.
    pub dropout: f64,
    /// The lowest validation loss, in nats per token.
    pub val_loss: f64,
    /// The source of the number.
    pub from: String,
}

impl Point {
    /// Its text without the tokenizer: the name up to its last dash.
    fn source(&self) -> &str {
        self.text.rsplit_once('-').map_or(&self.text, |(source, _)| source)
    }

    /// The formula's inputs for this run.
    pub fn run(&self) -> Run<'_> {
        let tokens_per_step = (self.batch_size * self.context_length) as u64;
        Run::new(&self.statistics, self.n_layer, self.n_embd, self.max_steps, tokens_per_step)
    }
}

/// A run as the formula sees it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The statistics of its text.
    pub text: &'a Statistics,
    /// [`parameters_of_the_fit`].
    pub parameters: f64,
    /// Tokens trained on, counting repetitions.
    pub tokens: f64,
    /// Optimizer steps.
    pub steps: f64,
}

impl<'a> Run<'a> {
    /// A run of a model with this many blocks of this width.
    pub fn new(text: &'a Statistics, n_layer: usize, n_embd: usize, steps: u64, tokens_per_step: u64) -> Self {
        let steps = steps as f64;
        let parameters = parameters_of_the_fit(n_layer, n_embd);
        Self { text, parameters, tokens: steps * tokens_per_step as f64, steps }
    }

    /// How many times the text is read.
    pub fn passes(&self) -> f64 {
        self.tokens / (self.text.train_tokens.max(1) as f64)
    }

    /// The number of tokens of fresh text that teach as much.
    pub fn worth(&self) -> f64 {
        let unique = self.tokens.min(self.text.train_tokens.max(1) as f64);
        let repeats = self.tokens / unique - 1.0;
        unique * (1.0 + REPEATS * (1.0 - (-repeats / REPEATS).exp()))
    }

    /// [`Self::worth`], reduced for the size of the steps: the formula's D.
    fn taught(&self) -> f64 {
        let (worth, tokens_per_step) = (self.worth(), self.tokens / self.steps);
        worth / (1.0 + tokens_per_step / (CRITICAL_BATCH * worth.sqrt()))
    }
}

/// The formula's N: 12 times the width squared, per block. The token table is left out ([Kaplan et
/// al. 2020](https://arxiv.org/abs/2001.08361)): with it the formula would promise too much for a
/// narrow model with a large vocabulary. The true number of parameters in the blocks (norms,
/// biases, other widths) differs by a few percent; the constants were fitted with this count, and
/// go with no other.
pub fn parameters_of_the_fit(n_layer: usize, n_embd: usize) -> f64 {
    12.0 * n_layer as f64 * (n_embd as f64).powi(2)
}

/// The measured runs.
///
/// # Errors
/// When the file built into the program is malformed, which a test rules out.
pub fn points() -> Result<Vec<Point>> {
    serde_json::from_str(include_str!("points.json")).map_err(Error::Points)
}

/// The constants of the formula.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Constants {
    /// The share of the unit that no model goes below, before `c` lowers it.
    pub e: f64,
    /// N0: the scale of the parameters' power law.
    pub n0: f64,
    /// The exponent of that power law.
    pub a: f64,
    /// D0: the scale of the tokens' power law.
    pub d0: f64,
    /// The exponent of that power law.
    pub b: f64,
    /// S0: the steps after which half of the way down from the unigrams is done.
    pub s0: f64,
    /// How sharp that transition is.
    pub g: f64,
    /// The weight of trigrams with a cache in the unit.
    pub p: f64,
    /// How strongly what a cache and a fourth token predict lowers E.
    pub c: f64,
    /// How strongly what a cache predicts raises D1.
    pub h: f64,
}

const CONSTANTS: usize = 10;

/// A predictor that knows words but no sentences has, roughly, this share of the loss of one that
/// only spells: 2 nats per letter of English.
const OF_SPELLING: f64 = 2.0 / 3.0;

/// The formula's A (1 - E) for the built-in stories, as a share of the entropy floor.
const ABOVE_THE_FLOOR: f64 = 0.1;

impl Constants {
    /// The start of the search. A constant that the points do not determine stays near it.
    const START: [f64; CONSTANTS] = [0.6, 3e4, 0.35, 1e5, 0.35, 50.0, 1.5, 0.5, 1.0, 3.0];

    /// The most that each constant can be: `e` and `p` are shares, exponents stay moderate, and the
    /// scales n0, d0 and s0 have no bound but the range of the search.
    const MOST: [f64; CONSTANTS] = [1.0, f64::INFINITY, 2.0, f64::INFINITY, 2.0, f64::INFINITY, 4.0, 1.0, 4.0, 16.0];

    /// How strongly: a constant that is e times too large counts as much as a point with this
    /// error.
    const PULL: f64 = 0.055;

    /// From logarithms, so that every constant is positive.
    fn from_logarithms(at: &[f64; CONSTANTS]) -> Self {
        let constant = |i: usize| at[i].clamp(-20.0, 20.0).exp().min(Self::MOST[i]);
        let [e, n0, a, d0, b, s0, g, p, c, h] = from_fn(constant);
        Self { e, n0, a, d0, b, s0, g, p, c, h }
    }

    /// The loss of a run, in nats per token.
    pub fn loss(&self, run: Run<'_>) -> f64 {
        let Statistics { ngram_losses: [unigrams, _, trigrams, fourgrams, ..], .. } = *run.text;
        let Statistics { trigram_cache_loss, spelled_loss, entropy_floor, .. } = *run.text;
        let unit = trigram_cache_loss.powf(self.p) * (OF_SPELLING * spelled_loss).powf(1.0 - self.p);
        let (cache, fourth) = (trigrams / trigram_cache_loss, trigrams / fourgrams);
        let share = (self.e * (cache * fourth).powf(-self.c)).min(1.0);
        let (least, above, first) = match entropy_floor {
            Some(floor) => (floor, ABOVE_THE_FLOOR * floor, trigrams),
            None => (share * unit, (1.0 - share) * unit, unigrams),
        };
        let tokens = self.d0 * cache.powf(self.h);
        let lacking = (self.n0 / run.parameters).powf(self.a) + (tokens / run.taught()).powf(self.b);
        // A predictor that knows only the frequencies of the tokens has this loss; so has a run too
        // short for the power laws.
        let late = (least + above * lacking).min(first);
        late + (first - late).max(0.0) / (1.0 + (run.steps / self.s0).powf(self.g))
    }

    /// The relative error at a point: its loss divided by the formula's, minus 1.
    fn error_at(&self, point: &Point) -> f64 {
        point.val_loss / self.loss(point.run()) - 1.0
    }

    /// The constants that fit the formula best to `points`.
    pub fn fit(points: &[Point]) -> Self {
        let start = Self::START.map(f64::ln);
        let error = |at: &[f64; CONSTANTS]| {
            let constants = Self::from_logarithms(at);
            let squares = points.iter().map(|point| (constants.loss(point.run()) / point.val_loss).ln().powi(2));
            let pull = at.iter().zip(&start).map(|(at, start)| (Self::PULL * (at - start)).powi(2));
            squares.sum::<f64>() + pull.sum::<f64>()
        };
        let mut best = nelder_mead(&error, start, 1.0);
        for _ in 0..3 {
            // Restarts from the minimum with a fresh simplex, since a simplex can collapse early.
            best = nelder_mead(&error, best, 0.3);
        }
        Self::from_logarithms(&best)
    }
}

/// The prediction of a run's loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Loss in nats per token.
    pub loss: f64,
    /// The lower end of the interval in which nine in ten runs should end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The fit and its errors.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// The constants fitted to all points.
    pub constants: Constants,
    /// The relative error at each point, with these constants.
    pub residuals: Vec<f64>,
    /// The relative error at each point, with constants fitted to the points of all other texts.
    pub text_left_out: Vec<f64>,
    /// Tokens of the shortest run among the points.
    pub fewest_tokens: f64,
}

impl Fit {
    /// Fits the formula to `points`, once with all of them and once without each text.
    pub fn new(points: &[Point]) -> Self {
        let constants = Constants::fit(points);
        let mut without: BTreeMap<&str, Constants> = BTreeMap::new();
        let text_left_out = points.iter().map(|point| {
            let fit = || fit_where(points, |other| other.source() != point.source());
            without.entry(point.source()).or_insert_with(fit).error_at(point)
        });
        let text_left_out = text_left_out.collect();
        Self {
            constants,
            residuals: points.iter().map(|point| constants.error_at(point)).collect(),
            text_left_out,
            fewest_tokens: points.iter().map(|point| point.run().tokens).fold(f64::MAX, f64::min),
        }
    }

    /// The predicted loss of a run. The interval is for a text that the fit has not seen: nine in
    /// ten of the points lie within it when the fit excludes their text. It is twice as wide for a
    /// run shorter than all points, and does not exceed the loss of a model that knows nothing.
    pub fn estimate(&self, run: Run<'_>) -> Estimate {
        let loss = self.constants.loss(run);
        let spread = quantile(&self.text_left_out, 0.9) * if run.tokens < self.fewest_tokens { 2.0 } else { 1.0 };
        let nothing = (run.text.vocab_size as f64).ln().max(loss);
        Estimate { loss, low: loss * (1.0 - spread), high: (loss * (1.0 + spread)).min(nothing) }
    }
}

/// The relative error at each point, with constants fitted to all other points. As many fits as
/// points: half a second.
pub fn left_out(points: &[Point]) -> Vec<f64> {
    let without = |point: &Point| fit_where(points, |other| !std::ptr::eq(other, point));
    points.iter().map(|point| without(point).error_at(point)).collect()
}

/// The constants fitted to some of the points.
fn fit_where(points: &[Point], is_in: impl Fn(&Point) -> bool) -> Constants {
    Constants::fit(&points.iter().filter(|point| is_in(point)).cloned().collect::<Vec<_>>())
}

/// The root mean square.
pub fn root_mean_square(errors: &[f64]) -> f64 {
    (errors.iter().map(|error| error * error).sum::<f64>() / errors.len().max(1) as f64).sqrt()
}

/// The absolute error that this share of the errors does not exceed.
pub fn quantile(errors: &[f64], share: f64) -> f64 {
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let place = (share * sizes.len() as f64).ceil() as usize;
    sizes.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// A minimum of `f` near `start` by [Nelder and Mead 1965](https://doi.org/10.1093/comjnl/7.4.308),
/// in 600 iterations.
fn nelder_mead<const N: usize>(f: &dyn Fn(&[f64; N]) -> f64, start: [f64; N], size: f64) -> [f64; N] {
    let corner = |at: [f64; N]| (at, f(&at));
    let mut corners = vec![corner(start)];
    corners.extend((0..N).map(|axis| corner(from_fn(|i| start[i] + if i == axis { size } else { 0.0 }))));
    for _ in 0..600 {
        corners.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (best, worst) = (corners[0], corners[N]);
        let centre: [f64; N] = from_fn(|axis| corners[..N].iter().map(|(at, _)| at[axis] / N as f64).sum());
        // Points on the line from the centre of the other corners (0) to the worst corner (1). The
        // worst corner is reflected to the other side, further if that is the best yet, and half as
        // far if it is hardly better.
        let along = |step: f64| corner(from_fn(|axis| centre[axis] + step * (worst.0[axis] - centre[axis])));
        let reflected = along(-1.0);
        corners[N] = if reflected.1 < best.1 {
            let expanded = along(-2.0);
            if expanded.1 < reflected.1 { expanded } else { reflected }
        } else if reflected.1 < corners[N - 1].1 {
            reflected
        } else {
            let contracted = along(if reflected.1 < worst.1 { -0.5 } else { 0.5 });
            if contracted.1 >= worst.1.min(reflected.1) {
                // No point on that line is better: all corners move half-way to the best.
                for moved in &mut corners[1..] {
                    *moved = corner(from_fn(|axis| (moved.0[axis] + best.0[axis]) / 2.0));
                }
                continue;
            }
            contracted
        };
    }
    corners.sort_by(|a, b| a.1.total_cmp(&b.1));
    corners[0].0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_minimum_is_found() {
        let banana = |at: &[f64; 2]| (1.0 - at[0]).powi(2) + 100.0 * (at[1] - at[0] * at[0]).powi(2);
        let [x, y] = nelder_mead(&banana, [-1.2, 1.0], 1.0);
        assert!((x - 1.0).abs() < 1e-3 && (y - 1.0).abs() < 1e-3, "{x} {y}");
    }

    /// The interval's coverage on the points, each predicted without its own text.
    #[test]
    fn the_points_are_met_and_the_interval_holds_nine_in_ten() {
        let points = points().unwrap();
        assert!(points.len() >= 12);
        let fit = Fit::new(&points);
        assert!(root_mean_square(&fit.residuals) < 0.08, "{:?}", fit.residuals);
        let left_out = left_out(&points);
        assert!(root_mean_square(&left_out) < 0.15, "{left_out:?}");
        let spread = quantile(&fit.text_left_out, 0.9);
        let inside = fit.text_left_out.iter().filter(|error| error.abs() <= spread).count();
        assert!(10 * inside >= 9 * points.len() && spread < 0.3, "{:?}", fit.text_left_out);
        for (point, residual) in points.iter().zip(&fit.residuals) {
            // Planned runs are predicted within a tenth.
            let is_planned = ["bench/promises.py", "bench/nanogpt.py"].iter().any(|by| point.from.starts_with(by));
            assert!(!is_planned || residual.abs() < 0.1, "{} {residual}", point.text);
            let estimate = fit.estimate(point.run());
            assert!(estimate.low < estimate.loss && estimate.loss < estimate.high);
        }
    }

    #[test]
    fn losses_made_by_the_formula_are_predicted() {
        let mut points = points().unwrap();
        let truth = Constants { e: 0.55, n0: 2e4, a: 0.5, d0: 8e4, b: 0.6, s0: 60.0, g: 1.2, p: 0.4, c: 1.0, h: 4.0 };
        for point in &mut points {
            point.val_loss = truth.loss(point.run());
        }
        let found = Constants::fit(&points);
        for point in &points {
            let off = found.loss(point.run()) / point.val_loss - 1.0;
            assert!(off.abs() < 0.03, "{} {off}", point.text);
        }
    }

    proptest! {
        #[test]
        fn more_of_anything_never_predicts_a_higher_loss(
            parameters in 1e4f64..1e9, tokens in 1e4f64..1e10, steps in 10.0f64..1e6, more in 1.0f64..10.0,
        ) {
            let text = points().unwrap()[0].statistics.clone();
            let constants = Constants { e: 0.5, n0: 2e4, a: 0.6, d0: 4e5, b: 0.3, s0: 70.0, g: 0.8, p: 0.5, c: 1.0, h: 4.0 };
            let run = Run { text: &text, parameters, tokens, steps };
            let loss = constants.loss(run);
            let larger = Run { parameters: more * parameters, ..run };
            let longer = Run { tokens: more * tokens, steps: more * steps, ..run };
            let finer = Run { steps: more * steps, ..run };
            for run in [larger, longer, finer] {
                prop_assert!(constants.loss(run) <= loss + 1e-12);
            }
            // Repetitions are worth something, but less than fresh text.
            prop_assert!(run.worth() <= tokens * (1.0 + 1e-9) && run.worth() <= 17.0 * text.train_tokens as f64);
        }
    }
}
