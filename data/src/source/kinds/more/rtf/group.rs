//! The state of an RTF group.

use encoding_rs::{Encoding, WINDOWS_1252};

/// The state that lasts until a group ends; nested groups inherit it.
#[derive(Clone, Copy)]
pub struct Group {
    pub skipped: bool,
    pub in_title: bool,
    pub in_fonts: bool,
    pub in_note: bool,
    /// It is skipped as the properties of a shape, which may contain the shape's text.
    pub in_shape: bool,
    /// The number of boxes around it, and whether the shape's text was found.
    pub boxes: usize,
    pub has_box: bool,
    pub hidden: bool,
    pub deleted: bool,
    pub encoding: &'static Encoding,
    /// The number of substitute bytes after a Unicode character, for readers without Unicode.
    pub substitutes: usize,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            skipped: false,
            in_title: false,
            in_fonts: false,
            in_note: false,
            in_shape: false,
            boxes: 0,
            has_box: false,
            hidden: false,
            deleted: false,
            encoding: WINDOWS_1252,
            substitutes: 1,
        }
    }
}

impl Group {
    /// Whether its text does not belong to the document.
    pub fn is_skipped(&self) -> bool {
        (self.skipped || self.hidden || self.deleted) && !self.in_title
    }

    /// Whether its text belongs to the main document, not to a note or box.
    pub fn is_main(&self) -> bool {
        !self.in_note && self.boxes == 0
    }
}
