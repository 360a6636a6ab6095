//! `--draft`: a smaller model with the same tokens, which proposes tokens for speculative decoding.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use ember_data::tokenizer::Tokenizer;
use ember_model::{Gpt, WeightType};

use super::loaded::Loaded;
use ember_cli::program::{CommonArgs, Notes, UsageError};

/// Loads the draft model in `path`, whose proposals `loaded` checks.
///
/// # Errors
/// When it cannot be loaded, or has different tokens.
pub(super) fn load(
    path: &Path,
    loaded: &Loaded,
    weights: WeightType,
    common: &CommonArgs,
    notes: &Notes,
) -> Result<Gpt> {
    let ids_suffice = loaded.tokenizer.is_none();
    let draft = Loaded::new(Some(path), ids_suffice, weights, common, notes).context("--draft")?;
    check_tokens(loaded, &draft)?;
    Ok(draft.model)
}

/// Refuses a draft model with different tokens.
fn check_tokens(loaded: &Loaded, draft: &Loaded) -> Result<()> {
    let (vocab_size, draft_vocab_size) = (&loaded.model.config().vocab_size, &draft.model.config().vocab_size);
    let same_tokens = match (&loaded.tokenizer, &draft.tokenizer) {
        (Some(a), Some(b)) => have_same_tokens(a, b),
        (None, None) => true,
        _ => false,
    };
    let [draft, loaded] = [draft, loaded].map(|model| model.folder.display());
    ensure!(
        vocab_size == draft_vocab_size && same_tokens,
        UsageError::new(format!(
            "--draft {draft}: its tokenizer is not that of {loaded}; use a draft model with the same tokenizer"
        ))
    );
    Ok(())
}

/// Whether every id that both have is the same token in both. An id that only one model has is
/// never proposed, or never accepted.
fn have_same_tokens(a: &Tokenizer, b: &Tokenizer) -> bool {
    let in_both = a.vocab_size().min(b.vocab_size());
    a.first_difference(b).is_none_or(|id| id as usize >= in_both)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_draft_model_may_have_tokens_of_its_own_behind_the_others() {
        let (folder, plain) = (tempfile::tempdir().unwrap(), Tokenizer::bytes().unwrap());
        let renamed = |id: usize| {
            let mut json = plain.to_value().unwrap();
            let added = json["added_tokens"].as_array_mut().unwrap();
            let mut token = added[0].clone();
            (token["id"], token["content"]) = (id.into(), "<more>".into());
            added.retain(|other| other["id"] != token["id"]);
            added.push(token);
            std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
            Tokenizer::from_folder(folder.path()).unwrap()
        };
        let [more, other] = [plain.vocab_size(), plain.vocab_size() - 1].map(renamed);
        assert!(have_same_tokens(&plain, &more) && have_same_tokens(&more, &plain));
        assert!(!have_same_tokens(&plain, &other));
    }
}
