//! Formats the differences between the stacks as lines of text.

use ember_data::numbers::counted;

use super::{Difference, compare::ROUNDING};
use crate::config::{GenerationConfig, Knobs, Semantics, stack_defaults};
use crate::{named::Named, processors::SamplingKnob};

/// The differences as lines of text; `name` gives a token's text for display.
pub fn explain(config: &GenerationConfig, differences: &[Difference], name: &dyn Fn(u32) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    for difference in differences {
        let stack = difference.semantics.stack();
        if difference.total_variation <= ROUNDING {
            lines.push(format!("{stack}: these knobs give the same distribution for the next token"));
        } else {
            lines.push(format!(
                "{stack}: {:.2}% of the next token's probability moves; {} possible here, {} there",
                100.0 * difference.total_variation,
                counted(difference.possible_here, "token"),
                difference.possible_there,
            ));
            lines.extend(causes_and_tokens(difference, name));
        }
        let lacking = lacking(difference.semantics, config);
        if !lacking.is_empty() {
            let lacking = lacking.join(", ");
            lines.push(format!("  {stack} has no {lacking}; the comparison applies the same there as here"));
        }
        if let Some(unset) = words_for_defaults(difference.semantics) {
            lines.push(format!("  by default, {stack} uses {unset}"));
        }
    }
    lines
}

/// Why the distributions differ, and which tokens show it most.
fn causes_and_tokens(difference: &Difference, name: &dyn Fn(u32) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    if difference.causes.is_empty() {
        lines.push("  no single rule makes this difference; together they do".to_owned());
    }
    for cause in &difference.causes {
        let survivors = if cause.possible == difference.possible_here {
            String::new()
        } else {
            format!(", and leaves {} instead of {}", counted(cause.possible, "token"), difference.possible_here)
        };
        lines.push(format!("  {}: alone this moves {:.2}%{survivors}", cause.rule, 100.0 * cause.total_variation));
    }
    for token in &difference.tokens {
        let note = match (token.here > 0.0, token.there > 0.0) {
            (true, false) => ", impossible there",
            (false, true) => ", impossible here",
            _ => "",
        };
        lines.push(format!("    {:.4} here, {:.4} there{note}: {}", token.here, token.there, name(token.id)));
    }
    lines
}

/// The active knobs that the stack lacks.
fn lacking(semantics: Semantics, config: &GenerationConfig) -> Vec<&'static str> {
    use Semantics::{Hf, Llamacpp, Mlx};
    let several = config.logit_bias.iter().any(|(sequence, _)| sequence.len() > 1);
    let knobs: [(&str, bool, &[Semantics]); 6] = [
        ("logit-bias for several tokens in a row", several, &[Hf]),
        ("presence-penalty", config.presence_penalty != 0.0, &[Llamacpp, Mlx]),
        ("frequency-penalty", config.frequency_penalty != 0.0, &[Llamacpp, Mlx]),
        ("no-repeat-ngram-size", config.no_repeat_ngram_size > 0, &[Hf]),
        ("bad-words", !config.bad_words.is_empty(), &[Hf]),
        ("min-new-tokens", config.min_new_tokens > 0, &[Hf]),
    ];
    let lacking =
        knobs.into_iter().filter(|(_, on, has_it)| *on && !has_it.contains(&semantics)).map(|(name, ..)| name);
    let of_sampling = SamplingKnob::ALL.iter().filter(|knob| {
        config.strategy.samples() && knob.is_on(config) && !SamplingKnob::of_stack(semantics).contains(knob)
    });
    lacking.chain(of_sampling.map(|knob| knob.name())).collect()
}

fn words_for_defaults(semantics: Semantics) -> Option<String> {
    let Knobs { do_sample, temperature, top_k, top_p, min_p, .. } = stack_defaults(semantics);
    if !do_sample? {
        return Some("temperature 0, which is greedy".to_owned());
    }
    let (temperature, top_k, top_p, min_p) = (temperature?, top_k?, top_p?, min_p?);
    Some(format!("top-k {top_k}, top-p {top_p}, min-p {min_p}, temperature {temperature}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Strategy;
    use crate::processors::Step;
    use crate::semantics::compare;

    fn lines(logits: &[f32], config: &GenerationConfig) -> Vec<String> {
        let step = Step { prompt: &[], generated: &[] };
        explain(config, &compare(logits, &step, config), &|id| format!("token {id}"))
    }

    fn sampling() -> GenerationConfig {
        GenerationConfig { strategy: Strategy::Sample, ..Default::default() }
    }

    /// The example computed by hand in `compare`.
    #[test]
    fn what_differs_why_and_where() {
        let config = GenerationConfig { temperature: 2.0, top_p: 0.74, ..sampling() };
        let logits = [0.50_f32, 0.25, 0.17, 0.08].map(f32::ln);
        let expected = "\
llama.cpp: 25.46% of the next token's probability moves; 3 tokens possible here, 2 there
  the order is temperature, top-p here and top-p, temperature there: alone this moves 25.46%, and leaves 2 tokens instead of 3
    0.2546 here, 0.0000 there, impossible there: token 2
    0.4366 here, 0.5858 there: token 0
    0.3088 here, 0.4142 there: token 1
  by default, llama.cpp uses top-k 40, top-p 0.95, min-p 0.05, temperature 0.8
MLX: 25.46% of the next token's probability moves; 3 tokens possible here, 2 there";
        let lines = lines(&logits, &config);
        assert_eq!(lines[..7].join("\n"), expected);
        assert_eq!(lines.last().map(String::as_str), Some("  by default, MLX uses temperature 0, which is greedy"));
    }

    #[test]
    fn what_a_stack_lacks_is_said() {
        let config =
            GenerationConfig { eta_cutoff: 0.1, presence_penalty: 1.0, bad_words: vec![vec![0]], ..sampling() };
        let text = lines(&[1.0, 2.0], &config).join("\n");
        assert!(text.contains("llama.cpp has no bad-words, eta-cutoff;"), "{text}");
        assert!(text.contains("MLX: these knobs give the same distribution"), "{text}");
        let text = lines(&[1.0, 2.0], &GenerationConfig { semantics: Semantics::Mlx, ..config }).join("\n");
        assert!(text.contains("transformers has no presence-penalty;"), "{text}");
    }
}
