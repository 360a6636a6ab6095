//! Decoding's errors and notes, with the flags to change.

use std::error::Error as StdError;

use ember_decoding::config::{
    About, Contradiction, FolderError, GenerationConfig, KNOBS, KnobError, Note, Strategy, UsedBy,
};
use ember_decoding::convert::ConvertError;
use ember_decoding::error::{DeadEnd, Error, Overrun, WhyDeadEnd};
use ember_decoding::{
    constraint::GrammarError, load::LoadError, named::Named, run_folder::FindError, stop::EmptyStopString,
};

use super::{data, model};
use crate::failure;
use crate::terminal::typed;
use crate::usage::{Worded, Wording};

pub(super) fn worded(cause: &(dyn StdError + 'static)) -> Option<Worded> {
    const OWN: [Wording; 8] = [
        |cause| load(cause.downcast_ref()?).map(Worded::Failure),
        |cause| find(cause.downcast_ref()?).map(Worded::Failure),
        |cause| folder(cause.downcast_ref()?).map(Worded::Failure),
        |cause| conversion(cause.downcast_ref()?).map(Worded::Usage),
        |cause| decoding(cause.downcast_ref()?),
        |cause| Some(knob(cause.downcast_ref()?)),
        |cause| grammar(cause.downcast_ref()?),
        |cause| cause.is::<EmptyStopString>().then(empty_stop_string),
    ];
    OWN.iter().find_map(|words| words(cause))
}

fn load(error: &LoadError) -> Option<String> {
    match error {
        LoadError::Device(error) => model::line(error),
        LoadError::Tokenizer(error) => data::line(error),
        _ => None,
    }
}

fn folder(error: &FolderError) -> Option<String> {
    let FolderError::Value { path, key: "strategy", value, .. } = error else { return None };
    let path = path.display();
    Some(format!("{path}: strategy is {value}; it must be one of --strategy's values; correct or remove it"))
}

/// A type of numbers that the format to convert to does not have.
fn conversion(error: &ConvertError) -> Option<String> {
    match error {
        ConvertError::Float32Alone => Some(format!("{error}; leave --type out, or use --to gguf or hf")),
        ConvertError::Format(format) if format.is_of_number_type() => {
            Some(format!("{error}; use --type f32, f16 or bf16, or --to gguf"))
        }
        _ => None,
    }
}

fn empty_stop_string() -> Worded {
    Worded::Usage("--stop is empty, which would end every text at once; give at least one character".to_owned())
}

fn decoding(error: &Error) -> Option<Worded> {
    Some(match error {
        Error::Knob(error) => knob(error),
        Error::ContextFull { context_length, overrun } => {
            // A prompt that is too long by itself stays so with fewer new tokens.
            let less = if matches!(overrun, Overrun::Prompt(_)) { "" } else { " lower --max-new-tokens," };
            Worded::Failure(format!(
                "the context holds {context_length} tokens and {overrun}; shorten the prompt,{less} or use --overflow slide"
            ))
        }
        Error::DeadEnd(dead_end) => Worded::Failure(nothing_left(dead_end)),
        Error::Unbounded { knob, value, range } => Worded::Usage(format!(
            "--{knob} {value} may make a text more probable as it grows, which leaves --strategy exact without a bound; make \
             it {range}, or use --strategy beam"
        )),
        Error::NoCompleteText { nodes, processors } => Worded::Failure(format!(
            "no complete text among {nodes} prefixes: {} left no token to continue with; raise --max-nodes, or loosen \
             that",
            processors.join(", ")
        )),
        Error::DraftVocabulary { draft_vocab_size, vocab_size } => Worded::Usage(format!(
            "--draft names a model with a vocabulary of {draft_vocab_size}, and this one's is {vocab_size}; the two must \
             share a tokenizer"
        )),
        Error::Draft(_) => Worded::Failure("--draft".to_owned()),
        Error::Device(problem) => Worded::Failure(failure::of_device(problem)),
        _ => return None,
    })
}

fn grammar(error: &GrammarError) -> Option<Worded> {
    match error {
        GrammarError::Tokenizer { .. } => None,
        GrammarError::DeadEnd(dead_end) => Some(Worded::Usage(nothing_left(dead_end))),
        error => Some(Worded::Usage(error.to_string())),
    }
}

fn nothing_left(dead_end: &DeadEnd) -> String {
    match &dead_end.why {
        WhyDeadEnd::Knobs { grammar, allowed, knobs } => format!(
            "no token is left{}: the {allowed} that {grammar} allows are all removed by {}; loosen that",
            dead_end.after,
            knobs.iter().map(|name| flag(name)).collect::<Vec<_>>().join(" or ")
        ),
        _ => dead_end.to_string(),
    }
}

/// The flag that a processor is named after.
fn flag(processor: &str) -> String {
    let knob = KNOBS.iter().find(|knob| knob.name.replace('_', "-") == processor);
    format!("--{}", knob.map_or(processor, |knob| knob.label))
}

fn find(error: &FindError) -> Option<String> {
    const ADVICE: &str = "train one with ember-train run, or name a run or a checkpoint";
    match error {
        FindError::NoCheckpointYet(run) => {
            let advice = format!("wait for its first, or train on with `ember-train resume {}`", typed(run));
            Some(format!("the run {} has no checkpoint yet; {advice}", run.display()))
        }
        FindError::NoRuns(runs) => Some(format!("there is no folder {} here; {ADVICE}", runs.display())),
        FindError::NoRunYet(runs) => Some(format!("no run under {} has a checkpoint yet; {ADVICE}", runs.display())),
        _ => None,
    }
}

fn knob(error: &KnobError) -> Worded {
    Worded::Usage(match error {
        KnobError::OutOfRange { knob, value } => {
            format!("--{} is {value}; it must be {}", knob.label, knob.range.words())
        }
        KnobError::Ignored { knob, .. } if knob.used_by == UsedBy::AllButGreedy => format!(
            "--{} above 1 would give the same greedy text again; use --strategy sample or --num-beams, or drop it",
            knob.label
        ),
        KnobError::Ignored { knob, named: Some(named), .. } => {
            format!("--strategy {} ignores --{}; drop one of the two", named.name(), knob.label)
        }
        KnobError::Ignored { knob, strategy, .. } => {
            let remedy = remedy(knob.used_by, *strategy);
            format!("{} ignores --{}; {remedy}, or drop it", strategy.words(), knob.label)
        }
        KnobError::Greedy { knob } => {
            format!("--temperature 0 means greedy, which ignores --{}; drop one of the two", knob.label)
        }
        KnobError::GreedyStack { semantics, knob } => format!(
            "--semantics {} has a temperature of 0 by default, which means greedy and ignores --{}; add --temperature 1",
            semantics.name(),
            knob.label
        ),
        KnobError::Contradiction(what) => contradiction(what),
        KnobError::Impossible(_) => {
            return Worded::Failure(format!("{error}; correct that file, or override it by flags"));
        }
        error => return Worded::Failure(error.to_string()),
    })
}

/// How to change `strategy`, which no flag chose, to one that uses the knob.
fn remedy(used_by: UsedBy, strategy: Strategy) -> &'static str {
    match (used_by, strategy) {
        (UsedBy::Beams, _) => "add --num-beams above 1",
        (UsedBy::DiverseBeams, _) => "add --num-beam-groups above 1",
        (UsedBy::Exact, _) => "add --strategy exact",
        (_, Strategy::DiverseBeam) => "give --num-beam-groups 1",
        (_, Strategy::Beam | Strategy::BeamSample) => "give --num-beams 1",
        _ => "add --strategy sample",
    }
}

