//! What people keep their words in that no reader here takes, and what to make of it instead.
//! Half of it is zip archives, whose insides would pass for text.

use super::{archive::Archive, encoding, start::Start};

/// Files of other programs that are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Foreign {
    /// What a word processor wrote that is neither Word's of today nor OpenDocument.
    Document,
    /// A spreadsheet.
    Spreadsheet,
    /// Slides.
    Slides,
    /// A book for Amazon's readers.
    KindleBook,
    /// Outlook's mail.
    OutlookMail,
    /// What was compressed, or packed into an archive, by a program whose files are not read.
    Packed,
}

/// What packed files begin with: those of xz, bzip2, RAR, 7-Zip, LZ4, lzip and compress.
const PACKED: [&[u8]; 7] =
    [b"\xfd7zXZ\0", b"BZh", b"Rar!\x1a\x07", b"7z\xbc\xaf\x27\x1c", b"\x04\x22\x4d\x18", b"LZIP\x01", b"\x1f\x9d"];

impl Foreign {
    /// Every kind there is.
    pub const ALL: [Self; 6] =
        [Self::Document, Self::Spreadsheet, Self::Slides, Self::KindleBook, Self::OutlookMail, Self::Packed];

    /// What a file is by its name, unless it is plain text all the same; what is packed, also by what it
    /// begins with.
    pub fn of(start: &Start) -> Option<Self> {
        let holds = |is_odd: fn(&u8) -> bool| start.bytes.iter().any(is_odd) && !encoding::may_hold_zeros(&start.bytes);
        let is_archive = Archive::of(start).is_some();
        let is = |foreign: &Self| {
            let is_named = foreign.endings().iter().any(|ending| start.name.ends_with(ending));
            let begins = || PACKED.iter().any(|magic| start.bytes.starts_with(magic));
            match foreign {
                // A short one may have no zero. No text has these signs.
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
            Self::KindleBook => &[".mobi", ".azw", ".azw3", ".kfx"],
            Self::OutlookMail => &[".msg", ".pst", ".ost"],
            Self::Packed => {
                &[".xz", ".txz", ".bz2", ".tbz", ".tbz2", ".lzma", ".lz", ".lz4", ".br", ".rar", ".7z", ".z"]
            }
        }
    }

    /// What a manifest calls it.
    pub fn id(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Spreadsheet => "spreadsheet",
            Self::Slides => "slides",
            Self::KindleBook => "kindle_book",
            Self::OutlookMail => "outlook_mail",
            Self::Packed => "packed",
        }
    }

    /// One of it in words, in two parts: what stands before and behind the `s` of several.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Document => ("document", " of a kind that is not read"),
            Self::Spreadsheet => ("spreadsheet", ""),
            Self::Slides => ("file", " of slides"),
            Self::KindleBook => ("Kindle book", ""),
            Self::OutlookMail => ("file", " of Outlook's"),
            Self::Packed => ("packed file", ""),
        }
    }

    /// What it is and what helps, behind the file's name.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Document => {
                "is a document of a kind that is not read; save it as .docx (LibreOffice converts many at once)"
            }
            Self::Spreadsheet => "is a spreadsheet; save the sheet that has text as CSV",
            Self::Slides => "holds slides; save them as PDF",
            Self::KindleBook => "is a Kindle book; convert it to EPUB, for example with Calibre",
            Self::OutlookMail => "holds Outlook's mail; save it as .eml or mbox",
            Self::Packed => "is packed in a way that is not read; unpack it first (gzip, zstd, zip and tar are read)",
        }
    }
}
