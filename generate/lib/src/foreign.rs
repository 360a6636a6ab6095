//! Opens another program's model file as a Hugging Face folder.
//!
//! Models are always opened from folders. So a foreign file is converted once, tensor by tensor,
//! into a folder in the user's cache, which is reused the next time. Folders that were not used for
//! a month are removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ember_formats::{FormatError, Model, Source, hf};
use ember_host::file_error::{At, FileError, with_causes};
use ember_host::files::{UNFINISHED, write_text};
use ember_host::{cache, output};
use ember_model::folder::{StoredWeights, seems_intact, write_checksums};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

/// Version of the conversion, a part of every cache key: it changes when the same file is converted
/// differently.
const CONVERSION_VERSION: u32 = 7;

/// A file beside the converted folder with the path of the source file.
const MADE_OF: &str = "made_of";

/// The error without a cache.
const NO_CACHE: &str = "it has to be converted, and neither HOME nor XDG_CACHE_HOME says where to; set XDG_CACHE_HOME to a \
                        folder that can be written";

/// How long an unused folder is kept.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How long an unfinished folder is kept: another process may still be writing it.
const KEPT_UNFINISHED: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder that a file is converted into, named after the file; `None` if the file is not a
/// model in a supported format.
///
/// # Errors
/// If the file is damaged or has unsupported contents, or the cache cannot be written, or the user
/// has none: another folder may be open to others, who could put their model there.
pub fn folder_of(path: &Path) -> Result<Option<PathBuf>, FormatError> {
    match cache() {
        Some(cache) => folder_in(&cache, path),
        None if Source::open(path)?.is_none() => Ok(None),
        None => Err(output::Error::Refused(format!("{}: {NO_CACHE}", path.display())).into()),
    }
}

/// The file that a folder in the cache was converted from; any other folder itself, and one whose
/// file is gone.
pub fn original_of(folder: &Path) -> PathBuf {
    cache().and_then(|cache| made_of(&cache, folder)).unwrap_or_else(|| folder.to_owned())
}

/// The file that a folder in `cache` was converted from; `None` if the file is gone or the folder
/// was not converted here.
fn made_of(cache: &Path, folder: &Path) -> Option<PathBuf> {
    let place = folder.parent().filter(|place| place.parent() == Some(cache))?;
    let file = PathBuf::from(fs::read_to_string(place.join(MADE_OF)).ok()?);
    file.is_file().then_some(file)
}

fn folder_in(cache: &Path, path: &Path) -> Result<Option<PathBuf>, FormatError> {
    converted_in(cache, path, |model, made| hf::write(model, None, made))
}

/// As [`folder_in`]; `convert` writes the model into a new folder.
fn converted_in(
    cache: &Path,
    path: &Path,
    convert: impl Fn(&Model, &Path) -> Result<(), FormatError>,
) -> Result<Option<PathBuf>, FormatError> {
    let Some(source) = Source::open(path)? else { return Ok(None) };
    let named = key(&source.paths())?;
    let place = cache.join(&named);
    let folder = place.join(path.file_stem().unwrap_or_default());
    let used = folder.join("config.json");
    // A folder that lost files since (a full disk, a clean-up) is converted again.
    if is_whole(&folder) {
        // Record the time of use. Ignore errors: a read-only cache can still be read.
        let _ = fs::File::options().append(true).open(&used).and_then(|file| file.set_modified(SystemTime::now()));
        return Ok(Some(folder));
    }
    let model = source.model()?;
    fs::create_dir_all(cache).at("cannot create the folder", cache).map_err(cache_error)?;
    remove_unused(cache);
    let unfinished = temporary_in(cache)?;
    let made = unfinished.path().join(path.file_stem().unwrap_or_default());
    convert(&model, &made).map_err(|error| attribute_error(path, cache, error))?;
    write_checksums(&made).map_err(cache_error)?;
    if key(&source.paths())? != named {
        let what = "it was changed while it was read; run the command again".to_owned();
        return Err(FormatError::Unsupported { path: path.to_owned(), what });
    }
    let made_of = path.canonicalize().at("cannot open", path)?;
    write_text(&unfinished.path().join(MADE_OF), &made_of.to_string_lossy()).map_err(cache_error)?;
    install(unfinished.path(), &place, &folder)?;
    Ok(Some(folder))
}