/// Knobs that contradict each other, named by their flags.
pub fn contradiction(what: &Contradiction) -> String {
    match what {
        Contradiction::Length { least, most } => format!(
            "--min-new-tokens is {least}, more than --max-new-tokens, which is {most}; lower one or raise the other"
        ),
        Contradiction::Drafts(strategy) => format!(
            "--draft and --prompt-lookup make greedy decoding and sampling faster, not {}; drop one of the two",
            strategy.words()
        ),
        Contradiction::NoBeams(strategy) => {
            format!("{} needs --num-beams; add for example --num-beams 4", strategy.words())
        }
        Contradiction::Sequences { sequences, beams } => format!(
            "--num-return-sequences is {sequences}, more than --num-beams, which is {beams}; lower one or raise the other"
        ),
        Contradiction::NoGroups => {
            "diverse beam search needs --num-beam-groups above 1; add for example --num-beam-groups 2".to_owned()
        }
        Contradiction::Groups { groups, beams } => format!(
            "--num-beam-groups is {groups}, which does not divide --num-beams, which is {beams}; make groups of equal size"
        ),
        Contradiction::NoDiversity(penalty) => format!(
            "--diversity-penalty is {penalty}; diverse beam search needs one above 0, such as --diversity-penalty 1"
        ),
        other => other.to_string(),
    }
}

