//! Skips definitions with all their arguments.

use super::Parser;
use super::places::after_comments;

impl<'a> Parser<'a> {
    /// Skips a LaTeX definition: a name, then `arguments` arguments with options among them.
    pub fn skip_definition(&mut self, arguments: usize) {
        self.name();
        for _ in 0..arguments {
            self.go_to('[');
            while self.options().is_some() {
                self.go_to('[');
            }
            self.far_argument();
        }
        self.all_options();
    }

    /// Skips the definition of a TeX primitive such as `\def`: a name, parameters, a body in
    /// braces.
    pub fn skip_tex_definition(&mut self) {
        let paragraph = self.lookahead().split("\n\n").next().unwrap_or_default();
        let line = paragraph.find('\n').unwrap_or(paragraph.len());
        self.at += paragraph.find('{').unwrap_or(line);
        self.argument();
    }

    /// Skips the arguments of `\let`: a new name, an optional `=`, and a name that it copies.
    pub fn skip_let(&mut self) {
        self.name();
        self.go_to('=');
        self.at += usize::from(self.rest().starts_with('='));
        self.go_to('\\');
        if self.rest().starts_with('\\') {
            self.name();
        }
    }

    /// Skips a command's name, which may be in braces.
    fn name(&mut self) {
        self.go_to('\\');
        let Some(name) = self.rest().strip_prefix('\\') else {
            self.far_argument();
            return;
        };
        let letters = name.bytes().take_while(|&byte| byte.is_ascii_alphabetic() || byte == b'@').count();
        let sign = name.chars().next().map_or(0, char::len_utf8);
        self.at += 1 + letters.max(sign);
    }

    /// The next argument, possibly after a line end and comments.
    pub fn far_argument(&mut self) -> Option<&'a str> {
        self.go_to('{');
        self.argument()
    }

    /// Advances to this character if only blanks, a line end and comments come before it.
    fn go_to(&mut self, mark: char) {
        let behind = after_comments(self.rest());
        if behind.starts_with(mark) {
            self.at = self.text.len() - behind.len();
        }
    }
}
