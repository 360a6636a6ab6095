//! Choices the program makes when it is given only a text: a model that the text can teach and the
//! device can train.
//!
//! Every choice is a rule of thumb with its reason, which is printed; a key that somebody set is
//! never touched. The rules: a text supports about as many parameters as it has tokens when it is
//! read once, and some ten times as many when it is read often with dropout (nanoGPT trains 10.7
//! million on a million characters); the learning rate falls with the width (Yang et al. 2022,
//! Tensor Programs V); an evaluation may cost a twentieth of the training.

use ember_model::folder::Family;
use ember_model::{GptConfig, MlpKind, NormKind, Positions};
use serde::Deserialize;
use toml::Value;

use super::keys::{self, TrainConfig};
use super::settings::{Settings, unreadable};
use crate::error::ConfigError;
use crate::note::Note;
use crate::units::{grouped, short};

/// What is known of the text once it is tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextFacts {
    /// Tokens to train on.
    pub train_tokens: u64,
    /// Tokens held out.
    pub val_tokens: u64,
    /// Different tokens.
    pub vocab_size: usize,
}

impl TextFacts {
    /// Of no text at all.
    pub const NOTHING: Self = Self { train_tokens: 0, val_tokens: 0, vocab_size: 1 };
}

/// How fast a device is, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Some 2e11 floating-point operations a second in training.
    Cpu,
    /// Some 1e13.
    Gpu,
}

impl DeviceKind {
    /// Operations spent on one run by default: ten minutes of a laptop's CPU, or half an hour of a
    /// modest GPU.
    fn budget(self) -> f64 {
        match self {
            Self::Cpu => 1.2e14,
            Self::Gpu => 2e16,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "a CPU",
            Self::Gpu => "a GPU",
        }
    }
}

/// A model, the windows of one pass and how many passes make a step.
struct Shape {
    n_layer: usize,
    n_embd: usize,
    context_length: usize,
    batch_size: usize,
}

/// The steps of the ladder, smallest first, each with the fewest training tokens that call for it.
const CPU_SHAPES: &[(u64, Shape)] = &[
    (0, Shape { n_layer: 2, n_embd: 64, context_length: 64, batch_size: 16 }),
    (50_000, Shape { n_layer: 4, n_embd: 128, context_length: 128, batch_size: 16 }),
];
const GPU_SHAPES: &[(u64, Shape)] = &[
    (0, Shape { n_layer: 4, n_embd: 128, context_length: 128, batch_size: 32 }),
    (200_000, Shape { n_layer: 6, n_embd: 384, context_length: 256, batch_size: 64 }),
    (20_000_000, Shape { n_layer: 8, n_embd: 512, context_length: 512, batch_size: 64 }),
    (500_000_000, Shape { n_layer: 12, n_embd: 768, context_length: 1024, batch_size: 32 }),
];

fn ladder(device: DeviceKind) -> &'static [(u64, Shape)] {
    match device {
        DeviceKind::Cpu => CPU_SHAPES,
        DeviceKind::Gpu => GPU_SHAPES,
    }
}

/// More passes than this over one text teach little but the text itself.
const MOST_PASSES: f64 = 40.0;

impl Settings {
    /// Fills in what nobody set, and says in one line each what was chosen and why.
    pub fn resolve(self, facts: &TextFacts, device: DeviceKind) -> Result<(TrainConfig, Vec<Note>), ConfigError> {
        let mut resolving = Resolving { settings: self, reasons: Vec::new() };
        resolving.model(facts, device)?;
        resolving.computation();
        resolving.length(facts, device)?;
        resolving.learning_rate()?;
        resolving.intervals(facts)?;
        Ok((resolving.settings.complete()?, resolving.reasons))
    }
}

impl Settings {
    /// What texts would make of these settings on such a device: one of every size that decides
    /// something, smallest first, none with a window to spare.
    pub fn for_texts_of_every_size(&self, device: DeviceKind) -> Vec<Result<TrainConfig, ConfigError>> {
        let facts = |(train_tokens, _): &(u64, Shape)| TextFacts { train_tokens: *train_tokens, ..TextFacts::NOTHING };
        ladder(device).iter().map(|rung| Ok(self.clone().resolve(&facts(rung), device)?.0)).collect()
    }
}

/// The parts of a model that its class must have together.
#[derive(Deserialize)]
struct Parts {
    positions: Positions,
    norm: NormKind,
    mlp: MlpKind,
    qk_norm: bool,
    bias: bool,
    tied_head: bool,
    n_inner: usize,
    n_kv_head: usize,
}

