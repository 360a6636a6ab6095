#![allow(clippy::unwrap_used)]

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use super::{key::Kind, *};

const FACTS: TextFacts = TextFacts { train_tokens: 1_003_854, val_tokens: 111_540, vocab_size: 65 };

fn resolved(settings: &str) -> TrainConfig {
    Settings::from_toml_str(settings).unwrap().resolve(&FACTS, DeviceKind::Cpu).unwrap().0
}

fn refusal(settings: &str) -> String {
    let refused = Settings::from_toml_str(settings).and_then(|settings| settings.resolve(&FACTS, DeviceKind::Cpu));
    let message = refused.unwrap_err().to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn the_table_of_keys_and_the_configuration_have_the_same_keys() {
    let table = toml::Table::try_from(resolved("")).unwrap();
    let mut in_config: Vec<&str> = table.keys().map(String::as_str).collect();
    let mut in_table: Vec<&str> = keys::all().map(|key| key.name).collect();
    in_config.sort_unstable();
    in_table.sort_unstable();
    assert_eq!(in_config, in_table);
    for key in keys::all() {
        assert!(help().contains(key.name));
    }
}

#[test]
fn every_default_is_written_out_and_read_back_equal() {
    let config = resolved("learning_rate = 1 # a whole number will do\nsample_prompts = ['He said \"no\"\\ ']");
    let text = config.to_toml().unwrap();
    for key in keys::all() {
        assert!(text.contains(&format!("\n{} = ", key.name)), "{} is missing", key.name);
        assert!(text.contains(&key.range()), "the range of {} is missing", key.name);
    }
    assert_eq!(TrainConfig::from_toml_str(&text).unwrap(), config);
}

#[test]
fn a_saved_configuration_must_be_complete() {
    let text = resolved("").to_toml().unwrap();
    let without: String =
        text.lines().filter(|line| !line.starts_with("n_head")).map(|line| format!("{line}\n")).collect();
    assert!(TrainConfig::from_toml_str(&without).unwrap_err().to_string().starts_with("n_head is missing"));
}

#[test]
fn unknown_keys_get_the_nearest_right_name() {
    for (wrong, right) in [
        ("n_layers", "n_layer"),
        ("learning-rate", "learning_rate"),
        ("lr", "learning_rate"),
        ("block_size", "context_length"),
        ("max_iters", "max_steps"),
        ("epochs", "max_steps"),
        ("warmup_step", "warmup_steps"),
        ("gradient_accumulation_steps", "grad_accum_steps"),
        ("Dropuot", "dropout"),
        ("vocab_size", "tokenizer"),
        ("decay_lr", "schedule"),
    ] {
        let message = refusal(&format!("{wrong} = 1"));
        assert!(message.contains(&format!("did you mean \"{right}\"")), "{wrong}: {message}");
    }
    assert_eq!(refusal("zzzz = 1"), "there is no key \"zzzz\"");
}

#[test]
fn values_out_of_range_name_key_value_and_range() {
    for (line, range) in [
        ("n_layer = 0", "whole number from 1 to 512"),
        ("n_layer = -4", "whole number from 1 to 512"),
        ("n_layer = 4.5", "whole number from 1 to 512"),
        ("n_layer = \"four\"", "whole number from 1 to 512"),
        ("dropout = 1.0", "number from 0 to below 1"),
        ("learning_rate = 0", "number from 1e-12 to 1"),
        ("learning_rate = nan", "number from 1e-12 to 1"),
        ("weight_decay = inf", "number from 0 to 10"),
        ("tokenizer = \"\"", "text that is not empty"),
        ("text = \"book.txt\"", "list of paths"),
        ("text = [1]", "list of paths"),
        ("seed = \"auto\"", "whole number from 0"),
        ("max_steps = 9000000000000000000", "whole number from 1 to 1000000000000"),
    ] {
        let (key, value) = line.split_once(" = ").unwrap();
        let message = refusal(line);
        assert!(
            message.starts_with(&format!("{key} = {value} is not allowed")) && message.contains(range),
            "{line}: {message}"
        );
    }
}

#[test]
fn keys_that_contradict_each_other_are_refused() {
    assert!(refusal("n_embd = 100\nn_head = 3").contains("not a multiple of n_head = 3"));
    assert!(refusal("learning_rate = 1e-4\nmin_learning_rate = 1e-3").contains("above learning_rate"));
    assert!(refusal("learning_rate = 1\nweight_decay = 10").contains("which erases the weights"));
    let muon = "optimizer = \"muon\"\nmuon_learning_rate = 0.5\nweight_decay = 10\nlearning_rate = 1e-3";
    assert!(refusal(muon).starts_with("muon_learning_rate = 0.5 times weight_decay = 10 is 1 or more"));
}

#[test]
fn broken_toml_is_refused_in_one_line_with_its_number() {
    assert!(refusal("seed = 1\nn_layer 4\n").starts_with("line 2 is not valid TOML"));
    assert!(refusal("seed = 1\nseed = 2").starts_with("line 2 is not valid TOML"));
    assert!(refusal("[model]\nn_layer = 4").contains("without sections"));
}

#[test]
fn set_takes_toml_and_bare_words() {
    let mut settings = Settings::from_toml_str("n_layer = 2").unwrap();
    for assignment in
        ["n_layer=6", " dropout = 0.25", "tokenizer=bpe:512", "field=42", "text=my book.txt", "max_steps=1_000"]
    {
        settings.set(assignment).unwrap();
    }
    settings.set("n_head=auto").unwrap();
    let config = settings.clone().resolve(&FACTS, DeviceKind::Gpu).unwrap().0;
    assert_eq!((config.n_layer, config.dropout, config.max_steps), (6, 0.25, 1_000));
    assert_eq!((config.tokenizer.as_str(), config.field.as_str()), ("bpe:512", "42"));
    assert_eq!(config.text, ["my book.txt"]);
    settings.set("text=[\"a\", \"b\"]").unwrap();
    assert_eq!(settings.data().unwrap().text, ["a", "b"]);
    // For a text key, a number keeps the characters it was written with.
    for assignment in ["init=1.10", "text=0x10", "sample_prompts=1_000"] {
        settings.set(assignment).unwrap();
    }
    assert_eq!((settings.init(), settings.sample_prompts.clone()), (Some("1.10"), Some(vec!["1_000".to_owned()])));
    assert_eq!(settings.data().unwrap().text, ["0x10"]);

    // Digits before or after the decimal point may be left out.
    for assignment in ["dropout=.5", "learning_rate=1.", "z_loss=\"auto\""] {
        settings.set(assignment).unwrap();
    }
    assert_eq!((settings.dropout, settings.learning_rate, settings.z_loss), (Some(0.5), Some(1.0), None));

    for (assignment, message) in [
        ("n_layer", "has no \"=\""),
        ("n_layr=3", "did you mean \"n_layer\""),
        ("n_layer=many", "n_layer = \"many\" is not allowed"),
        ("n_layer=", "n_layer = \"\" is not allowed"),
        ("dropout=.1.2", "dropout = \".1.2\" is not allowed"),
        ("dropout=inf", "dropout = inf is not allowed"),
        ("seed=1\nn_layer=3", "seed = "),
    ] {
        let refused = settings.set(assignment).unwrap_err().to_string();
        assert!(refused.contains(message), "{assignment}: {refused}");
    }
}

#[test]
fn an_error_in_a_file_names_the_file_and_is_a_config_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    assert!(Settings::from_file(&path).unwrap_err().to_string().contains("mine.toml"));
    fs::write(&path, "n_layer = 0").unwrap();
    let error = Settings::from_file(&path).unwrap_err();
    assert!(crate::note::line(&error.into()).contains("mine.toml: n_layer = 0"));
}

