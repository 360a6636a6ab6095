//! LaTeX: the text of a document without its commands. Formulas stay as they are written, between
//! dollars.

mod names;

use super::prose::Prose;
use crate::source::content::Content;
use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader, hand_on};
use crate::source::start::Start;
use names::{AS_WRITTEN, FORMULAS, HEADINGS, WITHOUT_ARGUMENT, accent, symbol};
use unicode_normalization::char::compose;

/// The kind.
pub struct Latex;

const ABOUT: About = About {
    id: "latex",
    name: "LaTeX",
    endings: &[".tex", ".latex"],
    document: "a file",
    without: "comments, the preamble, commands, references, pictures",
};

/// The largest file that is read, which bounds the memory that it takes.
const LARGEST_BYTES: u64 = 16 << 20;

/// Options, and what a definition has before its braces, are no longer than this.
const LONGEST_OPTIONS_BYTES: usize = 1000;

impl Reader for Latex {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn begins(&self, start: &Start) -> bool {
        start.is_unnamed() && start.text().starts_with("\\documentclass")
    }

    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let text = content.whole_text(LARGEST_BYTES)?.replace("\r\n", "\n");
        let mut reading = Reading::of(&text);
        let title = text.find("\\title{").and_then(|at| {
            reading.at = at + "\\title".len();
            reading.argument()
        });
        let title = title.map(plain);
        reading.at = 0;
        if let Some(at) = text.find("\\begin{document}") {
            reading.at = at + "\\begin{document}".len();
        }
        reading.run();
        hand_on(title.as_deref(), &reading.prose.finish(), sink)
    }
}

struct Reading<'a> {
    text: &'a str,
    at: usize,
    prose: Prose,
    braces: Vec<(u32, u32)>,
    /// For each brace that is open, whether a block ends with it; and whether one begins with the
    /// next.
    ends_block: Vec<bool>,
    begins_block: bool,
    /// Up to where no formula ends, with one dollar and with two: it is not looked for again.
    no_formula_to: [usize; 2],
}

/// The text without commands, as one line.
fn plain(text: &str) -> String {
    let mut reading = Reading::of(text);
    reading.run();
    reading.prose.finish().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether the line that comes is blank, which parts paragraphs.
fn begins_blank(text: &str) -> bool {
    text.trim_start_matches([' ', '\t']).starts_with('\n')
}

/// How long a formula is that ends with `mark`; where its paragraph ends before, how far that is.
fn formula_length(text: &str, mark: &str) -> Result<usize, usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'$' if text[at..].starts_with(mark) => return Ok(at),
            b'\n' if begins_blank(&text[at + 1..]) => return Err(at),
            _ => {}
        }
    }
    Err(text.len())
}

/// Where each brace that is opened is closed, in order.
fn braces(text: &str) -> Vec<(u32, u32)> {
    let (mut open, mut pairs) = (Vec::new(), Vec::new());
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'{' => {
                open.push(pairs.len());
                pairs.push((at as u32, u32::MAX));
            }
            b'}' => {
                if let Some(pair) = open.pop() {
                    pairs[pair].1 = at as u32;
                }
            }
            _ => {}
        }
    }
    pairs
}

