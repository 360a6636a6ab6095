//! Compares runs: their curves, their figures, and the differences of their configurations.
//!
//! Everything is read from the run folders' `metrics.jsonl` and `config.toml`; a run that is still
//! going on, was cut short or never evaluated is compared as far as it got.

mod chart;
mod picture;
mod table;

use std::{collections::BTreeMap, collections::BTreeSet, fs, path::Path, path::PathBuf};

use ember_decoding::bench::median;
use ember_host::{file_error::At, files::name_of};
use itertools::Itertools;
use serde::Serialize;

use crate::drawing::{Points, drawable, smooth};
use crate::error::{Error, Result};
use crate::plot::{best, last, last_val_loss, lowest};
use ember_training::run::{folder, report::Row, report::RunFacts, report::jsonl, report::last_step};
use ember_training::units::{duration, short};

pub use chart::{Style, chart};
pub use picture::svg;
pub use table::{aligned, differing, note, table};

/// The x axis of curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Optimizer steps.
    Step,
    /// Target tokens trained on.
    Tokens,
    /// Seconds since the run began, including evaluations and checkpoints.
    Time,
}

impl Axis {
    fn of(self, row: &Row) -> Option<f64> {
        match self {
            Self::Step => Some(row.step as f64),
            Self::Tokens => row.tokens.map(|tokens| tokens as f64),
            Self::Time => row.elapsed_s,
        }
    }

    /// Its title under a picture.
    pub fn title(self) -> &'static str {
        match self {
            Self::Step => "optimizer steps",
            Self::Tokens => "tokens",
            Self::Time => "time",
        }
    }

    /// The label of a position on it.
    fn label(self, x: f64) -> String {
        if self == Self::Time { duration(x) } else { short(x) }
    }
}

/// A run's data from its folder.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its name among the others.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    /// The rows of its log.
    pub rows: Vec<Row>,
    /// The keys of its `config.toml`; empty if there is none.
    pub config: toml::Table,
}

impl Record {
    /// Reads the run in `path`.
    ///
    /// # Errors
    /// When it is not a run's folder, nothing is logged yet, or a file is damaged; the error names
    /// the folder or file.
    pub fn open(path: &Path) -> Result<Self> {
        let metrics = path.join(folder::METRICS);
        if !path.exists() {
            return Err(Error::Missing(path.to_owned()));
        }
        if !metrics.exists() {
            return Err(Error::NoMetrics(path.to_owned()));
        }
        let rows: Vec<Row> = jsonl::read(&metrics)?;
        let file = path.join(folder::CONFIG);
        let text = if file.is_file() { fs::read_to_string(&file).at("cannot read", &file)? } else { String::new() };
        // Not parsed as a TrainConfig: runs with any keys can be compared.
        let config = text.parse().map_err(|source| Error::NotToml { path: file, source })?;
        let whole_path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let name = name_of(&whole_path).unwrap_or_else(|| path.display().to_string());
        Ok(Self { name, path: path.to_owned(), rows, config })
    }

    /// Whether a loss was logged yet.
    pub fn has_loss(&self) -> bool {
        self.rows.iter().any(|row| row.train_loss.or(row.val_loss).is_some())
    }

    /// Validation losses over `axis`.
    pub fn validation(&self, axis: Axis) -> Points {
        self.points(axis, |row| row.val_loss)
    }

    /// Smoothed training losses over `axis`.
    pub fn training(&self, axis: Axis) -> Points {
        smooth(&self.points(axis, |row| row.train_loss))
    }

    fn points(&self, axis: Axis, value: fn(&Row) -> Option<f64>) -> Points {
        let point = |row: &Row| Some((axis.of(row)?, value(row).filter(drawable)?));
        self.rows.iter().filter_map(point).collect()
    }

    /// The facts about the run in its first row.
    fn facts(&self) -> Option<&RunFacts> {
        self.rows.iter().find_map(|row| row.run.as_ref())
    }

    /// The figures of the run.
    pub fn summary(&self) -> Summary {
        let (rows, best) = (&self.rows, best(&self.rows));
        let facts = self.facts();
        let speeds: Vec<f64> = rows.iter().filter_map(|row| row.tokens_per_s).collect();
        let max_steps = self.config.get("max_steps").and_then(toml::Value::as_integer).map(|steps| steps as u64);
        Summary {
            run: self.name.clone(),
            path: self.path.display().to_string(),
            parameters: facts.map(|facts| facts.parameters),
            step: last_step(rows).unwrap_or(0),
            max_steps: max_steps.or(facts.map(|facts| facts.max_steps)),
            tokens: last(rows, |row| row.tokens),
            train_loss: last(rows, |row| row.train_loss),
            val_loss: last_val_loss(rows),
            best_val_loss: best.map(|best| best.0),
            best_step: best.map(|best| best.1),
            bits_per_byte: lowest(rows, |row| row.bits_per_byte).map(|lowest| lowest.0),
            elapsed_s: last(rows, |row| row.elapsed_s),
            tokens_per_s: median(&speeds),
        }
    }
}

