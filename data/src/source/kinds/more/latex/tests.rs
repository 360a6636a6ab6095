use super::*;

/// The text of a document's body.
fn text(body: &str) -> String {
    let mut parser = Parser::of(body);
    parser.run();
    parser.finish()
}

#[test]
fn definitions_are_left_out_with_all_that_they_say() {
    for definition in [
        r"\newcommand{\me}{Ann}",
        r"\newcommand*{\me}[2][of #1]{\textbf{#1} and #2}",
        r"\renewcommand\me[1]{#1}",
        "\\providecommand{\\me}%\n  [1]% one\n  {%\n  #1}",
        r"\def\me#1#2.{#1 of #2}",
        r"\gdef\me{Ann}",
        r"\let\me=\you",
        r"\let\me\you",
        r"\newenvironment{mine}[1]{Begins: \textbf{#1}}{Ends.}",
        "\\newenvironment{mine}\n{Begins}\n{Ends}",
        r"\DeclareMathOperator*{\me}{arg\,max}",
        r"\DeclarePairedDelimiter\me{\lvert}{\rvert}",
        r"\NewDocumentCommand{\me}{o m}{#2 of #1}",
        r"\newtheorem{lemma}[theorem]{Lemma}",
        r"\newtheorem{theorem}{Theorem}[section]",
        r"\newif\ifme",
        r"\setlength\parindent{1cm}",
        r"\setlength{\parindent}{1cm}",
    ] {
        assert_eq!(text(&format!("One.\n{definition}\nTwo {{three}}.")), "One. Two three.\n", "{definition}");
    }
    assert_eq!(text(r"\let\a\b It is {\em so}."), "It is so.\n");
    assert_eq!(text("\\newcommand{\\a}{x}\n[Note] one"), "[Note] one\n");
}

#[test]
fn formulas_stay_as_written() {
    for (body, shown) in [
        (r"\begin{eqnarray*}a &=& \frac{1}{2}\alpha\end{eqnarray*}", "$$a &=& \\frac{1}{2}\\alpha$$\n"),
        (r"\begin{alignat}{2}a &= b\end{alignat}", "$$a &= b$$\n"),
        (r"\begin{IEEEeqnarray*}{rCl}a &=& b\end{IEEEeqnarray*}", "$$a &=& b$$\n"),
        (r"\begin{equation*}a\end{equation*}", "$$a$$\n"),
    ] {
        assert_eq!(text(body), shown, "{body}");
    }
}

#[test]
fn a_blank_line_below_a_comment_ends_a_paragraph() {
    for (body, shown) in [
        ("One. % todo\n\nTwo.", "One.\n\nTwo.\n"),
        ("One.\n% todo\n\nTwo.", "One.\n\nTwo.\n"),
        ("One.%\n  \n Two.", "One.\n\nTwo.\n"),
        ("One. % todo\nTwo.", "One. Two.\n"),
        ("One%\n  two", "Onetwo\n"),
    ] {
        assert_eq!(text(body), shown, "{body}");
    }
}

#[test]
fn a_dotless_letter_takes_its_accent_and_the_space_that_ends_its_name() {
    for (body, shown) in [
        (r"Mart\'\i nez", "Martínez\n"),
        (r#"na\"\i{}ve"#, "naïve\n"),
        (r"\^\j audo", "ĵaudo\n"),
        (r"Mart\'{\i}n", "Martín\n"),
    ] {
        assert_eq!(text(body), shown, "{body}");
    }
}

#[test]
fn options_are_no_text() {
    for (body, shown) in [
        (r"A\includegraphics[width=3cm]{x} b", "A b\n"),
        (r"A \cite[see][p. 3]{knuth} b", "A b\n"),
        (r"A\\[2pt]b\\*[1ex]c\\*d", "A\nb\nc\nd\n"),
        (r"A \makebox[3cm][l]{word}", "A word\n"),
        (r"A \textcolor[rgb]{1,0,0}{word} \color{red} b", "A word b\n"),
        (r"\multicolumn{2}{|c|}{Both} & \multirow{2}{*}[-1pt]{two}", "Both\ttwo\n"),
        (r"\begin{tabular*}{5cm}[t]{ll} a & b\\ \cline{1-2} c\end{tabular*}", "a\tb\nc\n"),
        (r"\parbox[t]{3cm}{word} \resizebox{2cm}{!}{two}", "word two\n"),
        ("\\bibitem[Kn84]{knuth} Knuth.\n\\bibitem{lamport}\nLamport.", "Knuth.\nLamport.\n"),
        (r"\item[Apple] [fruit]", "Apple [fruit]\n"),
    ] {
        assert_eq!(text(body), shown, "{body}");
    }
}

#[test]
fn a_group_behind_what_has_its_arguments_is_text() {
    for (body, shown) in [
        (r"\cline{1-2} {\bf 2021} & 3", "2021\t3\n"),
        (r"\rule{5cm} {1pt} {\Large Title}", "Title\n"),
        (r"\index{x} {\em indexed}", "indexed\n"),
        (r"\begin{tabular} {l|c} {\bf Year} & a\end{tabular}", "Year\ta\n"),
        (r"\begin{column}{.5\textwidth} {\bf Head}\end{column}", "Head\n"),
        (r"\begin{wrapfigure}[9]{r}[1cm]{5cm}A\end{wrapfigure}", "A\n"),
        ("\\begin{multicols}{2}[\\section{Head}]\nA\\end{multicols}", "[\n\nHead\n\n] A\n"),
    ] {
        assert_eq!(text(body), shown, "{body}");
    }
}

#[test]
fn what_says_on_which_slides_something_stands_is_no_text() {
    for (body, shown) in [
        (r"\item<1->One\item<+-|alert@2>[Two]three", "One\nTwo three\n"),
        (r"\only<2>{One} \textbf<3-5>{two}", "One two\n"),
        (r"\frame<1>{One}", "One\n"),
        (r"\begin{frame}<1>[plain]One\end{frame}", "One\n"),
        (r"\emph<b>bold</b>", "<b>bold</b>\n"),
        (r"\ldots<3", "…<3\n"),
        (r"\verb<2<", "2\n"),
    ] {
        assert_eq!(text(body), shown, "{body}");
    }
}
