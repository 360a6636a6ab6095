//! What is known of a file before it is read.

/// What a file begins with.
pub struct Start {
    /// Its first bytes, decompressed where that can be done.
    pub bytes: Vec<u8>,
    /// Its name in lower case, without what says that it is compressed.
    pub name: String,
}

impl Start {
    /// Whether the name says nothing of what is in the file, so that its content may.
    pub fn is_unnamed(&self) -> bool {
        let file = self.name.rsplit(['/', '\\']).next().unwrap_or_default();
        !file.contains('.') || file.ends_with(".txt")
    }

    /// The first bytes as text, without a byte order mark and the white space before it.
    pub fn text(&self) -> &str {
        let bytes = self.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.bytes);
        let valid = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        };
        valid.trim_start()
    }
}
