//! Why a text cannot be read.

use super::left_out::LeftOut;
use ember_host::file_error::FileError;
use std::io;
use std::path::PathBuf;

/// Why a text cannot be read; `name` is what the user calls a file, `line` counts from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system does not let a file or folder be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is nothing at the path.
    #[error("cannot read {path}; name a file or folder that exists and that you may read")]
    Missing {
        /// What was named.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file without a byte.
    #[error("{0} is empty; give a file with text")]
    Empty(PathBuf),
    /// A device, a pipe or a socket.
    #[error("{0} is not a file; pipe it into standard input instead")]
    NotAFile(PathBuf),
    /// The folder of a run.
    #[error("{0} is a run, not text; name the text itself")]
    Run(PathBuf),
    /// A folder that a text was prepared into.
    #[error("{0} is a prepared text already; name the text itself")]
    Prepared(PathBuf),
    /// A folder in which nothing is text.
    #[error("{path} holds no file with text; give another folder{}", in_brackets(left_out))]
    NoText {
        /// The folder.
        path: PathBuf,
        /// What stands in it.
        left_out: Vec<LeftOut>,
    },
    /// Nothing came in.
    #[error("standard input is empty; pipe text into it")]
    EmptyStdin,
    /// It can be read only once.
    #[error("standard input is named twice; name it once")]
    StdinTwice,
    /// A file of bytes that are no text.
    #[error(
        "{name} looks binary (byte {at} is zero); give text, or if it is UTF-16 convert it with iconv -f UTF-16 -t UTF-8"
    )]
    Binary {
        /// The file.
        name: String,
        /// Its first byte that is zero, from 0.
        at: usize,
    },
    /// A zip archive.
    #[error("{0} is a zip archive; unpack it and give the files in it")]
    Zip(String),
    /// A PDF.
    #[error("{0} is a PDF; convert it to text, for example with pdftotext")]
    Pdf(String),
    /// Text in another encoding.
    #[error(
        "{name} is not UTF-8 text: byte {at} (0x{byte:02X}) does not belong there; convert it, for example with iconv -f \
         LATIN1 -t UTF-8"
    )]
    NotUtf8 {
        /// The file.
        name: String,
        /// Where the first byte stands that is no UTF-8, from 0, in the decompressed file.
        at: usize,
        /// That byte.
        byte: u8,
    },
    /// Text with UTF-16's mark that is broken behind it.
    #[error(
        "{name} is not UTF-16 text, as its byte order mark says: byte {at} begins half a character; save it again as UTF-8"
    )]
    NotUtf16 {
        /// The file.
        name: String,
        /// Where the half of a character begins, from 0, in the decompressed file.
        at: u64,
    },
    /// A file that ends too early, or whose compression is broken.
    #[error("cannot read {name} after {place}; if it is compressed, it is broken: compress it again")]
    Broken {
        /// The file.
        name: String,
        /// How far it could be read, in words: "line 3".
        place: String,
        /// What is wrong.
        source: io::Error,
    },
    /// A file that is not compressed although its name says so.
    #[error(
        "{0} is named as a compressed file, but its content is neither gzip nor zstd; rename it or compress it again"
    )]
    NotCompressed(String),
    /// A line of JSON Lines that is too long to be held.
    #[error("{name}:{line}: the line is longer than {} MiB; split the document", most_bytes >> 20)]
    LongLine {
        /// The file.
        name: String,
        /// The line.
        line: u64,
        /// The most bytes that a line may have.
        most_bytes: u64,
    },
    /// A line of JSON Lines that is no JSON object.
    #[error("{name}:{line}: not a line with a JSON object ({reason}); correct or remove it")]
    NotJson {
        /// The file.
        name: String,
        /// The line.
        line: u64,
        /// What is wrong with it.
        reason: serde_json::Error,
    },
    /// A line of JSON Lines without the field that was asked for.
    #[error("{name}:{line}: no field \"{field}\"; name one of these: {}", fields.join(", "))]
    NoField {
        /// The file.
        name: String,
        /// The line.
        line: u64,
        /// What was asked for.
        field: String,
        /// The fields that it has.
        fields: Vec<String>,
    },
    /// A field of JSON Lines that holds something else than text.
    #[error("{name}:{line}: the field \"{field}\" is not a string; name another")]
    FieldIsNoString {
        /// The file.
        name: String,
        /// The line.
        line: u64,
        /// The field.
        field: String,
    },
    /// A file that the Parquet library does not read.
    #[error("cannot read {name} as Parquet; it is damaged or something else: write it again")]
    Parquet {
        /// The file.
        name: String,
        /// What the library says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A Parquet file without the column that was asked for.
    #[error("{name} has no column \"{column}\"; name one of these: {}", columns.join(", "))]
    NoColumn {
        /// The file.
        name: String,
        /// What was asked for.
        column: String,
        /// The columns that it has.
        columns: Vec<String>,
    },
    /// A column of Parquet that holds something else than text.
    #[error("{name}: the column \"{column}\" holds no strings; name another")]
    ColumnOfNoStrings {
        /// The file.
        name: String,
        /// The column.
        column: String,
    },
    /// A column of Parquet that holds lists.
    #[error("{name}: the column \"{column}\" holds lists; name one of strings")]
    ColumnOfLists {
        /// The file.
        name: String,
        /// The column.
        column: String,
    },
    /// A column of Parquet with text in another encoding, or none.
    #[error("{name}: a value of the column \"{column}\" is not UTF-8 text; name another")]
    ColumnNotUtf8 {
        /// The file.
        name: String,
        /// The column.
        column: String,
    },
}

fn in_brackets(left_out: &[LeftOut]) -> String {
    match LeftOut::told(left_out).as_slice() {
        [] => String::new(),
        told => format!(" ({})", told.join("; ")),
    }
}
