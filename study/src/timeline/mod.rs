//! The same prompt throughout training: the model's continuation at every look, in step order.
//!
//! The random numbers are the same every time, so two texts are equal for as long as both models
//! choose the same words; where they diverge shows what was learned in between.

mod page;

use std::{collections::BTreeMap, path::Path};

use serde::Serialize;

use crate::error::{Error, Result};
use ember_training::{run::folder, run::report::Row, run::report::jsonl, run::sample::Sample};

pub use page::page;

/// One text of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// The sample.
    #[serde(flatten)]
    pub sample: Sample,
    /// The last training loss logged up to this step.
    pub train_loss: Option<f64>,
    /// The validation loss at this step.
    pub val_loss: Option<f64>,
    /// Number of characters at its beginning that equal the previous text's; `None` for the first.
    pub same_characters: Option<usize>,
    /// Whether it equals the previous text; one that ends earlier does not.
    #[serde(skip)]
    pub is_same: bool,
}

impl Moment {
    /// The text's beginning that equals the previous text, and the rest.
    pub fn parts(&self) -> (&str, &str) {
        let text = &self.sample.text;
        let same = self.same_characters.unwrap_or(0);
        text.split_at(text.char_indices().nth(same).map_or(text.len(), |(place, _)| place))
    }
}

/// The loss shown with the texts of a timeline, the same kind for all of them: training and
/// validation losses are not comparable, so a change from one to the other is no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// On validation text, if it was measured at every text.
    Validation,
    /// On training text.
    Training,
}

impl LossKind {
    /// The kind of loss to show for these texts.
    pub fn of(line: &[Moment]) -> Self {
        if line.iter().all(|moment| moment.val_loss.is_some()) { Self::Validation } else { Self::Training }
    }

    /// The loss of one text.
    pub fn loss(self, moment: &Moment) -> Option<f64> {
        match self {
            Self::Validation => moment.val_loss,
            Self::Training => moment.train_loss,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Validation => "validation loss",
            Self::Training => "training loss",
        }
    }
}

/// Reads the samples of the run in `path`: a timeline for each prompt.
///
/// # Errors
/// When it is not a run's folder, nothing was sampled yet, or a log is damaged; the error names the
/// folder or the file.
pub fn read(path: &Path) -> Result<BTreeMap<usize, Vec<Moment>>> {
    if !path.exists() {
        return Err(Error::Missing(path.to_owned()));
    }
    let log = path.join(folder::SAMPLES).join(folder::SAMPLES_LOG);
    if !log.exists() {
        return Err(Error::NoSamples(path.to_owned()));
    }
    let samples: Vec<Sample> = jsonl::read(&log)?;
    if samples.is_empty() {
        return Err(Error::NoSample(log));
    }
    let rows: Vec<Row> = jsonl::read(&path.join(folder::METRICS))?;
    Ok(moments(samples, &rows))
}

