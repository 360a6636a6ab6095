//! A run's records, and their uses: pictures, comparisons, timelines, and starting another run.

use std::path::Path;

use serde_json::{Value, json};

use super::{Place, Ran, SMALL, root, small_run};

fn rows(place: &Place, log: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(place.path(log)).unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn val_losses(place: &Place, run: &str) -> Vec<f64> {
    rows(place, &format!("{run}/metrics.jsonl")).iter().filter_map(|row| row["val_loss"].as_f64()).collect()
}

/// The words of `super::text`, counting down.
fn countdown() -> String {
    let words = ["seven", "six", "five", "four", "three", "two", "one"];
    (0..600).map(|i| format!("{} and then {}.\n", words[i % 7], words[(i + 1) % 7])).collect()
}

#[test]
fn a_run_is_drawn_again_from_its_log_and_beside_others() {
    let place = Place::new();
    place.train(&small_run(&place, "a", 30)).succeeds();
    place.train(&format!("{} --set learning_rate=0.0005", small_run(&place, "b", 30))).succeeds();
    let first = &rows(&place, "a/metrics.jsonl")[0];
    assert!(first["run"]["parameters"].as_u64().unwrap() > 0, "{first}");

    let drawn = std::fs::read_to_string(place.path("a/loss.svg")).unwrap();
    std::fs::remove_file(place.path("a/loss.svg")).unwrap();
    let ran = place.train("compare a").succeeds();
    assert!(!ran.out.contains('\u{1b}') && ran.out.contains("validation loss"), "{}", ran.out);
    assert_eq!(std::fs::read_to_string(place.path("a/loss.svg")).unwrap(), drawn);
    // A picture over time is another one, and does not replace loss.svg.
    assert!(place.train("compare a --by time").succeeds().err.ends_with("--svg FILE writes the picture\n"));
    assert_eq!(std::fs::read_to_string(place.path("a/loss.svg")).unwrap(), drawn);
    place.train("compare a --by time --svg time.svg").succeeds();
    assert!(std::fs::read_to_string(place.path("time.svg")).unwrap().contains("time"));
    // A picture that nobody asked for may fail: the command only notes it.
    std::fs::remove_file(place.path("a/loss.svg")).unwrap();
    std::fs::create_dir(place.path("a/loss.svg")).unwrap();
    let ran = place.train("compare a").succeeds();
    let note = ran.err.lines().last().unwrap();
    assert!(ran.out.contains("validation loss") && note.ends_with("; --svg FILE draws the losses elsewhere"), "{note}");
    assert_eq!(note.matches("loss.svg").count(), 1, "{note}");
    // The end of a run does not depend on the picture either.
    let ran = place.train("resume a --device cpu --set max_steps=40").succeeds();
    for expected in
        ["best validation loss ", "; `ember-train compare a --svg FILE` draws the losses", "generate with it"]
    {
        assert!(ran.err.contains(expected), "{expected} in {}", ran.err);
    }
    #[cfg(unix)]
    {
        std::fs::remove_dir(place.path("a/loss.svg")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(place.path("a/loss.svg")).status().unwrap().success());
        let ran = place.train("resume a --device cpu --set max_steps=41").succeeds();
        assert!(
            ran.err.contains("a/loss.svg: it is not a regular file; ") && ran.err.contains("generate with it: "),
            "{}",
            ran.err
        );
        let ran = place.train("compare a").succeeds();
        assert!(ran.err.ends_with("a/loss.svg: it is not a regular file; --svg FILE draws the losses elsewhere\n"));
    }

    // A killed run may have half a line at the end of its log, and no configuration.
    let log = std::fs::read_to_string(place.path("b/metrics.jsonl")).unwrap();
    std::fs::write(place.path("b/metrics.jsonl"), &log[..log.len() - 9]).unwrap();
    let ran = place.train("compare a b --svg both.svg --by tokens --log --format json").succeeds();
    let [a, b] = &ran.json()[..] else { panic!("{}", ran.out) };
    assert_eq!((a["run"].as_str(), b["run"].as_str()), (Some("a"), Some("b")));
    assert_eq!(b["differs"]["learning_rate"], "0.0005");
    assert!(a["differs"].get("n_layer").is_none() && a["best_val_loss"].as_f64().unwrap() > 0.0);
    assert!(std::fs::read_to_string(place.path("both.svg")).unwrap().contains("learning_rate"));
    std::fs::remove_file(place.path("b/config.toml")).unwrap();
    assert!(place.train("compare a b").succeeds().err.contains("no config.toml"));
}

#[test]
fn the_stories_bits_per_byte_are_the_same_wherever_runs_are_told() {
    let place = Place::new();
    place.train(&format!("run --out stories --set stories=1000 --set max_steps=4 {SMALL}")).succeeds();
    let [listed, compared] = ["runs", "compare"].map(|command| {
        place.train(&format!("{command} stories --format json")).succeeds().json()[0]["bits_per_byte"].as_f64()
    });
    assert!(listed > Some(0.5) && listed == compared, "{listed:?} {compared:?}");
}

#[test]
fn the_same_prompts_are_kept_at_every_look_and_shown_in_line() {
    let place = Place::new();
    place.write("count.txt", super::text());
    place.write(
        "two.toml",
        "n_layer = 1\nn_head = 2\nn_embd = 32\ncontext_length = 32\nmax_steps = 40\neval_interval = 10\nsample_tokens = 30\n\
         batch_size = 4\nsample_prompts = [\"one and\", \"\"]\ntensorboard = true\n",
    );
    place.train("run count.txt --config two.toml --out run --device cpu").succeeds();
    let samples = rows(&place, "run/samples/samples.jsonl");
    assert_eq!(samples.len(), 8); // two prompts at each of four evaluations
    assert!(std::fs::read_to_string(place.path("run/samples/step-00000010.txt")).unwrap().contains("one and"));
    assert_eq!(std::fs::read_dir(place.path("run/tensorboard")).unwrap().count(), 1);

    let ran = place.train("timeline run --html line.html --format json").succeeds();
    let moments = ran.json();
    assert_eq!(moments.len(), 8);
    assert!(moments.iter().all(|moment| moment["val_loss"].as_f64().is_some()), "{}", ran.out);
    assert_eq!(moments[0]["same_characters"], Value::Null);
    let page = std::fs::read_to_string(place.path("line.html")).unwrap();
    assert!(page.contains("one and") && !page.contains("http"), "{page}");
    let last = place.train("timeline run --prompt 1 --last 2").succeeds().out;
    assert!(last.contains("step 40") && last.contains("step 30") && !last.contains("step 20"), "{last}");
}

#[test]
fn a_run_begins_from_another_keeps_what_it_knew_and_needs_it_no_more() {
    let place = Place::new();
    place.train(&small_run(&place, "base", 100)).succeeds();
    let base = *val_losses(&place, "base").last().unwrap();
    let tuning = "--device cpu --set eval_interval=10 --set batch_size=8 --set dropout=0 --set sample_interval=0";

    // With a learning rate near 0 nothing is forgotten; the starting checkpoint is evaluated first.
    let still = format!("run count.txt --init base --out still --set learning_rate=1e-9 --set max_steps=20 {tuning}");
    let ran = place.train(&still).succeeds();
    assert!(ran.err.contains("beginning from base/checkpoints/step-00000100"), "{}", ran.err);
    let losses = val_losses(&place, "still");
    assert_eq!(losses.len(), 3);
    assert!(losses.iter().all(|loss| (loss - base).abs() < 1e-3), "{base} {losses:?}");

    // On another text with the same words it starts with a lower loss, and keeps the lead.
    place.write("down.txt", countdown());
    let ran = place.train(&format!("run down.txt --init base --out tuned --set max_steps=40 {tuning}")).succeeds();
    assert!(ran.err.contains("learning_rate") && ran.err.contains("to keep what"), "{}", ran.err);
    let shape = "--set n_layer=2 --set n_head=2 --set n_embd=32 --set context_length=32";
    place.train(&format!("run down.txt --out scratch --set max_steps=40 {shape} {tuning}")).succeeds();
    let (tuned, scratch) = (val_losses(&place, "tuned"), val_losses(&place, "scratch"));
    assert!(tuned.last().unwrap() < scratch.last().unwrap(), "{tuned:?} {scratch:?}");

    // A shared page shows the name of the starting checkpoint, not its path.
    place.train("share tuned --html page.html --skip-copied").succeeds();
    let page = std::fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.contains("\"began\":\"base, step 100\""), "the page does not say what the run began from");

    // The configuration records the starting checkpoint; resuming does not need it, even at step 0.
    let config = std::fs::read_to_string(place.path("tuned/config.toml")).unwrap();
    // The absolute path, since the run may be resumed from another folder.
    let base = place.path("base/checkpoints/step-00000100");
    assert!(config.contains(&format!("init = {:?}", base.display().to_string())), "{config}");
    std::fs::remove_dir_all(place.path("base")).unwrap();
    std::fs::write(place.path("tuned/config.toml"), config.replace("\nmax_steps = 40", "\nmax_steps = 50")).unwrap();
    place.train("resume tuned --device cpu").succeeds();
    assert_eq!(std::fs::read_to_string(place.path("tuned/latest")).unwrap().trim(), "step-00000050");
    // A shorter context works too, with learned positions.
    let short = "run down.txt --init tuned --out short --set context_length=16 --set max_steps=3";
    let ran = place.train(&format!("{short} {tuning}")).succeeds();
    assert!(ran.err.contains(", as set; "), "{}", ran.err);
    place.generate("text one --from short --device cpu --strategy greedy --max-new-tokens 30").succeeds();
}

