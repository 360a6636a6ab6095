//! Converts a checkpoint to another program's file format.

use std::{fs, path::Path};

use ember_data::tokenizer::{self, Tokenizer};
use ember_formats::{Architecture, FormatError, Model, NumberType, Shape, gguf, hf, llama2c};
use ember_host::{file_error::At, files::write_atomic, interrupt::Interrupt};
use ember_model::folder::{self, CARD, FolderError};
use ember_model::{GptConfig, MlpKind, Positions};

use crate::load::EndTokens;
use crate::named::named;

named! {
    /// A format that a checkpoint is converted to.
    pub Format {
        /// One file for llama.cpp and programs based on it, such as Ollama and LM Studio.
        Gguf = "gguf",
        /// One file for llama2.c, and the tokenizer beside it: Llama models in float32.
        Llama2c = "llama2c",
        /// A Hugging Face folder, with its numbers as another type.
        Hf = "hf",
    }
}

/// Why a checkpoint cannot be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message says what it is
pub enum ConvertError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Its tokenizer cannot be read.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// llama2.c computes in float32.
    #[error("llama2.c stores only f32 numbers")]
    Float32Alone,
    /// The format cannot express it, or the file cannot be written.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// A way in which programs that open the converted file differ from the model, because the format
/// cannot express it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// llama.cpp takes token 11 as the end token if the tokenizer has none and is not
    /// SentencePiece's, whose own is `</s>`.
    AnEnd,
    /// llama.cpp computes GELU's tanh approximation, the model the exact function.
    TanhGelu,
    /// A space is put before every text; the tokenizer puts one only before texts that do not begin
    /// with one.
    SpaceBefore,
    /// Names of added tokens are recognized anywhere; the tokenizer recognizes some only behind a
    /// space or at the beginning of a text.
    NamesAnywhere,
}

/// Writes the checkpoint in `folder` to `out` as `format`, with its matrices as `kind`. Without a
/// `kind` they become float32, or in a Hugging Face folder stay as they are. Interrupts are checked
/// before each tensor and leave no partial output. Returns the differences to report to the user.
///
/// # Errors
/// If the checkpoint is damaged, the format cannot express it, `out` cannot be written, or an
/// interrupt was requested.
pub fn convert(
    folder: &Path,
    format: Format,
    kind: Option<NumberType>,
    out: &Path,
    interrupt: &Interrupt,
) -> Result<Vec<Difference>, ConvertError> {
    folder::verify_checksums_for_inference(folder)?;
    // Opened as for inference, so that it reports the same errors.
    let config = folder::StoredWeights::of(folder)?.config;
    let tokenizer = Tokenizer::is_in(folder).then(|| Tokenizer::from_folder(folder)).transpose()?;
    let end_tokens = EndTokens::read(folder, tokenizer.as_ref(), config.vocab_size)?.ids;
    let json = tokenizer.as_ref().map(Tokenizer::to_value).transpose()?;
    let opened = hf::Folder::open(folder, shape(&config), json, end_tokens)?;
    let mut model = opened.model()?;
    let go_on = || if interrupt.requested() { Err("interrupted".into()) } else { Ok(()) };
    model.tensors = model.tensors.into_iter().map(|tensor| tensor.while_allowed(go_on)).collect();
    match format {
        Format::Gguf => gguf::write(&model, kind.unwrap_or(NumberType::F32), &name_of(out), out)?,
        Format::Llama2c if kind.is_none_or(|kind| kind == NumberType::F32) => llama2c::write(&model, out)?,
        Format::Llama2c => return Err(ConvertError::Float32Alone),
        Format::Hf => {
            hf::write(&model, kind, out)?;
            keep_card(folder, out)?;
        }
    }
    Ok(differences(&model, format))
}

/// The shape in terms of the formats, which know only transformers' architectures.
fn shape(config: &GptConfig) -> Shape {
    let architecture = match (config.positions, config.qk_norm) {
        (Positions::Learned, _) => Architecture::Gpt2,
        (Positions::Rotary, false) => Architecture::Llama,
        (Positions::Rotary, true) => Architecture::Qwen3,
    };
    let &GptConfig { vocab_size, context_length, n_layer, n_head, n_kv_head, head_size, n_embd, n_inner, .. } = config;
    let &GptConfig { norm_epsilon, rope_theta, bias, tied_head, mlp, .. } = config;
    Shape {
        architecture,
        vocab_size,
        context_length,
        n_layer,
        n_head,
        n_kv_head,
        head_size,
        n_embd,
        n_inner,
        norm_epsilon,
        rope_theta,
        bias,
        tied_head,
        exact_gelu: mlp == MlpKind::ExactGelu,
    }
}

