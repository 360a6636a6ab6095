//! page
use super::growth::Growth;
use super::{Entry, Subject};
/// The page.
pub fn render(_: &Subject, _: &[Entry], _: &[Growth]) -> String {
    String::new()
}