#[test]
fn every_recipe_is_valid_says_why_and_fits_on_a_page() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("configs");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!((25..=40).contains(&text.lines().count()), "{name} has {} lines", text.lines().count());
        assert!(text.lines().filter(|line| line.contains('#')).count() >= 12, "{name} says too little");
        let settings = Settings::from_file(&path).unwrap();
        assert!(settings.data().unwrap().text.is_empty(), "{name}: the text is given on the command line");
        settings.resolve(&TextFacts { train_tokens: 9_000_000, ..FACTS }, DeviceKind::Cpu).unwrap();
        names.push(name);
    }
    names.sort();
    assert_eq!(
        names,
        ["gpt2-124m", "shakespeare-char", "shakespeare-char-cpu", "shakespeare-char-llama-cpu", "stories-cpu"]
    );
    for name in names {
        let path = folder.join(format!("{name}.toml"));
        assert_eq!(shipped(&path).unwrap(), fs::read_to_string(&path).unwrap(), "{name} is not the one compiled in");
        assert!(shipped(name.as_ref()).is_some());
    }
    assert!(shipped("elsewhere/gpt2-124m.toml".as_ref()).is_none() && shipped("configs/other.toml".as_ref()).is_none());
}

#[test]
fn what_is_neither_a_file_nor_a_recipe_is_told_of_the_recipes() {
    let refused = |name: &str| Settings::from_recipe(name.as_ref()).unwrap_err().to_string();
    assert!(refused("shakespeare-char-cp").ends_with("; did you mean shakespeare-char-cpu?"));
    assert!(refused("configs/stories.toml").ends_with("; did you mean stories-cpu?"));
    let all = refused("missing.toml");
    assert!(all.starts_with("missing.toml: there is no such file, and no shipped recipe of that name; "), "{all}");
    assert!(recipes().all(|name| all.contains(name)), "{all}");
}