impl Settings {
    /// A saved configuration with the keys that runs of earlier versions lack: they had GPT-2's
    /// parts and computed in float32.
    pub(super) fn with_the_usual_parts(self) -> Self {
        let is_whole = self.has("n_embd") && self.has("n_head") && self.has("batch_size");
        let mut resolving = Resolving { settings: self, reasons: Vec::new() };
        if is_whole {
            resolving.architecture();
            resolving.computation();
        }
        resolving.settings
    }

    /// Refuses parts that no class of transformers has together, which needs no text: there would
    /// be nothing to save the model as.
    pub fn check_parts(&self) -> Result<(), ConfigError> {
        let mut resolving = Resolving { settings: self.clone(), reasons: Vec::new() };
        resolving.architecture();
        let heads = [resolving.whole("n_head"), self.has("n_kv_head").then(|| resolving.whole("n_kv_head")).flatten()];
        let Parts { positions, norm, mlp, qk_norm, bias, .. } = resolving.parts()?;
        let mut shape = GptConfig { positions, norm, mlp, qk_norm, bias, ..GptConfig::new(1, 1, 1, 1, 1) };
        if let [Some(n_head), Some(n_kv_head)] = heads {
            (shape.n_head, shape.n_kv_head) = (n_head, n_kv_head);
        }
        Family::of(&shape).map(|_| ()).map_err(|error| ConfigError::Model(error.to_string()))
    }
}

/// Settings on their way to a configuration.
struct Resolving {
    settings: Settings,
    reasons: Vec<Note>,
}

impl Resolving {
    fn model(&mut self, facts: &TextFacts, device: DeviceKind) -> Result<(), ConfigError> {
        let ladder = ladder(device);
        let rung = ladder.iter().rposition(|(fewest, _)| facts.train_tokens >= *fewest).unwrap_or(0);
        let shape = &ladder[rung].1;

        let n_head = self.whole("n_head");
        // A width that the given heads share equally; heads that share the given width.
        let width = n_head.map_or(shape.n_embd, |heads| (shape.n_embd / heads).max(1) * heads);
        let mut chosen = Vec::new();
        self.choose("n_layer", shape.n_layer, &mut chosen);
        let n_embd = self.choose("n_embd", width, &mut chosen);
        let head_size = if n_embd <= 128 { 32 } else { 64 };
        let heads = (1..=(n_embd / head_size).max(1)).rev().find(|heads| n_embd.is_multiple_of(*heads)).unwrap_or(1);
        self.choose("n_head", heads, &mut chosen);
        self.architecture();
        let shape_so_far = self.shape(facts.vocab_size)?;
        self.explain(
            chosen,
            format!(
                "about {} parameters suit {} tokens of text on {}",
                short((shape_so_far.parameters() - shape_so_far.position_table()) as f64),
                short(facts.train_tokens as f64),
                device.name()
            ),
        );

        let mut chosen = Vec::new();
        let context = fitting_context(shape.context_length, facts);
        let reason = if context < shape.context_length {
            format!("several windows must fit into the {} tokens held out", short(facts.val_tokens as f64))
        } else {
            format!("what {} trains quickly", device.name())
        };
        self.choose("context_length", context, &mut chosen);
        self.explain(chosen, reason);

        let mut chosen = Vec::new();
        let batch_size = self.choose("batch_size", shape.batch_size, &mut chosen);
        let a_step =
            batch_size * self.whole("context_length").unwrap_or(context) * self.whole("grad_accum_steps").unwrap_or(1);
        self.explain(chosen, format!("{} tokens a step keep {} busy", grouped(a_step as u64), device.name()));
        Ok(())
    }

    /// The parts of the model that nobody named are those of its architecture.
    fn architecture(&mut self) {
        let is =
            |settings: &Settings, name: &str| settings.table.get("architecture").and_then(Value::as_str) == Some(name);
        let qwen3 = is(&self.settings, "qwen3");
        let llama = qwen3 || is(&self.settings, "llama");
        let word = |gpt2: &str, newer: &str| Value::String(if llama { newer } else { gpt2 }.into());
        self.default("positions", word("learned", "rotary"));
        self.default("norm", word("layernorm", "rmsnorm"));
        self.default("mlp", word("gelu", "swiglu"));
        self.default("qk_norm", Value::Boolean(qwen3));
        self.default("bias", Value::Boolean(!llama));
        self.default("tied_head", Value::Boolean(true));
        let n_embd = self.whole("n_embd").unwrap_or(1);
        let mlp = self.settings.table.get("mlp").cloned().and_then(|mlp| mlp.try_into::<MlpKind>().ok());
        let gated = mlp.is_some_and(MlpKind::is_gated);
        // Three matrices of two thirds the width have as many weights as two.
        let inner = if gated { (8 * n_embd).div_ceil(3).next_multiple_of(32) } else { 4 * n_embd };
        self.default("n_inner", Value::Integer(inner as i64));
        let heads = self.whole("n_head").unwrap_or(1);
        self.default("n_kv_head", Value::Integer(heads as i64));
    }