impl<'a> Reading<'a> {
    fn of(text: &'a str) -> Self {
        let (prose, braces) = (Prose::default(), braces(text));
        Self { text, at: 0, prose, braces, ends_block: Vec::new(), begins_block: false, no_formula_to: [0; 2] }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn run(&mut self) {
        while let Some(character) = self.rest().chars().next() {
            let special = |character: char| "\\%{}$&~`'-\n".contains(character);
            let plain = self.rest().find(special).unwrap_or(self.rest().len());
            if plain > 0 {
                self.prose.collapsed(&self.rest()[..plain]);
                self.at += plain;
                continue;
            }
            self.at += character.len_utf8();
            match character {
                '\\' if self.command() => return,
                '\\' => {}
                '%' => {
                    // The line end behind a comment, and what indents the next line, are part of it.
                    self.at += self.rest().find('\n').map_or(self.rest().len(), |end| end + 1);
                    self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
                }
                '{' => self.ends_block.push(std::mem::take(&mut self.begins_block)),
                '}' => {
                    if self.ends_block.pop() == Some(true) {
                        self.prose.block();
                    }
                }
                '$' => self.formula(),
                '&' => self.prose.cell(),
                '~' => self.prose.exactly("\u{a0}"),
                '\n' if begins_blank(self.rest()) => self.prose.block(),
                '\n' => self.prose.collapsed(" "),
                mark => self.ligature(mark),
            }
        }
    }

    /// Quotation marks and dashes, which are typed as several characters.
    fn ligature(&mut self, mark: char) {
        let rest = self.rest();
        let (typed, set) = match mark {
            '`' if rest.starts_with('`') => (1, "“"),
            '`' => (0, "‘"),
            '\'' if rest.starts_with('\'') => (1, "”"),
            '\'' => (0, "’"),
            _ if rest.starts_with("--") => (2, "—"),
            _ if rest.starts_with('-') => (1, "–"),
            _ => (0, "-"),
        };
        self.at += typed;
        self.prose.exactly(set);
    }

    /// A formula, behind its first dollar; one that its paragraph does not end is a dollar.
    fn formula(&mut self) {
        let mark = if self.rest().starts_with('$') { "$$" } else { "$" };
        let start = self.at + mark.len() - 1;
        self.at = start;
        let no_formula_to = self.no_formula_to[mark.len() - 1];
        let length = if start < no_formula_to { Err(no_formula_to - start) } else { formula_length(self.rest(), mark) };
        let length = match length {
            Ok(length) => length,
            Err(looked) => {
                self.no_formula_to[mark.len() - 1] = start + looked;
                return self.prose.exactly(mark);
            }
        };
        self.prose.exactly(&format!("{mark}{}{mark}", &self.rest()[..length]));
        self.at += length + mark.len();
    }

    /// What stands behind a backslash; whether the document ends with it.
    fn command(&mut self) -> bool {
        let rest = self.rest();
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        if letters == 0 {
            self.sign();
            return false;
        }
        let name = &rest[..letters];
        self.at += letters;
        self.at += usize::from(self.rest().starts_with('*'));
        let behind = self.rest().trim_start_matches([' ', '\t']);
        let spaces = self.rest().len() - behind.len();
        let has_letter = behind.starts_with('{') || (spaces > 0 && behind.starts_with(char::is_alphabetic));
        if let Some(accent) = accent(name).filter(|_| has_letter) {
            self.at += spaces;
            self.accented(accent);
            return false;
        }
        match name {
            "begin" | "end" => return self.environment(name == "begin"),
            "item" => {
                self.prose.line();
                if let Some(label) = self.options() {
                    self.prose.collapsed(&plain(label));
                    self.prose.collapsed(" ");
                }
            }
            "par" => self.prose.block(),
            "def" | "let" => self.definition(),
            "newline" | "hline" | "tabularnewline" => self.prose.line(),
            "verb" => self.verbatim(),
            "href" | "hypertarget" | "hyperlink" | "textcolor" | "colorbox" => drop(self.argument()),
            name if HEADINGS.contains(&name) => {
                self.options();
                self.prose.block();
                self.begins_block = true;
            }
            name if WITHOUT_ARGUMENT.contains(&name) => {
                self.options();
                while self.argument().is_some() {}
            }
            name => match symbol(name) {
                Some(symbol) => {
                    self.prose.exactly(symbol);
                    self.swallow();
                }
                None => {
                    self.options();
                    self.swallow();
                }
            },
        }
        false
    }

    /// The space behind a command of letters, or the empty group, is part of it.
    fn swallow(&mut self) {
        let rest = self.rest();
        if rest.starts_with("{}") {
            self.at += 2;
        } else {
            self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
        }
    }

    /// What stands in `[options]`, which are passed over.
    fn options(&mut self) -> Option<&'a str> {
        let near = self.near().strip_prefix('[')?;
        let (options, _) = near.split_once(']')?;
        self.at += options.len() + 2;
        Some(options)
    }