/// A model keeps its special tokens and its chat template.
#[test]
fn what_a_folder_says_of_its_tokens_goes_along() {
    let place = Place::new();
    place.write("letters.txt", "abc dab bad cab eba\n".repeat(400));
    let small = "--set max_steps=1 --set n_layer=1 --set n_embd=16 --set n_head=2 --set context_length=16 --device cpu";
    place.train(&format!("run letters.txt --out base --set tokenizer=bytes {small}")).succeeds();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        let content = std::fs::read(place.path("base/checkpoints/step-00000001").join(file)).unwrap();
        place.write(&format!("talker/{file}"), content);
    }
    let keys = r##"{"eos_token": {"content": "!"}, "pad_token": "#", "mask_token": "no such token"}"##;
    place.write("talker/tokenizer_config.json", keys);
    place.write("talker/chat_template.jinja", "{{ messages }}");
    place.train("run letters.txt --init talker --out tuned --set max_steps=1 --device cpu").succeeds();
    let read = |file: &str| -> Value {
        let path = place.path("tuned/checkpoints/step-00000001").join(file);
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    let [config, generation] = ["tokenizer_config.json", "generation_config.json"].map(read);
    let named = ["bos_token", "eos_token", "pad_token", "mask_token", "chat_template"].map(|key| config[key].as_str());
    assert_eq!(named, [None, Some("!"), Some("#"), None, Some("{{ messages }}")]);
    assert_eq!(generation["eos_token_id"], json!([256, 33]));
    assert_eq!(generation["pad_token_id"], 35);
}

