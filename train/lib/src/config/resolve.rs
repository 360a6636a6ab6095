//! Chooses the keys that the user left open: a model of a size that suits the text and the device.
//!
//! Every choice is a rule of thumb with a reason, which is printed; a key that the user set never
//! changes. The rules: a text supports about as many parameters as it has tokens when it is read
//! once, and some ten times as many when it is read often with dropout (nanoGPT trains 10.7 million
//! on a million characters); AdamW's learning rate falls with the width (Yang et al. 2022, Tensor
//! Programs V); an evaluation may cost a twentieth of the training. The architecture and the
//! optimizer are those that learned the most in a given time in `bench/learning.py`; its figures
//! are in `bench/LEARNING.md`.

use std::{fmt::Display, path::Path};

use ember_model::folder::Family;
use ember_model::{GptConfig, MlpKind, NormKind, Positions};

use super::facts::{DeviceFacts, DeviceKind, Shape, TextFacts};
use super::keys::{Curve, OptimizerKind, Precision, Settings, TrainConfig};
use crate::units::{grouped, short};
use crate::{error::ConfigError, note::Note};

/// The architecture that learns the most, among those that transformers has a class for.
const BEST: &str = "qwen3";

/// With more passes than this over one text, a model mainly memorises it.
const MAX_PASSES: f64 = 40.0;

/// A model of at least `LARGE` parameters gains nothing from more passes than this, whatever its
/// dropout: on texts of 60 KB and of a megabyte, such models had learned as much after thirty as
/// after sixty, ninety or two hundred. Smaller ones still gain (bench/LEARNING.md).
pub const MAX_PASSES_OF_LARGE: f64 = 30.0;

/// Fewest parameters of a large model by that rule.
const LARGE: u64 = 200_000;

/// Fewest steps of a run, however little text there is.
const MIN_STEPS: u64 = 200;

/// The number of steps after which a model with this many parameters learns no more from a text of
/// `train_tokens`, however much time there is.
pub fn most_steps(parameters: u64, train_tokens: u64, tokens_per_step: u64) -> u64 {
    if parameters < LARGE {
        return u64::MAX;
    }
    ((MAX_PASSES_OF_LARGE * train_tokens as f64 / tokens_per_step as f64) as u64).max(MIN_STEPS)
}

impl Settings {
    /// Fills in the keys that the user left open, and returns a line on each choice with its
    /// reason.
    ///
    /// # Errors
    /// For a value out of range, and for values that contradict each other.
    pub fn resolve(mut self, facts: &TextFacts, device: DeviceKind) -> Result<(TrainConfig, Vec<Note>), ConfigError> {
        self.check()?; // a field may have been set without `set`
        let mut reasons = Vec::new();
        self.choose_optimizer(&mut reasons);
        self.choose_model(facts, device, &mut reasons);
        self.choose_computation();
        self.choose_length(facts, device, &mut reasons);
        self.choose_regularisation(facts, &mut reasons);
        self.choose_rates(&mut reasons);
        self.choose_warmup(&mut reasons);
        self.choose_intervals(facts, &mut reasons);
        Ok((self.complete()?, reasons))
    }

    /// The configurations that these settings resolve to on such a device, one for each text size
    /// of its ladder, smallest first, with the shortest context.
    pub fn for_texts_of_every_size(&self, device: DeviceKind) -> Vec<Result<TrainConfig, ConfigError>> {
        let facts = |(train_tokens, _): &(u64, Shape)| TextFacts { train_tokens: *train_tokens, ..TextFacts::NOTHING };
        device.facts().ladder.iter().map(|rung| Ok(self.clone().resolve(&facts(rung), device)?.0)).collect()
    }

    /// Refuses a combination of parts for which transformers has no class: the model could not be
    /// saved. Needs no text.
    ///
    /// # Errors
    /// Names the part that does not fit.
    pub fn check_parts(&self) -> Result<(), ConfigError> {
        let mut settings = self.clone();
        if self.n_head.is_none() {
            settings.n_kv_head = None; // n_head is not known yet
        }
        settings.choose_architecture(&mut Vec::new());
        Family::of(&settings.choose_parts(1)).map(drop).map_err(|error| ConfigError::Contradiction(error.to_string()))
    }

