//! The meaning of RTF control words.

/// Groups whose text does not belong to the document.
pub const SKIPPED: [&str; 27] = [
    "fonttbl",
    "colortbl",
    "stylesheet",
    "info",
    "pict",
    "object",
    "header",
    "headerl",
    "headerr",
    "headerf",
    "footer",
    "footerl",
    "footerr",
    "footerf",
    "listtable",
    "listoverridetable",
    "rsidtbl",
    "generator",
    "themedata",
    "xe",
    "tc",
    "datastore",
    "latentstyles",
    "revtbl",
    "annotation",
    "fldinst",
    // The fallback for readers that do not support nested tables.
    "nonesttables",
];

/// Groups that a reader may skip, but that contain text of the document or end its rows.
pub const OPTIONAL: [&str; 3] = ["footnote", "shptxt", "nesttableprops"];

/// The structure of paragraphs and tables.
#[derive(Clone, Copy)]
pub enum Structure {
    /// Paragraph properties are reset.
    Default,
    /// The paragraph is in a table.
    InTable,
    ParagraphEnds,
    LineEnds,
    RowBegins,
    CellEnds,
    RowEnds,
}

/// The structure that a control word marks.
pub fn structure(word: &str) -> Option<Structure> {
    Some(match word {
        "pard" => Structure::Default,
        "intbl" => Structure::InTable,
        "par" | "sect" | "page" => Structure::ParagraphEnds,
        "line" => Structure::LineEnds,
        "trowd" => Structure::RowBegins,
        "cell" | "nestcell" => Structure::CellEnds,
        "row" | "nestrow" => Structure::RowEnds,
        _ => return None,
    })
}

/// The character that a control word stands for.
pub fn character(word: &str) -> Option<&'static str> {
    Some(match word {
        "emdash" => "—",
        "endash" => "–",
        "lquote" => "‘",
        "rquote" => "’",
        "ldblquote" => "“",
        "rdblquote" => "”",
        "bullet" => "•",
        "emspace" => "\u{2003}",
        "enspace" => "\u{2002}",
        "tab" => "\t",
        _ => return None,
    })
}
