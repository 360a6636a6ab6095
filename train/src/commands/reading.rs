//! The flags that control how text is read, for every command that reads text itself.

use ember_data::source::ReadOptions;

use crate::prelude::*;

/// How text is read.
#[derive(Args, Debug)]
pub struct ReadingArgs {
    /// Field of JSON Lines and CSV, or column of Parquet, that holds the text
    #[arg(long, default_value = "text", value_name = "NAME")]
    pub field: String,
    /// Encoding of text that has no byte order mark [default: UTF-8, else guessed]
    #[arg(long, value_name = "NAME")]
    pub encoding: Option<String>,
    /// What to clean: auto (page headers, mail quotes and signatures), all (also characters:
    /// Unicode NFC, line ends, odd spaces), off
    #[arg(long, default_value = "auto", value_name = "WHAT")]
    pub clean: String,
}

impl ReadingArgs {
    /// Converts the flags to the library's options.
    ///
    /// # Errors
    /// A usage error if the encoding or the kind of cleaning is unknown.
    pub fn options(&self) -> Result<ReadOptions> {
        let usage = |flag: &str, value: &str, error: &dyn std::fmt::Display| {
            UsageError::new(format!("{flag} {value}: {error}"))
        };
        let name = self.encoding.as_deref().unwrap_or_default();
        let encoding = ReadOptions::encoding_of(name).map_err(|error| usage("--encoding", name, &error))?;
        let clean = self.clean.parse().map_err(|error: String| usage("--clean", &self.clean, &error))?;
        Ok(ReadOptions { field: self.field.clone(), encoding, clean })
    }
}