/// Training from another program's file equals training from a transformers folder with the same
/// weights: the same shape, tokenizer and losses.
#[test]
fn a_run_begins_from_a_file_of_another_program() {
    let place = Place::new();
    place.write("letters.txt", "abc dab é媽 bad cab 'eba\n".repeat(400));
    let train_with = |arguments: &str, out: &str| {
        let mut command = place.command("ember-train", &format!("run {arguments} --out {out} --device cpu"));
        // The cache for the folder that the file is converted to.
        Ran::from(command.env("XDG_CACHE_HOME", place.path("cache")).output().unwrap()).succeeds();
        val_losses(&place, out)
    };
    let train = |init: &str, out: &str| {
        let settings = "--set max_steps=2 --set eval_interval=1 --set batch_size=4";
        train_with(&format!("letters.txt --init {init} {settings}"), out)
    };
    for (fixture, files, shape) in [
        ("llama", &["f32.gguf"][..], "architecture = llama, n_layer = 1, n_head = 4, n_embd = 32, context_length = 16"),
        (
            "nanogpt",
            &["ckpt.pt", "meta.pkl"],
            "architecture = gpt2, n_layer = 1, n_head = 2, n_embd = 16, context_length = 8",
        ),
        (
            "llama2c/v0",
            &["model.bin", "tokenizer.bin"],
            "architecture = llama, n_layer = 1, n_head = 4, n_embd = 16, context_length = 16",
        ),
    ] {
        let fixture = root().join("formats/tests/fixtures").join(fixture);
        let copy = |from: &Path, file: &str, to: &str| place.write(to, std::fs::read(from.join(file)).unwrap());
        files.iter().for_each(|file| copy(&fixture, file, file));
        let run = format!("of-{}", files[0]);
        let losses = train(files[0], &run);
        let config = std::fs::read_to_string(place.path(&run).join("config.toml")).unwrap().replace('"', "");
        for key in shape.split(", ") {
            assert!(config.lines().any(|line| line == key), "{key} in\n{config}");
        }
        // The configuration names the user's file: the cache may be deleted.
        let named = place.0.path().canonicalize().unwrap().join(files[0]);
        for key in ["init", "tokenizer"] {
            let line = format!("{key} = {}", named.display());
            assert!(cfg!(windows) || config.lines().any(|own| own == line), "{line} in\n{config}");
        }
        std::fs::remove_dir_all(place.path("cache")).unwrap();
        assert_eq!(train_with(&format!("--config {run}/config.toml"), &format!("{run}-again")), losses);
        // The transformers folder, with the tokenizer converted from the file.
        let folder = format!("like-{}", files[0]);
        for file in ["config.json", "model.safetensors"] {
            copy(&fixture, file, &format!("{folder}/{file}"));
        }
        for file in ["tokenizer.json", "tokenizer_config.json"] {
            copy(&place.path(&run).join("checkpoints/step-00000002"), file, &format!("{folder}/{file}"));
        }
        let same = train(&folder, &format!("{folder}-run"));
        assert!(losses.len() == 3 && losses[2] < losses[0], "{run}: {losses:?}");
        assert!(losses.iter().zip(&same).all(|(one, other)| (one - other).abs() < 1e-6), "{run}: {losses:?} {same:?}");
    }
}

