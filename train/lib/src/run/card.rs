//! The model card: describes a checkpoint to people, in the format of Hugging Face's hub (its
//! documentation, "Model Cards"). It is meant to be published, so it has no full paths. It has no
//! times, so that an interrupted run writes the same card as an uninterrupted one.

use std::fmt::Write;

use ember_data::numbers::{counted, grouped};
use ember_data::prepare::{Dataset, Manifest};
use ember_data::tokenizer::TokenizerChoice;
use ember_host::names::last_part;
use ember_model::GptConfig;
use serde_json::Value;

use super::init;
use crate::config::TrainConfig;
use crate::error::Result;
use crate::step::progress::Progress;

/// The part of the card that all checkpoints of a run share: the data, the shape and the recipe.
pub struct Card {
    name: String,
    shape: String,
    data: String,
    recipe: String,
    /// Keys that the recipe leaves out, since they have no effect.
    idle_keys: &'static [&'static str],
    manifest: Manifest,
}

impl Card {
    /// The card of a run. Its recipe leaves out the `idle_keys`, which have no effect.
    ///
    /// # Errors
    /// When a value of the configuration cannot be written.
    pub fn new(
        name: String,
        config: &TrainConfig,
        idle_keys: &'static [&'static str],
        dataset: &Dataset,
        shape: &GptConfig,
    ) -> Result<Self> {
        let Dataset { manifest, tokenizer, .. } = dataset;
        let begins = init::initial_checkpoint_name(&config.init);
        let begins = begins.map_or_else(String::new, |name| format!("| begins from | {} |\n", shown(&name)));
        Ok(Self {
            name,
            shape: shape_rows(shape, &tokenizer_kind(&manifest.tokenizer, || tokenizer.to_value().ok())) + &begins,
            data: data(manifest),
            recipe: config.recipe(idle_keys)?,
            idle_keys,
            manifest: manifest.clone(),
        })
    }

    /// Updates the recipe after the run's length has changed.
    ///
    /// # Errors
    /// When a value of the configuration cannot be written.
    pub fn take_recipe(&mut self, config: &TrainConfig) -> Result<()> {
        self.recipe = config.recipe(self.idle_keys)?;
        Ok(())
    }

    /// The card of the checkpoint at `progress`.
    pub fn text(&self, progress: &Progress) -> String {
        let Self { name, shape, data, recipe, manifest, .. } = self;
        let name = shown(name);
        let Progress { step, tokens, evaluations, .. } = progress;
        let passes = *tokens as f64 / manifest.train.tokens.max(1) as f64;
        let best = evaluations.best_saved.map_or_else(String::new, |best| {
            let bits = manifest.bits_per_byte(best.val_loss);
            let bits = bits.map_or_else(String::new, |bits| format!(", {bits:.4} bits per byte"));
            format!(
                "| validation loss | {:.4} nats per token{bits} (the best so far, of step {}) |\n",
                best.val_loss, best.step
            )
        });
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "---\nlibrary_name: transformers\npipeline_tag: text-generation\n# Fill this in before you share the model, and check that \
             its training text allows it:\n# license: \n---\n\n# {name}\n\nA small language model, trained with Ember {version}. It \
             continues a text in the style of its training\ntext. It knows nothing else, and may repeat what it was trained on, \
             even what is wrong or private\n(`ember-train copied` finds verbatim copies).\n\n| | |\n|---|---|\n{shape}| \
             trained | step {step}: {} tokens, {passes:.1} times its text |\n{best}\n## Data\n\n{data}\n\
             ## Use\n\n```\nember-generate text --from FOLDER \"A beginning\"\n```\n\n```python\nfrom transformers import pipeline\n\
             print(pipeline(\"text-generation\", \"FOLDER\")(\"A beginning\")[0][\"generated_text\"])\n```\n\n## Recipe\n\n```toml\n\
             {recipe}```\n",
            grouped(*tokens)
        )
    }
}

fn shape_rows(shape: &GptConfig, tokenizer: &str) -> String {
    let GptConfig { n_layer, n_head, n_embd, context_length, vocab_size, .. } = shape;
    let [layers, heads] = [(n_layer, "layer"), (n_head, "head")].map(|(number, noun)| counted(number, noun));
    format!(
        "| parameters | {} |\n| shape | {layers}, {heads}, {n_embd} wide; {context_length} tokens of context |\n| tokenizer | {}, \
         {vocab_size} tokens |\n",
        grouped(shape.parameters() as u64),
        shown(tokenizer)
    )
}

/// The kind of a tokenizer that a manifest calls `name`: the name itself, or for a tokenizer that
/// is named by its path, the kind that its `tokenizer.json` shows.
pub fn tokenizer_kind(name: &str, json: impl FnOnce() -> Option<Value>) -> String {
    if name.parse::<TokenizerChoice>().is_ok_and(|choice| !matches!(choice, TokenizerChoice::File(_))) {
        return name.to_owned();
    }
    let json = json().unwrap_or_default();
    let model = &json["model"];
    match model["type"].as_str() {
        Some("WordLevel") if json["pre_tokenizer"]["pattern"]["Regex"] == r"[\s\S]" => "chars".to_owned(),
        Some("BPE") if model["merges"].as_array().is_some_and(Vec::is_empty) => "bytes".to_owned(),
        kind => kind.unwrap_or("unknown").to_lowercase(),
    }
}

/// Most sources that the card names.
const NAMED: usize = 20;

