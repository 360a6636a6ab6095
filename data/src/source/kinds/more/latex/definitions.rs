//! Definitions, which are passed over with all that they say.

use super::Reading;
use super::places::behind_comments;

impl<'a> Reading<'a> {
    /// Passes over what LaTeX's commands define: a name, and so many arguments, options among them.
    pub fn definition(&mut self, arguments: usize) {
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

    /// Passes over what TeX's own commands define: a name, its parameters, and the braces behind them.
    pub fn plain_definition(&mut self) {
        let paragraph = self.near().split("\n\n").next().unwrap_or_default();
        let line = paragraph.find('\n').unwrap_or(paragraph.len());
        self.at += paragraph.find('{').unwrap_or(line);
        self.argument();
    }

    /// Passes over a name, and what it is to stand for, another name.
    pub fn second_name(&mut self) {
        self.name();
        self.go_to('=');
        self.at += usize::from(self.rest().starts_with('='));
        self.go_to('\\');
        if self.rest().starts_with('\\') {
            self.name();
        }
    }

    /// Passes over a command's name, which may stand in braces.
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

    /// The next argument, which may stand behind a line end and comments.
    pub fn far_argument(&mut self) -> Option<&'a str> {
        self.go_to('{');
        self.argument()
    }

    /// Goes on to this mark where only blanks, a line end and comments stand before it.
    fn go_to(&mut self, mark: char) {
        let behind = behind_comments(self.rest());
        if behind.starts_with(mark) {
            self.at = self.text.len() - behind.len();
        }
    }
}
