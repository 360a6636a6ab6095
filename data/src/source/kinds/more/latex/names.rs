//! What the names of commands and environments stand for.

/// Commands whose argument is no text of the document.
pub const WITHOUT_ARGUMENT: [&str; 37] = [
    "label",
    "ref",
    "eqref",
    "pageref",
    "cref",
    "Cref",
    "autoref",
    "cite",
    "citep",
    "citet",
    "nocite",
    "parencite",
    "textcite",
    "includegraphics",
    "input",
    "include",
    "bibliography",
    "bibliographystyle",
    "usepackage",
    "documentclass",
    "pagestyle",
    "thispagestyle",
    "vspace",
    "hspace",
    "setcounter",
    "addtocounter",
    "cline",
    "definecolor",
    "fontsize",
    "rule",
    "index",
    "hypersetup",
    "title",
    "author",
    "date",
    "graphicspath",
    "url",
];

/// How many arguments such a command has.
pub fn arguments_without_text(command: &str) -> usize {
    match command {
        "definecolor" => 3,
        "setcounter" | "addtocounter" | "fontsize" | "rule" => 2,
        _ => 1,
    }
}

/// How many arguments a command has behind the name that it defines or sets.
pub fn definition(command: &str) -> Option<usize> {
    Some(match command {
        "newif" | "newlength" | "newcounter" | "newsavebox" => 0,
        "newcommand"
        | "renewcommand"
        | "providecommand"
        | "DeclareRobustCommand"
        | "DeclareMathOperator"
        | "newtheorem"
        | "newcolumntype"
        | "setlength"
        | "addtolength" => 1,
        "newenvironment"
        | "renewenvironment"
        | "NewDocumentCommand"
        | "RenewDocumentCommand"
        | "ProvideDocumentCommand"
        | "DeclareDocumentCommand"
        | "DeclarePairedDelimiter" => 2,
        "NewDocumentEnvironment" | "RenewDocumentEnvironment" => 3,
        _ => return None,
    })
}

/// How many arguments of a command say where or how its last one is set, which is text.
pub fn settings(command: &str) -> Option<usize> {
    Some(match command {
        "href" | "hypertarget" | "hyperlink" | "textcolor" | "color" | "colorbox" | "parbox" | "raisebox"
        | "scalebox" | "rotatebox" | "foreignlanguage" => 1,
        "multicolumn" | "multirow" | "resizebox" | "fcolorbox" => 2,
        _ => return None,
    })
}

/// How many arguments of an environment say how it is set.
pub fn environment_settings(environment: &str) -> usize {
    match environment {
        "tabular*" | "tabularx" | "tabulary" | "wrapfigure" | "wrapfigure*" | "wraptable" | "wraptable*" => 2,
        "tabular" | "array" | "longtable" | "longtable*" | "minipage" | "multicols" | "multicols*" | "column"
        | "thebibliography" => 1,
        _ => 0,
    }
}

/// Environments that are kept as they are written.
pub const AS_WRITTEN: [&str; 3] = ["verbatim", "lstlisting", "minted"];

/// Environments of formulas, which are kept as they are written, too.
pub const FORMULAS: [&str; 11] = [
    "equation",
    "equation*",
    "align",
    "align*",
    "gather",
    "gather*",
    "multline",
    "multline*",
    "eqnarray",
    "displaymath",
    "math",
];

/// Commands that begin a block; their argument is its text.
pub const HEADINGS: [&str; 8] =
    ["part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph", "caption"];

/// Commands whose argument is a note, which comes behind the document.
pub const NOTES: [&str; 5] = ["footnote", "footnotetext", "endnote", "marginpar", "thanks"];

/// The combining character of an accent's command.
pub fn accent(command: &str) -> Option<char> {
    Some(match command {
        "`" => '\u{300}',
        "'" => '\u{301}',
        "^" => '\u{302}',
        "~" => '\u{303}',
        "=" => '\u{304}',
        "u" => '\u{306}',
        "." => '\u{307}',
        "\"" => '\u{308}',
        "r" => '\u{30a}',
        "H" => '\u{30b}',
        "v" => '\u{30c}',
        "d" => '\u{323}',
        "c" => '\u{327}',
        "k" => '\u{328}',
        _ => return None,
    })
}

/// What a command of letters stands for.
pub fn symbol(name: &str) -> Option<&'static str> {
    Some(match name {
        "ss" => "ß",
        "ae" => "æ",
        "AE" => "Æ",
        "oe" => "œ",
        "OE" => "Œ",
        "o" => "ø",
        "O" => "Ø",
        "aa" => "å",
        "AA" => "Å",
        "l" => "ł",
        "L" => "Ł",
        "i" => "ı",
        "j" => "ȷ",
        "ldots" | "dots" | "textellipsis" => "…",
        "textbackslash" => "\\",
        "textasciitilde" => "~",
        "textasciicircum" => "^",
        "textendash" => "–",
        "textemdash" => "—",
        "textquoteleft" => "‘",
        "textquoteright" => "’",
        "textquotedblleft" => "“",
        "textquotedblright" => "”",
        "S" => "§",
        "P" => "¶",
        "copyright" => "©",
        "pounds" => "£",
        "euro" | "texteuro" => "€",
        "dag" => "†",
        "LaTeX" => "LaTeX",
        "TeX" => "TeX",
        "today" => "",
        _ => return None,
    })
}

/// What a quotation mark or a dash is set as that is typed as several characters: how many follow the
/// first, and the sign.
pub fn ligature(mark: char, rest: &str) -> (usize, &'static str) {
    match mark {
        '`' if rest.starts_with('`') => (1, "“"),
        '`' => (0, "‘"),
        '\'' if rest.starts_with('\'') => (1, "”"),
        '\'' => (0, "’"),
        _ if rest.starts_with("--") => (2, "—"),
        _ if rest.starts_with('-') => (1, "–"),
        _ => (0, "-"),
    }
}
