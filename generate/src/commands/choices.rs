//! `ember-generate score --choices FILE`: the model's accuracy on multiple-choice questions.

use std::{io::Write, path::Path};

use anyhow::{Context, Result, ensure};
use ember_data::tokenizer::SpecialTokens;
use serde::Serialize;
use serde_json::json;

use super::lines::{TextFile, beginning};
use super::loaded::Loaded;
use super::progress::{Progress, SCORED_BETWEEN_RESULTS};
use ember_cli::program::{Notes, Outcome, OutputFormat};
use ember_data::numbers::counted;
use ember_decoding::batches::groups;
use ember_decoding::multiple_choice::{Accuracy, By, EncodedChoice, Question, ScoredChoice, rank, score_questions};
use ember_host::interrupt::Interrupt;

const EXAMPLE: &str = "{\"context\": \"...\", \"choices\": [\"...\", \"...\"], \"answer\": 0}";

/// The JSON object of one question, its keys in this order. Lists have one entry per choice;
/// log-probabilities are in nats, and rankings name the choices from the most probable to the
/// least.
#[derive(Serialize)]
struct JsonQuestion<'a> {
    #[serde(flatten)]
    question: &'a Question,
    ranking: Vec<usize>,
    ranking_per_token: Vec<usize>,
    ranking_per_byte: Vec<usize>,
    logprobs: Vec<f64>,
    token_logprobs: Vec<&'a [f32]>,
    bytes: Vec<usize>,
    cut_tokens: Vec<usize>,
}

/// Reads and checks every question, before the model is loaded: a bad line should not cost a wait.
///
/// # Errors
/// One line that names the file and the line in it that is wrong.
pub fn read(path: &Path) -> Result<Vec<(String, Question)>> {
    let file = TextFile::read("--choices", path)?;
    let mut questions = Vec::new();
    for (line, question) in file.objects::<Question>(EXAMPLE)? {
        question.check().with_context(|| file.place(line))?;
        questions.push((file.place(line), question));
    }
    ensure!(!questions.is_empty(), "--choices {} holds no question; write lines such as {EXAMPLE}", path.display());
    Ok(questions)
}

/// Answers all questions, in order.
pub(super) fn answer(
    questions: &[(String, Question)],
    loaded: &Loaded,
    special: SpecialTokens,
    format: OutputFormat,
    notes: &Notes,
    interrupt: &Interrupt,
    out: &mut dyn Write,
) -> Result<Outcome> {
    let tokenizer = loaded.tokenizer.as_ref().context("questions in words need a tokenizer")?;
    let context_length = loaded.model.config().context_length;
    let encoded = questions
        .iter()
        .map(|(place, question)| {
            question.encode(tokenizer, loaded.opening, special, context_length).with_context(|| place.clone())
        })
        .collect::<Result<Vec<_>>>()?;
    note_truncation(&encoded, context_length, notes);

    let tokens = encoded.iter().flatten().map(|choice| choice.scored).sum();
    let progress = Progress::new("tokens", tokens, notes).after(loaded.compile_progress());
    let read: Vec<usize> = encoded.iter().map(|choices| choices.iter().map(|choice| choice.ids.len()).sum()).collect();
    let mut accuracy = Accuracy::default();
    for group in groups(&read, SCORED_BETWEEN_RESULTS) {
        let results = score_questions(&loaded.model, &encoded[group.clone()], &mut progress.or_interrupt(interrupt))?;
        progress.aside(|| {
            for ((number, (_, question)), choices) in group.clone().zip(&questions[group.clone()]).zip(&results) {
                let Some(choices) = choices else { continue };
                accuracy.add(choices, question.answer);
                format.write_line(out, || json(question, choices, &encoded[number]), || line(question, choices))?;
            }
            out.flush().map_err(anyhow::Error::from)
        })?;
        if accuracy.questions < group.end {
            let (done, all) = (accuracy.questions, questions.len());
            progress.aside(|| notes.say(format!("interrupted: {done} of {} answered", counted(all, "question"))));
            return Ok(Outcome::Interrupted);
        }
    }
    drop(progress);
    write_summary(&accuracy, format, out)?;
    Ok(Outcome::Done)
}

