//! The meaning of the names of commands and environments.

/// Commands whose arguments are not text of the document.
pub const WITHOUT_TEXT: [&str; 37] = [
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

/// The number of arguments of such a command.
pub fn arguments_without_text(command: &str) -> usize {
    match command {
        "definecolor" => 3,
        "setcounter" | "addtocounter" | "fontsize" | "rule" => 2,
        _ => 1,
    }
}

/// The number of arguments after the name in a definition; `None` for other commands.
pub fn definition_arguments(command: &str) -> Option<usize> {
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

/// The number of layout arguments before the last one, which is text; `None` for other commands.
pub fn layout_arguments(command: &str) -> Option<usize> {
    Some(match command {
        "href" | "hypertarget" | "hyperlink" | "textcolor" | "color" | "colorbox" | "parbox" | "raisebox"
        | "scalebox" | "rotatebox" | "foreignlanguage" => 1,
        "multicolumn" | "multirow" | "resizebox" | "fcolorbox" => 2,
        _ => return None,
    })
}

/// The number of layout arguments of an environment.
pub fn environment_arguments(environment: &str) -> usize {
    match environment {
        "tabular*" | "tabularx" | "tabulary" | "wrapfigure" | "wrapfigure*" | "wraptable" | "wraptable*" => 2,
        "tabular" | "array" | "longtable" | "longtable*" | "minipage" | "multicols" | "multicols*" | "column"
        | "thebibliography" | "alignat" | "alignat*" | "IEEEeqnarray" | "IEEEeqnarray*" => 1,
        _ => 0,
    }
}

/// Environments that are kept as written.
pub const VERBATIM: [&str; 3] = ["verbatim", "lstlisting", "minted"];

/// Environments of formulas, also kept as written; also with an asterisk (without numbers).
pub const FORMULAS: [&str; 11] = [
    "equation",
    "align",
    "alignat",
    "flalign",
    "gather",
    "multline",
    "eqnarray",
    "IEEEeqnarray",
    "dmath",
    "displaymath",
    "math",
];

/// Commands whose argument is the text of a block.
pub const HEADINGS: [&str; 8] =
    ["part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph", "caption"];

/// Commands whose argument is a note, which comes after the document.
pub const NOTES: [&str; 5] = ["footnote", "footnotetext", "endnote", "marginpar", "thanks"];

/// The combining character of an accent command.
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

/// The text that a control word stands for.
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

/// The typeset form of `mark`, a quotation mark or dash that may be typed as several characters:
/// the number of characters after the first that belong to it, and the sign.
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
