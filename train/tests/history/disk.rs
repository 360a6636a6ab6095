//! A disk that remembers: what a program sees of it, and what a power cut may leave.
//!
//! File systems differ in what they keep of what was never synced, so the rule is harsher than any
//! of them. A file holds what it held at its last sync, and any number of the changes since, in
//! their order, the last of them perhaps in part. A folder has the names that it had at its last
//! sync, and any number of the changes since, in their order; a renaming inside one folder happens
//! whole or not at all. Each file and each folder loses on its own: a file's name may be there
//! without its bytes, and a folder without what is in it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use super::witness::Operation;

/// What is below a folder, by path: what each file holds, and `None` for a folder.
pub type Tree = BTreeMap<String, Option<Arc<Vec<u8>>>>;

/// A file system, changed by one operation after another. Its first node is the top folder.
#[derive(Clone)]
pub struct Disk(Vec<Node>);

#[derive(Clone)]
enum Node {
    File(Cached<Arc<Vec<u8>>, Edit>),
    Folder(Cached<BTreeMap<String, usize>, Names>),
}

/// Something that changes in memory first: what it is now, what it is on the disk, and the changes
/// between the two.
#[derive(Clone)]
struct Cached<T, C> {
    now: T,
    durable: T,
    since: Vec<C>,
}

trait Change<T> {
    /// Makes the change.
    fn make(&self, of: &mut T);
    /// The first part of it, where it can happen in part; `share` is below 1.
    fn part(&self, share: f64) -> Option<Self>
    where
        Self: Sized;
}

/// A change of what a file holds.
#[derive(Clone)]
enum Edit {
    Write(u64, Arc<Vec<u8>>),
    Cut(u64),
}

impl Change<Arc<Vec<u8>>> for Edit {
    fn make(&self, of: &mut Arc<Vec<u8>>) {
        let content = Arc::make_mut(of);
        match self {
            Self::Write(from, bytes) => {
                let (from, to) = (*from as usize, *from as usize + bytes.len());
                content.resize(content.len().max(to), 0);
                content[from..to].copy_from_slice(bytes);
            }
            Self::Cut(length) => content.resize(*length as usize, 0),
        }
    }

    fn part(&self, share: f64) -> Option<Self> {
        match self {
            Self::Write(from, bytes) => {
                Some(Self::Write(*from, bytes[..(share * bytes.len() as f64) as usize].to_vec().into()))
            }
            Self::Cut(_) => None,
        }
    }
}

/// A change of the names in a folder: each with its node, or without one where it is gone.
#[derive(Clone)]
struct Names(Vec<(String, Option<usize>)>);

impl Change<BTreeMap<String, usize>> for Names {
    fn make(&self, of: &mut BTreeMap<String, usize>) {
        for (name, node) in &self.0 {
            match node {
                Some(node) => of.insert(name.clone(), *node),
                None => of.remove(name),
            };
        }
    }

    fn part(&self, _share: f64) -> Option<Self> {
        None
    }
}

impl<T: Clone, C: Change<T>> Cached<T, C> {
    fn new(now: T) -> Self {
        Self { durable: now.clone(), now, since: Vec::new() }
    }

    fn change(&mut self, change: C) {
        change.make(&mut self.now);
        self.since.push(change);
    }

    fn sync(&mut self) {
        self.durable = self.now.clone();
        self.since.clear();
    }

    /// Keeps a share of the changes since the last sync.
    fn lose(&mut self, share: f64) {
        let kept = share * self.since.len() as f64;
        let (whole, rest) = (kept as usize, kept.fract());
        self.now = self.durable.clone();
        self.since[..whole].iter().for_each(|change| change.make(&mut self.now));
        let torn = self.since.get(whole).and_then(|change| change.part(rest));
        torn.inspect(|part| part.make(&mut self.now));
        self.sync();
    }
}

impl Disk {
    /// A disk with nothing on it.
    pub fn new() -> Self {
        Self(vec![Node::Folder(Cached::new(BTreeMap::new()))])
    }

    /// Does what was done.
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

    /// Changes names in the folder that `path` is in.
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

    /// Takes the power away and gives it back; `share` says of each file and folder how much of
    /// what was not synced it keeps, from 0 to 1.
    pub fn lose_power(&mut self, mut share: impl FnMut() -> f64) {
        for node in &mut self.0 {
            match node {
                Node::File(file) => file.lose(share()),
                Node::Folder(folder) => folder.lose(share()),
            }
        }
    }

    /// What a program sees.
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

/// The path of what is called `name` in the folder `path`.
fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// Makes `folder` hold just this.
///
/// # Errors
/// The machine's own disk's.
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

/// What is in a folder of the machine's own disk.
///
/// # Errors
/// That disk's.
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
