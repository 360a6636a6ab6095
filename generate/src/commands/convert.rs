//! `ember-generate convert`: writes a checkpoint as a file for another program.

use std::{io::Write, path::Path, path::PathBuf};

use anyhow::{Result, ensure};
use clap::Args;
use clap::builder::TypedValueParser;
use serde_json::json;

use super::model_args::{named, words};
use ember_cli::program::{CommonArgs, Notes, Outcome, UsageError};
use ember_cli::terminal;
use ember_data::numbers;
use ember_decoding::convert::{Difference, Format, convert};
use ember_decoding::{named::Named, run_folder};
use ember_formats::NumberType;
use ember_host::{interrupt::Interrupt, output::is_standard_output};

/// Note about a property that the format cannot represent.
fn difference_note(difference: Difference) -> &'static str {
    match difference {
        Difference::AnEnd => "this model has no end token: llama.cpp uses token 11 as one, and stops there",
        Difference::TanhGelu => {
            "this model has the exact GELU: llama.cpp computes its tanh form, which moves logits by about a thousandth"
        }
        Difference::SpaceBefore => {
            "this tokenizer puts a space before a text only if the text does not begin with one; programs that read this file \
             always add one"
        }
        Difference::NamesAnywhere => {
            "this tokenizer recognizes some names of added tokens only behind a space or at the beginning of a text: llama.cpp \
             recognizes them anywhere"
        }
    }
}

/// Arguments of `convert`.
#[derive(Args, Debug)]
#[command(after_help = "\
What each format can store of a model is in docs/formats.md.

Examples:
  ember-generate convert runs/mine --to gguf --out mine.gguf
  ember-generate convert runs/mine --to gguf --out mine-q8.gguf --type q8_0
  ember-generate convert runs/mine --to hf --out mine-bf16 --type bf16
  ember-generate convert model.gguf --to hf --out model     another program's file")]
pub struct ConvertArgs {
    /// The run, checkpoint or model file to convert [default: the newest run under runs/]
    #[arg(value_name = "RUN")]
    from: Option<PathBuf>,
    /// The format
    #[arg(long, value_name = "FORMAT", value_parser = named::<Format>())]
    to: Format,
    /// The file to write, or with hf the folder
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Number type of the matrices [default: f32; with hf, unchanged]
    #[arg(long = "type", value_name = "TYPE", value_parser = number_type())]
    kind: Option<NumberType>,
}

fn number_type() -> impl TypedValueParser<Value = NumberType> {
    let meaning = |kind| match kind {
        NumberType::F32 => "float32: nothing is lost",
        NumberType::F16 => "float16: half the size",
        NumberType::Bf16 => "bfloat16: half the size",
        NumberType::Q8_0 => "8 bits, and a scale for every 32 weights; gguf only",
        NumberType::Q4_0 => "4 bits, and a scale for every 32 weights; gguf only",
    };
    words(NumberType::ALL.map(|kind| (kind, kind.name(), meaning(kind))))
}

pub(super) fn run(args: &ConvertArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    ensure!(
        args.out.as_os_str() != "-",
        UsageError::new("--out -: a converted model cannot go to standard output; name a file")
    );
    let canonical = |path: &Path| path.canonicalize().ok();
    ensure!(
        args.from.as_deref().and_then(canonical).is_none_or(|from| canonical(&args.out) != Some(from)),
        UsageError::new(format!("--out {}: this is the file to convert; name another file", args.out.display()))
    );
    let folder = args.out.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let (Format::Gguf | Format::Llama2c, Some(folder)) = (args.to, folder) {
        let missing = || format!("--out {}: there is no folder {}; make it", args.out.display(), folder.display());
        ensure!(folder.is_dir(), UsageError::new(missing()));
    }
    let found = run_folder::find(args.from.as_deref())?;
    notes.say(format!("checkpoint: {found}"));
    let converted = match convert(&found.folder, args.to, args.kind, &args.out, interrupt) {
        Err(_) if interrupt.requested() => return Ok(Outcome::Interrupted),
        converted => converted?,
    };
    for difference in converted {
        notes.say(difference_note(difference));
    }
    let bytes = bytes_of(&args.out)?;
    let name = |path: &Path| path.to_string_lossy().into_owned();
    let from = run_folder::original_of(&found.folder);
    let json = json!({ "from": name(&from), "to": args.to.name(), "out": name(&args.out), "bytes": bytes });
    let line = || format!("{} ({})", args.out.display(), numbers::bytes(bytes));
    if is_standard_output(&args.out) {
        notes.say(line());
        return Ok(Outcome::Done);
    }
    let mut out = terminal::stdout();
    common.format.write_line(&mut out, || serde_json::to_string(&json), line)?;
    out.flush()?;
    Ok(Outcome::Done)
}

/// Size in bytes of a file, or of the files in a folder.
fn bytes_of(path: &Path) -> std::io::Result<u64> {
    if !path.is_dir() {
        return Ok(path.metadata()?.len());
    }
    path.read_dir()?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