#[test]
fn a_file_comes_before_the_recipe_of_its_name_and_a_folder_does_not() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("configs/gpt2-124m");
    fs::create_dir_all(&path).unwrap();
    let settings = || Settings::from_recipe(&path).unwrap();
    assert_eq!(settings(), Settings::from_toml_str(shipped(&path).unwrap()).unwrap());
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "seed = 5").unwrap();
    assert_eq!(settings().seed, Some(5));
}

#[test]
fn an_empty_path_is_named_for_what_it_is() {
    assert_eq!(refusal("text = ['a', '']"), "the name of the text is empty; name a file or folder");
}

#[test]
fn the_shakespeare_recipe_has_nanogpts_numbers() {
    let config = resolved(include_str!("../../configs/shakespeare-char.toml"));
    assert_eq!((config.n_layer, config.n_head, config.n_embd, config.context_length), (6, 6, 384, 256));
    assert_eq!((config.max_steps, config.tokens_per_step()), (5_000, 16_384));
    assert_eq!((config.learning_rate, config.min_learning_rate, config.beta2, config.dropout), (1e-3, 1e-4, 0.99, 0.2));
}

#[test]
fn a_text_alone_gets_a_model_and_reasons() {
    let (config, reasons) = Settings::default().resolve(&FACTS, DeviceKind::Cpu).unwrap();
    assert_eq!((config.n_layer, config.n_head, config.n_embd), (4, 4, 128));
    assert!(
        reasons.iter().any(|reason| reason
            .to_string()
            .starts_with("n_layer = 4, n_embd = 128, n_head = 4: about 813k parameters")),
        "{reasons:?}"
    );
    for name in ["context_length", "batch_size", "max_steps", "dropout", "learning_rate", "eval_interval"] {
        assert!(reasons.iter().any(|reason| reason.to_string().contains(name)), "{name} has no reason");
    }
    let (config, _) = Settings::default().resolve(&FACTS, DeviceKind::Gpu).unwrap();
    assert_eq!(
        (config.n_layer, config.n_head, config.n_embd, config.context_length, config.batch_size),
        (6, 6, 384, 256, 64)
    );
}

proptest! {
    /// Any text and device give a valid configuration, and explicit settings are kept.
    #[test]
    fn every_text_gets_a_valid_configuration(
        train_tokens in 0u64..20_000_000_000, val_share in 0.001f64..0.5, vocab_size in 2usize..60_000,
        gpu: bool, n_head in 1usize..20, n_embd in prop::option::of(1usize..40), max_steps in prop::option::of(1u64..10_000),
    ) {
        let facts = TextFacts { train_tokens, val_tokens: (train_tokens as f64 * val_share) as u64, vocab_size };
        let device = if gpu { DeviceKind::Gpu } else { DeviceKind::Cpu };
        let (config, reasons) = Settings::default().resolve(&facts, device).unwrap();
        prop_assert!(config.validate().is_ok() && !reasons.is_empty());
        prop_assert!(config.context_length == 8 || config.context_length as u64 * 4 <= facts.val_tokens.max(32));

        let mut settings = Settings::default();
        settings.set(&format!("n_head={n_head}")).unwrap();
        if let Some(shares) = n_embd {
            settings.set(&format!("n_embd={}", shares * n_head)).unwrap();
        }
        if let Some(steps) = max_steps {
            settings.set(&format!("max_steps={steps}")).unwrap();
        }
        let (config, _) = settings.resolve(&facts, device).unwrap();
        prop_assert_eq!(config.n_head, n_head);
        prop_assert!(max_steps.is_none_or(|steps| config.max_steps == steps));
    }

    /// Every number within a key's range is accepted, and the nearest ones outside are refused.
    #[test]
    fn ranges_have_the_ends_they_state(inside in 0.0f64..1.0) {
        for key in keys::all() {
            let (within, outside) = match key.kind {
                Kind::Count(low, high) => {
                    let middle = low + ((high - low) as f64 * inside) as u64;
                    (vec![low.to_string(), middle.to_string(), high.to_string()],
                     vec![(low as i64 - 1).to_string(), (i128::from(high) + 1).to_string()])
                }
                Kind::Real(low, high) => (vec![low.to_string(), high.to_string()], vec!["-1e-9".into(), (high * 1.001).to_string()]),
                Kind::Above(low, high) => (vec![(low + 1e-9).to_string(), high.to_string()], vec![low.to_string(), (high * 1.001).to_string()]),
                Kind::Below(low, high) => (vec![low.to_string(), (inside * high).to_string()], vec!["-1e-9".into(), high.to_string()]),
                Kind::Choice(words) => (words.iter().map(|word| word.to_string()).collect(), vec!["neither".into()]),
                Kind::Flag => (vec!["true".into(), "false".into()], vec!["1".into(), "maybe".into()]),
                Kind::Text { .. } | Kind::Paths | Kind::Texts => continue,
            };
            for value in within {
                prop_assert!(Settings::default().set(&format!("{}={value}", key.name)).is_ok(), "{} = {}", key.name, value);
            }
            for value in outside {
                prop_assert!(Settings::default().set(&format!("{}={value}", key.name)).is_err(), "{} = {}", key.name, value);
            }
        }
    }
}