/// Moves the finished conversion to its `place`; `folder` is the model's folder there. If another
/// process has put the same there meanwhile, that stays. A damaged folder there is moved aside in
/// one rename, so that no other process finds it half removed.
fn install(made: &Path, place: &Path, folder: &Path) -> Result<(), FormatError> {
    if fs::rename(made, place).is_ok() {
        return Ok(());
    }
    let cache = place.parent().unwrap_or(place);
    // Lock the cache folder, if the system can, so that no process moves aside what another has
    // just put there.
    let _turn = fs::File::open(cache).inspect(|cache| drop(cache.lock()));
    if is_whole(folder) {
        return Ok(());
    }
    let aside = temporary_in(cache)?;
    let _ = fs::rename(place, aside.path().join("lost"));
    match fs::rename(made, place) {
        Err(_) if is_whole(folder) => Ok(()),
        renamed => renamed.at("cannot create the folder", place).map_err(|error| cache_error(error).into()),
    }
}

/// A temporary folder in the cache for unfinished work, removed when dropped.
fn temporary_in(cache: &Path) -> Result<TempDir, output::Error> {
    let made = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(cache);
    made.at("cannot write into", cache).map_err(cache_error)
}

/// The error for a cache that cannot be written, with a remedy.
fn cache_error(error: impl std::error::Error + 'static) -> output::Error {
    output::Error::Refused(format!("{}; set XDG_CACHE_HOME to a folder that can be written", with_causes(&error)))
}

/// Attributes an error of the conversion: to the user's file if that holds an unusable value, or to
/// the cache if that cannot be written.
fn attribute_error(path: &Path, cache: &Path, error: FormatError) -> FormatError {
    let FormatError::File(file) = error else { return error };
    match file.source.get_ref().and_then(|inner| inner.downcast_ref::<FormatError>()) {
        Some(inner) => FormatError::Unsupported { path: path.to_owned(), what: with_causes(inner) },
        None if file.path.starts_with(cache) => cache_error(file).into(),
        None => file.into(),
    }
}

/// Whether a folder is complete. `generation_config.json` is only checked not to be empty: it is in
/// no list of checksums, because users may edit it.
fn is_whole(folder: &Path) -> bool {
    let draws = folder.join("generation_config.json").metadata().is_ok_and(|file| file.len() > 0);
    draws && seems_intact(folder) && StoredWeights::of(folder).is_ok()
}

/// The message for a converted folder without a tokenizer: why there is none, and where to put one,
/// which is beside the source file and not in the cache. `None` if the folder was not converted
/// here.
pub fn without_tokenizer(folder: &Path) -> Option<String> {
    let file = made_of(&cache()?, folder)?;
    let beside = match Source::open(&file).ok()?? {
        Source::Gguf(_) => {
            return Some(format!(
                "{} holds no tokenizer, so text cannot be tokenized; use one that does",
                file.display()
            ));
        }
        Source::Llama2c(_) => "tokenizer.bin",
        Source::NanoGpt(_) => "meta.pkl, tokenizer.json, or vocab.json with merges.txt",
    };
    let folder = file.parent()?.display();
    Some(format!(
        "{} has no tokenizer beside it, so text cannot be tokenized; put the model's own ({beside}) into {folder}",
        file.display()
    ))
}

/// The folder for converted models; `None` if the user has no cache.
fn cache() -> Option<PathBuf> {
    Some(cache::of_user()?.join("models"))
}

/// The cache key of some files: a hash of each one's path, length and modification time, and on
/// Unix its inode and change time, which cannot be set back.
fn key(paths: &[&Path]) -> Result<String, FileError> {
    let mut facts = format!("{CONVERSION_VERSION}");
    for path in paths {
        let (place, file) = (path.canonicalize().at("cannot open", path)?, path.metadata().at("cannot open", path)?);
        facts += &format!(" {place:?} {} {:?}", file.len(), file.modified().at("cannot open", path)?);
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            facts += &format!(" {}:{} {}.{:09}", file.dev(), file.ino(), file.ctime(), file.ctime_nsec());
        }
    }
    Ok(format!("{:016x}", xxh3_64(facts.as_bytes())))
}

