//! The files in a folder of text that are not read, and why.

use super::{foreign::Foreign, kinds::Kind};
use crate::numbers::counted;
use serde::{Deserialize, Serialize, de};
use std::collections::BTreeMap;

/// A file or folder inside a folder of text that is not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its path.
    pub name: String,
    /// What it is.
    pub kind: LeftOutKind,
    /// Why it is not read, in a line that names it.
    pub reason: String,
}

/// Why something is left out. Reports group by it; a manifest has one word for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOutKind {
    /// A file of another program that has to be saved in another format first.
    Foreign(Foreign),
    /// An empty file.
    Empty,
    /// A file that is not text.
    Binary,
    /// A file that cannot be used: damaged, in another encoding, without the requested field, or
    /// without permission to read it.
    Unusable(Kind),
    /// A zip or tar archive that cannot be read.
    Archive,
    /// A link to a missing file, or any link in an archive.
    Link,
    /// A folder without permission to read it.
    Folder,
    /// The folder of a run.
    Run,
    /// A folder that `prepare` wrote.
    Prepared,
    /// A page or a recipe that these programs wrote.
    Own,
}

impl LeftOutKind {
    const WITHOUT_KIND: [Self; 8] =
        [Self::Empty, Self::Binary, Self::Archive, Self::Link, Self::Folder, Self::Run, Self::Prepared, Self::Own];

    fn id(self) -> &'static str {
        match self {
            Self::Foreign(foreign) => foreign.id(),
            Self::Empty => "empty",
            Self::Binary => "binary",
            Self::Unusable(kind) => kind.about().id,
            Self::Archive => "archive",
            Self::Link => "link",
            Self::Folder => "folder",
            Self::Run => "run",
            Self::Prepared => "prepared",
            Self::Own => "own",
        }
    }

    /// A count of the kind in words.
    fn words(self, count: usize) -> String {
        let (what, rest) = match self {
            Self::Foreign(foreign) => foreign.words(),
            Self::Empty => ("empty file", ""),
            Self::Binary if count == 1 => ("file", " that is not text"),
            Self::Binary => ("file", " that are not text"),
            Self::Unusable(kind) => {
                let files = counted(count, &format!("{} file", kind.about().name));
                return files + " that cannot be used";
            }
            Self::Archive => ("archive", " that cannot be used"),
            Self::Link => ("link", ""),
            Self::Folder => ("folder", " that cannot be read"),
            Self::Run => ("run", ""),
            Self::Prepared => ("prepared text", ""),
            Self::Own => ("file", " written by Ember"),
        };
        counted(count, what) + rest
    }
}

impl Serialize for LeftOutKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

impl<'de> Deserialize<'de> for LeftOutKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = String::deserialize(deserializer)?;
        let found = Self::WITHOUT_KIND.into_iter().find(|kind| kind.id() == id);
        let foreign = || Foreign::ALL.into_iter().find(|foreign| foreign.id() == id).map(Self::Foreign);
        let found = found.or_else(foreign).or_else(|| Kind::by_id(&id).map(Self::Unusable));
        found.ok_or_else(|| de::Error::custom(format!("nothing is left out as {id:?}")))
    }
}

impl LeftOut {
    /// A line for each kind in `all`: the count, and the reason of the first, as in `3 links, the
    /// first: gone.txt is a link to a missing file`.
    pub fn summary(all: &[Self]) -> Vec<String> {
        Self::firsts(all).into_iter().map(|(first, count)| first.line(count, &first.reason)).collect()
    }

    /// The first of each kind in `all`, with the count of its kind.
    pub fn firsts(all: &[Self]) -> Vec<(&Self, usize)> {
        let mut kinds: BTreeMap<LeftOutKind, (&Self, usize)> = BTreeMap::new();
        for one in all {
            kinds.entry(one.kind).or_insert((one, 0)).1 += 1;
        }
        kinds.into_values().collect()
    }

    /// The line of its kind in a summary, with this reason; it is the first of `count`.
    pub fn line(&self, count: usize, reason: &str) -> String {
        let first = if count == 1 { "" } else { ", the first" };
        format!("{}{first}: {reason}", self.kind.words(count))
    }
}