fn note_truncation(encoded: &[Vec<EncodedChoice>], context_length: usize, notes: &Notes) {
    let cuts = encoded.iter().filter_map(|choices| choices.iter().map(|choice| choice.cut).max());
    let cuts: Vec<usize> = cuts.filter(|&cut| cut > 0).collect();
    if let Some(most) = cuts.iter().max() {
        let (cut, all) = (cuts.len(), counted(encoded.len(), "question"));
        notes.say(format!(
            "{cut} of {all} are longer than the context of {context_length} tokens; their first tokens, at most \
             {most}, are left out"
        ));
    }
}

fn json(question: &Question, choices: &[ScoredChoice], encoded: &[EncodedChoice]) -> serde_json::Result<String> {
    serde_json::to_string(&JsonQuestion {
        question,
        ranking: rank(choices, By::Sum),
        ranking_per_token: rank(choices, By::Token),
        ranking_per_byte: rank(choices, By::Byte),
        logprobs: choices.iter().map(|choice| choice.value(By::Sum)).collect(),
        token_logprobs: choices.iter().map(|choice| choice.logprobs.as_slice()).collect(),
        bytes: choices.iter().map(|choice| choice.bytes).collect(),
        cut_tokens: encoded.iter().map(|choice| choice.cut).collect(),
    })
}

/// A result as one line of text: whether the most probable choice is right, its number, all
/// log-probabilities, the end of the context, the beginning of the choice.
fn line(question: &Question, choices: &[ScoredChoice]) -> String {
    let best = rank(choices, By::Sum).first().copied().unwrap_or_default();
    let mark = match question.answer {
        None => "  -  ",
        Some(answer) if answer == best => "right",
        Some(_) => "wrong",
    };
    let logprobs: Vec<String> = choices.iter().map(|choice| three_decimals(choice.value(By::Sum))).collect();
    let (logprobs, end) = (logprobs.join(" "), last_characters(&question.context));
    format!("{mark}  choice {best}  log-probabilities {logprobs}  {end} |{}", beginning(&question.choices[best]))
}

/// A log-probability; one that rounds to 0 has no sign.
fn three_decimals(logprob: f64) -> String {
    let text = format!("{logprob:.3}");
    if text == "-0.000" { "0.000".to_owned() } else { text }
}

/// The end of a context, where the question usually is, on one line.
fn last_characters(context: &str) -> String {
    const MAX_CHARS: usize = 40;
    let count = context.chars().count();
    let end = beginning(&context.chars().skip(count.saturating_sub(MAX_CHARS)).collect::<String>());
    if count > MAX_CHARS { format!("...{end}") } else { end }
}

/// Writes the summary line; the accuracies are null if no question has an answer.
fn write_summary(accuracy: &Accuracy, format: OutputFormat, out: &mut dyn Write) -> Result<()> {
    let Accuracy { questions, answered, .. } = *accuracy;
    let json = json!({ "summary": {
        "questions": questions,
        "answered": answered,
        "accuracy": accuracy.by(By::Sum),
        "accuracy_per_token": accuracy.by(By::Token),
        "accuracy_per_byte": accuracy.by(By::Byte),
        "chance": accuracy.by_chance(),
    } });
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.1}%", 100.0 * share));
    let [whole, token, byte] = [By::Sum, By::Token, By::Byte].map(|by| percent(accuracy.by(by)));
    let right = format!("accuracy {whole}  per token {token}  per byte {byte}");
    let chance = percent(accuracy.by_chance());
    let questions = counted(questions, "question");
    let text = format!("{right}  by chance {chance}  {answered} of {questions} with an answer");
    format.write_line(out, || serde_json::to_string(&json), || text)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_all_but_certain_has_a_log_probability_of_0() {
        assert_eq!([-0.0004, -0.0006, -12.3456].map(three_decimals), ["0.000", "-0.001", "-12.346"]);
    }
}
