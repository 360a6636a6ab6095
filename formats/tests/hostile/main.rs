//! Damaged and hostile files: one clear line each, no panic, and at most a few times the file's
//! size of memory.

#![allow(clippy::unwrap_used)]

mod gguf;
mod llama2c;
mod memory;
mod nanogpt;

use std::path::Path;

use ember_formats::Source;

/// Memory allowed beyond the file's size: a reader's own tables, such as the names of the tensors
/// of a thousand blocks.
const ROOM: usize = 1 << 21;

/// A valid file, to be damaged.
fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)).unwrap()
}

/// Reads a model to its last value, and returns the error's line. Fails the test if the line is
/// unclear or does not name the `damaged` file (the model's own or one beside it), or if the memory
/// exceeds what the files' sizes justify.
fn opened(model: &Path, damaged: &Path, what: &str) -> Result<(), String> {
    let files = model.parent().unwrap().read_dir().unwrap();
    let size: usize = files.map(|file| file.unwrap().metadata().unwrap().len() as usize).sum();
    let (result, most) = memory::most_of(|| read_all(model));
    assert!(most <= 16 * size + ROOM, "{what}: {most} bytes for files of {size}");
    if let Err(line) = &result {
        assert!(
            !line.contains('\n') && line.len() < 400 && line.contains(&damaged.display().to_string()),
            "{what}: {line}"
        );
    }
    result
}

/// The same for a file of this content, alone in its folder.
fn opened_alone(name: &str, bytes: &[u8]) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    opened(&path, &path, name)
}

fn read_all(path: &Path) -> Result<(), String> {
    let line = |error: ember_formats::FormatError| error.to_string();
    let source = Source::open(path).map_err(line)?.ok_or_else(|| format!("{} is of no format", path.display()))?;
    for tensor in &source.model().map_err(line)?.tensors {
        tensor.values().map_err(line)?;
    }
    Ok(())
}

/// Writes each file in turn and expects an error; at least fifty files.
fn all_refused(name: &str, files: Vec<(String, Vec<u8>)>) {
    let folder = tempfile::tempdir().unwrap();
    all_refused_beside(&folder.path().join(name), name, files);
}

/// The same for a file that is read along with a model: the error must name it.
fn all_refused_beside(model: &Path, name: &str, files: Vec<(String, Vec<u8>)>) {
    let path = model.with_file_name(name);
    assert!(files.len() >= 50, "{} files", files.len());
    for (what, bytes) in files {
        std::fs::write(&path, bytes).unwrap();
        assert!(opened(model, &path, &what).is_err(), "{what} was opened");
    }
}