    fn parts(&self) -> Result<Parts, ConfigError> {
        self.settings.table.clone().try_into().map_err(unreadable)
    }

    /// The shape that the sizes and parts make that are known by now; a size that is not counts as
    /// 1.
    fn shape(&self, vocab_size: usize) -> Result<GptConfig, ConfigError> {
        let Parts { positions, norm, mlp, qk_norm, bias, tied_head, n_inner, n_kv_head } = self.parts()?;
        let [context_length, n_layer, n_head, n_embd] =
            ["context_length", "n_layer", "n_head", "n_embd"].map(|name| self.whole(name).unwrap_or(1));
        let gpt2 = GptConfig::new(vocab_size, context_length, n_layer, n_head, n_embd);
        Ok(GptConfig { positions, norm, mlp, qk_norm, bias, tied_head, n_inner, n_kv_head, ..gpt2 })
    }

    /// How a step is computed: nothing here changes what is learned, but for rounding.
    fn computation(&mut self) {
        let batch_size = self.whole("batch_size").unwrap_or(1);
        self.default("micro_batch", Value::Integer(batch_size as i64));
        self.default("precision", Value::String("f32".into()));
    }

    /// Sets a key that nobody set, without a word.
    fn default(&mut self, name: &'static str, value: Value) {
        self.settings.table.entry(name).or_insert(value);
    }

    fn length(&mut self, facts: &TextFacts, device: DeviceKind) -> Result<(), ConfigError> {
        let [context, batch_size] = ["context_length", "batch_size"].map(|name| self.whole(name).unwrap_or(1));
        let tokens_per_step = (context * batch_size * self.whole("grad_accum_steps").unwrap_or(1)) as f64;
        let train_tokens = facts.train_tokens.max(1) as f64;

        let affordable = device.budget() / self.shape(facts.vocab_size)?.training_flops_per_token();
        let useful = MOST_PASSES * train_tokens;
        let tokens = affordable.min(useful);
        let steps = round(tokens / tokens_per_step).clamp(200, 1_000_000);
        let mut chosen = Vec::new();
        let max_steps = self.choose("max_steps", steps as usize, &mut chosen);
        if useful < affordable {
            self.explain(chosen, format!("{MOST_PASSES} passes over the text; more would only learn it by heart"));
        } else if !chosen.is_empty() {
            let minutes = if device == DeviceKind::Cpu { "ten minutes" } else { "half an hour" };
            let line = format!("{}: about {minutes} on {}", chosen.join(", "), device.name());
            self.reasons.push(Note::Length(line));
        }
        let mut unexplained = Vec::new();
        self.choose("lr_decay_steps", max_steps, &mut unexplained);

        let passes = max_steps as f64 * tokens_per_step / train_tokens;
        let dropout = match passes {
            ..2.0 => 0.0,
            2.0..8.0 => 0.1,
            _ => 0.2,
        };
        if !self.settings.has("dropout") {
            self.put("dropout", Value::Float(dropout))?;
            self.say(format!("dropout = {dropout}: the text is read {passes:.1} times"));
        }
        Ok(())
    }