/// Copies the folder's model card, if there is one.
fn keep_card(folder: &Path, out: &Path) -> Result<(), FormatError> {
    let card = folder.join(CARD);
    if card.is_file() {
        let text = fs::read(&card).at("cannot read", &card)?;
        write_atomic(&out.join(CARD), |file| file.write_all(&text))?;
    }
    Ok(())
}

/// The differences between the model and the programs that open the format.
fn differences(model: &Model, format: Format) -> Vec<Difference> {
    let is_gguf = format == Format::Gguf;
    let tokenizer = |is: fn(&ember_formats::Tokenizer) -> bool| model.tokenizer.as_ref().is_some_and(is);
    let found = [
        (
            is_gguf && tokenizer(|tokenizer| tokenizer.end_tokens.is_empty() && !tokenizer.is_sentencepiece()),
            Difference::AnEnd,
        ),
        (is_gguf && model.shape.exact_gelu, Difference::TanhGelu),
        (format != Format::Hf && tokenizer(ember_formats::Tokenizer::spaces_once), Difference::SpaceBefore),
        (is_gguf && tokenizer(ember_formats::Tokenizer::names_behind_spaces), Difference::NamesAnywhere),
    ];
    found.into_iter().filter(|(is_there, _)| *is_there).map(|(_, difference)| difference).collect()
}

/// The model's name in a file: the file's stem.
fn name_of(out: &Path) -> String {
    out.file_stem().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_interrupted_leaves_nothing_half_written() {
        let (place, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::new());
        interrupt.request();
        let llama = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/tests/fixtures/llama");
        let folder = place.path().join("folder");
        for (format, out) in [(Format::Gguf, place.path().join("model.gguf")), (Format::Hf, folder.clone())] {
            convert(&llama, format, None, &out, &interrupt).unwrap_err();
        }
        assert_eq!(place.path().read_dir().unwrap().count(), 1); // the folder, and
        assert_eq!(folder.read_dir().unwrap().count(), 0);
        interrupt.clear();
        convert(&llama, Format::Hf, None, &folder, &interrupt).unwrap();
    }

    #[test]
    fn a_folder_that_is_written_is_of_the_shape_that_was_read() {
        let place = tempfile::tempdir().unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/tests/fixtures");
        for kind in ["gpt2", "llama", "qwen3", "nanogpt", "llama2c/v0", "llama2c/v1"] {
            let (from, to) = (fixtures.join(kind), place.path().join(kind.replace('/', "-")));
            convert(&from, Format::Hf, None, &to, &Interrupt::new()).unwrap();
            // The dropout rate of training is in no format.
            let of = |dir: &Path| GptConfig { dropout: 0.0, ..folder::read_config(dir).unwrap() };
            assert_eq!(of(&to), of(&from), "{kind}");
        }
    }

    #[test]
    fn llama_cpp_ends_texts_with_token_11_unless_the_tokenizer_is_sentencepiece_s() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/tests/fixtures");
        for (file, expected) in [("gpt2/f32.gguf", true), ("llama2c/v0/model.bin", false)] {
            let source = ember_formats::Source::open(&fixtures.join(file)).unwrap().unwrap();
            let mut model = source.model().unwrap();
            model.tokenizer.as_mut().unwrap().end_tokens.clear();
            assert_eq!(differences(&model, Format::Gguf).contains(&Difference::AnEnd), expected, "{file}");
        }
    }

    #[test]
    fn a_gpt2_without_biases_stays_one() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        let config = GptConfig { bias: false, ..GptConfig::new(5, 4, 2, 2, 4) };
        let tensor = |(name, shape): (String, Vec<usize>)| {
            let values = vec![0.5; shape.iter().product()];
            folder::NamedTensor { name, shape, values }
        };
        let tensors: Vec<_> = folder::expected_tensors(&config).into_iter().map(tensor).collect();
        folder::write(&from, &config, None, &folder::Settings::default(), &tensors).unwrap();
        convert(&from, Format::Hf, Some(NumberType::Bf16), &to, &Interrupt::new()).unwrap();
        assert!(!folder::read_config(&to).unwrap().bias);
    }
}