    fn choose_optimizer(&mut self, reasons: &mut Vec<Note>) {
        let (optimizer, schedule, why) = match self.init() {
            None => (OptimizerKind::Muon, Curve::Wsd, "it learns more per step than AdamW"),
            Some(_) => (OptimizerKind::AdamW, Curve::Cosine, "its steps are small, and keep what the model knows"),
        };
        if self.optimizer.is_none() {
            reasons.push(format!("optimizer = {}: {why}", optimizer.name()).into());
        }
        self.optimizer.get_or_insert(optimizer);
        self.schedule.get_or_insert(schedule);
        self.decay_fraction.get_or_insert(0.8);
        self.muon_momentum.get_or_insert(0.9);
    }

    /// Chooses the first architecture that allows the parts and sizes that the user set.
    fn choose_architecture(&mut self, reasons: &mut Vec<Note>) {
        if self.architecture.is_some() {
            return;
        }
        let sized = self.n_embd.is_some() && self.n_head.is_some();
        let has_the_parts = |architecture: &&str| {
            let mut settings = Self { architecture: Some((*architecture).to_owned()), ..self.clone() };
            let shape = settings.choose_parts(1);
            Family::of(&shape).is_ok() && (!sized || shape.validate().is_ok())
        };
        let first = [BEST, "llama", "gpt2"].into_iter().find(has_the_parts).unwrap_or(BEST);
        let why = if first == BEST { "it learns the most in a given time" } else { "it has the parts that are set" };
        reasons.push(format!("architecture = {first}: {why}").into());
        self.architecture = Some(first.to_owned());
    }

    fn choose_model(&mut self, facts: &TextFacts, device: DeviceKind, reasons: &mut Vec<Note>) {
        let DeviceFacts { name: device, ladder, .. } = device.facts();
        let rung = ladder.iter().rposition(|(fewest, _)| facts.train_tokens >= *fewest).unwrap_or(0);
        let shape = &ladder[rung].1;

        // A width divisible by the given number of heads, or a number of heads that divides the
        // width.
        let width = self.n_head.map_or(shape.n_embd, |heads| (shape.n_embd / heads).max(1) * heads);
        let mut chosen = ReasonedKeys::default();
        chosen.key("n_layer", &mut self.n_layer, shape.n_layer);
        let n_embd = chosen.key("n_embd", &mut self.n_embd, width);
        let head_size = if n_embd <= 128 { 32 } else { 64 };
        let heads = (1..=(n_embd / head_size).max(1)).rev().find(|heads| n_embd.is_multiple_of(*heads)).unwrap_or(1);
        chosen.key("n_head", &mut self.n_head, heads);
        self.choose_architecture(reasons);
        let shape_so_far = self.choose_parts(facts.vocab_size);
        let parameters = short((shape_so_far.parameters() - shape_so_far.position_table()) as f64);
        let tokens = short(facts.train_tokens as f64);
        chosen.because(format!("about {parameters} parameters suit {tokens} tokens of text on {device}"), reasons);

        let context = fitting_context(shape.context_length, facts);
        let reason = if context < shape.context_length {
            format!("several windows must fit into the {} tokens held out", short(facts.val_tokens as f64))
        } else {
            format!("what {device} trains quickly")
        };
        ReasonedKeys::one("context_length", &mut self.context_length, context).because(reason, reasons);

        let chosen = ReasonedKeys::one("batch_size", &mut self.batch_size, shape.batch_size);
        chosen
            .because(format!("{} tokens per step keep {device} busy", grouped(self.tokens_per_step() as u64)), reasons);
    }

