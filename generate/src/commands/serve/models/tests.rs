//! Models that are loaded, evicted, and loaded anew.
#![allow(clippy::unwrap_used)]
use std::path::Path;
use std::thread;

use ember_decoding::config::GenerationConfig;
use ember_decoding::engine::Request;
use ember_decoding::{Plan, generate_batch};
use serde_json::json;

use super::super::tests::{checkpoint, tokenizer};
use super::*;

fn models_of(folder: &Path, cache_bytes: usize, max_bytes: usize) -> Result<Models> {
    checkpoint(folder, &tokenizer());
    let folders = ["a", "b"].map(|name| NamedFolder { name: name.to_owned(), folder: folder.to_owned() }).to_vec();
    let options =
        LoadOptions { device: Device::flex(), weights: WeightType::F32, tokens_per_step: 16, cache_bytes, max_bytes };
    Models::new(Served { folders, run: None }, options)
}

fn get(models: &Models, name: &str) -> Result<Arc<Model>, ApiError> {
    let (wanted, lock) = (models.find(Some(name))?, Arc::clone(&models.load_lock).try_lock_owned().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(models.wait_for_memory(&wanted, Instant::now() + MAX_WAIT))?;
    models.get(&wanted, lock)
}

/// A dropped model's memory is free before another model is loaded, even if a request still
/// uses it.
#[test]
fn models_take_no_more_memory_than_they_may() {
    let folder = tempfile::tempdir().unwrap();
    let models = models_of(folder.path(), 1 << 20, 1 << 20).unwrap();
    let first = get(&models, "a").unwrap();
    assert!(Arc::ptr_eq(&first, &get(&models, "a").unwrap()));
    thread::scope(|scope| {
        let second = scope.spawn(|| get(&models, "b").map(|model| model.name.clone()).unwrap());
        thread::sleep(10 * POLL_INTERVAL);
        assert!(!second.is_finished() && models.engine_count() == 1);
        drop(first);
        assert_eq!(second.join().unwrap(), "b");
    });
    assert_eq!(models.engine_count(), 1);
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    assert!(get(&models, "b").is_ok());
    assert_eq!(get(&models, "a").err().unwrap().body()["error"]["code"], 404);
}

/// A fault of a kernel costs the requests that were running, and no later ones.
#[test]
fn a_model_whose_engine_has_ended_is_loaded_anew() {
    let folder = tempfile::tempdir().unwrap();
    let models = models_of(folder.path(), 1 << 20, 1 << 20).unwrap();
    let config = GenerationConfig { max_new_tokens: 1, ..GenerationConfig::default() };
    let write = |request: &Request| generate_batch(request, &[&[1, 2]], &Plan::new(&config), &mut ());
    let first = get(&models, "a").unwrap();
    let faulty = first.engine.request(Default::default()).telling(|_| panic!("a fault"));
    for request in [faulty, first.engine.request(Default::default())] {
        let error = ApiError::from(write(&request).err().unwrap());
        assert_eq!((&error.body()["error"]["code"], error.of_device()), (&json!(500), None));
    }
    assert!(models.in_memory(&models.find(Some("a")).unwrap()).is_none());
    drop(first);
    let again = get(&models, "a").unwrap();
    assert!(write(&again.engine.request(Default::default())).is_ok());
    assert_eq!(models.engine_count(), 1);
}

#[test]
fn a_model_whose_template_cannot_be_used_is_served_without() {
    let folder = tempfile::tempdir().unwrap();
    let models = models_of(folder.path(), 1 << 20, 1 << 30).unwrap();
    std::fs::write(folder.path().join("chat_template.jinja"), "{% if messages %}").unwrap();
    for model in [models.load_default().unwrap(), get(&models, "b").unwrap()] {
        assert!(model.template.is_none());
        assert!(
            model.template_refused.as_deref().is_some_and(|why| why.contains("syntax error")),
            "{:?}",
            model.template_refused
        );
    }
    std::fs::write(folder.path().join("chat_template.jinja"), "{{ messages }}").unwrap();
    let model = models.load(&models.find(None).unwrap()).unwrap();
    assert!(model.template.is_some() && model.template_refused.is_none());
}

#[test]
fn one_that_is_at_work_is_there_for_others_and_who_needs_its_memory_is_told_to_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let models = models_of(folder.path(), 1 << 20, 1 << 20).unwrap();
    let first = get(&models, "a").unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| get(&models, "b").err().unwrap().body()["error"]["code"].clone());
        thread::sleep(10 * POLL_INTERVAL);
        let found = models.in_memory(&models.find(Some("a")).unwrap());
        assert!(!second.is_finished() && Arc::ptr_eq(&first, &found.unwrap()));
        assert_eq!(second.join().unwrap(), 503);
    });
    assert!(Arc::ptr_eq(&first, &get(&models, "a").unwrap()));
    drop(first);
    assert_eq!(get(&models, "b").unwrap().name, "b");
}

#[test]
fn a_cache_has_room_for_two_texts_of_the_whole_context() {
    let folder = tempfile::tempdir().unwrap();
    let error = models_of(folder.path(), 1000, 1 << 30).unwrap().load_default().err().unwrap().to_string();
    assert!(error.starts_with("--cache-mib is 0; two texts of the model's context of 64 tokens"), "{error}");
}

#[test]
fn a_device_has_room_for_two_texts_of_the_whole_context() {
    let folder = tempfile::tempdir().unwrap();
    let models = models_of(folder.path(), 1 << 30, 1 << 30).unwrap();
    let shape = read_config(folder.path()).unwrap();
    let positions = |most_slots| models.options.memory(&shape, most_slots).map(|memory| memory.positions);
    assert_eq!([128, 1000, usize::MAX].map(|most_slots| positions(most_slots).unwrap()), [128, 1000, 256 * 64]);
    let error = positions(127).unwrap_err().to_string();
    assert!(error.starts_with("the device can hold 127 positions of the model's KV cache; two texts"), "{error}");
    assert!(error.ends_with("need 128; use --device cpu"), "{error}");
}
