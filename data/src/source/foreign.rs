//! Files of other programs that no reader here supports, and what to save them as instead. Half of
//! them are XML, mostly in a zip archive, which would otherwise be read as text.

use super::{archive::Archive, encoding, start::Start};

/// A kind of unsupported file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Foreign {
    /// A word processor's document that is neither `.docx` nor OpenDocument.
    Document,
    /// A spreadsheet.
    Spreadsheet,
    /// A presentation.
    Slides,
    /// A drawing.
    Drawing,
    /// A book for Amazon's e-book readers.
    KindleBook,
    /// Outlook's mail.
    OutlookMail,
    /// A file in an unsupported compression or archive format.
    Packed,
}

/// The magic numbers of xz, bzip2, RAR, 7-Zip, LZ4, lzip and compress.
const PACKED: [&[u8]; 7] =
    [b"\xfd7zXZ\0", b"BZh", b"Rar!\x1a\x07", b"7z\xbc\xaf\x27\x1c", b"\x04\x22\x4d\x18", b"LZIP\x01", b"\x1f\x9d"];

impl Foreign {
    /// Every kind there is.
    pub const ALL: [Self; 7] = [
        Self::Document,
        Self::Spreadsheet,
        Self::Slides,
        Self::Drawing,
        Self::KindleBook,
        Self::OutlookMail,
        Self::Packed,
    ];

    /// Recognises a file by its name, unless its content is plain text all the same; a packed file
    /// also by its magic number, and a flat OpenDocument file by what it declares to be.
    pub fn of(start: &Start) -> Option<Self> {
        match start.flat_opendocument() {
            Some("spreadsheet") => return Some(Self::Spreadsheet),
            Some("presentation") => return Some(Self::Slides),
            Some("graphics") => return Some(Self::Drawing),
            _ => {}
        }
        let holds = |is_odd: fn(&u8) -> bool| start.bytes.iter().any(is_odd) && !encoding::may_hold_zeros(&start.bytes);
        let is_archive = Archive::of(start).is_some();
        let is = |foreign: &Self| {
            let is_named = foreign.endings().iter().any(|ending| start.name.ends_with(ending));
            let begins = || PACKED.iter().any(|magic| start.bytes.starts_with(magic));
            match foreign {
                // A short one may have no zero byte. No text has these control characters.
                Self::Packed => {
                    !is_archive && (is_named || begins()) && holds(|byte| matches!(byte, 0..=8 | 0x0e..=0x19))
                }
                _ => is_named && (is_archive || holds(|&byte| byte == 0)),
            }
        };
        Self::ALL.into_iter().find(is)
    }

    fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Document => &[".doc", ".dot", ".pages", ".wpd", ".wps", ".sxw", ".hwp", ".hwpx"],
            Self::Spreadsheet => &[".xls", ".xlsx", ".xlsm", ".xlsb", ".ods", ".numbers"],
            Self::Slides => &[".ppt", ".pps", ".pptx", ".pptm", ".ppsx", ".odp", ".key"],
            Self::Drawing => &[".odg"],
            Self::KindleBook => &[".mobi", ".azw", ".azw3", ".kfx"],
            Self::OutlookMail => &[".msg", ".pst", ".ost"],
            Self::Packed => {
                &[".xz", ".txz", ".bz2", ".tbz", ".tbz2", ".lzma", ".lz", ".lz4", ".br", ".rar", ".7z", ".z"]
            }
        }
    }

    /// Its name in a manifest.
    pub fn id(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Spreadsheet => "spreadsheet",
            Self::Slides => "slides",
            Self::Drawing => "drawing",
            Self::KindleBook => "kindle_book",
            Self::OutlookMail => "outlook_mail",
            Self::Packed => "packed",
        }
    }

    /// Its name for people, in two parts: before and after the plural `s`.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Document => ("document", " in an unsupported format"),
            Self::Spreadsheet => ("spreadsheet", ""),
            Self::Slides => ("file", " of slides"),
            Self::Drawing => ("drawing", ""),
            Self::KindleBook => ("Kindle book", ""),
            Self::OutlookMail => ("file", " of Outlook mail"),
            Self::Packed => ("packed file", ""),
        }
    }

    /// What it is and what to do about it; put after the file's name.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Document => {
                "is a document in an unsupported format; save it as .docx (LibreOffice converts many at once)"
            }
            Self::Spreadsheet => "is a spreadsheet; save the sheet that has text as CSV",
            Self::Slides => "holds slides; save them as PDF",
            Self::Drawing => "is a drawing; save it as PDF",
            Self::KindleBook => "is a Kindle book; convert it to EPUB, for example with Calibre",
            Self::OutlookMail => "holds Outlook mail; save it as .eml or mbox",
            Self::Packed => "is packed in an unsupported format; unpack it first (gzip, zstd, zip and tar are read)",
        }
    }
}
