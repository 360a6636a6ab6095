//! Damaged and hostile files: one clear line each, no panic, and no more memory than a few times the
//! file's own size.

#![allow(clippy::unwrap_used)]

mod gguf;
mod llama2c;
mod memory;
mod nanogpt;

use std::path::Path;

use ember_formats::Source;

/// What stands beside what a file's size bears out: a reader's own tables, such as the names of the
/// tensors of a thousand blocks.
const ROOM: usize = 1 << 21;

/// A good file, to be damaged.
fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)).unwrap()
}

/// What reading a file to its last value comes to: an error's line, or nothing. Fails the test where
/// the line is no clear one, or memory was taken that the file's size does not bear out.
fn opened(path: &Path, what: &str) -> Result<(), String> {
    let size = path.metadata().unwrap().len() as usize;
    let (result, most) = memory::most_of(|| read_all(path));
    assert!(most <= 16 * size + ROOM, "{what}: {most} bytes for a file of {size}");
    if let Err(line) = &result {
        assert!(
            !line.contains('\n') && line.len() < 400 && line.contains(&path.display().to_string()),
            "{what}: {line}"
        );
    }
    result
}

fn read_all(path: &Path) -> Result<(), String> {
    let line = |error: ember_formats::FormatError| error.to_string();
    let source = Source::open(path).map_err(line)?.ok_or_else(|| format!("{} is of no format", path.display()))?;
    for tensor in &source.model().map_err(line)?.tensors {
        tensor.values().map_err(line)?;
    }
    Ok(())
}

/// Writes each file in turn and has it refused; at least fifty of them.
fn all_refused(name: &str, files: Vec<(String, Vec<u8>)>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    assert!(files.len() >= 50, "{} files", files.len());
    for (what, bytes) in files {
        std::fs::write(&path, bytes).unwrap();
        let result = opened(&path, &what);
        assert!(result.is_err(), "{what} was opened");
    }
}