/// Removes folders unused for a month and unfinished ones older than a day, ignoring errors.
fn remove_unused(cache: &Path) {
    let is_old = |folder: &Path| {
        let is_unfinished = folder.file_name()?.to_string_lossy().starts_with(UNFINISHED);
        let used = fs::read_dir(folder).ok()?.flatten().map(|inner| inner.path().join("config.json"));
        let used = used.filter_map(|config| config.metadata().ok()?.modified().ok()).max();
        let used = used.or_else(|| folder.metadata().ok()?.modified().ok())?;
        Some(used.elapsed().ok()? > if is_unfinished { KEPT_UNFINISHED } else { KEPT })
    };
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        if is_old(&entry.path()) == Some(true) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::convert::{Format, convert};
    use crate::token_log_probabilities;
    use burn::tensor::Device;
    use ember_host::interrupt::Interrupt;
    use ember_model::folder::expected_tensors;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/tests/fixtures").join(name)
    }

    #[test]
    fn a_file_opens_as_the_folder_that_it_was_made_of() {
        let place = tempfile::tempdir().unwrap();
        let (file, cache) = (place.path().join("small.gguf"), place.path().join("cache"));
        for kind in ["gpt2", "llama", "qwen3"] {
            convert(&fixture(kind), Format::Gguf, None, &file, &Interrupt::new()).unwrap();
            let folder = folder_in(&cache, &file).unwrap().unwrap();
            assert!(folder.ends_with("small"));
            let (before, after) = (StoredWeights::of(&fixture(kind)).unwrap(), StoredWeights::of(&folder).unwrap());
            for (name, shape) in expected_tensors(&before.config) {
                assert_eq!(before.values(&name, &shape).unwrap(), after.values(&name, &shape).unwrap(), "{name}");
            }
            assert_eq!(ember_model::folder::read_end_tokens(&folder).unwrap(), [10]);
            // It is converted once, and again when the file has changed.
            let made = || fs::metadata(folder.join("model.safetensors")).unwrap().modified().unwrap();
            let before = made();
            assert_eq!((folder_in(&cache, &file).unwrap().unwrap(), made()), (folder.clone(), before));
            // A damaged folder is converted again.
            fs::File::options().write(true).open(folder.join("model.safetensors")).unwrap().set_len(100).unwrap();
            assert_eq!(folder_in(&cache, &file).unwrap().unwrap(), folder);
            assert!(StoredWeights::of(&folder).is_ok());
            // A replaced file counts as changed, even with the same name, length and time.
            let (time, bytes) = (fs::metadata(&file).unwrap().modified().unwrap(), fs::read(&file).unwrap());
            fs::remove_file(&file).unwrap();
            fs::write(&file, bytes).unwrap();
            fs::File::options().append(true).open(&file).unwrap().set_modified(time).unwrap();
            #[cfg(unix)]
            assert_ne!(folder_in(&cache, &file).unwrap().unwrap(), folder);
            fs::File::options().append(true).open(&file).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            assert_ne!(folder_in(&cache, &file).unwrap().unwrap(), folder);
        }
    }

    #[test]
    fn a_folder_is_that_of_a_file_only_as_long_as_the_file_is_there() {
        let place = tempfile::tempdir().unwrap();
        let (file, cache) = (place.path().join("small.gguf"), place.path().join("cache"));
        fs::write(&file, fs::read(fixture("llama/f32.gguf")).unwrap()).unwrap();
        let folder = folder_in(&cache, &file).unwrap().unwrap();
        assert_eq!(made_of(&cache, &folder), Some(file.canonicalize().unwrap()));
        assert_eq!(made_of(place.path(), &folder), None);
        fs::remove_file(&file).unwrap();
        assert_eq!(made_of(&cache, &folder), None);
    }

    /// No error blames the user's file.
    #[test]
    fn a_folder_that_lost_anything_is_made_anew() {
        let place = tempfile::tempdir().unwrap();
        let made = || folder_in(&place.path().join("cache"), &fixture("llama/f32.gguf")).unwrap().unwrap();
        let folder = made();
        let names = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "checksums.json"];
        let read = || names.map(|name| fs::read(folder.join(name)).unwrap());
        let before = read();
        for (name, whole) in names.iter().zip(&before) {
            let path = folder.join(name);
            fs::remove_file(&path).unwrap();
            assert_eq!(made(), folder);
            assert!(read() == before, "{name} was missing");
            // A generation_config.json with a user's mistake is reported and stays; an empty one is
            // replaced.
            let left = if *name == "generation_config.json" { 0 } else { whole.len() / 2 };
            fs::write(&path, &whole[..left]).unwrap();
            assert_eq!(made(), folder);
            assert!(read() == before, "{name} was cut short");
        }
        // The same number of weights, but other values.
        let path = folder.join("model.safetensors");
        let mut weights = before[2].clone();
        *weights.last_mut().unwrap() ^= 1;
        fs::write(&path, weights).unwrap();
        let later = SystemTime::now() + Duration::from_secs(2);
        fs::File::options().append(true).open(&path).unwrap().set_modified(later).unwrap();
        made();
        assert!(read() == before);
    }

    /// Log-probabilities from nanoGPT's and llama2.c's own programs.
    #[test]
    fn the_models_of_other_programs_give_their_logits() {
        let cache = tempfile::tempdir().unwrap();
        for name in ["nanogpt/ckpt.pt", "llama2c/v0/model.bin", "llama2c/v1/model.bin"] {
            let folder = folder_in(cache.path(), &fixture(name)).unwrap().unwrap();
            let gpt = ember_model::checkpoint::load(&folder, &Device::flex()).unwrap();
            let expected = fs::read(fixture(name).with_file_name("logprobs.json")).unwrap();
            let expected: serde_json::Value = serde_json::from_slice(&expected).unwrap();
            let numbers = |key: &str| expected[key].as_array().unwrap().iter().map(|number| number.as_f64().unwrap());
            let ids: Vec<u32> = numbers("ids").map(|id| id as u32).collect();
            let (inputs, targets) = (&ids[..ids.len() - 1], &ids[1..]);
            let ours = token_log_probabilities(&gpt, inputs, targets, inputs.len()).unwrap();
            for (ours, theirs) in ours.iter().zip(numbers("logprobs")) {
                assert!((f64::from(*ours) - theirs).abs() < 1e-4, "{name}: {ours}, theirs {theirs}");
            }
        }
    }

    #[test]
    fn what_nobody_opened_for_a_month_makes_room() {
        let place = tempfile::tempdir().unwrap();
        let cache = place.path().join("cache");
        let folder = folder_in(&cache, &fixture("llama/f32.gguf")).unwrap().unwrap();
        let long_ago = SystemTime::now() - 2 * KEPT;
        fs::File::options().append(true).open(folder.join("config.json")).unwrap().set_modified(long_ago).unwrap();
        // Left by a killed process, and in use by a running one.
        let [left, at_work] = ["left", "at-work"].map(|name| cache.join(format!("{UNFINISHED}{name}")));
        for (unfinished, since) in [(&left, 2 * KEPT_UNFINISHED), (&at_work, KEPT_UNFINISHED / 2)] {
            fs::create_dir(unfinished).unwrap();
            fs::File::open(unfinished).unwrap().set_modified(SystemTime::now() - since).unwrap();
        }
        folder_in(&cache, &fixture("gpt2/f32.gguf")).unwrap().unwrap();
        assert!(!folder.exists() && !left.exists() && at_work.exists());
    }

    #[test]
    fn what_changes_while_it_is_converted_is_not_kept() {
        let place = tempfile::tempdir().unwrap();
        let (file, cache) = (place.path().join("small.gguf"), place.path().join("cache"));
        fs::write(&file, fs::read(fixture("llama/f32.gguf")).unwrap()).unwrap();
        let refused = converted_in(&cache, &file, |model, made| {
            fs::File::options().append(true).open(&file).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            hf::write(model, None, made)
        });
        let line = refused.unwrap_err().to_string();
        assert!(line.ends_with("small.gguf: it was changed while it was read; run the command again"), "{line}");
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
    }

    #[test]
    fn whoever_opens_a_file_at_the_same_time_finds_a_whole_folder() {
        let place = tempfile::tempdir().unwrap();
        let cache = place.path().join("cache");
        let at_once = std::sync::Barrier::new(6);
        let open = || {
            at_once.wait();
            assert!(is_whole(&open_alone(&cache)));
        };
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(open);
            }
        });
        // A folder that lost a file is replaced, and nothing of it stays in the cache.
        fs::remove_file(open_alone(&cache).join("tokenizer.json")).unwrap();
        assert!(is_whole(&open_alone(&cache)));
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
    }

    fn open_alone(cache: &Path) -> PathBuf {
        folder_in(cache, &fixture("llama/f32.gguf")).unwrap().unwrap()
    }

    #[test]
    fn a_cache_that_cannot_be_written_names_the_way_out() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let line = folder_in(&file.join("models"), &fixture("llama/f32.gguf")).unwrap_err().to_string();
        assert!(line.starts_with("cannot create the folder "), "{line}");
        assert!(line.ends_with("; set XDG_CACHE_HOME to a folder that can be written"), "{line}");
    }

    #[test]
    fn a_cache_that_fills_up_names_the_way_out_too() {
        let full = |path: &str| {
            let source = std::io::ErrorKind::StorageFull.into();
            let error = FileError { doing: "cannot write", path: path.into(), source };
            attribute_error(Path::new("small.gguf"), Path::new("cache"), error.into()).to_string()
        };
        assert!(full("cache/made/model.safetensors").ends_with("; set XDG_CACHE_HOME to a folder that can be written"));
        assert_eq!(full("small.gguf"), "cannot write small.gguf");
    }

    #[cfg(unix)]
    #[test]
    fn what_another_process_has_put_in_the_place_of_a_damaged_folder_stays() {
        use std::os::unix::fs::MetadataExt;

        let place = tempfile::tempdir().unwrap();
        let [cache, other] = ["cache", "other"].map(|name| place.path().join(name));
        let [folder, whole] = [&cache, &other].map(|cache| open_alone(cache));
        fs::remove_file(folder.join("tokenizer.json")).unwrap();
        let turn = fs::File::open(&cache).unwrap();
        turn.lock().unwrap();
        std::thread::scope(|scope| {
            let late = scope.spawn(|| open_alone(&cache));
            std::thread::sleep(Duration::from_secs(2)); // it has made its own folder, and waits
            let key = folder.parent().unwrap();
            fs::rename(key, place.path().join("lost")).unwrap();
            fs::rename(whole.parent().unwrap(), key).unwrap();
            let number = || fs::metadata(folder.join("config.json")).unwrap().ino();
            let before = number();
            turn.unlock().unwrap();
            assert_eq!(late.join().unwrap(), folder);
            assert_eq!(number(), before);
        });
    }

    #[test]
    fn a_value_that_is_no_number_is_the_file_s_fault() {
        let place = tempfile::tempdir().unwrap();
        let (file, cache) = (place.path().join("small.gguf"), place.path().join("cache"));
        let mut bytes = fs::read(fixture("llama/f32.gguf")).unwrap();
        let last = bytes.len() - 4;
        bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
        fs::write(&file, bytes).unwrap();
        let line = folder_in(&cache, &file).unwrap_err().to_string();
        assert!(line.starts_with(&file.display().to_string()), "{line}");
        assert!(line.contains("tensor lm_head.weight: one of its values is NaN"), "{line}");
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_file_leaves_nothing_in_the_cache() {
        let place = tempfile::tempdir().unwrap();
        let (file, cache) = (place.path().join("small.gguf"), place.path().join("cache"));
        fs::write(&file, &fs::read(fixture("llama/f32.gguf")).unwrap()[..5000]).unwrap();
        assert!(folder_in(&cache, &file).unwrap_err().to_string().contains("is truncated or damaged"));
        assert!(!cache.exists());
        assert_eq!(folder_in(&cache, &fixture("llama/tokenizer.json")).unwrap(), None);
    }
}
