//! What preparing found in the text, as numbers and as a table to read.

use serde::{Deserialize, Serialize};

/// Findings about a text and its tokens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {}

impl std::fmt::Display for Report {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}