    /// Chooses the parts that the user left open from the architecture. Returns the shape; a size
    /// that is not known yet counts as 1.
    fn choose_parts(&mut self, vocab_size: usize) -> GptConfig {
        let [context_length, n_layer, n_head, n_embd] =
            [self.context_length, self.n_layer, self.n_head, self.n_embd].map(|size| size.unwrap_or(1));
        let qwen3 = self.architecture.as_deref() == Some("qwen3");
        let llama = qwen3 || self.architecture.as_deref() == Some("llama");
        let mlp = *self.mlp.get_or_insert(if llama { MlpKind::SwiGlu } else { MlpKind::Gelu });
        // A gated MLP has three matrices: with two thirds of the width, as many weights as two.
        let inner = if mlp.is_gated() { (8 * n_embd).div_ceil(3).next_multiple_of(32) } else { 4 * n_embd };
        GptConfig {
            positions: *self.positions.get_or_insert(if llama { Positions::Rotary } else { Positions::Learned }),
            norm: *self.norm.get_or_insert(if llama { NormKind::RmsNorm } else { NormKind::LayerNorm }),
            mlp,
            qk_norm: *self.qk_norm.get_or_insert(qwen3),
            bias: *self.bias.get_or_insert(!llama),
            tied_head: *self.tied_head.get_or_insert(true),
            n_inner: *self.n_inner.get_or_insert(inner),
            n_kv_head: *self.n_kv_head.get_or_insert(n_head),
            ..GptConfig::new(vocab_size, context_length, n_layer, n_head, n_embd)
        }
    }

    /// Chooses how a step is computed; apart from rounding, this does not change what is learned.
    fn choose_computation(&mut self) {
        self.micro_batch.get_or_insert(self.batch_size.unwrap_or(1));
        self.precision.get_or_insert(Precision::F32);
    }

    fn tokens_per_step(&self) -> usize {
        [self.context_length, self.batch_size, self.grad_accum_steps].into_iter().flatten().product()
    }

    fn choose_length(&mut self, facts: &TextFacts, device: DeviceKind, reasons: &mut Vec<Note>) {
        let tokens_per_step = self.tokens_per_step() as f64;
        let train_tokens = facts.train_tokens.max(1) as f64;
        let DeviceFacts { name, budget, minutes, .. } = device.facts();
        // All parts are chosen by now, so this only returns the shape.
        let affordable = budget / self.choose_parts(facts.vocab_size).training_flops_per_token();
        let useful = MAX_PASSES * train_tokens;
        let tokens = affordable.min(useful);
        let steps = round(tokens / tokens_per_step).clamp(MIN_STEPS, 1_000_000);
        let mut chosen = ReasonedKeys::default();
        let max_steps = chosen.key("max_steps", &mut self.max_steps, steps);
        if useful < affordable {
            // MIN_STEPS can make this more than MAX_PASSES when the text is very short.
            let passes = max_steps as f64 * tokens_per_step / train_tokens;
            chosen.because(format!("{passes:.0} passes over the text; more would only memorise it"), reasons);
        } else if let Some(keys) = chosen.keys() {
            reasons.push(Note::Length(format!("{keys}: about {minutes} on {name}")));
        }
        self.lr_decay_steps.get_or_insert(max_steps);
    }

    /// Chooses what keeps a model from memorising its text and from being overconfident: the more
    /// often the text is read, the stronger the regularisation.
    fn choose_regularisation(&mut self, facts: &TextFacts, reasons: &mut Vec<Note>) {
        let steps = self.max_steps.unwrap_or(1);
        let trained = steps as f64 * self.tokens_per_step() as f64;
        let train_tokens = facts.train_tokens.max(1) as f64;
        let passes = trained / train_tokens;
        // The more weights there are for each token, the sooner a text is memorised.
        let [n_layer, n_embd] = [self.n_layer, self.n_embd].map(|size| size.unwrap_or(1) as f64);
        let weights = 12.0 * n_layer * n_embd * n_embd;
        // By passes times weights per token, no dropout was best at 20, 0.05 at 31 to 65, 0.1 at
        // 117, and 0.2 from 208 on (bench/LEARNING.md, "The passes again"): the limits lie between.
        let dropout = match passes * weights / train_tokens {
            ..25.0 => 0.0,
            25.0..90.0 => 0.05,
            90.0..200.0 => 0.1,
            _ => 0.2,
        };
        // A decay of 0.5 was worse at 3 passes and better at 5. With AdamW, weight decay keeps its
        // usual strength.
        let is_strong = passes >= 4.0 && self.optimizer == Some(OptimizerKind::Muon);
        let weight_decay = if is_strong { 0.5 } else { 0.1 };
        let mut chosen = ReasonedKeys::default();
        chosen.key("dropout", &mut self.dropout, dropout);
        chosen.key("weight_decay", &mut self.weight_decay, weight_decay);
        // An initial checkpoint's softmax denominators are already set; z-loss would change them.
        if self.init().is_some() {
            self.z_loss.get_or_insert(0.0);
        } else {
            // After fewer steps a model is not overconfident yet.
            chosen.key("z_loss", &mut self.z_loss, if steps < 200 { 0.0 } else { 0.01 });
        }
        chosen.key("calibrate", &mut self.calibrate, true);
        let ratio = weights / train_tokens;
        chosen.because(format!("the text is read {passes:.1} times; {ratio:.1} weights per token"), reasons);
    }

