//! The knobs that keys change, notch by notch.

use ember_decoding::config::{GenerationConfig, Strategy, as_typed};

/// A knob's name and its notches.
struct Knob {
    name: &'static str,
    /// In ascending order; from a value between two notches, a key goes to the next notch in its
    /// direction.
    notches: &'static [f64],
    /// The value that is shown as "off", if any.
    off: Option<f64>,
}

#[rustfmt::skip]
const KNOBS: [Knob; 5] = [
    Knob { name: "temperature", notches: &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2.0, 3.0, 5.0], off: None },
    Knob { name: "top-k", notches: &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, 40.0, 100.0, 1000.0], off: Some(0.0) },
    Knob { name: "top-p", notches: &[0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0], off: Some(1.0) },
    Knob { name: "min-p", notches: &[0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0], off: Some(0.0) },
    Knob { name: "repetition", notches: &[0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0], off: Some(1.0) },
];

/// The knobs' values, and the selected knob.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Knobs {
    values: [f64; 5],
    selected: usize,
}

impl Knobs {
    /// The run's values.
    pub(super) fn of(config: &GenerationConfig) -> Self {
        let temperature = if config.strategy == Strategy::Greedy { 0.0 } else { as_typed(config.temperature) };
        let values =
            [temperature, config.top_k as f64, config.top_p, config.min_p, as_typed(config.repetition_penalty)];
        Self { values, selected: 0 }
    }

    /// The run's configuration with these values; a temperature of 0 means greedy, with the
    /// temperature itself set to 1.
    pub(super) fn apply(&self, config: &GenerationConfig) -> GenerationConfig {
        let [temperature, top_k, top_p, min_p, repetition_penalty] = self.values;
        let strategy = if temperature == 0.0 { Strategy::Greedy } else { Strategy::Sample };
        GenerationConfig {
            strategy,
            temperature: if strategy == Strategy::Greedy { 1.0 } else { temperature as f32 },
            top_k: top_k as usize,
            top_p,
            min_p,
            repetition_penalty: repetition_penalty as f32,
            ..config.clone()
        }
    }

    /// Selects the next knob, wrapping around.
    pub(super) fn select_next(&mut self) {
        self.select(1);
    }

    /// Selects the previous knob, wrapping around.
    pub(super) fn select_previous(&mut self) {
        self.select(KNOBS.len() - 1);
    }

    fn select(&mut self, offset: usize) {
        self.selected = (self.selected + offset) % KNOBS.len();
    }

    /// Turns the selected knob up by a notch.
    pub(super) fn turn_up(&mut self) {
        self.turn(|notches, value| notches.iter().copied().find(|&notch| notch > value));
    }

    /// Turns the selected knob down by a notch.
    pub(super) fn turn_down(&mut self) {
        self.turn(|notches, value| notches.iter().copied().rfind(|&notch| notch < value));
    }

    /// Sets the selected knob to the notch that `next` finds from its value, if any.
    fn turn(&mut self, next: impl Fn(&[f64], f64) -> Option<f64>) {
        let value = self.values[self.selected];
        self.values[self.selected] = next(KNOBS[self.selected].notches, value).unwrap_or(value);
    }

    /// Each knob's name, its value as text, and whether it is selected.
    pub(super) fn words(&self) -> impl Iterator<Item = (&'static str, String, bool)> {
        KNOBS.iter().zip(self.values).enumerate().map(|(number, (knob, value))| {
            let words = match knob.off {
                Some(off) if value == off => "off".to_owned(),
                _ if knob.name == "temperature" && value == 0.0 => "0 (greedy)".to_owned(),
                _ => value.to_string(),
            };
            (knob.name, words, number == self.selected)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_turn_by_notches_and_stop_at_the_ends() {
        let config = GenerationConfig { strategy: Strategy::Sample, temperature: 0.85, ..Default::default() };
        let mut knobs = Knobs::of(&config);
        let temperature = |knobs: &Knobs| knobs.words().next().map(|(_, words, _)| words);
        assert_eq!(temperature(&knobs).as_deref(), Some("0.85"));
        assert_eq!(knobs.apply(&config), config, "untouched, they are the run's");
        knobs.turn_up();
        assert_eq!(temperature(&knobs).as_deref(), Some("0.9"));
        (0..50).for_each(|_| knobs.turn_down());
        assert_eq!(temperature(&knobs).as_deref(), Some("0 (greedy)"));
        assert_eq!(knobs.apply(&config).strategy, Strategy::Greedy);
        knobs.select_previous();
        knobs.turn_up();
        let words: Vec<String> = knobs.words().map(|(name, words, _)| format!("{name} {words}")).collect();
        assert_eq!(words[1..], ["top-k off", "top-p off", "min-p off", "repetition 1.1"]);
        (0..50).for_each(|_| knobs.turn_up());
        assert_eq!(knobs.apply(&config).repetition_penalty, 3.0);
    }
}
