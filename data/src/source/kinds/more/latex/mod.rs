//! LaTeX: the text of a document without its commands. Formulas stay as written, between dollar
//! signs.

mod definitions;
mod names;
mod places;

use super::prose::Prose;
use crate::source::content::Content;
use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader, emit_document, in_one_line};
use crate::source::start::Start;
use names::{FORMULAS, HEADINGS, NOTES, VERBATIM, WITHOUT_TEXT};
use names::{
    accent, arguments_without_text, definition_arguments, environment_arguments, layout_arguments, ligature, symbol,
};
use places::{after_blanks, begins_blank, braces, formula_length, overlay_length};
use unicode_normalization::char::compose;

pub struct Latex;

const ABOUT: About = About {
    id: "latex",
    name: "LaTeX",
    endings: &[".tex", ".latex"],
    document: "a file",
    without: "comments, the preamble, commands, references, pictures",
};

/// The largest file that is read, to bound the memory.
const LARGEST_BYTES: u64 = 16 << 20;

/// How far options, and the braces of a definition, are searched for.
const LONGEST_OPTIONS_BYTES: usize = 1000;

impl Reader for Latex {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn matches(&self, start: &Start) -> bool {
        start.has_generic_name() && start.text().starts_with("\\documentclass")
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let text = content.whole_text(LARGEST_BYTES)?.replace("\r\n", "\n");
        let mut parser = Parser::of(&text);
        let title = text.find("\\title{").and_then(|at| {
            parser.at = at + "\\title".len();
            parser.argument()
        });
        let title = title.map(plain);
        parser.at = 0;
        if let Some(at) = text.find("\\begin{document}") {
            parser.at = at + "\\begin{document}".len();
        }
        parser.run();
        emit_document(title.as_deref(), &parser.finish(), sink)
    }
}

/// The role of a command's argument.
#[derive(Clone, Copy, Default)]
enum Role {
    #[default]
    Text,
    Block,
    Note,
}

struct Parser<'a> {
    text: &'a str,
    /// The offset of the rest, still to be read.
    at: usize,
    body: Prose,
    /// Notes, which come after the body.
    notes: Prose,
    /// The number of open notes.
    open_notes: usize,
    /// The offsets of each pair of braces ([`braces`]).
    braces: Vec<(u32, u32)>,
    /// The stack of open braces, by the role of their content.
    open: Vec<Role>,
    /// The role of the content of the next brace.
    next_role: Role,
    /// The offsets up to which no `$` or `$$` formula ends, so that text is searched only once.
    no_formula_to: [usize; 2],
}

/// The dotless letter if the text begins with its command, `\i` or `\j`.
fn dotless_letter(text: &str) -> Option<&'static str> {
    let (letter, behind) = match text.as_bytes() {
        [b'\\', b'i', behind @ ..] => ("ı", behind),
        [b'\\', b'j', behind @ ..] => ("ȷ", behind),
        _ => return None,
    };
    (!behind.first().is_some_and(u8::is_ascii_alphabetic)).then_some(letter)
}

/// The text without commands, on one line.
fn plain(text: &str) -> String {
    let mut parser = Parser::of(text);
    parser.run();
    in_one_line(&parser.finish())
}

