//! A folder's checksums: the changes they detect, and the files they do not cover.
#![allow(clippy::unwrap_used)]

use serde_json::Value;

use super::tests::{exact_tensors, tiny, write_folder};
use super::*;

#[test]
fn damage_and_loss_are_found_by_checksum() {
    let dir = write_folder(&tiny(), &exact_tensors(&tiny()));
    let path = dir.path();
    let found = || verify_checksums(path).map_err(|e| e.to_string());
    assert_eq!(found(), Ok(()), "a downloaded folder has no checksums");
    fs::create_dir(path.join("training")).unwrap();
    fs::write(path.join("training/state.json"), "{}").unwrap();
    fs::write(path.join(CARD), "# A model").unwrap();
    write_checksums(path).unwrap();
    fs::write(path.join("notes.txt"), "a file of the user's own").unwrap();
    assert_eq!(found(), Ok(()));
    let list: Value = serde_json::from_str(&fs::read_to_string(path.join("checksums.json")).unwrap()).unwrap();
    assert_eq!(list["training/state.json"]["bytes"], 2);
    assert_eq!(list.as_object().unwrap().len(), 3);
    for (name, edited) in [("generation_config.json", "{}"), (CARD, "license: mit")] {
        fs::write(path.join(name), edited).unwrap();
        assert_eq!(found(), Ok(()), "{name} is the user's to edit");
    }

    fs::write(path.join("training/state.json"), "[]").unwrap();
    assert!(found().unwrap_err().contains("state.json is damaged"));
    fs::remove_dir_all(path.join("training")).unwrap();
    assert!(found().unwrap_err().contains("state.json is missing"));
    verify_checksums_for_inference(path).unwrap();

    let weights = path.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, &bytes).unwrap();
    let message = verify_checksums_for_inference(path).unwrap_err().to_string();
    assert!(message.contains("model.safetensors is damaged"), "{message}");
    fs::write(path.join("checksums.json"), "{").unwrap();
    assert!(found().unwrap_err().contains("checksums.json is damaged"));
}

/// Earlier versions listed `generation_config.json`.
#[test]
fn an_edited_file_is_no_damage_even_if_it_is_listed() {
    let dir = write_folder(&tiny(), &exact_tensors(&tiny()));
    let path = dir.path();
    assert!(!seems_intact(path), "without a list");
    write_checksums(path).unwrap();
    assert!(seems_intact(path));
    let listed = fs::read_to_string(path.join("checksums.json")).unwrap();
    let earlier = listed.replacen('{', r#"{"generation_config.json": {"bytes": 2, "xxh3": "0123456789abcdef"},"#, 1);
    fs::write(path.join("checksums.json"), earlier).unwrap();
    fs::write(path.join("generation_config.json"), "{}").unwrap();
    assert!(seems_intact(path) && verify_checksums(path).is_ok());
    fs::write(path.join("config.json"), "{}").unwrap();
    assert!(!seems_intact(path) && verify_checksums(path).is_err());
}

/// A list of checksums may come from an untrusted source.
#[cfg(unix)]
#[test]
fn a_list_that_names_what_is_not_in_its_folder_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::os::unix::fs::symlink("/dev/zero", path.join("zero")).unwrap();
    for (name, what) in
        [("/dev/zero", "not in its folder"), ("../x", "not in its folder"), ("zero", "not a regular file")]
    {
        let list = format!("{{{name:?}:{{\"bytes\":1,\"xxh3\":\"0000000000000000\"}}}}");
        fs::write(path.join("checksums.json"), list).unwrap();
        let refused = verify_checksums(path).unwrap_err().to_string();
        assert!(refused.contains(what) && refused.contains(name), "{refused}");
    }
}
