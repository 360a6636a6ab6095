//! What holds until a group of RTF ends.

use encoding_rs::{Encoding, WINDOWS_1252};

/// What holds until a group ends; one in it begins with the same.
#[derive(Clone, Copy)]
pub struct Group {
    pub skipped: bool,
    pub in_title: bool,
    pub in_fonts: bool,
    pub in_note: bool,
    /// It is skipped as what a shape is, in which its text may stand.
    pub in_shape: bool,
    /// In how many boxes it is, and whether the text of the shape was met.
    pub boxes: usize,
    pub has_box: bool,
    pub hidden: bool,
    pub deleted: bool,
    pub encoding: &'static Encoding,
    /// Bytes that stand for a character of Unicode where a reader does not know that.
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
    /// What stands in it is no text of the document.
    pub fn is_skipped(&self) -> bool {
        (self.skipped || self.hidden || self.deleted) && !self.in_title
    }

    /// Its text goes to the document itself, not to a note or a box.
    pub fn is_main(&self) -> bool {
        !self.in_note && self.boxes == 0
    }
}
