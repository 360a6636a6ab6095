//! A simulated disk: what a program sees of it, and what a power cut may leave.
//!
//! File systems differ in how they treat data that was never synced, so the model is harsher than
//! any of them. A file holds its content at the last sync plus any number of the later changes, in
//! order, the last of them perhaps in part. A folder holds its names at the last sync plus any
//! number of the later changes, in order; a rename within one folder is atomic. Files and folders
//! lose changes independently: a file's name may be there without its bytes, and a folder without
//! its entries.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use super::witness::Operation;

/// The entries below a folder, by path: a file's content, and `None` for a folder.
pub type Tree = BTreeMap<String, Option<Arc<Vec<u8>>>>;

/// A file system, changed by one operation after another. Node 0 is the root folder.
#[derive(Clone)]
pub struct Disk(Vec<Node>);

#[derive(Clone)]
enum Node {
    File(Cached<Arc<Vec<u8>>, Edit>),
    Folder(Cached<BTreeMap<String, usize>, Names>),
}

/// Data that is changed in memory first: its current state, its state on the disk, and the changes
/// that lead from the second to the first.
#[derive(Clone)]
struct Cached<T, C> {
    now: T,
    durable: T,
    pending: Vec<C>,
}

trait Change<T> {
    /// Applies the change to `target`.
    fn apply(&self, target: &mut T);
    /// A torn version of the change: its first `share` (below 1), for changes that are not atomic.
    fn torn(&self, share: f64) -> Option<Self>
    where
        Self: Sized;
}

/// A change of a file's content.
#[derive(Clone)]
enum Edit {
    Write(u64, Arc<Vec<u8>>),
    Cut(u64),
}

impl Change<Arc<Vec<u8>>> for Edit {
    fn apply(&self, target: &mut Arc<Vec<u8>>) {
        let content = Arc::make_mut(target);
        match self {
            Self::Write(from, bytes) => {
                let (from, to) = (*from as usize, *from as usize + bytes.len());
                content.resize(content.len().max(to), 0);
                content[from..to].copy_from_slice(bytes);
            }
            Self::Cut(length) => content.resize(*length as usize, 0),
        }
    }

    fn torn(&self, share: f64) -> Option<Self> {
        match self {
            Self::Write(from, bytes) => {
                Some(Self::Write(*from, bytes[..(share * bytes.len() as f64) as usize].to_vec().into()))
            }
            Self::Cut(_) => None,
        }
    }
}

/// A change of the names in a folder: each name's new node, or `None` if the name is removed.
#[derive(Clone)]
struct Names(Vec<(String, Option<usize>)>);

impl Change<BTreeMap<String, usize>> for Names {
    fn apply(&self, target: &mut BTreeMap<String, usize>) {
        for (name, node) in &self.0 {
            match node {
                Some(node) => target.insert(name.clone(), *node),
                None => target.remove(name),
            };
        }
    }

    fn torn(&self, _share: f64) -> Option<Self> {
        None
    }
}

impl<T: Clone, C: Change<T>> Cached<T, C> {
    fn new(now: T) -> Self {
        Self { durable: now.clone(), now, pending: Vec::new() }
    }

    fn change(&mut self, change: C) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        self.durable = self.now.clone();
        self.pending.clear();
    }

    /// Simulates a power cut: keeps this share of the changes since the last sync.
    fn lose(&mut self, share: f64) {
        let kept = share * self.pending.len() as f64;
        let (whole, rest) = (kept as usize, kept.fract());
        self.now = self.durable.clone();
        self.pending[..whole].iter().for_each(|change| change.apply(&mut self.now));
        let torn = self.pending.get(whole).and_then(|change| change.torn(rest));
        torn.inspect(|torn| torn.apply(&mut self.now));
        self.sync();
    }
}

impl Disk {
    /// An empty disk.
    pub fn new() -> Self {
        Self(vec![Node::Folder(Cached::new(BTreeMap::new()))])
    }

