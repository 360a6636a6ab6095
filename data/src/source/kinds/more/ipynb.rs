//! Jupyter notebooks (nbformat 3 and 4): the source of the cells.

use super::{json_text::JsonText, prose::Prose};
use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader, emit_document};
use crate::source::{content::Content, error::Error};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

pub struct Notebook;

const ABOUT: About = About {
    id: "ipynb",
    name: "Jupyter notebook",
    endings: &[".ipynb"],
    document: "a notebook: its cells, separated by blank lines",
    without: "outputs, pictures",
};

/// The largest notebook that is read. Pictures in it count, but are not copied.
const LARGEST_BYTES: u64 = 256 << 20;

/// Deserializes a notebook, a list of cells or worksheets (version 3), or a cell. Adds the source
/// of each cell to the text as it is read.
struct Cells<'a>(&'a mut Prose);

impl<'de> DeserializeSeed<'de> for Cells<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Cells<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cells")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Cells(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "cells" | "worksheets" => map.next_value_seed(Cells(self.0))?,
                // In version 3 the source of code is `input`.
                "source" | "input" => {
                    let JsonText(text) = map.next_value()?;
                    self.0.block();
                    self.0.push(text.trim_end_matches('\n'));
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl Reader for Notebook {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let text = content.whole_text(LARGEST_BYTES)?;
        let mut prose = Prose::default();
        let mut json = serde_json::Deserializer::from_str(&text);
        let read = Cells(&mut prose).deserialize(&mut json).and_then(|()| json.end());
        read.map_err(|reason| Error::unusable(content.name(), format!("is not a notebook ({reason}); save it again")))?;
        emit_document(None, &prose.finish(), sink)
    }
}
