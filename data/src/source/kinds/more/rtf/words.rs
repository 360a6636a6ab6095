//! What some control words of RTF stand for.

/// Groups whose text is not the document's.
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
    // What stands for a table in a table where a reader does not know it.
    "nonesttables",
];

/// Groups that a reader may pass over, but that hold text of the document or end its rows.
pub const OPTIONAL: [&str; 3] = ["footnote", "shptxt", "nesttableprops"];

/// Where paragraphs and tables begin and end.
#[derive(Clone, Copy)]
pub enum Part {
    /// The properties of paragraphs are those of none.
    Default,
    /// The paragraph stands in a table.
    InTable,
    ParagraphEnds,
    LineEnds,
    RowBegins,
    CellEnds,
    RowEnds,
}

/// What a control word says of paragraphs and tables.
pub fn part(word: &str) -> Option<Part> {
    Some(match word {
        "pard" => Part::Default,
        "intbl" => Part::InTable,
        "par" | "sect" | "page" => Part::ParagraphEnds,
        "line" => Part::LineEnds,
        "trowd" => Part::RowBegins,
        "cell" | "nestcell" => Part::CellEnds,
        "row" | "nestrow" => Part::RowEnds,
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