/// The figures of a run. Losses are nats per token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The run's name.
    pub run: String,
    /// Its folder.
    pub path: String,
    /// Number of trainable values, if logged.
    pub parameters: Option<u64>,
    /// The last step logged.
    pub step: u64,
    /// Steps of the whole run.
    pub max_steps: Option<u64>,
    /// Target tokens trained on.
    pub tokens: Option<u64>,
    /// The last training loss.
    pub train_loss: Option<f64>,
    /// The validation loss of the last evaluation, if it was finite.
    pub val_loss: Option<f64>,
    /// The lowest validation loss.
    pub best_val_loss: Option<f64>,
    /// The step of the lowest validation loss.
    pub best_step: Option<u64>,
    /// The lowest loss in bits per byte of the held-out text.
    pub bits_per_byte: Option<f64>,
    /// Total time.
    pub elapsed_s: Option<f64>,
    /// The median of the logged speeds.
    pub tokens_per_s: Option<f64>,
}

/// Reads the runs in `paths`; runs of the same name are named by their paths.
///
/// # Errors
/// As [`Record::open`].
pub fn open(paths: &[PathBuf]) -> Result<Vec<Record>> {
    let mut runs = paths.iter().map(|path| Record::open(path)).collect::<Result<Vec<_>>>()?;
    // Among others, a run without a loss has no curve, but a row in the table.
    if let (false, Some(first)) = (runs.iter().any(Record::has_loss), runs.first()) {
        return Err(Error::NoLoss(first.path.join(folder::METRICS)));
    }
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    for run in &mut runs {
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = run.path.display().to_string();
        }
    }
    Ok(runs)
}

/// The keys whose values differ between runs, each with the value of every run; `None` if a run
/// lacks it.
pub fn differences(runs: &[Record]) -> BTreeMap<String, Vec<Option<String>>> {
    let keys: BTreeSet<&String> = runs.iter().flat_map(|run| run.config.keys()).collect();
    let values = |key: &str| runs.iter().map(|run| run.config.get(key).map(ToString::to_string)).collect::<Vec<_>>();
    let differs = |values: &[Option<String>]| values.iter().any(|value| *value != values[0]);
    keys.into_iter().map(|key| (key.clone(), values(key))).filter(|(_, values)| differs(values)).collect()
}

/// Whether the runs' tokens cover different stretches of text, as with different tokenizers: losses
/// per token then do not tell which run models its text better.
pub fn tokens_differ(runs: &[Record]) -> bool {
    let differ = |values: Vec<f64>| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        values.into_iter().any(|value| value > 1.01 * least)
    };
    let ratio = |row: &Row| Some(row.bits_per_byte? / row.val_loss.filter(|loss| *loss > 0.0)?);
    !runs.iter().filter_map(Record::facts).map(|facts| facts.vocab_size).all_equal()
        || differ(runs.iter().filter_map(|run| run.rows.iter().find_map(ratio)).collect())
}

/// How many times as high as without them spikes may make a picture.
const SPIKES: f64 = 5.0;

/// The lowest and the highest loss to draw. The first steps fall from far above, and would squeeze
/// everything of interest into the lowest part of the picture: each curve's early part may lie
/// above it, and so may, on a linear scale, spikes: the highest tenth of each curve unless it ends
/// there.
fn heights<'a>(curves: impl Iterator<Item = &'a Points> + Clone, scale: Scale) -> (f64, f64) {
    let settled = |curve: &'a Points| -> Vec<f64> {
        let last = curve.iter().map(|point| point.0).fold(f64::MIN, f64::max);
        let settled = curve.iter().filter(|point| point.0 >= last.min(0.04 * last)).map(|point| point.1);
        settled.sorted_by(f64::total_cmp).collect()
    };
    let settled: Vec<Vec<f64>> = curves.clone().map(settled).collect();
    let most = settled.iter().flatten().copied().fold(f64::MIN, f64::max);
    let usual = settled.iter().filter_map(|losses| losses.get(losses.len() * 9 / 10).copied());
    let ends = curves.clone().filter_map(|curve| Some(curve.last()?.1));
    let usual = usual.chain(ends).fold(f64::MIN, f64::max);
    let low = curves.flatten().map(|point| point.1).fold(f64::MAX, f64::min);
    let is_squeezed = scale == Scale::Linear && most - low > SPIKES * (usual - low).max(0.02);
    let high = if is_squeezed { usual } else { most };
    let pad = 0.04 * (high - low).max(0.02);
    (low - pad, high + pad)
}

/// The scale of the loss axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences have equal distances.
    Linear,
    /// Equal ratios have equal distances; losses of 0 or less are left out.
    Logarithmic,
}

impl Scale {
    fn place(self, points: &[(f64, f64)]) -> Points {
        match self {
            Self::Linear => points.to_vec(),
            Self::Logarithmic => {
                points.iter().filter(|point| point.1 > 0.0).map(|point| (point.0, point.1.ln())).collect()
            }
        }
    }

    fn loss(self, y: f64) -> f64 {
        match self {
            Self::Linear => y,
            Self::Logarithmic => y.exp(),
        }
    }
}

#[cfg(test)]
mod tests;
