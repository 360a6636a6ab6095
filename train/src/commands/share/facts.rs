//! The facts that the page shows about the model: its author, its texts, its training.

use chrono::Utc;
use ember_data::prepare::{Dataset, Source};
use ember_host::{files::name_of, names::last_part};
use ember_study::compare::Record;
use ember_training::run::folder::{AVERAGE, run_of, step_of};
use ember_training::run::init::initial_checkpoint_name;
use ember_training::run::runs::configuration;
use serde_json::{Value, json};

use super::copied::Copied;
use crate::prelude::*;

/// What nobody but the model's maker knows.
#[derive(Args, Debug)]
pub struct Said {
    /// The page's title [default: the run's name]
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// The author's name, as the page shows it
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// The prompt that the page begins with [default: the first of the run's sample_prompts]
    #[arg(long, value_name = "TEXT")]
    pub beginning: Option<String>,
}

/// The facts in the form that the page's facts.js reads, which leaves out unknown ones.
#[derive(Debug, Serialize)]
pub struct Facts {
    /// The page's title.
    pub title: String,
    by: Option<String>,
    /// The date on which the page was made, such as 2026-11-22.
    made: String,
    program: String,
    /// Number of parameters.
    pub parameters: usize,
    /// The model that its run was initialized from, if any.
    pub began: Option<String>,
    texts: Option<Vec<Value>>,
    learned: Option<Value>,
    trained: Option<Trained>,
    /// How much of its output is copied from the training text.
    pub copied: Option<Copied>,
    beginning: String,
}

#[derive(Debug, Serialize)]
struct Trained {
    steps: u64,
    tokens: u64,
    seconds: f64,
    /// Validation loss of these weights in nats per token; None if their step was not evaluated.
    loss: Option<f64>,
}

impl Facts {
    /// Collects the facts from the arguments and from the checkpoint's run, if there is one.
    ///
    /// # Errors
    /// When the run's log cannot be read.
    pub fn of(said: &Said, checkpoint: &Path, config: &GptConfig, dataset: Option<&Dataset>) -> Result<Self> {
        let around = checkpoint.canonicalize().unwrap_or_else(|_| checkpoint.to_owned());
        let run = run_of(&around).filter(|run| run.join("metrics.jsonl").is_file());
        let record = run.map(Record::open).transpose()?;
        let name = record.as_ref().map(|record| record.name.clone()).or_else(|| name_of(&around));
        let prompt = |record: &Record| {
            let prompts = record.config.get("sample_prompts")?.as_array()?;
            prompts.iter().find_map(|prompt| prompt.as_str().filter(|prompt| !prompt.is_empty()).map(str::to_owned))
        };
        // From the configuration alone, which also works if the run's log is gone.
        let began = run_of(&around).and_then(|run| initial_checkpoint_name(configuration(run).get("init")?.as_str()?));
        let beginning = said.beginning.clone().or_else(|| record.as_ref().and_then(prompt)).unwrap_or_default();
        Ok(Self {
            title: said.title.clone().or(name).unwrap_or_else(|| "A small language model".to_owned()),
            by: said.by.clone(),
            made: today(),
            program: format!("Ember {}", env!("CARGO_PKG_VERSION")),
            parameters: config.parameters(),
            began,
            texts: dataset.map(|dataset| sources(&dataset.manifest.sources)),
            learned: dataset.map(|dataset| {
                let train = &dataset.manifest.train;
                json!({ "bytes": train.bytes, "characters": train.characters, "tokens": train.tokens })
            }),
            trained: record.map(|record| trained(record, &around)),
            copied: None,
            beginning,
        })
    }
}

impl Facts {
    /// The file names that the page shows, for a note to the author.
    pub fn files(&self) -> Option<String> {
        let names = self.texts.as_ref()?.iter().filter_map(|text| text["name"].as_str());
        Some(names.collect::<Vec<_>>().join(", "))
    }
}

