//! Compares two runs bit by bit: all tensors of a checkpoint (weights, moments and others), its
//! state, and every logged number that does not measure time or memory.

use std::fs;
use std::path::{Path, PathBuf};

use ember_host::file_error::{At, FileError};
use ember_model::folder::TensorFile;
use serde::Serialize;
use serde_json::{Map, Value};

use super::checkpoint::STATE;
use super::folder::{CHECKPOINTS, METRICS, checkpoint_name};
use crate::error::{LogError, Result};
use crate::step::guard::diagnosis::place;

/// The result of a comparison, which ends at the first difference.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Tensors found equal to the bit.
    pub tensors: usize,
    /// Number of their values.
    pub values: usize,
    /// Top-level entries of the state: step, data position, the guard's state.
    pub state: usize,
    /// Rows of `metrics.jsonl` found equal.
    pub rows: usize,
    /// The first difference.
    pub difference: Option<Difference>,
}

/// A difference between two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The file, relative to the checkpoint or the run.
    pub file: String,
    /// The tensor, the state's entry, or the row.
    pub name: String,
    /// The index of the first differing value in the tensor.
    pub place: Vec<usize>,
    /// How many values of the tensor differ.
    pub values: usize,
    /// The first run's value.
    pub first: String,
    /// The second run's value.
    pub second: String,
}

impl Difference {
    /// The difference between two values; `None` if they are equal.
    fn of<T: PartialEq + ToString>(file: &str, name: &str, first: T, second: T) -> Option<Self> {
        (first != second).then(|| Self {
            file: file.to_owned(),
            name: name.to_owned(),
            place: Vec::new(),
            values: 1,
            first: first.to_string(),
            second: second.to_string(),
        })
    }
}

/// Compares the checkpoints of `step` in two run folders, then their logs.
///
/// # Errors
/// When a file cannot be read.
pub fn compare(first: &Path, second: &Path, step: u64) -> Result<Comparison> {
    let mut comparison = Comparison::default();
    let checkpoints = [first, second].map(|run| run.join(CHECKPOINTS).join(checkpoint_name(step)));
    comparison.difference = comparison.first_difference(&checkpoints, [first, second])?;
    Ok(comparison)
}

impl Comparison {
    /// Finds the first difference, and counts what is equal before it.
    fn first_difference(&mut self, checkpoints: &[PathBuf; 2], runs: [&Path; 2]) -> Result<Option<Difference>> {
        let [files, others] = [tensor_files(&checkpoints[0])?, tensor_files(&checkpoints[1])?];
        let other_files = Difference::of("checkpoint", "files", files.join(" "), others.join(" "));
        if other_files.is_some() {
            return Ok(other_files);
        }
        for file in files {
            let found = self.tensors(&file, checkpoints.each_ref().map(|folder| folder.join(&file)))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        let found = self.state(checkpoints)?;
        if found.is_some() { Ok(found) } else { self.rows(runs) }
    }

    fn tensors(&mut self, file: &str, paths: [PathBuf; 2]) -> Result<Option<Difference>> {
        let [first, second] = [TensorFile::open(&paths[0])?, TensorFile::open(&paths[1])?];
        let names = first.names();
        let other_names = Difference::of(file, "tensors", names.join(" "), second.names().join(" "));
        if other_names.is_some() {
            return Ok(other_names);
        }
        for name in names {
            let (a, b) = (first.read(&name)?, second.read(&name)?);
            let [shape, other] = [&a, &b].map(|tensor| format!("{:?}", tensor.shape));
            let found = Difference::of(file, &format!("shape of {name}"), shape, other)
                .or_else(|| tensor_difference(file, &name, &a.shape, &a.values, &b.values));
            if found.is_some() {
                return Ok(found);
            }
            self.tensors += 1;
            self.values += a.values.len();
        }
        Ok(None)
    }

    fn state(&mut self, checkpoints: &[PathBuf; 2]) -> Result<Option<Difference>> {
        let paths = checkpoints.each_ref().map(|folder| folder.join(STATE));
        let [first, second] = [object(&read(&paths[0])?, &paths[0])?, object(&read(&paths[1])?, &paths[1])?];
        self.state += first.len();
        Ok(object_difference(STATE, "", &first, &second))
    }

    fn rows(&mut self, runs: [&Path; 2]) -> Result<Option<Difference>> {
        let paths = runs.map(|run| run.join(METRICS));
        let [first, second] = [read(&paths[0])?, read(&paths[1])?];
        for (i, (a, b)) in first.lines().zip(second.lines()).enumerate() {
            let (a, b) = (object(a, &paths[0])?, object(b, &paths[1])?);
            let found = object_difference(METRICS, &format!("line {} ", i + 1), &a, &b);
            if found.is_some() {
                return Ok(found);
            }
            self.rows += 1;
        }
        Ok(Difference::of(METRICS, "lines", first.lines().count(), second.lines().count()))
    }
}

/// The first differing value, and how many differ; NaNs with the same bits are equal.
fn tensor_difference(file: &str, name: &str, shape: &[usize], a: &[f32], b: &[f32]) -> Option<Difference> {
    let mut differing = a.iter().zip(b).enumerate().filter(|(_, (a, b))| a.to_bits() != b.to_bits());
    let (index, (x, y)) = differing.next()?;
    let values = 1 + differing.count();
    let (file, name, place) = (file.to_owned(), name.to_owned(), place(index, shape));
    Some(Difference { file, name, place, values, first: x.to_string(), second: y.to_string() })
}

/// The first key whose values differ, except keys that measure time or memory.
fn object_difference(file: &str, prefix: &str, a: &Map<String, Value>, b: &Map<String, Value>) -> Option<Difference> {
    let measured = |key: &str| key.ends_with("_s") || key == "memory_bytes" || key == "mfu";
    let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
    let show = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let key = keys.filter(|key| !measured(key)).find(|key| a.get(*key) != b.get(*key))?;
    Difference::of(file, &format!("{prefix}{key}"), show(a.get(key)), show(b.get(key)))
}

/// Every safetensors file of a checkpoint, those in its top folder first.
fn tensor_files(checkpoint: &Path) -> Result<Vec<String>, FileError> {
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let path = checkpoint.join(&folder);
        for entry in fs::read_dir(&path).at("cannot list the folder", &path)? {
            let entry = entry.at("cannot list the folder", &path)?;
            let name = format!("{folder}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(name + "/");
            } else if name.ends_with(".safetensors") {
                files.push(name);
            }
        }
    }
    files.sort_by_key(|name| (name.contains('/'), name.clone()));
    Ok(files)
}

