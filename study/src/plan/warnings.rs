//! Warnings about a text and a run, before it begins.

use ember_training::config::{MAX_PASSES_OF_LARGE, OptimizerKind, TrainConfig};
use ember_training::units::{grouped, short};

use super::fit::Run;

/// The warnings about `run`, whose configuration is `config`. `fewest_tokens` are those of the
/// shortest run that the prediction is based on; `ends_early`: the run does not use its whole time.
pub(super) fn warnings(run: Run<'_>, config: &TrainConfig, fewest_tokens: f64, ends_early: bool) -> Vec<String> {
    let (unique, passes) = (run.text.train_tokens as f64, run.passes());
    let [tokens, fewest, worth, repeated] =
        [run.tokens, fewest_tokens, run.worth() - unique, run.tokens - unique].map(short);
    let warnings = [
        (
            config.architecture != "qwen3" || config.optimizer != OptimizerKind::Muon,
            "the loss is predicted from runs with the default architecture and Muon: others mostly do worse".to_owned(),
        ),
        (
            run.tokens < fewest_tokens,
            format!(
                "{tokens} tokens are fewer than in any run that the prediction is based on ({fewest}): the loss is a guess"
            ),
        ),
        (
            run.text.train_tokens < 100_000,
            format!(
                "{} tokens are little text: expect the sound of it, but no sense; a few hundred thousand make a difference",
                grouped(run.text.train_tokens)
            ),
        ),
        (
            passes > 4.0,
            format!(
                "the text is read {passes:.1} times: its {repeated} repeated tokens teach as much as {worth} new ones; \
                 more text would help more than more time"
            ),
        ),
        (
            ends_early,
            format!(
                "more than {MAX_PASSES_OF_LARGE} passes would only memorise the text: the run ends before its time is up"
            ),
        ),
        (
            passes > 15.0 || (passes > 3.0 && run.parameters > 10.0 * unique),
            "the model can memorise the text: the validation loss may rise again; `best` keeps the lowest, and \
             patience = 3 ends the run there"
                .to_owned(),
        ),
    ];
    warnings.into_iter().filter_map(|(holds, warning)| holds.then_some(warning)).collect()
}