    /// Applies an operation.
    pub fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::MakeFolder(path) => self.make(path, Node::Folder(Cached::new(BTreeMap::new()))),
            Operation::MakeFile(path) => self.make(path, Node::File(Cached::new(Arc::default()))),
            Operation::Write(path, from, bytes) => {
                self.file(path).change(Edit::Write(*from, Arc::new(bytes.clone())));
            }
            Operation::Cut(path, length) => self.file(path).change(Edit::Cut(*length)),
            Operation::Rename(from, to) => {
                let node = self.find(from);
                if from.parent() == to.parent() {
                    return self.rename(to, vec![(name(from), None), (name(to), Some(node))]);
                }
                self.rename(from, vec![(name(from), None)]);
                self.rename(to, vec![(name(to), Some(node))]);
            }
            Operation::Remove(path) => self.rename(path, vec![(name(path), None)]),
            Operation::Sync(path) => {
                let node = self.find(path);
                match &mut self.0[node] {
                    Node::File(file) => file.sync(),
                    Node::Folder(folder) => folder.sync(),
                }
            }
        }
    }

    fn make(&mut self, path: &Path, node: Node) {
        self.0.push(node);
        self.rename(path, vec![(name(path), Some(self.0.len() - 1))]);
    }

    /// Changes names in the parent folder of `path`.
    fn rename(&mut self, path: &Path, names: Vec<(String, Option<usize>)>) {
        let folder = self.find(path.parent().unwrap_or(Path::new("")));
        match &mut self.0[folder] {
            Node::Folder(folder) => folder.change(Names(names)),
            Node::File(_) => panic!("{} is in no folder", path.display()),
        }
    }

    fn file(&mut self, path: &Path) -> &mut Cached<Arc<Vec<u8>>, Edit> {
        let node = self.find(path);
        match &mut self.0[node] {
            Node::File(file) => file,
            Node::Folder(_) => panic!("{} is a folder", path.display()),
        }
    }

    fn find(&self, path: &Path) -> usize {
        path.iter().fold(0, |node, name| {
            let inside = match &self.0[node] {
                Node::Folder(folder) => folder.now.get(&*name.to_string_lossy()),
                Node::File(_) => None,
            };
            *inside.unwrap_or_else(|| panic!("{} was never made", path.display()))
        })
    }

    /// Simulates a power cut; `share` says for each file and folder which share of its unsynced
    /// changes survives, from 0 to 1.
    pub fn lose_power(&mut self, mut share: impl FnMut() -> f64) {
        for node in &mut self.0 {
            match node {
                Node::File(file) => file.lose(share()),
                Node::Folder(folder) => folder.lose(share()),
            }
        }
    }

    /// The tree that a program sees.
    pub fn tree(&self) -> Tree {
        let (mut tree, mut open) = (Tree::new(), vec![(String::new(), 0)]);
        while let Some((path, node)) = open.pop() {
            match &self.0[node] {
                Node::File(file) => tree.insert(path, Some(Arc::clone(&file.now))),
                Node::Folder(folder) => {
                    open.extend(folder.now.iter().map(|(name, node)| (join(&path, name), *node)));
                    tree.insert(path, None)
                }
            };
        }
        tree
    }
}

fn name(path: &Path) -> String {
    ember_host::files::name_of(path).unwrap_or_default()
}

/// The path of the entry `name` in the folder `path`.
fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// Makes `folder` on the real disk hold exactly this tree.
///
/// # Errors
/// I/O errors.
pub fn lay_out(tree: &Tree, folder: &Path) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    for (path, content) in tree {
        match content {
            None => fs::create_dir(folder.join(path))?,
            Some(content) => fs::write(folder.join(path), &**content)?,
        }
    }
    Ok(())
}

/// Reads a folder of the real disk.
///
/// # Errors
/// I/O errors.
pub fn read(folder: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut open = vec![String::new()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(folder.join(&path))? {
            let entry = entry?.path();
            let below = join(&path, &name(&entry));
            if entry.is_dir() {
                open.push(below);
            } else {
                tree.insert(below, Some(Arc::new(fs::read(entry)?)));
            }
        }
        tree.insert(path, None);
    }
    Ok(tree)
}

#[test]
fn what_was_not_synced_may_go_file_by_file() {
    let path = |name: &str| std::path::PathBuf::from(name);
    let mut disk = Disk::new();
    let write = |bytes: &[u8]| Operation::Write(path("a"), 0, bytes.to_vec());
    for operation in
        [Operation::MakeFile(path("a")), write(b"old"), Operation::Sync(path("a")), Operation::Sync(path(""))]
    {
        disk.apply(&operation);
    }
    disk.apply(&write(b"new!"));
    disk.apply(&Operation::Rename(path("a"), path("b")));
    for (of_folder, of_file, name, content) in
        [(0.0, 0.0, "a", "old"), (0.0, 1.0, "a", "new!"), (1.0, 0.0, "b", "old"), (1.0, 0.5, "b", "ned")]
    {
        let (mut disk, mut shares) = (disk.clone(), [of_folder, of_file].into_iter());
        disk.lose_power(|| shares.next().unwrap());
        let held = Arc::new(content.as_bytes().to_vec());
        assert_eq!(disk.tree(), Tree::from([(String::new(), None), (name.to_owned(), Some(held))]));
    }
}