fn read(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).at("cannot read", path)
}

fn object(text: &str, path: &Path) -> Result<Map<String, Value>, LogError> {
    serde_json::from_str(text).map_err(|source| LogError::Damaged { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use ember_model::folder::{NamedTensor, write_tensors};

    use super::*;

    const ROW: &str = "{\"step\":5,\"train_loss\":2.5,\"tokens_per_s\":10.0,\"elapsed_s\":1.0}\n";
    const STATE_JSON: &str = "{\"step\":5,\"windows\":20,\"elapsed_s\":1.0,\"guard\":{\"norms\":[1.0]}}";

    fn run(folder: &Path, name: &str) -> PathBuf {
        let run = folder.join(name);
        let checkpoint = run.join("checkpoints/step-00000005");
        fs::create_dir_all(checkpoint.join("training")).unwrap();
        let tensor = |name: &str| NamedTensor { name: name.into(), shape: vec![2, 3], values: vec![0.5; 6] };
        write_tensors(&checkpoint.join("model.safetensors"), &[tensor("a"), tensor("b")]).unwrap();
        write_tensors(&checkpoint.join("training/moments.safetensors"), &[tensor("first.a")]).unwrap();
        fs::write(checkpoint.join("training/state.json"), STATE_JSON).unwrap();
        fs::write(run.join("metrics.jsonl"), ROW.repeat(3)).unwrap();
        run
    }

    /// Compares two equal runs after `change` has changed the second.
    fn compared(change: impl FnOnce(&Path)) -> Comparison {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (run(folder.path(), "first"), run(folder.path(), "second"));
        change(&second);
        compare(&first, &second, 5).unwrap()
    }

    fn replace(path: &Path, from: &str, to: &str) {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(from));
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    }

    #[test]
    fn equal_runs_are_equal_whatever_they_took() {
        let same = Comparison { tensors: 3, values: 18, state: 4, rows: 3, difference: None };
        assert_eq!(compared(|_| {}), same);
        let slower = |run: &Path| replace(&run.join("metrics.jsonl"), "\"elapsed_s\":1.0", "\"elapsed_s\":9.0");
        assert_eq!(compared(slower), same);
    }

    #[test]
    fn one_flipped_bit_is_found_and_named() {
        let flipped = |file: &'static str, from_end: usize| {
            let comparison = compared(|run| {
                let path = run.join("checkpoints/step-00000005").join(file);
                let mut bytes = fs::read(&path).unwrap();
                let index = bytes.len() - from_end;
                bytes[index] ^= 1;
                fs::write(&path, bytes).unwrap();
            });
            comparison.difference.unwrap()
        };
        // The lowest bit of the last value but one.
        let found = flipped("model.safetensors", 8);
        assert_eq!((found.name.as_str(), found.place.as_slice(), found.values), ("b", [1, 1].as_slice(), 1));
        assert_eq!((found.first.as_str(), found.second.as_str()), ("0.5", "0.50000006"));
        let found = flipped("training/moments.safetensors", 24);
        assert_eq!((found.name.as_str(), found.place.as_slice()), ("first.a", [0, 0].as_slice()));
    }

    #[test]
    fn another_position_or_loss_is_found_and_named() {
        let state = |run: &Path| replace(&run.join("checkpoints/step-00000005/training/state.json"), "20", "24");
        let found = compared(state).difference.unwrap();
        assert_eq!((found.name.as_str(), found.first.as_str(), found.second.as_str()), ("windows", "20", "24"));
        let loss = |run: &Path| replace(&run.join("metrics.jsonl"), "2.5", "2.6");
        assert_eq!(compared(loss).difference.unwrap().name, "line 1 train_loss");
        let shorter = |run: &Path| fs::write(run.join("metrics.jsonl"), ROW).unwrap();
        assert_eq!(compared(shorter).difference.unwrap().name, "lines");
    }

    #[test]
    fn places_count_rows_first() {
        assert_eq!(place(0, &[2, 3, 4]), [0, 0, 0]);
        assert_eq!(place(17, &[2, 3, 4]), [1, 1, 1]);
        assert_eq!(place(5, &[8]), [5]);
    }
}