/// Many checkpoints have rows for token ids that their tokenizer never uses; a run keeps them, and
/// measurements accept them.
#[test]
fn a_padded_vocabulary_is_kept_and_measured() {
    let place = Place::new();
    place.train(&small_run(&place, "base", 1)).succeeds();
    let base = std::fs::read_to_string(place.path("base/latest")).unwrap();
    let base = place.path("base/checkpoints").join(base.trim());
    let padded = place.path("padded");
    std::fs::create_dir(&padded).unwrap();
    let shape = ember_model::folder::read_config(&base).unwrap();
    let shape = ember_model::GptConfig { vocab_size: shape.vocab_size + 50_000, ..shape };
    let gpt = ember_model::Gpt::new(&shape, 1, &burn::tensor::Device::flex()).unwrap();
    ember_model::checkpoint::save(&gpt, None, &Default::default(), &padded).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(base.join(file), padded.join(file)).unwrap();
    }
    let run = "run count.txt --init padded --set max_steps=4 --set batch_size=4 --device cpu --out";
    place.train(&format!("{run} run")).succeeds();
    let kept = std::fs::read_to_string(place.path("run/checkpoints/step-00000004/config.json")).unwrap();
    assert!(kept.contains(&format!("\"vocab_size\": {}", shape.vocab_size)), "{kept}");
    place.train("ledger run --repeats 1 --batch-size 2 --device cpu").succeeds();
    place.train("exposure run --windows 2 --samples 1 --device cpu").succeeds();
    // The table is 32 wide: its weights, gradients and moments take 25 MB, everything else ten.
    let ran = place.train(&format!("{run} small --memory-limit 20MB"));
    assert!(ran.code == Some(2) && ran.err.contains("does not fit into memory"), "{}", ran.err);
}
