//! Jupyter notebooks (nbformat 3 and 4): what people wrote into the cells.

use super::prose::Prose;
use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader, hand_on};
use crate::source::{content::Content, error::Error};
use serde::Deserialize;

/// The kind.
pub struct Notebook;

const ABOUT: About = About {
    id: "ipynb",
    name: "Jupyter notebook",
    endings: &[".ipynb"],
    document: "a notebook: its cells, parted by blank lines",
    without: "outputs, pictures",
};

/// The largest notebook that is read; pictures in it count, but take no memory beyond this.
const LARGEST_BYTES: u64 = 256 << 20;

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    cells: Vec<Cell>,
    /// Where version 3 has the cells.
    #[serde(default)]
    worksheets: Vec<Worksheet>,
}

#[derive(Deserialize)]
struct Worksheet {
    #[serde(default)]
    cells: Vec<Cell>,
}

#[derive(Deserialize)]
struct Cell {
    /// Code is `input` in version 3.
    #[serde(default, alias = "input")]
    source: Source,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a cell's source is neither a text nor a list of texts")]
enum Source {
    Whole(String),
    Lines(Vec<String>),
}

impl Default for Source {
    fn default() -> Self {
        Self::Whole(String::new())
    }
}

impl Reader for Notebook {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let text = content.whole_text(LARGEST_BYTES)?;
        let document: Document = serde_json::from_str(&text)
            .map_err(|reason| Error::unusable(content.name(), format!("is no notebook ({reason}); save it again")))?;
        let mut prose = Prose::default();
        for cell in document.cells.iter().chain(document.worksheets.iter().flat_map(|sheet| &sheet.cells)) {
            let text = match &cell.source {
                Source::Whole(text) => text.clone(),
                Source::Lines(lines) => lines.concat(),
            };
            prose.block();
            prose.exactly(text.trim_end_matches('\n'));
        }
        hand_on(None, &prose.finish(), sink)
    }
}
