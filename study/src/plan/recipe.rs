//! A plan as a recipe: a commented TOML file of some thirty lines that `run --config` takes as it
//! is.

use super::Proposal;
use ember_training::units::{bytes, duration, grouped, short};

/// The recipe; `minutes` is what was asked for.
pub fn toml(proposal: &Proposal, minutes: f64, device: &str) -> String {
    let Proposal { config, text, loss, .. } = proposal;
    let list = |texts: &[String]| {
        let quoted: Vec<String> = texts.iter().map(|text| toml::Value::String(text.clone()).to_string()).collect();
        format!("[{}]", quoted.join(", "))
    };
    let passes = proposal.passes;
    let mut lines = vec![
        format!("# Planned for {minutes} minutes on {device}: validation loss about {:.2}.", loss.loss),
        String::new(),
        "# Data".into(),
        if config.text.is_empty() {
            line("stories", config.stories, "the built-in corpus")
        } else {
            line("text", list(&config.text), "")
        },
        line("tokenizer", quoted(&config.tokenizer), &format!("{} different tokens", text.vocab_size)),
        line("val_fraction", config.val_fraction, "held out"),
        String::new(),
        format!(
            "# Model: {} parameters for {} tokens of text.",
            short(proposal.parameters as f64),
            short(text.train_tokens as f64)
        ),
        line("n_layer", config.n_layer, ""),
        line("n_head", config.n_head, &format!("{} channels a head", config.n_embd / config.n_head)),
        line("n_embd", config.n_embd, ""),
        line("context_length", config.context_length, ""),
        line("dropout", float(config.dropout), &format!("the text is read {passes:.1} times")),
        String::new(),
        format!(
            "# Training: {} a step, as measured; {} of memory.",
            duration(proposal.step_s),
            bytes(proposal.memory.peak_bytes)
        ),
        line("seed", config.seed, ""),
        line("max_steps", config.max_steps, &format!("{} tokens", short(proposal.tokens as f64))),
        line("batch_size", config.batch_size, &format!("{} tokens a step", grouped(config.tokens_per_step()))),
        line("grad_accum_steps", config.grad_accum_steps, ""),
        line("precision", word(config.precision), "of the matrix products"),
        line("learning_rate", float(config.learning_rate), "by the width"),
        line("min_learning_rate", float(config.min_learning_rate), "a tenth"),
        line("warmup_steps", config.warmup_steps, ""),
        line("lr_decay_steps", config.lr_decay_steps, "the schedule ends with the run"),
        line("weight_decay", float(config.weight_decay), ""),
        String::new(),
        "# Looking and saving".into(),
        line("eval_interval", config.eval_interval, &format!("{} each", duration(proposal.look_s))),
        line("eval_tokens", config.eval_tokens, if config.eval_tokens == 0 { "all that are held out" } else { "" }),
        line("checkpoint_interval", config.checkpoint_interval, ""),
        line("sample_interval", config.sample_interval, ""),
        line("sample_tokens", config.sample_tokens, ""),
    ];
    // What was chosen so that it fits.
    let after_passes = lines.iter().position(|line| line.starts_with("precision")).unwrap_or(lines.len());
    let chosen = |name: &str| !proposal.set.contains(&name);
    if config.activation_checkpointing && chosen("activation_checkpointing") {
        lines.insert(after_passes, line("activation_checkpointing", true, "to fit into the memory"));
    }
    if config.micro_batch < config.batch_size && chosen("micro_batch") {
        lines.insert(after_passes, line("micro_batch", config.micro_batch, "windows at once, to fit into the memory"));
    }
    // What somebody set and the lines above do not say.
    let table = toml::Table::try_from(config).unwrap_or_default();
    let unsaid = |name: &&&str| !lines.iter().any(|line| line.starts_with(&format!("{name} = ")));
    let set: Vec<&str> = proposal.set.iter().filter(unsaid).copied().collect();
    let set = set.into_iter().filter_map(|name| Some(line(name, table.get(name)?, "as set"))).collect::<Vec<_>>();
    if !set.is_empty() {
        lines.extend([String::new(), "# Set by hand".into()]);
        lines.extend(set);
    }
    lines.join("\n") + "\n"
}

fn line(name: &str, value: impl std::fmt::Display, why: &str) -> String {
    let setting = format!("{name} = {value}");
    if why.is_empty() { setting } else { format!("{setting:<26} # {why}") }
}

fn word(choice: impl serde::Serialize) -> String {
    toml::Value::try_from(choice).map_or_else(|_| String::new(), |value| value.to_string())
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn float(number: f64) -> String {
    toml::Value::Float(number).to_string()
}