    /// Chooses the peak learning rates and the lowest.
    fn choose_rates(&mut self, reasons: &mut Vec<Note>) {
        let n_embd = self.n_embd.unwrap_or(1);
        let is_muon = self.optimizer == Some(OptimizerKind::Muon);
        let many_steps = self.rate_of_many_small_steps();
        // The rate for a new model.
        let (rate, reason) = if is_muon {
            // For embeddings and norms only, which tolerate a larger rate.
            let rate = (60.0 * (128.0 / n_embd as f64).sqrt()).round().clamp(10.0, 60.0);
            (rate / 1e4 * many_steps, format!("for what AdamW trains, at width {n_embd}"))
        } else {
            // 1e-3 at nanoGPT's width of 384, in steps of 1e-4.
            let rate = (3840.0 / n_embd as f64).round().clamp(3.0, 20.0);
            (rate / 1e4, format!("narrow models tolerate a higher rate; width {n_embd}"))
        };
        let keeps =
            self.init().map(|folder| format!("a tenth of a new model's rate, to keep what {folder} has learned"));
        let divisor = if keeps.is_some() { 10.0 } else { 1.0 };
        let rate = two_digits(rate / divisor);
        let chosen = ReasonedKeys::one("learning_rate", &mut self.learning_rate, rate);
        chosen.because(keeps.clone().unwrap_or(reason), reasons);
        let muon_rate = two_digits(MUON_RATE * many_steps / if is_muon { divisor } else { 1.0 });
        let chosen = ReasonedKeys::one("muon_learning_rate", &mut self.muon_learning_rate, muon_rate);
        match keeps {
            Some(reason) if is_muon => chosen.because(reason, reasons),
            None if many_steps < 1.0 => {
                chosen.because("many steps on few tokens each need a lower rate", reasons);
            }
            _ => {}
        }
        let peak = self.learning_rate.unwrap_or(rate);
        // Not zero: a run that is extended goes on at this rate.
        let share = if self.schedule == Some(Curve::Wsd) { 100.0 } else { 10.0 };
        self.min_learning_rate.get_or_insert((peak / share * 1e9).round() / 1e9);
    }

    fn choose_warmup(&mut self, reasons: &mut Vec<Note>) {
        let decay = self.lr_decay_steps.unwrap_or(1);
        if self.init().is_some() {
            let chosen = ReasonedKeys::one("warmup_steps", &mut self.warmup_steps, round(decay as f64 / 50.0).min(100));
            chosen.because("short, since the weights are already trained", reasons);
        }
        let warmup = *self.warmup_steps.get_or_insert(round(decay as f64 / 20.0).clamp(10, 2000).min(decay));
        if warmup >= decay {
            // Not an error: a short trial of a long recipe should need no change except max_steps.
            let rate = match self.schedule {
                _ if self.max_steps.is_none_or(|steps| steps <= warmup) => "only rises",
                Some(Curve::Constant) => "rises, and stays",
                _ => "rises, then drops to its minimum at once",
            };
            let line = format!("warmup_steps = {warmup} is not shorter than lr_decay_steps = {decay}: the rate {rate}");
            reasons.push(line.into());
        }
    }

    /// The factor on Muon's learning rates. A step on few tokens is noisy, and the noise of many
    /// steps adds up: from 2,000 steps of 1,024 tokens on, or proportionally more steps of more
    /// tokens, the best rate falls with the root of the number of steps (bench/LEARNING.md, "Many
    /// small steps").
    fn rate_of_many_small_steps(&self) -> f64 {
        if self.optimizer != Some(OptimizerKind::Muon) {
            return 1.0;
        }
        let steps = self.max_steps.unwrap_or(1).max(1) as f64;
        (self.tokens_per_step() as f64 / 1024.0 * 2000.0 / steps).sqrt().min(1.0)
    }

