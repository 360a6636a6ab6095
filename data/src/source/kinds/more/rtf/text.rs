//! Assembles the text of RTF: notes come after the document, boxes after their paragraph.

use super::{group::Group, words::Part};
use crate::source::kinds::more::prose::Prose;

/// The text read so far.
#[derive(Default)]
pub struct Text {
    prose: Prose,
    notes: Prose,
    /// The text of boxes, until the end of the paragraph that contains them.
    boxes: Prose,
    in_paragraph: bool,
    place: Place,
}

/// Whether the paragraph is in a table.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    InTable,
    /// The paragraph before was; for this one it is not known yet.
    Unsaid,
}

impl Text {
    /// Adds text of a group.
    pub fn add(&mut self, group: &Group, text: &str) {
        if group.in_note {
            // The number of the note is left out, and so is the blank after it.
            return self.notes.collapsed(text);
        }
        if group.is_main() {
            self.in_paragraph = true;
            if self.place == Place::Unsaid {
                self.place = Place::Outside;
                self.prose.end_table();
            }
        }
        self.of(group).exactly(text);
    }

    /// Applies the structure of paragraphs and tables to the text of a group.
    pub fn part(&mut self, group: &Group, part: Part) {
        match part {
            Part::Default if group.is_main() && self.place == Place::InTable => self.place = Place::Unsaid,
            Part::InTable if group.is_main() => self.place = Place::InTable,
            Part::Default | Part::InTable => {}
            Part::ParagraphEnds => {
                self.of(group).block();
                self.paragraph_ends(group);
            }
            Part::LineEnds => self.of(group).line(),
            Part::RowBegins => self.of(group).begin_cell(),
            Part::CellEnds => {
                self.of(group).cell_of_blocks();
                self.of(group).begin_cell();
            }
            Part::RowEnds => {
                self.of(group).row_of_blocks();
                self.paragraph_ends(group);
                self.place = Place::Outside;
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
        self.prose.blocks_of(self.notes);
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
        self.prose.blocks_of(std::mem::take(&mut self.boxes));
    }
}
