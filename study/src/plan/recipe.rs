//! A plan as a recipe: a commented TOML file of some thirty lines that can start a run unchanged.

use super::Proposal;
use ember_data::source::RECIPE_HEAD;
use ember_training::run::text::prepared;
use ember_training::units::{bytes, counted, duration, grouped, short};

/// The comment of `calibrate`.
const DIVIDED: &str = "logits are divided by the temperature with the lowest validation loss";

/// The recipe; `minutes` is the time asked for.
pub fn toml(proposal: &Proposal, minutes: f64, device: &str) -> String {
    let Proposal { config, text, loss, passes, set, .. } = proposal;
    let is_chosen = |name: &str| !set.contains(&name);
    let [parameters, train_tokens, tokens] =
        [proposal.parameters, text.train_tokens, proposal.tokens].map(|number| short(number as f64));
    let (step, memory) = (format!("{:.1} ms", 1e3 * proposal.step_s), bytes(proposal.memory.peak_bytes));
    let minutes = counted(minutes, "minute");
    let head = format!("{RECIPE_HEAD} {minutes} on {device}: validation loss about {:.2}.", loss.loss);
    let values = toml::Table::try_from(config).unwrap_or_default();
    let mut recipe = Recipe { values, lines: vec![head], keys: Vec::new() };

    recipe.heading("Data");
    if config.text.is_empty() {
        recipe.key("stories", "the built-in corpus");
    } else {
        recipe.key("text", "");
    }
    // A prepared text has its own tokens and split, whatever a recipe says.
    if prepared(&config.text).is_none() {
        recipe.key("tokenizer", &counted(text.vocab_size, "different token"));
        recipe.key("val_fraction", "held out");
    }

    recipe.heading(&format!("Model: {parameters} parameters for {train_tokens} tokens of text."));
    recipe.key("architecture", "");
    recipe.key("n_layer", "");
    recipe.key("n_head", &format!("{} channels per head", config.n_embd / config.n_head));
    recipe.key("n_embd", "");
    recipe.key("context_length", "");
    recipe.key("dropout", &format!("the text is read {passes:.1} times"));

    recipe.heading(&format!("Training: {step} per step, as measured; {memory} of memory."));
    recipe.key("seed", "");
    recipe.key("max_steps", &format!("{tokens} tokens"));
    recipe.key("batch_size", &format!("{} tokens per step", grouped(config.tokens_per_step())));
    recipe.key("grad_accum_steps", "");
    if config.micro_batch < config.batch_size && is_chosen("micro_batch") {
        recipe.key("micro_batch", "windows per forward and backward pass, to fit into memory");
    }
    if config.activation_checkpointing && is_chosen("activation_checkpointing") {
        recipe.key("activation_checkpointing", "to fit into memory");
    }
    recipe.key("precision", "of the matrix products");
    recipe.key("optimizer", "");
    recipe.key("learning_rate", "for this width");
    recipe.key("min_learning_rate", "at the end of the schedule");
    recipe.key("warmup_steps", "");
    recipe.key("lr_decay_steps", "the schedule ends with the run");
    recipe.key("schedule", "");
    recipe.key("weight_decay", "");
    recipe.key("z_loss", "");
    recipe.key("calibrate", if config.calibrate { DIVIDED } else { "" });

    recipe.heading("Logging and saving");
    recipe.key("eval_interval", &format!("{} each", duration(proposal.look_s)));
    recipe.key("eval_tokens", if config.eval_tokens == 0 { "all held-out tokens" } else { "" });
    recipe.key("checkpoint_interval", "");
    recipe.key("sample_interval", "");
    recipe.key("sample_tokens", "");

    let is_unsaid = |name: &&'static str| !recipe.keys.contains(name) && recipe.values.contains_key(*name);
    let unsaid: Vec<&'static str> = set.iter().copied().filter(is_unsaid).collect();
    if !unsaid.is_empty() {
        recipe.heading("Set by hand");
        unsaid.into_iter().for_each(|name| recipe.key(name, "as set"));
    }
    recipe.lines.join("\n") + "\n"
}

/// A recipe being written.
struct Recipe {
    /// The value of every key.
    values: toml::Table,
    lines: Vec<String>,
    /// The keys that are written so far.
    keys: Vec<&'static str>,
}

impl Recipe {
    /// Begins a group of keys.
    fn heading(&mut self, heading: &str) {
        self.lines.extend([String::new(), format!("# {heading}")]);
    }

    /// Adds a key with its value and, as a comment, the reason for it.
    fn key(&mut self, name: &'static str, why: &str) {
        let setting = self.values.get(name).map_or_else(String::new, |value| format!("{name} = {value}"));
        self.lines.push(if why.is_empty() { setting } else { format!("{setting:<26} # {why}") });
        self.keys.push(name);
    }
}