    fn choose_intervals(&mut self, facts: &TextFacts, reasons: &mut Vec<Note>) {
        let mut chosen = ReasonedKeys::default();
        let looks = round(self.max_steps.unwrap_or(1) as f64 / 20.0).clamp(1, 1000);
        let interval = chosen.key("eval_interval", &mut self.eval_interval, looks);
        chosen.key("checkpoint_interval", &mut self.checkpoint_interval, interval);
        chosen.key("sample_interval", &mut self.sample_interval, interval);
        chosen.because("about twenty times in a run", reasons);

        // A forward pass takes a third of a training step, so 0.15 of the tokens cost 0.05 of the
        // time.
        let trained = interval.saturating_mul(self.tokens_per_step() as u64);
        let affordable = (trained as f64 * 0.15).max(10_000.0) as u64;
        if affordable >= facts.val_tokens {
            self.eval_tokens.get_or_insert(0);
        }
        let chosen = ReasonedKeys::one("eval_tokens", &mut self.eval_tokens, round(affordable as f64));
        chosen.because("evaluations take at most a twentieth of the training time", reasons);
    }
}

/// Muon's peak learning rate for matrices.
const MUON_RATE: f64 = 0.015;

/// The number rounded to two significant digits.
fn two_digits(number: f64) -> f64 {
    let unit = 10f64.powf(1.0 - number.log10().floor());
    (number * unit).round() / unit
}

/// Keys that the program chose for one reason, each as `key = value`.
#[derive(Default)]
struct ReasonedKeys(Vec<String>);

impl ReasonedKeys {
    /// A single key, set by [`Self::key`].
    fn one<T: Copy + Display>(name: &str, key: &mut Option<T>, value: T) -> Self {
        let mut chosen = Self::default();
        chosen.key(name, key, value);
        chosen
    }

    /// Sets a key unless the user did; returns its value either way.
    fn key<T: Copy + Display>(&mut self, name: &str, key: &mut Option<T>, value: T) -> T {
        *key.get_or_insert_with(|| {
            self.0.push(format!("{name} = {value}"));
            value
        })
    }

    /// The keys with their values; `None` if the user set all of them.
    fn keys(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join(", "))
    }

    /// Adds a line with the reason, if any key was chosen.
    fn because(self, reason: impl Display, reasons: &mut Vec<Note>) {
        reasons.extend(self.keys().map(|keys| format!("{keys}: {reason}").into()));
    }
}

/// `most`, halved until the text fits: each split must hold a window and the token after it, and
/// should hold at least four windows.
pub fn fitting_context(most: usize, facts: &TextFacts) -> usize {
    let mut context = most;
    while context > 8 && context as u64 * 4 > facts.val_tokens.min(facts.train_tokens) {
        context /= 2;
    }
    context
}

/// The nearest whole number with two significant digits, at least 1.
fn round(number: f64) -> u64 {
    let number = number.max(1.0);
    let unit = 10f64.powf(number.log10().floor() - 1.0).max(1.0);
    ((number / unit).round() * unit) as u64
}

/// Assumed vocabulary size of the tokenizer `auto`, which depends on the text.
const AUTO_VOCAB_SIZE: usize = 8192;

/// The vocabulary size to assume for the recipe in `path`, whose text is not known.
///
/// # Errors
/// When its tokenizer is a file.
pub fn assumed_vocab_size(settings: &Settings, path: &Path) -> Result<usize, ConfigError> {
    let tokenizer = settings.data()?.tokenizer;
    let size = match tokenizer.split_once(':') {
        Some(("bpe", size)) => size.parse().ok(),
        None if tokenizer == "auto" => Some(AUTO_VOCAB_SIZE),
        None if tokenizer == "chars" || tokenizer == "bytes" => Some(256),
        _ => None,
    };
    size.ok_or_else(|| ConfigError::VocabSize { recipe: path.to_owned(), tokenizer })
}