    fn learning_rate(&mut self) -> Result<(), ConfigError> {
        let n_embd = self.whole("n_embd").unwrap_or(1);
        let init = self.settings.init().map(str::to_owned);
        if let (Some(folder), false) = (&init, self.settings.has("learning_rate")) {
            let rate = (3840.0 / n_embd as f64).round().clamp(3.0, 20.0) / 1e5;
            self.put("learning_rate", Value::Float(rate))?;
            self.say(format!(
                "learning_rate = {rate}: a tenth of what a new model of this width would take, to keep what {folder} knows"
            ));
        }
        if !self.settings.has("learning_rate") {
            // 1e-3 at nanoGPT's width of 384, in steps of 1e-4.
            let rate = (3840.0 / n_embd as f64).round().clamp(3.0, 20.0) / 1e4;
            self.put("learning_rate", Value::Float(rate))?;
            self.say(format!("learning_rate = {rate}: narrow models bear larger ones; {n_embd} wide"));
        }
        if !self.settings.has("min_learning_rate") {
            let rate = self.real("learning_rate") / 10.0;
            self.put("min_learning_rate", Value::Float((rate * 1e9).round() / 1e9))?;
        }
        let decay = self.whole("lr_decay_steps").unwrap_or(1);
        let mut chosen = Vec::new();
        let warmup = if init.is_some() {
            let warmup = self.choose("warmup_steps", round(decay as f64 / 50.0).min(100) as usize, &mut chosen);
            self.explain(chosen, "short, since only the optimizer starts from nothing".into());
            warmup
        } else {
            let warmup = round(decay as f64 / 20.0).clamp(10, 2000).min(decay as u64);
            self.choose("warmup_steps", warmup as usize, &mut chosen)
        };
        if warmup >= decay {
            // Not refused: a short trial of a long recipe, --set max_steps=50, should need no
            // second change.
            self.say(format!(
                "warmup_steps = {warmup} is not shorter than lr_decay_steps = {decay}: the rate only climbs"
            ));
        }
        Ok(())
    }

    fn intervals(&mut self, facts: &TextFacts) -> Result<(), ConfigError> {
        let mut chosen = Vec::new();
        let max_steps = self.whole("max_steps").unwrap_or(1);
        let interval =
            self.choose("eval_interval", round(max_steps as f64 / 20.0).clamp(1, 1000) as usize, &mut chosen);
        self.choose("checkpoint_interval", interval, &mut chosen);
        self.choose("sample_interval", interval, &mut chosen);
        self.explain(chosen, "about twenty looks in a run".into());

        if !self.settings.has("eval_tokens") {
            let [context, batch_size] = ["context_length", "batch_size"].map(|name| self.whole(name).unwrap_or(1));
            let trained = interval * context * batch_size * self.whole("grad_accum_steps").unwrap_or(1);
            // The forward pass is a third of a training step, so 0.15 of the tokens cost 0.05 of
            // the time.
            let affordable = (trained as f64 * 0.15).max(10_000.0) as u64;
            let all = affordable >= facts.val_tokens;
            self.put("eval_tokens", Value::Integer(if all { 0 } else { round(affordable as f64) as i64 }))?;
            if !all {
                self.say(format!(
                    "eval_tokens = {}: an evaluation costs at most a twentieth of the training between two",
                    round(affordable as f64)
                ));
            }
        }
        Ok(())
    }

    /// Sets a key that nobody set, noting that it was; returns its value either way.
    fn choose(&mut self, name: &'static str, value: usize, chosen: &mut Vec<String>) -> usize {
        if let Some(given) = self.whole(name) {
            return given;
        }
        self.settings.table.insert(name.into(), Value::Integer(value as i64));
        chosen.push(format!("{name} = {value}"));
        value
    }

    fn put(&mut self, name: &'static str, value: Value) -> Result<(), ConfigError> {
        keys::find(name)?.check(&value)?;
        self.settings.table.insert(name.into(), value);
        Ok(())
    }

    fn explain(&mut self, chosen: Vec<String>, reason: String) {
        if !chosen.is_empty() {
            self.say(format!("{}: {reason}", chosen.join(", ")));
        }
    }

    fn say(&mut self, line: String) {
        self.reasons.push(line.into());
    }

    fn whole(&self, name: &str) -> Option<usize> {
        self.settings.table.get(name).and_then(Value::as_integer).and_then(|whole| usize::try_from(whole).ok())
    }

    fn real(&self, name: &str) -> f64 {
        match self.settings.table.get(name) {
            Some(Value::Float(real)) => *real,
            Some(Value::Integer(whole)) => *whole as f64,
            _ => 0.0,
        }
    }
}

/// `most`, or the half, the quarter, ... of it that fits the text: each side must hold a window and
/// the token after it, and should hold several.
pub fn fitting_context(most: usize, facts: &TextFacts) -> usize {
    let mut context = most;
    while context > 8 && context as u64 * 4 > facts.val_tokens.min(facts.train_tokens) {
        context /= 2;
    }
    context
}

/// The nearest number of two significant digits, at least 1.
fn round(number: f64) -> u64 {
    let number = number.max(1.0);
    let unit = 10f64.powf(number.log10().floor() - 1.0).max(1.0);
    ((number / unit).round() * unit) as u64
}
