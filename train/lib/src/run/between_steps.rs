//! The work between two steps: a save, an evaluation, a sample, and a row on the steps since the
//! last row.

use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::{Device, FloatDType};
use ember_decoding::config::Sampling;
use ember_kernels::gpu::products;
use ember_model::Gpt;

use super::checkpoint::{Checkpoint, save_evaluations};
use super::evaluate::{evaluate, evaluate_confidence};
use super::report::{EvalReport, Row, StepReport};
use super::temperature::{Confidence, tempered};
use super::{folder::Pointer, left_out::ensure_finite, sample, training::Trainer};
use crate::step::StepResult;
use crate::step::progress::{Best, Progress};
use crate::{distributed::exchange, error::Result, memory, note::Note};

impl Trainer<'_> {
    /// Saves the checkpoint of this step, then removes old ones; rank 0 does so for all processes.
    pub(super) fn save(&mut self, gpt: &Gpt) -> Result<()> {
        let began = Instant::now();
        exchange::ensure_same_weights(self.learner.group, gpt)?;
        if self.learner.group.leads() {
            if !self.session.began_damaged && !self.is_saved() {
                ensure_finite(gpt, &self.folder)?;
            }
            self.log.sync()?; // a resume from this step does not write its earlier rows again
            self.folder.ensure_there()?;
            let saved = self.save_checkpoint(gpt);
            if let Err(error) = saved.and_then(|()| self.point_best()) {
                self.folder.ensure_there()?; // it may have been removed meanwhile
                return Err(error);
            }
            self.prune();
        }
        self.session.spent.save_s += began.elapsed().as_secs_f64();
        Ok(())
    }

    /// Writes the checkpoint of this step. If the step is the best, `state.json` in the checkpoint
    /// must already name it as `best_saved`. So it is offered before writing, and withdrawn if the
    /// checkpoint's folder does not exist afterwards.
    fn save_checkpoint(&mut self, gpt: &Gpt) -> Result<()> {
        let best_before = self.learner.progress.evaluations.best_saved;
        self.offer_for_best_saved();
        let checkpoint = Checkpoint {
            gpt,
            temperature: self.temperature(),
            optimizer: &self.learner.optimizer,
            tokenizer: &self.dataset.tokenizer,
            sampling: self.sampling(),
            progress: &self.learner.progress,
            card: &self.card,
        };
        let saved = checkpoint.save(&self.folder);
        if !self.is_saved() {
            self.learner.progress.evaluations.best_saved = best_before;
        }
        saved
    }

    /// Offers this step's evaluation, if this session made one, for `best_saved`; returns whether it
    /// is the best.
    ///
    /// In the usual order, the save comes first: the step is not evaluated yet, so there is nothing
    /// to offer. Then the evaluation offers it. If the disk is full at first, the save fails, the
    /// evaluation does not offer a step that is not saved, and the next save of this step offers it.
    fn offer_for_best_saved(&mut self) -> bool {
        let Progress { step, evaluations, .. } = &mut self.learner.progress;
        let evaluated = self.session.last_evaluation.filter(|evaluated| evaluated.step == *step);
        evaluated.is_some_and(|evaluated| evaluations.record_saved(evaluated))
    }

    /// The default sampling settings of the model, for samples and for every checkpoint.
    fn sampling(&self) -> Sampling {
        sample::sampling(&self.dataset.manifest, &self.dataset.tokenizer)
    }

    /// Turns the error of a full disk into a note if the run has a checkpoint: it goes on, and
    /// writes again when it is due.
    pub(super) fn tolerate_full_disk(&mut self, written: Result<()>) -> Result<()> {
        match written {
            Err(error) if error.is_full_disk() && self.folder.pointed(Pointer::Latest)?.is_some() => {
                self.reporter.note(Note::DiskFull(error));
                Ok(())
            }
            other => other,
        }
    }

    /// The temperature that divides the logits of the saved model.
    fn temperature(&self) -> f64 {
        let Progress { step, evaluations, .. } = &self.learner.progress;
        if self.learner.config.calibrate { evaluations.temperature_at(*step) } else { 1.0 }
    }

    /// The model as `ember-generate` will load it from this step's checkpoint: without a graph, in
    /// float32.
    fn as_saved(&self, gpt: &Gpt) -> Gpt {
        tempered(gpt.valid().with_precision(FloatDType::F32), self.temperature())
    }

    /// Measures and records the validation loss of the saved model, and of the averaged weights if
    /// there are any; `false` when interrupted, also between the two.
    pub(super) fn evaluate(&mut self, gpt: &Gpt) -> Result<bool> {
        let began = Instant::now();
        let stop = || self.stop_requested_here();
        let measure = |gpt: &Gpt| evaluate(gpt, &self.val_windows, self.learner.group, &stop);
        let saved = self.as_saved(gpt);
        let (val_loss, confidence) = if self.learner.config.calibrate {
            let confidence = evaluate_confidence(&saved, &self.val_windows, self.learner.group, &stop)?;
            let Some(confidence) = confidence else { return Ok(false) };
            (confidence.loss, Some(confidence))
        } else {
            let Some(val_loss) = measure(&saved)? else { return Ok(false) };
            (val_loss, None)
        };
        let average = self.learner.optimizer.average().and_then(|average| average.model(gpt));
        let mut ema_val_loss = None;
        if let Some(average) = average {
            ema_val_loss = measure(&tempered(average.with_precision(FloatDType::F32), self.temperature()))?;
            if ema_val_loss.is_none() {
                return Ok(false);
            }
        }
        let kept = self.record_evaluation(Evaluated { val_loss, confidence, ema_val_loss, duration: began.elapsed() });
        self.tolerate_full_disk(kept)?;
        Ok(true)
    }

    /// Records an evaluation of this step: in the log, then in the checkpoint, then in the pointer
    /// `best`, which depends on the trained weights, not on their average. If a kill or a full disk
    /// interrupts this, a resume completes it.
    fn record_evaluation(&mut self, evaluated: Evaluated) -> Result<()> {
        let (step, val_loss) = (self.learner.progress.step, evaluated.val_loss);
        self.learner.progress.evaluations.record(step, val_loss);
        self.session.last_evaluation = Some(Best { step, val_loss });
        let is_best = self.is_saved() && self.offer_for_best_saved();
        let temperature = evaluated.confidence.map(|confidence| {
            let evaluations = &mut self.learner.progress.evaluations;
            evaluations.change_temperature(confidence.next_temperature(evaluations.temperature))
        });
        self.report_evaluation(evaluated, temperature, is_best)?;
        if self.learner.group.leads() {
            save_evaluations(&self.folder, &self.learner.progress, &self.card)?;
            self.point_best()?;
            self.prune();
        }
        Ok(())
    }

    /// Shows and logs an evaluation of this step, with the losses that it is compared with.
    /// `temperature` is the one that the evaluated model was divided by, in a calibrated run.
    fn report_evaluation(&mut self, evaluated: Evaluated, temperature: Option<f64>, is_best: bool) -> Result<()> {
        let Evaluated { val_loss, confidence, ema_val_loss, duration } = evaluated;
        let Progress { step, tokens, elapsed_s, .. } = self.learner.progress;
        let manifest = &self.dataset.manifest;
        let entropy = confidence.map(|confidence| confidence.entropy);
        let entropy_floor = manifest.marks.map(|marks| marks.entropy_floor);
        let forgetful_loss = manifest.marks.map(|marks| marks.forgetful_loss);
        let bits_per_byte = manifest.bits_per_byte(1.0).map(|bits_per_nat| bits_per_nat * val_loss);
        let ngram_loss = Some(manifest.best_ngram_loss());
        self.reporter.evaluation(&EvalReport {
            step,
            val_loss,
            // The built-in stories' loss is compared with their marks instead.
            bits_per_byte: bits_per_byte.filter(|_| manifest.marks.is_none()),
            ema_val_loss,
            is_best,
            ngram_loss,
            entropy_floor,
            forgetful_loss,
        });
        self.log.append(&Row {
            step,
            val_loss: Some(val_loss),
            bits_per_byte,
            ema_val_loss,
            entropy,
            temperature,
            ngram_loss,
            entropy_floor,
            forgetful_loss,
            tokens: Some(tokens),
            elapsed_s: Some(elapsed_s),
            eval_s: Some(duration.as_secs_f64()),
            ..Row::default()
        })?;
        Ok(self.log.sync()?)
    }

    /// Whether this step's checkpoint was saved: the disk may have been full.
    fn is_saved(&self) -> bool {
        self.folder.checkpoint(self.learner.progress.step).is_dir()
    }

    /// Points `best` to the saved step with the lowest loss.
    pub(super) fn point_best(&self) -> Result<()> {
        match self.learner.progress.evaluations.best_saved {
            Some(best) if self.learner.group.leads() => Ok(self.folder.point_best(best.step)?),
            _ => Ok(()),
        }
    }

    /// Removes old checkpoints.
    fn prune(&self) {
        let best = self.learner.progress.evaluations.best_saved.map(|best| best.step);
        self.folder.prune(self.learner.config.keep_checkpoints, best);
    }

    /// Whether the last `patience` evaluations brought no new best.
    pub(super) fn is_out_of_patience(&self) -> bool {
        self.learner.config.patience > 0 && self.learner.progress.evaluations.since_best >= self.learner.config.patience
    }

    /// Samples text, shows it and records it; `false` when interrupted. In a group, sampling is not
    /// interrupted: the processes agree on stopping elsewhere.
    pub(super) fn sample(&mut self, gpt: &Gpt) -> Result<bool> {
        let (began, step) = (Instant::now(), self.learner.progress.step);
        let is_alone = self.learner.group.size() == 1;
        let stop = || is_alone && self.stop_requested_here();
        let (tokenizer, sampling, config) = (&self.dataset.tokenizer, self.sampling(), &self.learner.config);
        let Some(samples) = sample::samples(&self.as_saved(gpt), tokenizer, sampling, config, step, &stop)? else {
            return Ok(false);
        };
        if !samples.is_empty() {
            self.reporter.sample(step, &sample::page(&samples));
            self.log.keep(&samples, &self.folder.sample(step))?;
            self.session.spent.sample_s += began.elapsed().as_secs_f64();
        }
        Ok(true)
    }

    /// Logs and shows the steps since the last report.
    pub(super) fn report(&mut self, gpt: &Gpt, result: &StepResult) -> Result<()> {
        let Progress { step, tokens, elapsed_s, unreported_loss, unreported_steps, .. } = &mut self.learner.progress;
        let (step, tokens, elapsed_s) = (*step, *tokens, *elapsed_s);
        let train_loss = std::mem::take(unreported_loss) / f64::from(std::mem::take(unreported_steps).max(1));
        let StepResult { learning_rate, grad_norm, clipped, .. } = *result;
        let spent = std::mem::take(&mut self.session.spent);
        let speedometer = &mut self.session.speedometer;
        let tokens_per_s = speedometer.since_last(tokens);
        let flops = gpt.config().training_flops_per_token();
        let mfu = speedometer.utilisation(tokens_per_s, flops, self.learner.group.size());
        let memory_bytes = memory::in_use(&gpt.device());
        let max_steps = self.learner.config.max_steps;
        let tokens_left = max_steps.saturating_sub(step) as f64 * self.learner.config.tokens_per_step() as f64;
        let report = StepReport {
            step,
            max_steps,
            train_loss,
            learning_rate,
            grad_norm,
            tokens,
            tokens_per_s,
            mfu,
            memory_bytes,
            elapsed_s,
            remaining_s: (step > 1).then(|| tokens_left / speedometer.overall(tokens)),
        };
        self.log.append(&Row {
            step,
            train_loss: Some(train_loss),
            learning_rate: Some(learning_rate),
            grad_norm: Some(grad_norm),
            clipped: Some(clipped),
            save_s: Some(spent.save_s),
            sample_s: Some(spent.sample_s),
            tokens: Some(tokens),
            tokens_per_s: Some(tokens_per_s),
            mfu,
            memory_bytes,
            elapsed_s: Some(elapsed_s),
            ..Row::default()
        })?;
        self.reporter.step(&report);
        if step > 1 {
            self.tune_if_worthwhile(&gpt.device(), tokens_left / tokens_per_s);
        }
        Ok(())
    }

    /// Autotunes the GPU's matrix products, once, if the rest of the run is long enough.
    fn tune_if_worthwhile(&mut self, device: &Device, remaining_s: f64) {
        if std::mem::take(&mut self.session.may_tune) && remaining_s >= WORTH_TUNING_S && products::tune(device) {
            self.learner.progress.tuned = true;
            self.reporter.note(Note::Tuning);
        }
    }
}