/// An error in a recorded configuration, whose knobs keep the file's names.
pub fn recorded(error: &KnobError) -> String {
    match error {
        KnobError::Contradiction(what) => contradiction(what),
        other => other.to_string(),
    }
}

/// A note on where a configuration came from.
pub fn note(note: &Note) -> String {
    match note.about {
        About::Folder { draws: true } => format!("{note} (--strategy greedy takes the most probable token each time)"),
        _ => note.to_string(),
    }
}

/// How tokens are chosen, and how to repeat the text.
pub fn summary(config: &GenerationConfig) -> String {
    match config.strategy.samples() {
        true => format!("{}, --seed {} repeats it", config.summary(), config.seed),
        false => config.summary(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn error_line(error: impl StdError + Send + Sync + 'static) -> Worded {
        super::super::line(&error)
    }

    #[test]
    fn lines_name_the_flags_that_help() {
        let full = "the context holds 8 tokens and the prompt has 9; shorten the prompt, or use --overflow slide";
        assert_eq!(
            error_line(Error::ContextFull { context_length: 8, overrun: Overrun::Prompt(9) }),
            Worded::Failure(full.to_owned())
        );
        let full = error_line(Error::ContextFull { context_length: 8, overrun: Overrun::Text(5) }).words();
        assert!(full.ends_with("; shorten the prompt, lower --max-new-tokens, or use --overflow slide"), "{full}");
        let draft = Error::Draft(Box::new(Error::NotFinite));
        assert!(error_line(draft).words().starts_with("--draft: the model's logits are not finite numbers"));
        let device = Error::Device("lost".to_owned());
        assert!(error_line(device).words().starts_with("the device failed (lost); try --device cpu"));
        let nodes = error_line(Error::NoCompleteText { nodes: 1, processors: vec!["add"] }).words();
        assert!(nodes.ends_with("add left no token to continue with; raise --max-nodes, or loosen that"), "{nodes}");
        assert_eq!(
            error_line(FindError::NoRuns(PathBuf::from("runs"))).words(),
            "there is no folder runs here; train one with ember-train run, or name a run or a checkpoint"
        );
        assert_eq!(
            error_line(FindError::NoCheckpointYet(PathBuf::from("runs/a"))).words(),
            "the run runs/a has no checkpoint yet; wait for its first, or train on with `ember-train resume runs/a`"
        );
    }

    #[test]
    fn wrong_flags_exit_with_2() {
        let vocabulary = error_line(Error::DraftVocabulary { draft_vocab_size: 4, vocab_size: 3 });
        assert_eq!(vocabulary.exit_code(), 2);
        assert!(vocabulary.words().starts_with("--draft names a model with a vocabulary of 4"));
        let unbounded = Error::Unbounded { knob: "presence-penalty", value: -0.1, range: "0 or more" };
        assert_eq!(
            error_line(unbounded),
            Worded::Usage(
                "--presence-penalty -0.1 may make a text more probable as it grows, which leaves --strategy exact without \
                 a bound; make it 0 or more, or use --strategy beam"
                    .to_owned()
            )
        );
        let stop = error_line(EmptyStopString);
        assert_eq!(stop.exit_code(), 2);
        assert!(stop.words().starts_with("--stop is empty"));
    }

    #[test]
    fn a_dead_end_is_the_flags_fault_at_the_start_alone() {
        let why = WhyDeadEnd::Knobs {
            grammar: "--regex \"a\"".to_owned(),
            allowed: 1,
            knobs: vec!["bad-words", "suppress-tokens"],
        };
        let dead_end = DeadEnd { after: String::new(), why };
        let line = "no token is left: the 1 that --regex \"a\" allows are all removed by --bad-words or --suppress; loosen that";
        assert_eq!(error_line(Error::DeadEnd(dead_end.clone())), Worded::Failure(line.to_owned()));
        assert_eq!(error_line(GrammarError::DeadEnd(dead_end)), Worded::Usage(line.to_owned()));
        let unusable = GrammarError::Unusable { grammar: "--json-schema f.json".to_owned(), reason: "no".to_owned() };
        let line = "--json-schema f.json cannot be used: no; correct it";
        assert_eq!(error_line(unusable), Worded::Usage(line.to_owned()));
    }
}