/// The training summary, from the run's log, up to the checkpoint in this folder:
/// `RUN/checkpoints/step-N`, or the averaged weights in it.
fn trained(mut record: Record, checkpoint: &Path) -> Trained {
    let step = checkpoint.ancestors().find_map(step_of);
    record.rows.retain(|row| step.is_none_or(|step| row.step <= step));
    // Only an evaluation of the same step belongs to these weights.
    let mut own = record.rows.iter().rev().filter(|row| Some(row.step) == step);
    let is_average = checkpoint.ends_with(AVERAGE);
    let loss = own.find_map(|row| if is_average { row.ema_val_loss } else { row.val_loss });
    let summary = record.summary();
    let (tokens, seconds) = (summary.tokens.unwrap_or(0), summary.elapsed_s.unwrap_or(0.0));
    Trained { steps: summary.step, tokens, seconds, loss }
}

/// Maximum number of sources named.
const MAX_NAMED: usize = 6;

fn sources(all: &[Source]) -> Vec<Value> {
    let named = all.iter().take(MAX_NAMED);
    let mut sources: Vec<Value> =
        named.map(|source| json!({ "name": last_part(&source.name), "bytes": source.bytes })).collect();
    if let Some(more) = all.get(MAX_NAMED..).filter(|more| !more.is_empty()) {
        let bytes = more.iter().map(|source| source.bytes).sum::<u64>();
        sources.push(json!({ "name": counted(more.len(), "more file"), "bytes": bytes }));
    }
    sources
}

/// Today's date in UTC.
fn today() -> String {
    Utc::now().date_naive().to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The best checkpoint is often not the last, and facts about it end at its step.
    #[test]
    fn what_is_said_of_a_checkpoint_ends_with_its_step() {
        let row = |step: u64, val_loss: f64| {
            json!({
                "step": step, "val_loss": val_loss, "ema_val_loss": val_loss + 0.1, "tokens": 10 * step, "elapsed_s": step,
            })
        };
        let between = json!({ "step": 5, "train_loss": 2.4, "tokens": 50, "elapsed_s": 5 });
        let rows = json!([row(1, 3.0), row(2, 2.0), row(3, 2.5), row(4, 2.6), between]);
        let record = Record {
            name: "mine".to_owned(),
            path: PathBuf::from("runs/mine"),
            rows: serde_json::from_value(rows).unwrap(),
            config: Default::default(),
        };
        let facts_of = |checkpoint: &str| {
            let Trained { steps, tokens, loss, .. } = trained(record.clone(), Path::new(checkpoint));
            (steps, tokens, loss)
        };
        assert_eq!(facts_of("mine/checkpoints/step-00000002"), (2, 20, Some(2.0)));
        assert_eq!(facts_of("mine/checkpoints/step-00000003"), (3, 30, Some(2.5)));
        assert_eq!(facts_of("mine/checkpoints/step-00000003/ema"), (3, 30, Some(2.6)));
        for unknown in ["step-00000005", "step-00000005/ema", "last"] {
            assert_eq!(facts_of(&format!("mine/checkpoints/{unknown}")), (5, 50, None), "{unknown}");
        }
    }

    #[test]
    fn a_page_names_files_without_the_folders_that_they_are_in() {
        let at = |name: &str| json!({ "name": name, "bytes": 3 });
        let all = ["/home/anna/diary/2016.txt", "letters.zip/to Julia.docx", "c", "d", "e", "f", "g", "h"];
        let source = |name: &str| json!({ "name": name, "bytes": 3, "documents": [1, 0] });
        let all: Vec<Source> = serde_json::from_value(all.map(source).into()).unwrap();
        let expected = [at("2016.txt"), at("to Julia.docx"), at("c"), at("d"), at("e"), at("f")];
        let named = sources(&all);
        assert_eq!(named[..6], expected);
        assert_eq!(named[6], json!({ "name": "2 more files", "bytes": 6 }));
    }
}
