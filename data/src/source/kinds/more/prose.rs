//! Text that is put together from the parts of a marked-up document: blocks are parted by a blank
//! line, rows and list items by a line end, cells by a tab.

/// What parts the next text from the one before; of several the strongest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    #[default]
    None,
    Space,
    Cell,
    Line,
    Block,
}

/// A text that is being put together.
#[derive(Debug, Default)]
pub struct Prose {
    text: String,
    gap: Gap,
    /// Where in the text the open cell of a table begins, and what parts it from what stands before.
    cell: Option<(usize, Gap)>,
    /// What each line begins with.
    mark: &'static str,
}

impl Prose {
    /// Adds text as it is.
    pub fn exactly(&mut self, text: &str) {
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
        if self.mark.is_empty() {
            return self.text.push_str(text);
        }
        if begins_line {
            self.text.push_str(self.mark);
        }
        self.text.push_str(&text.replace('\n', &format!("\n{}", self.mark)));
    }

    /// The lines that come next begin with this mark.
    pub fn begin_lines_with(&mut self, mark: &'static str) {
        self.mark = mark;
    }

    /// Adds text in which any white space is one space, and none at a gap.
    pub fn collapsed(&mut self, text: &str) {
        // A space that nobody may break at is text.
        let is_space = |character: char| matches!(character, ' ' | '\t' | '\n' | '\r' | '\u{c}');
        for (number, word) in text.split(is_space).enumerate() {
            if number > 0 {
                self.part(Gap::Space);
            }
            self.exactly(word);
        }
    }

    /// What comes next stands in another block.
    pub fn block(&mut self) {
        self.part(Gap::Block);
    }

    /// Adds another text, in blocks of its own.
    pub fn blocks_of(&mut self, other: Self) {
        let text = other.finish();
        if !text.trim_end().is_empty() {
            self.block();
            self.exactly(text.trim_end());
            self.block();
        }
    }

    /// What comes next stands on another line of the same block.
    pub fn line(&mut self) {
        self.part(Gap::Line);
    }

    /// What comes next stands in another cell of a row.
    pub fn cell(&mut self) {
        self.part(Gap::Cell);
    }

    /// A cell of blocks begins, whose first block is not parted from what stands before the cell.
    pub fn begin_cell(&mut self) {
        self.cell = Some((self.text.len(), self.gap));
    }

    /// The cell ends, and with it the block in it, which does not part it from the next cell. An empty
    /// cell leaves no trace.
    pub fn cell_of_blocks(&mut self) {
        self.gap = self.before_cell().unwrap_or(Gap::Cell);
        self.cell = None;
    }

    /// The row ends, and with it its cells and the blocks in them. A row of empty cells leaves no trace.
    pub fn row_of_blocks(&mut self) {
        if self.cell.is_some() {
            self.cell_of_blocks();
        }
        self.part(Gap::Line);
    }

    /// The table ends, where its last row may not have ended.
    pub fn end_table(&mut self) {
        if self.cell.take().is_some() {
            self.gap = Gap::Block;
        }
    }

    /// What stands before the open cell, as long as nothing is in it.
    fn before_cell(&self) -> Option<Gap> {
        self.cell.filter(|(start, _)| *start == self.text.len()).map(|(_, gap)| gap)
    }

    fn part(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
    }

    /// The text, with a line end behind it where there is any.
    pub fn finish(mut self) -> String {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text
    }
}
