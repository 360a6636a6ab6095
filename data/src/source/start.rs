//! The beginning and the name of a file, by which its format is recognised.

/// The beginning and the name of a file.
pub struct Start {
    /// Its first bytes, decompressed if it is a compressed file.
    pub bytes: Vec<u8>,
    /// Its name in lower case, without the extension of a compression.
    pub name: String,
}

impl Start {
    /// Whether the name (without extension, or `.txt`) leaves the format to the content.
    pub fn has_generic_name(&self) -> bool {
        let file = self.name.rsplit(['/', '\\']).next().unwrap_or_default();
        !file.contains('.') || file.ends_with(".txt")
    }

    /// The valid UTF-8 at the beginning, without a byte order mark and leading white space.
    pub fn text(&self) -> &str {
        let bytes = self.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.bytes);
        let valid = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        };
        valid.trim_start()
    }

    /// What a flat OpenDocument file (one XML file) declares to be: `text`, `spreadsheet`,
    /// `presentation`, `graphics`.
    pub fn flat_opendocument(&self) -> Option<&str> {
        let (_, root) = self.text().strip_prefix("<?xml")?.split_once("?>")?;
        let root = root.trim_start().strip_prefix("<office:document ")?;
        let (_, kind) = root.split_once("\"application/vnd.oasis.opendocument.")?;
        kind.split_once('"').map(|(kind, _)| kind)
    }
}