#[test]
fn the_passes_that_are_told_are_those_that_are_made() {
    let settings = Settings::from_toml_str("n_layer = 1\nn_head = 1\nn_embd = 8").unwrap();
    let facts = TextFacts { train_tokens: 1_080, val_tokens: 120, vocab_size: 46 };
    let (config, reasons) = settings.resolve(&facts, DeviceKind::Cpu).unwrap();
    assert_eq!((config.max_steps, config.tokens_per_step()), (200, 256));
    assert!(reasons.iter().any(|reason| reason.to_string().starts_with("max_steps = 200: 47 passes")), "{reasons:?}");
}

/// An interval longer than the run, with steps of 2^26 tokens: the product overflows a u64.
#[test]
fn what_is_learned_between_two_evaluations_can_be_more_than_can_be_counted() {
    let config = resolved("eval_interval = 274877906944\nbatch_size = 65536\ncontext_length = 1024");
    assert_eq!(config.eval_tokens, 0, "all that are held out");
}

#[test]
fn a_short_trial_of_a_recipe_needs_no_second_change() {
    let mut settings = Settings::from_toml_str(DEFAULT).unwrap();
    settings.set("max_steps=5").unwrap();
    let (config, reasons) = settings.resolve(&FACTS, DeviceKind::Cpu).unwrap();
    assert_eq!((config.max_steps, config.lr_decay_steps), (5, 5));
    assert!(reasons.iter().any(|reason| reason.to_string().contains("only rises")));
    // The reported rate after a warm-up longer than its schedule.
    for (schedule, then) in
        [("wsd", "minimum at once"), ("cosine", "minimum at once"), ("constant", "rises, and stays")]
    {
        let longer = format!("max_steps = 30\nlr_decay_steps = 5\nwarmup_steps = 10\nschedule = \"{schedule}\"");
        let (_, reasons) = Settings::from_toml_str(&longer).unwrap().resolve(&FACTS, DeviceKind::Cpu).unwrap();
        assert!(reasons.iter().any(|reason| reason.to_string().ends_with(then)), "{schedule}: {reasons:?}");
    }
}

#[test]
fn of_many_small_steps_each_is_smaller() {
    let rates = |settings: &str| {
        let sizes = "n_layer = 2\nn_embd = 128\ncontext_length = 64\n";
        let config = resolved(&format!("{sizes}{settings}"));
        (config.learning_rate, config.muon_learning_rate)
    };
    let whole = (6e-3, 0.015);
    for settings in
        ["batch_size = 16\nmax_steps = 2000", "batch_size = 64\nmax_steps = 8000", "batch_size = 1\nmax_steps = 100"]
    {
        assert_eq!(rates(settings), whole, "{settings}");
    }
    assert_eq!(rates("batch_size = 16\nmax_steps = 8000"), (3e-3, 7.5e-3));
    assert_eq!(rates("batch_size = 16\nmax_steps = 8000\noptimizer = \"adamw\"").1, 0.015, "which is not used");
    assert_eq!(rates("batch_size = 16\nmax_steps = 8000\nmuon_learning_rate = 0.02"), (3e-3, 0.02));
}

#[test]
fn presets_pass_their_own_checks() {
    for key in keys::all() {
        if let Some(value) = key.default {
            Settings::default().set(&format!("{}={value}", key.name)).unwrap();
        }
    }
}