fn data(manifest: &Manifest) -> String {
    let mut text = String::new();
    for source in manifest.sources.iter().take(NAMED) {
        let _ = writeln!(text, "- {} ({})", shown(last_part(&source.name)), counted(grouped(source.bytes), "byte"));
    }
    if manifest.sources.len() > NAMED {
        let _ = writeln!(text, "- and {} more", manifest.sources.len() - NAMED);
    }
    let [train, val] = manifest.report.bytes.map(grouped);
    let _ = writeln!(text, "\n{train} bytes of training text, {val} held out for validation.");
    text
}

/// Escapes a name for Markdown, whatever is in it: it may look like a list item, a table cell or
/// HTML. Control and invisible characters are written as in source code.
fn shown(name: &str) -> String {
    let mut text = String::new();
    for (at, character) in name.char_indices() {
        let begins_item = match character {
            '-' | '+' => at == 0,
            '.' | ')' => at > 0 && name[..at].bytes().all(|byte| byte.is_ascii_digit()),
            _ => false,
        };
        if character.is_control() || is_unseen(character) {
            text.extend(character.escape_default());
        } else {
            if begins_item || r"\`*_[]<>&|~#$".contains(character) {
                text.push('\\');
            }
            text.push(character);
        }
    }
    text
}

/// Whether a character has no width, changes the text direction, or separates lines or paragraphs.
fn is_unseen(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Instant;

    use ember_model::folder::CARD;

    use super::shown;
    use crate::run::time_budget::{Pace, TimeBudget};
    use crate::run::{Run, small_run};

    #[test]
    fn a_name_is_shown_as_it_is_whatever_markdown_makes_of_such_a_line() {
        for (name, expected) in [
            ("count-2 (old).txt", "count-2 (old).txt"),
            ("1. one.txt", r"1\. one.txt"),
            ("- two.txt", r"\- two.txt"),
            ("a\nb|c.txt", r"a\nb\|c.txt"),
            ("d`<b>.md", r"d\`\<b\>.md"),
            ("&amp; [x](y) _z_", r"\&amp; \[x\](y) \_z\_"),
            ("a\u{202e}txt.b\u{200b}\u{2028}", r"a\u{202e}txt.b\u{200b}\u{2028}"),
        ] {
            assert_eq!(shown(name), expected);
        }
    }

    #[cfg(unix)]
    #[test]
    fn whatever_a_file_is_called_the_card_has_one_line_for_it() {
        use ember_data::prepare::{Input, PrepareOptions, prepare};

        let place = tempfile::tempdir().unwrap();
        let text = place.path().join("text");
        std::fs::create_dir(&text).unwrap();
        for (name, line) in [("a\nb|c.txt", "one and two and three.\n"), ("d`<b>.txt", "four or five or six.\n")] {
            std::fs::write(text.join(name), line.repeat(400)).unwrap();
        }
        let (inputs, out) = (vec![Input::Path(text)], place.path().join("data"));
        let options = PrepareOptions { inputs, out, tokenizer: "chars".parse().unwrap(), ..PrepareOptions::default() };
        let card = super::data(&prepare(&options, &ember_data::prepare::Silent).unwrap());
        let named: Vec<&str> = card.lines().filter_map(|line| line.split_once(" (").map(|(item, _)| item)).collect();
        assert_eq!(named, [r"- a\nb\|c.txt", r"- d\`\<b\>.txt"], "{card}");
    }

    /// No card reveals the path of the starting checkpoint.
    #[test]
    fn a_run_that_began_from_another_names_that_and_the_kind_of_its_tokenizer() {
        let place = tempfile::tempdir().unwrap();
        let card_of = |name: &str, settings: &str| {
            let path = place.path().join(name);
            small_run::train(small_run::begin(&path, &format!("max_steps = 1\nsample_interval = 0\n{settings}")));
            std::fs::read_to_string(path.join("checkpoints/step-00000001").join(CARD)).unwrap()
        };
        let row = |card: &str, name: &str| {
            let begins = format!("| {name} | ");
            card.lines().find_map(|line| line.strip_prefix(&begins)).map(str::to_owned)
        };
        for (tokenizer, base, kind) in [
            ("chars", "of-letters", "chars, "),
            ("bytes", "of-bytes", "bytes, 257 tokens"),
            ("bpe:300", "of-pairs", "bpe, 300 tokens"),
        ] {
            let card = card_of(base, &format!("tokenizer = {tokenizer:?}\n"));
            assert!(row(&card, "tokenizer").unwrap().starts_with(&format!("{tokenizer}, ")), "{card}");
            assert_eq!(row(&card, "begins from"), None, "{card}");
            let card = card_of(&format!("tuned-{base}"), &format!("init = {:?}\n", place.path().join(base)));
            assert!(row(&card, "tokenizer").unwrap().starts_with(kind), "{card}");
            assert_eq!(row(&card, "begins from"), Some(format!("{base}, step 1 |")));
            assert!(!card.contains(&place.path().display().to_string()), "{card}");
        }
    }

    /// With the time budget spent, the run ends after its first step.
    #[test]
    fn the_recipe_has_the_length_that_the_clock_made_of_the_run() {
        let place = tempfile::tempdir().unwrap();
        let run = small_run::begin(&place.path().join("run"), "max_steps = 8\nsample_interval = 0\n");
        let clock = TimeBudget::new(Instant::now(), 1e-9, u64::MAX, Pace::default());
        small_run::train(Run { time_budget: Some(clock), ..run });
        let card = place.path().join("run/checkpoints/step-00000001").join(CARD);
        let card = std::fs::read_to_string(card).unwrap();
        assert!(card.contains("\nmax_steps = 1\n"), "{card}");
    }
}