impl<'a> Parser<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            body: Prose::default(),
            notes: Prose::default(),
            open_notes: 0,
            braces: braces(text),
            open: Vec::new(),
            next_role: Role::Text,
            no_formula_to: [0; 2],
        }
    }

    /// The extracted text, with the notes at its end.
    fn finish(mut self) -> String {
        self.body.append_blocks(self.notes);
        self.body.finish()
    }

    /// The destination of text.
    fn prose(&mut self) -> &mut Prose {
        if self.open_notes > 0 { &mut self.notes } else { &mut self.body }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn run(&mut self) {
        while let Some(character) = self.rest().chars().next() {
            let special = |character: char| "\\%{}$&~`'-\n".contains(character);
            let plain = self.rest().find(special).unwrap_or(self.rest().len());
            if plain > 0 {
                let text = &self.rest()[..plain];
                self.prose().push_collapsed(text);
                self.at += plain;
                continue;
            }
            self.at += character.len_utf8();
            match character {
                '\\' if self.command() => return,
                '\\' => {}
                '%' => {
                    // A comment includes its line end and the indentation of the next line.
                    self.at += self.rest().find('\n').map_or(self.rest().len(), |end| end + 1);
                    self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
                    if self.rest().starts_with('\n') {
                        self.prose().block();
                    }
                }
                '{' => self.begin(),
                '}' => self.end(),
                '$' => self.formula(),
                '&' => self.prose().cell(),
                '~' => self.prose().push("\u{a0}"),
                '\n' if begins_blank(self.rest()) => self.prose().block(),
                '\n' => self.prose().push_collapsed(" "),
                mark => {
                    let (typed, set) = ligature(mark, self.rest());
                    self.at += typed;
                    self.prose().push(set);
                }
            }
        }
    }

    /// Handles an opening brace.
    fn begin(&mut self) {
        let role = std::mem::take(&mut self.next_role);
        self.open_notes += usize::from(matches!(role, Role::Note));
        self.open.push(role);
    }

    /// Handles a closing brace.
    fn end(&mut self) {
        match self.open.pop() {
            None | Some(Role::Text) => {}
            Some(Role::Block) => self.prose().block(),
            Some(Role::Note) => {
                self.prose().block();
                self.open_notes -= 1;
            }
        }
    }

    /// Reads a formula, after its first `$`; if it does not end in its paragraph, the sign is text.
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
                return self.prose().push(mark);
            }
        };
        let formula = format!("{mark}{}{mark}", &self.rest()[..length]);
        self.prose().push(&formula);
        self.at += length + mark.len();
    }

    /// Reads a command, after its backslash; returns whether it ends the document.
    fn command(&mut self) -> bool {
        let rest = self.rest();
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        if letters == 0 {
            self.control_symbol();
            return false;
        }
        let name = &rest[..letters];
        self.at += letters;
        self.at += usize::from(self.rest().starts_with('*'));
        if name != "verb" {
            self.at += overlay_length(self.rest());
        }
        let behind = after_blanks(self.rest());
        let blanks = self.rest().len() - behind.len();
        let has_letter = behind.starts_with('{') || (blanks > 0 && behind.starts_with(char::is_alphabetic));
        if let Some(accent) = accent(name).filter(|_| has_letter) {
            self.at += blanks;
            self.accented(accent);
            return false;
        }
        self.execute(name)
    }

    /// Executes a control word, after its name; returns whether it ends the document.
    fn execute(&mut self, name: &str) -> bool {
        if let Some(arguments) = definition_arguments(name) {
            self.skip_definition(arguments);
            return false;
        }
        if let Some(arguments) = layout_arguments(name) {
            self.all_options();
            for _ in 0..arguments {
                self.argument();
                self.all_options();
            }
            return false;
        }
        match name {
            "begin" | "end" => return self.environment(name == "begin"),
            "item" => {
                self.prose().line();
                if let Some(label) = self.options() {
                    self.prose().push_collapsed(&plain(label));
                    self.prose().push_collapsed(" ");
                }
            }
            "par" => self.prose().block(),
            "def" | "edef" | "gdef" | "xdef" => self.skip_tex_definition(),
            "let" => self.skip_let(),
            "bibitem" => {
                self.prose().line();
                self.all_options();
                self.far_argument();
            }
            "newline" | "hline" | "tabularnewline" => self.prose().line(),
            "verb" => self.verbatim(),
            name if HEADINGS.contains(&name) => {
                self.options();
                self.prose().block();
                self.next_role = Role::Block;
            }
            name if NOTES.contains(&name) => {
                self.options();
                if let Some((open, _)) = self.next_braces() {
                    self.at = open;
                    self.next_role = Role::Note;
                }
            }
            name if WITHOUT_TEXT.contains(&name) => {
                self.all_options();
                for _ in 0..arguments_without_text(name) {
                    self.argument();
                }
            }
            name => match symbol(name) {
                Some(symbol) => {
                    self.prose().push(symbol);
                    self.skip_space();
                }
                None => {
                    self.all_options();
                    self.skip_space();
                }
            },
        }
        false
    }

    /// Skips the blanks or the empty group `{}` after a control word.
    fn skip_space(&mut self) {
        let rest = self.rest();
        if rest.starts_with("{}") {
            self.at += 2;
        } else {
            self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
        }
    }

    /// Skips `[options]` and returns their content.
    fn options(&mut self) -> Option<&'a str> {
        let near = self.lookahead().strip_prefix('[')?;
        let (options, _) = near.split_once(']')?;
        self.at += options.len() + 2;
        Some(options)
    }

    /// Skips any number of options.
    fn all_options(&mut self) {
        while self.options().is_some() {}
    }

    /// The beginning of the rest, for a bounded search.
    fn lookahead(&self) -> &'a str {
        let rest = self.rest();
        &rest[..rest.floor_char_boundary(LONGEST_OPTIONS_BYTES)]
    }

    /// Skips the next argument and returns its content.
    fn argument(&mut self) -> Option<&'a str> {
        let (open, close) = self.next_braces()?;
        self.at = close + 1;
        Some(&self.text[open + 1..close])
    }

    /// The offsets of the braces around the next argument.
    fn next_braces(&self) -> Option<(usize, usize)> {
        let open = self.at + self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
        let pair = self.braces.binary_search_by_key(&(open as u32), |&(open, _)| open).ok()?;
        let close = Some(self.braces[pair].1).filter(|&close| close != u32::MAX)?;
        Some((open, close as usize))
    }

    /// Executes a control symbol: a command of one character that is not a letter.
    fn control_symbol(&mut self) {
        let Some(sign) = self.rest().chars().next() else { return };
        self.at += sign.len_utf8();
        match sign {
            '\\' => {
                self.at += usize::from(self.rest().starts_with('*'));
                self.options();
                self.prose().line();
            }
            '(' | '[' => {
                let (open, close) = if sign == '(' { ("$", "\\)") } else { ("$$", "\\]") };
                let end = self.rest().find(close).unwrap_or(self.rest().len());
                let formula = format!("{open}{}{open}", &self.rest()[..end]);
                self.prose().push(&formula);
                self.at = (self.at + end + 2).min(self.text.len());
            }
            '%' | '&' | '$' | '#' | '_' | '{' | '}' => self.prose().push(sign.encode_utf8(&mut [0; 4])),
            ' ' | '\n' => self.prose().push_collapsed(" "),
            ',' => self.prose().push("\u{202f}"),
            '-' | '/' | '!' | ';' | ':' | '>' | '@' => {}
            sign => {
                if let Some(accent) = accent(sign.encode_utf8(&mut [0; 4])) {
                    self.accented(accent);
                }
            }
        }
    }

    /// Adds the letter after an accent command, with the accent.
    fn accented(&mut self, accent: char) {
        let behind = after_blanks(self.rest());
        if behind.starts_with('{') {
            self.at += self.rest().len() - behind.len();
        }
        let text = match (self.argument(), dotless_letter(self.rest())) {
            (Some(inside), _) => inside.replace("\\i", "ı").replace("\\j", "ȷ"),
            (None, Some(letter)) => {
                self.at += 2;
                self.skip_space();
                letter.to_owned()
            }
            (None, None) => {
                let letter = self.rest().chars().next().filter(|&letter| letter != '\\');
                self.at += letter.map_or(0, char::len_utf8);
                letter.unwrap_or(' ').to_string()
            }
        };
        let mut letters = text.trim().chars();
        let Some(letter) = letters.next() else { return };
        // Unicode composes accents with `i` and `j`, not with the dotless letters.
        let base = match letter {
            'ı' => 'i',
            'ȷ' => 'j',
            letter => letter,
        };
        match compose(base, accent) {
            Some(composed) => self.prose().push(&format!("{composed}{}", letters.as_str())),
            None => self.prose().push(&format!("{base}{accent}{}", letters.as_str())),
        }
    }

    /// Reads `\verb|...|`, after its name.
    fn verbatim(&mut self) {
        let Some(mark) = self.rest().chars().next() else { return };
        let start = self.at + mark.len_utf8();
        let end = self.text[start..].find(mark).map_or(self.text.len(), |end| start + end);
        let text = &self.text[start..end];
        self.prose().push(text);
        self.at = (end + mark.len_utf8()).min(self.text.len());
    }

    /// Handles `\begin` or `\end`; returns whether the document ends.
    fn environment(&mut self, begins: bool) -> bool {
        let name = self.argument().unwrap_or_default();
        if !begins {
            self.prose().block();
            return name == "document";
        }
        let is_formula = FORMULAS.contains(&name.trim_end_matches('*'));
        if is_formula || VERBATIM.contains(&name) || name == "comment" {
            if is_formula {
                self.skip_arguments(environment_arguments(name));
            }
            let close = format!("\\end{{{name}}}");
            let end = self.rest().find(&close).unwrap_or(self.rest().len());
            let inside = &self.rest()[..end];
            self.prose().block();
            match name {
                "comment" => {}
                _ if is_formula => self.prose().push(&format!("$${inside}$$")),
                _ => self.prose().push(inside.trim_matches('\n')),
            }
            self.prose().block();
            self.at = (self.at + end + close.len()).min(self.text.len());
            return false;
        }
        self.at += overlay_length(self.rest());
        self.all_options();
        self.skip_arguments(environment_arguments(name));
        self.prose().block();
        false
    }

    /// Skips arguments, each after any options.
    fn skip_arguments(&mut self, count: usize) {
        for _ in 0..count {
            self.all_options();
            self.argument();
        }
    }
}

#[cfg(test)]
mod tests;
