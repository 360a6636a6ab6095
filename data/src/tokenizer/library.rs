//! Calling the `tokenizers` library.

use super::error::Error;
use ember_host::panics::quietly;
use tokenizers::{Encoding, PreTokenizerWrapper, Token, Tokenizer as Library};

/// Calls the library with what somebody else wrote: its errors, and its panics over damaged files,
/// are errors of ours.
pub fn of_library<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, Error> {
    quietly(call).map_err(|panic| Error::Unusable(panic.to_string()))?.map_err(library_error)
}

/// An error of the library, in its own words. No `From`: the library's type is that of any boxed
/// error, and not every one is the library's.
pub fn library_error(error: tokenizers::Error) -> Error {
    Error::Unusable(error.to_string())
}

/// Sets whether GPT-2's rule takes the first word of a text for one behind a space; where `space` says
/// nothing, that stays as it is.
pub fn put_space_first(library: &mut Library, space: Option<bool>) {
    if let (Some(PreTokenizerWrapper::ByteLevel(rule)), Some(space)) = (library.get_pre_tokenizer(), space) {
        let rule = rule.add_prefix_space(space);
        library.with_pre_tokenizer(Some(rule));
    }
}

/// The tokens that the file's post-processor puts before and behind any text, seen on one of a
/// single token.
pub fn put_around(library: &Library) -> Result<[Vec<u32>; 2], Error> {
    let text = Encoding::from_tokens(vec![Token::new(0, String::new(), (0, 0))], 0);
    let whole = of_library(|| library.post_process(text, None, true))?;
    let (ids, is_added) = (whole.get_ids(), whole.get_special_tokens_mask());
    let own = |&added: &u32| added != 1;
    match (is_added.iter().position(own), is_added.iter().rposition(own)) {
        (Some(first), Some(last)) => Ok([ids[..first].to_vec(), ids[last + 1..].to_vec()]),
        _ => Ok([Vec::new(), Vec::new()]),
    }
}
