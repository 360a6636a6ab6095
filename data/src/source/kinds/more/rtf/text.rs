//! Where the text of RTF goes: notes come behind the document, boxes behind the paragraph that they stand in.

use super::{group::Group, words::Part};
use crate::source::kinds::more::prose::Prose;

/// The text that was read.
#[derive(Default)]
pub struct Text {
    prose: Prose,
    notes: Prose,
    /// Text of boxes that waits for the end of the paragraph that they stand in.
    boxes: Prose,
    in_paragraph: bool,
    place: Place,
}

/// Whether the paragraph stands in a table.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    InTable,
    /// The one before did, and nothing says so of this one yet.
    Unsaid,
}

impl Text {
    /// Adds what a group says.
    pub fn add(&mut self, group: &Group, text: &str) {
        if group.in_note {
            // Its number is not written, and neither is the blank behind it.
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

    /// Parts the text of a group.
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

    /// A note begins.
    pub fn note_begins(&mut self) {
        self.notes.block();
    }

    /// A box begins in a group.
    pub fn box_begins(&mut self, group: &Group) {
        self.of(group).block();
    }

    /// A box has ended, and its group with it; `outer` is the one around.
    pub fn box_ended(&mut self, outer: &Group) {
        if !outer.is_main() {
            self.of(outer).block();
        } else if !self.in_paragraph {
            self.place_boxes();
        }
    }

    /// All of it.
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