    /// The beginning of what comes.
    fn near(&self) -> &'a str {
        let rest = self.rest();
        &rest[..rest.floor_char_boundary(LONGEST_OPTIONS_BYTES)]
    }

    /// The next argument, which is passed over.
    fn argument(&mut self) -> Option<&'a str> {
        let open = self.at + self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
        let pair = self.braces.binary_search_by_key(&(open as u32), |&(open, _)| open).ok()?;
        let close = Some(self.braces[pair].1).filter(|&close| close != u32::MAX)? as usize;
        self.at = close + 1;
        Some(&self.text[open + 1..close])
    }

    /// A command that is one sign.
    fn sign(&mut self) {
        let Some(sign) = self.rest().chars().next() else { return };
        self.at += sign.len_utf8();
        match sign {
            '\\' => {
                self.options();
                self.prose.line();
            }
            '(' | '[' => {
                let (open, close) = if sign == '(' { ("$", "\\)") } else { ("$$", "\\]") };
                let end = self.rest().find(close).unwrap_or(self.rest().len());
                self.prose.exactly(&format!("{open}{}{open}", &self.rest()[..end]));
                self.at = (self.at + end + 2).min(self.text.len());
            }
            '%' | '&' | '$' | '#' | '_' | '{' | '}' => self.prose.exactly(sign.encode_utf8(&mut [0; 4])),
            ' ' | '\n' => self.prose.collapsed(" "),
            ',' => self.prose.exactly("\u{202f}"),
            '-' | '/' | '!' | ';' | ':' | '>' | '@' => {}
            sign => {
                if let Some(accent) = accent(sign.encode_utf8(&mut [0; 4])) {
                    self.accented(accent);
                }
            }
        }
    }

    /// The letter behind an accent, with it.
    fn accented(&mut self, accent: char) {
        let text = match self.argument() {
            Some(inside) => inside.replace("\\i", "ı").replace("\\j", "ȷ"),
            None if self.rest().starts_with("\\i") => {
                self.at += 2;
                "ı".to_owned()
            }
            None => {
                let letter = self.rest().chars().next().filter(|&letter| letter != '\\');
                self.at += letter.map_or(0, char::len_utf8);
                letter.unwrap_or(' ').to_string()
            }
        };
        let mut letters = text.trim().chars();
        let Some(letter) = letters.next() else { return };
        // TeX takes the dot off an i itself; Unicode's composed letter has none.
        let base = if letter == 'ı' { 'i' } else { letter };
        match compose(base, accent) {
            Some(composed) => self.prose.exactly(&format!("{composed}{}", letters.as_str())),
            None => self.prose.exactly(&format!("{base}{accent}{}", letters.as_str())),
        }
    }

    /// Passes over what a command is defined as: its name, and the braces behind it.
    fn definition(&mut self) {
        let line = self.near().split('\n').next().unwrap_or_default();
        match line.find('{') {
            Some(brace) => {
                self.at += brace;
                while self.argument().is_some() {}
            }
            None => self.at += line.len(),
        }
    }

    /// `\verb|...|`.
    fn verbatim(&mut self) {
        let Some(mark) = self.rest().chars().next() else { return };
        let start = self.at + mark.len_utf8();
        let end = self.text[start..].find(mark).map_or(self.text.len(), |end| start + end);
        self.prose.exactly(&self.text[start..end]);
        self.at = (end + mark.len_utf8()).min(self.text.len());
    }

    /// Behind `\begin` or `\end`; whether the document ends.
    fn environment(&mut self, begins: bool) -> bool {
        let name = self.argument().unwrap_or_default();
        if !begins {
            self.prose.block();
            return name == "document";
        }
        let is_formula = FORMULAS.contains(&name);
        if is_formula || AS_WRITTEN.contains(&name) || name == "comment" {
            let close = format!("\\end{{{name}}}");
            let end = self.rest().find(&close).unwrap_or(self.rest().len());
            let inside = &self.rest()[..end];
            self.prose.block();
            match name {
                "comment" => {}
                _ if is_formula => self.prose.exactly(&format!("$${inside}$$")),
                _ => self.prose.exactly(inside.trim_matches('\n')),
            }
            self.prose.block();
            self.at = (self.at + end + close.len()).min(self.text.len());
            return false;
        }
        self.options();
        if matches!(name, "tabular" | "tabularx" | "array" | "thebibliography" | "minipage" | "multicols" | "longtable")
        {
            while self.argument().is_some() {}
        }
        self.prose.block();
        false
    }
}
