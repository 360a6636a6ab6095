//! Assembles the text of RTF: notes come after the document, boxes after their paragraph.

use super::{group::Group, words::Structure};
use crate::source::kinds::more::prose::Prose;

/// The text read so far.
#[derive(Default)]
pub struct Text {
    prose: Prose,
    notes: Prose,
    /// The text of boxes, until the end of the paragraph that contains them.
    boxes: Prose,
    in_paragraph: bool,
    table: TableState,
}

/// Whether the paragraph is in a table.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum TableState {
    #[default]
    Outside,
    InTable,
    /// The paragraph before was; for this one it is not known yet.
    Unknown,
}

impl Text {
    /// Adds text of a group.
    pub fn add(&mut self, group: &Group, text: &str) {
        if group.in_note {
            // The number of the note is left out, and so is the blank after it.
            return self.notes.push_collapsed(text);
        }
        if group.is_main() {
            self.in_paragraph = true;
            if self.table == TableState::Unknown {
                self.table = TableState::Outside;
                self.prose.end_table();
            }
        }
        self.of(group).push(text);
    }

    /// Applies the structure of paragraphs and tables to the text of a group.
    pub fn structure(&mut self, group: &Group, structure: Structure) {
        match structure {
            Structure::Default if group.is_main() && self.table == TableState::InTable => {
                self.table = TableState::Unknown;
            }
            Structure::InTable if group.is_main() => self.table = TableState::InTable,
            Structure::Default | Structure::InTable => {}
            Structure::ParagraphEnds => {
                self.of(group).block();
                self.paragraph_ends(group);
            }
            Structure::LineEnds => self.of(group).line(),
            Structure::RowBegins => self.of(group).begin_cell(),
            Structure::CellEnds => {
                self.of(group).end_cell();
                self.of(group).begin_cell();
            }
            Structure::RowEnds => {
                self.of(group).end_row();
                self.paragraph_ends(group);
                self.table = TableState::Outside;
            }
        }
    }

    /// Begins a note.
    pub fn note_begins(&mut self) {
        self.notes.block();
    }

    /// Begins a text box in a group.
    pub fn box_begins(&mut self, group: &Group) {
        self.of(group).block();
    }

    /// Ends a text box and its group; `outer` is the group around it.
    pub fn box_ended(&mut self, outer: &Group) {
        if !outer.is_main() {
            self.of(outer).block();
        } else if !self.in_paragraph {
            self.place_boxes();
        }
    }

    /// The text with the notes at its end.
    pub fn finish(mut self) -> String {
        self.place_boxes();
        self.prose.append_blocks(self.notes);
        self.prose.finish()
    }

    fn of(&mut self, group: &Group) -> &mut Prose {
        if group.in_note {
            &mut self.notes
        } else if group.boxes > 0 {
            &mut self.boxes
        } else {
            &mut self.prose
        }
    }

    fn paragraph_ends(&mut self, group: &Group) {
        if group.is_main() {
            self.in_paragraph = false;
            self.place_boxes();
        }
    }

    fn place_boxes(&mut self) {
        self.prose.append_blocks(std::mem::take(&mut self.boxes));
    }
}
