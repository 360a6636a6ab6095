//! One line that says how text is chosen.

use super::{GenerationConfig, KNOBS, Strategy};

impl GenerationConfig {
    /// The strategy and every knob that is on, such as `sampling: temperature 0.8, top-p 0.95, up to 256 new tokens`.
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        for knob in KNOBS.iter().filter(|knob| knob.used_by.contains(self.strategy)) {
            let (name, value) = (knob.label, knob.of(self));
            let words = value.words();
            match knob.name {
                "num_beams" => parts.push(format!("{words} beams")),
                "num_beam_groups" => parts.push(format!("{words} groups")),
                "max_nodes" => parts.push(format!("at most {words} prefixes")),
                "max_time" if self.max_time_s.is_some() => parts.push(format!("at most {words} s")),
                "max_new_tokens" => parts.push(format!("up to {words} new tokens")),
                // What a reader asks of any sampling and any beam search, on or off.
                "temperature" | "length_penalty" => parts.push(format!("{name} {words}")),
                _ if !knob.is_off(value) => parts.push(format!("{name} {words}")),
                _ => {}
            }
        }
        if self.draft_tokens > 0 {
            parts.push(format!("up to {} drafted at a time", self.draft_tokens));
        }
        let plain = self.strategy == Strategy::Greedy && parts.len() == 1;
        format!("{}{} {}", self.strategy.words(), if plain { "," } else { ":" }, parts.join(", "))
    }
}
