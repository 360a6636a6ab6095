//! A plan as a recipe: a commented TOML file of some thirty lines, from which a run can begin as it
//! is.

use super::Proposal;
use ember_data::source::RECIPE_HEAD;
use ember_training::run::text::prepared;
use ember_training::units::{bytes, counted, duration, grouped, short};

/// What a calibrated run does.
const DIVIDED: &str = "logits are divided by the temperature that suits the text held out";

/// The recipe; `minutes` is what was asked for.
pub fn toml(proposal: &Proposal, minutes: f64, device: &str) -> String {
    let Proposal { config, text, loss, passes, set, .. } = proposal;
    let table = toml::Table::try_from(config).unwrap_or_default();
    let line = |name: &str, why: &str| {
        let setting = table.get(name).map_or_else(String::new, |value| format!("{name} = {value}"));
        if why.is_empty() { setting } else { format!("{setting:<26} # {why}") }
    };
    let [parameters, train_tokens, tokens] =
        [proposal.parameters, text.train_tokens, proposal.tokens].map(|number| short(number as f64));
    let (step, memory) = (format!("{:.1} ms", 1e3 * proposal.step_s), bytes(proposal.memory.peak_bytes));
    let minutes = counted(minutes, "minute");
    let mut lines = vec![
        format!("{RECIPE_HEAD} {minutes} on {device}: validation loss about {:.2}.", loss.loss),
        String::new(),
        "# Data".into(),
        if config.text.is_empty() { line("stories", "the built-in corpus") } else { line("text", "") },
        line("tokenizer", &counted(text.vocab_size, "different token")),
        line("val_fraction", "held out"),
        String::new(),
        format!("# Model: {parameters} parameters for {train_tokens} tokens of text."),
        line("architecture", ""),
        line("n_layer", ""),
        line("n_head", &format!("{} channels a head", config.n_embd / config.n_head)),
        line("n_embd", ""),
        line("context_length", ""),
        line("dropout", &format!("the text is read {passes:.1} times")),
        String::new(),
        format!("# Training: {step} a step, as measured; {memory} of memory."),
        line("seed", ""),
        line("max_steps", &format!("{tokens} tokens")),
        line("batch_size", &format!("{} tokens a step", grouped(config.tokens_per_step()))),
        line("grad_accum_steps", ""),
        line("precision", "of the matrix products"),
        line("optimizer", ""),
        line("learning_rate", "by the width"),
        line("min_learning_rate", "where the schedule ends"),
        line("warmup_steps", ""),
        line("lr_decay_steps", "the schedule ends with the run"),
        line("schedule", ""),
        line("weight_decay", ""),
        line("z_loss", ""),
        line("calibrate", if config.calibrate { DIVIDED } else { "" }),
        String::new(),
        "# Looking and saving".into(),
        line("eval_interval", &format!("{} each", duration(proposal.look_s))),
        line("eval_tokens", if config.eval_tokens == 0 { "all that are held out" } else { "" }),
        line("checkpoint_interval", ""),
        line("sample_interval", ""),
        line("sample_tokens", ""),
    ];
    // What was prepared has its tokens and its split, whatever a recipe says.
    if prepared(&config.text).is_some() {
        lines.retain(|line| !["tokenizer", "val_fraction"].iter().any(|key| line.starts_with(key)));
    }
    // What was chosen so that it fits.
    let after_passes = lines.iter().position(|line| line.starts_with("precision")).unwrap_or(lines.len());
    let chosen = |name: &str| !set.contains(&name);
    if config.activation_checkpointing && chosen("activation_checkpointing") {
        lines.insert(after_passes, line("activation_checkpointing", "to fit into the memory"));
    }
    if config.micro_batch < config.batch_size && chosen("micro_batch") {
        lines.insert(after_passes, line("micro_batch", "windows at once, to fit into the memory"));
    }
    // What somebody set and the lines above do not say.
    let unsaid = |name: &&&str| !lines.iter().any(|line| line.starts_with(&format!("{name} = ")));
    let set = set.iter().filter(unsaid).filter(|name| table.contains_key(**name));
    let set: Vec<String> = set.map(|name| line(name, "as set")).collect();
    if !set.is_empty() {
        lines.extend([String::new(), "# Set by hand".into()]);
        lines.extend(set);
    }
    lines.join("\n") + "\n"
}