/// Groups samples into timelines, each sample with the logged losses of its step.
fn moments(samples: Vec<Sample>, rows: &[Row]) -> BTreeMap<usize, Vec<Moment>> {
    let mut lines: BTreeMap<usize, Vec<Moment>> = BTreeMap::new();
    for sample in samples {
        let line = lines.entry(sample.prompt_index).or_default();
        // A resume may have changed the prompt: then the timeline starts again.
        if line.last().is_some_and(|before: &Moment| before.sample.prompt != sample.prompt) {
            line.clear();
        }
        let same = line.last().map(|Moment { sample: before, .. }| {
            before.text.chars().zip(sample.text.chars()).take_while(|(before, now)| before == now).count()
        });
        let up_to = rows.iter().filter(|row| row.step <= sample.step);
        let moment = Moment {
            train_loss: up_to.clone().rev().find_map(|row| row.train_loss),
            val_loss: up_to.rev().take_while(|row| row.step == sample.step).find_map(|row| row.val_loss),
            same_characters: same,
            is_same: line.last().is_some_and(|before| before.sample.text == sample.text),
            sample,
        };
        line.push(moment);
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sample(step: u64, prompt_index: usize, text: &str) -> Sample {
        Sample { step, prompt_index, prompt: "Once".into(), text: text.into(), tokens: 3, own_loss: Some(1.5) }
    }

    #[test]
    fn each_text_stands_beside_its_loss_and_knows_where_it_parts_from_the_one_before() {
        let rows = [
            Row { step: 10, train_loss: Some(3.0), ..Row::default() },
            Row { step: 10, val_loss: Some(3.1), ..Row::default() },
            Row { step: 20, train_loss: Some(2.0), ..Row::default() },
        ];
        let samples = vec![sample(10, 0, " é wa"), sample(10, 1, "x"), sample(20, 0, " é was"), sample(20, 1, "x")];
        let lines = moments(samples, &rows);
        let [first, second] = &lines[&0][..] else { panic!("{lines:?}") };
        assert_eq!((first.val_loss, first.parts()), (Some(3.1), ("", " é wa")));
        assert_eq!((second.train_loss, second.parts()), (Some(2.0), (" é wa", "s")));
        assert_eq!(lines[&1][1].parts(), ("x", ""));
        assert_eq!([first, second, &lines[&1][1]].map(|moment| moment.is_same), [false, false, true]);
        let lines = moments(vec![sample(10, 0, "a cat"), sample(20, 0, "a")], &[]);
        let shorter = &lines[&0][1];
        assert_eq!((shorter.parts(), shorter.is_same), (("a", ""), false));
    }

    #[test]
    fn a_line_has_losses_of_one_kind() {
        let rows = [
            Row { step: 10, train_loss: Some(3.0), ..Row::default() },
            Row { step: 10, val_loss: Some(3.5), ..Row::default() },
            Row { step: 20, train_loss: Some(2.0), ..Row::default() },
        ];
        // A run's starting model is evaluated and sampled before the first step.
        let begun = Row { step: 0, val_loss: Some(3.9), ..Row::default() };
        let rows = [&[begun][..], &rows].concat();
        let lines = moments(vec![sample(0, 0, "z"), sample(10, 0, "x"), sample(20, 0, "y")], &rows);
        assert_eq!(
            (LossKind::of(&lines[&0]), LossKind::of(&lines[&0][..2])),
            (LossKind::Training, LossKind::Validation)
        );
        let page = page("a run", &lines);
        assert!(page.contains("the training loss at each text, between 2.00 and 3.00"));
        assert!(page.contains("step 10 · training loss 3.000") && !page.contains("validation loss"));
        assert!(page.contains("<circle data-text=\"1\"") && !page.contains("<circle data-text=\"0\""));
    }

    /// A model with non-finite weights has no valid loss, and its log says null.
    #[test]
    fn a_loss_that_is_no_number_is_no_loss() {
        let run = tempfile::tempdir().unwrap();
        std::fs::create_dir(run.path().join(folder::SAMPLES)).unwrap();
        let unsure = Sample { own_loss: Some(f64::NAN), ..sample(10, 0, "x") };
        let rows = [unsure, sample(20, 0, "xy")].map(|row| serde_json::to_string(&row).unwrap() + "\n");
        std::fs::write(run.path().join(folder::SAMPLES).join(folder::SAMPLES_LOG), rows.concat()).unwrap();
        let lines = read(run.path()).unwrap();
        assert_eq!(lines[&0].iter().map(|moment| moment.sample.own_loss).collect::<Vec<_>>(), [None, Some(1.5)]);
        let page = page("a run", &lines);
        assert!(page.contains("loss on its own words 1.500") && !page.contains("NaN"));
    }

    #[test]
    fn one_text_has_no_curve() {
        let rows = [Row { step: 10, val_loss: Some(3.0), ..Row::default() }];
        let page = page("a run", &moments(vec![sample(10, 0, "x")], &rows));
        assert!(page.contains("step 10 · validation loss 3.000") && page.contains("<summary>1 text in all</summary>"));
        assert!(!page.contains("<svg"), "there is nothing to compare its loss with");
        // The button's name is its text, which becomes "Pause".
        assert!(page.contains("id=\"prompt-0\"") && page.contains(" aria-describedby=\"prompt-0\">Play</button>"));
    }

    #[test]
    fn the_page_holds_text_as_text_and_needs_nothing_else() {
        let lines = moments(vec![sample(10, 0, "</script><b>"), sample(20, 0, "</script><i>")], &[]);
        let page = page("a <run>", &lines);
        assert!(!page.contains("</script><b>") && !page.contains("a <run>") && !page.contains("http"));
        assert_eq!(page.matches("</script>").count(), 1);
    }
}
