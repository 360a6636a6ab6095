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
}

impl Foreign {
    /// Every kind there is.
    pub const ALL: [Self; 5] = [Self::Document, Self::Spreadsheet, Self::Slides, Self::KindleBook, Self::OutlookMail];

    /// What a file is by its name, unless it is plain text all the same.
    pub fn of(start: &Start) -> Option<Self> {
        let has_zeros = start.bytes.contains(&0) && !encoding::may_hold_zeros(&start.bytes);
        let named = |foreign: &Self| foreign.endings().iter().any(|ending| start.name.ends_with(ending));
        Self::ALL.into_iter().find(named).filter(|_| has_zeros || Archive::of(start).is_some())
    }

    fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Document => &[".doc", ".dot", ".pages", ".wpd", ".wps", ".sxw", ".hwp", ".hwpx"],
            Self::Spreadsheet => &[".xls", ".xlsx", ".xlsm", ".xlsb", ".ods", ".numbers"],
            Self::Slides => &[".ppt", ".pps", ".pptx", ".pptm", ".ppsx", ".odp", ".key"],
            Self::KindleBook => &[".mobi", ".azw", ".azw3", ".kfx"],
            Self::OutlookMail => &[".msg", ".pst", ".ost"],
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
        }
    }
}
