//! Assembles text from the parts of a marked-up document: separates blocks by a blank line, rows
//! and list items by a line end, cells by a tab.

/// The separator before the next text; of several the strongest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    #[default]
    None,
    Space,
    Cell,
    Line,
    Block,
}

/// A text that is being assembled.
#[derive(Debug, Default)]
pub struct Prose {
    text: String,
    gap: Gap,
    /// The offset of a table's open cell in the text, and the separator before it.
    cell: Option<(usize, Gap)>,
    /// The prefix of each line.
    line_prefix: &'static str,
}

impl Prose {
    /// Adds text as it is.
    pub fn push(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let gap = self.before_cell().unwrap_or(self.gap);
        let begins_line = self.text.is_empty() || gap >= Gap::Line;
        if !self.text.is_empty() {
            self.text.push_str(match gap {
                Gap::None => "",
                Gap::Space => " ",
                Gap::Cell => "\t",
                Gap::Line => "\n",
                Gap::Block => "\n\n",
            });
        }
        self.gap = Gap::None;
        if self.line_prefix.is_empty() {
            return self.text.push_str(text);
        }
        if begins_line {
            self.text.push_str(self.line_prefix);
        }
        self.text.push_str(&text.replace('\n', &format!("\n{}", self.line_prefix)));
    }

    /// Sets the prefix of the next lines.
    pub fn set_line_prefix(&mut self, line_prefix: &'static str) {
        self.line_prefix = line_prefix;
    }

    /// Adds text with each run of white space as one space, or nothing at a stronger separator.
    pub fn push_collapsed(&mut self, text: &str) {
        // A no-break space is kept as text.
        let is_space = |character: char| matches!(character, ' ' | '\t' | '\n' | '\r' | '\u{c}');
        for (number, word) in text.split(is_space).enumerate() {
            if number > 0 {
                self.separate(Gap::Space);
            }
            self.push(word);
        }
    }

    /// Begins another block.
    pub fn block(&mut self) {
        self.separate(Gap::Block);
    }

    /// Adds another text as separate blocks.
    pub fn append_blocks(&mut self, other: Self) {
        let text = other.finish();
        if !text.trim_end().is_empty() {
            self.block();
            self.push(text.trim_end());
            self.block();
        }
    }

    /// Begins another line of the same block.
    pub fn line(&mut self) {
        self.separate(Gap::Line);
    }

    /// Begins another cell of a row.
    pub fn cell(&mut self) {
        self.separate(Gap::Cell);
    }

    /// Begins a cell of blocks, whose first block keeps the separator before the cell.
    pub fn begin_cell(&mut self) {
        self.cell = Some((self.text.len(), self.gap));
    }

    /// Ends the cell and its last block, so that only a tab comes before the next cell. An empty
    /// cell leaves no trace.
    pub fn end_cell(&mut self) {
        self.gap = self.before_cell().unwrap_or(Gap::Cell);
        self.cell = None;
    }

    /// Ends the row and its open cell. A row of empty cells leaves no trace.
    pub fn end_row(&mut self) {
        if self.cell.is_some() {
            self.end_cell();
        }
        self.separate(Gap::Line);
    }

    /// Ends the table, even if its last row is still open.
    pub fn end_table(&mut self) {
        if self.cell.take().is_some() {
            self.gap = Gap::Block;
        }
    }

    /// The separator before the open cell, if the cell is still empty.
    fn before_cell(&self) -> Option<Gap> {
        self.cell.filter(|(start, _)| *start == self.text.len()).map(|(_, gap)| gap)
    }

    fn separate(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
    }

    /// The text, with a line end unless it is empty.
    pub fn finish(mut self) -> String {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text
    }
}