/// Least remaining time for autotuning, which took half a minute on software Vulkan. With less time
/// left, the kernels that a fixed rule selects stay.
const WORTH_TUNING_S: f64 = 300.0;

/// The result of an evaluation.
struct Evaluated {
    val_loss: f64,
    /// In a calibrated run.
    confidence: Option<Confidence>,
    ema_val_loss: Option<f64>,
    duration: Duration,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use ember_data::tokenizer::Tokenizer;
    use ember_model::device::{DeviceChoice, select};

    use super::sample::{Sample, samples, sampling};
    use super::*;
    use crate::distributed::Alone;
    use crate::run::folder::checkpoint_name;
    use crate::run::report::{Silent, jsonl};
    use crate::run::{resume, small_run};

    /// Even if the sample is drawn again after an evaluation has found another temperature.
    #[test]
    fn a_sample_is_what_the_checkpoint_of_its_step_writes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        let settings = "max_steps = 6\ncalibrate = true\neval_interval = 2\nsample_interval = 2\nsample_tokens = 12\n\
                        keep_checkpoints = 9\n";
        let run = small_run::begin(&path, settings);
        let (config, sampling) = (run.config.clone(), sampling(&run.dataset.manifest, &run.dataset.tokenizer));
        small_run::train(run);
        let rows: Vec<Row> = jsonl::read(&path.join("metrics.jsonl")).unwrap();
        let temperatures: Vec<f64> = rows.iter().filter_map(|row| row.temperature).collect();
        assert!(temperatures.len() == 3 && temperatures.windows(2).all(|two| two[0] != two[1]), "{temperatures:?}");

        let selected = select(DeviceChoice::Cpu).unwrap();
        let kept = || -> Vec<Sample> { jsonl::read(&path.join("samples/samples.jsonl")).unwrap() };
        let drawn = kept();
        assert_eq!(drawn.iter().map(|sample| sample.step).collect::<Vec<_>>(), [2, 4, 6]);
        for sample in &drawn {
            let checkpoint = path.join("checkpoints").join(checkpoint_name(sample.step));
            let gpt = ember_model::checkpoint::load(&checkpoint, &selected.device).unwrap();
            let tokenizer = Tokenizer::from_folder(&checkpoint).unwrap();
            let written = samples(&gpt, &tokenizer, sampling, &config, sample.step, &|| false).unwrap().unwrap();
            let difference = written[0].own_loss.unwrap() - sample.own_loss.unwrap();
            assert!(written[0].text == sample.text && difference.abs() < 1e-6, "{written:?} instead of {sample:?}");
        }
        let again = resume(&path, &[], selected, None, &Alone, &mut Silent).unwrap();
        small_run::train(again);
        assert_eq!(kept(), drawn);
    }
}
