//! Optimizers, schedules and the average of the weights, through the programs.

use std::path::Path;

use super::{Place, end_of, small_run};

/// The rows of a run's `metrics.jsonl`.
fn rows(run: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn column(run: &Path, name: &str) -> Vec<f64> {
    rows(run).iter().filter_map(|row| row[name].as_f64()).collect()
}

/// A user does this if another device lacks half-precision types.
#[test]
fn a_run_goes_on_in_another_precision_and_says_so() {
    let place = Place::new();
    place.train(&format!("{} --set optimizer=muon --set precision=bf16", small_run(&place, "run", 10))).succeeds();
    let ran = place.train("resume run --device cpu --set precision=f32 --set max_steps=20").succeeds();
    assert!(ran.err.contains("precision = f32 from here on, bf16 until now: "), "{}", ran.err);
    let config = std::fs::read_to_string(place.path("run/config.toml")).unwrap();
    assert!(config.contains("\nprecision = \"f32\"\n"), "{config}");
    let losses = column(&place.path("run"), "val_loss");
    assert!(losses[losses.len() - 1] < losses[0], "{losses:?}");
    // After that it is a run in float32, and this is not reported again.
    let ran = place.train("resume run --device cpu --set max_steps=21").succeeds();
    assert!(!ran.err.contains("from here on"), "{}", ran.err);
}

const MUON: &str = "--set optimizer=muon --set ema_decay=0.9";

#[test]
fn muon_and_the_average_stop_and_go_on_to_the_same_bits() {
    let place = Place::new();
    place.train(&format!("{} {MUON}", small_run(&place, "whole", 60))).succeeds();
    // The same schedule, stopped after a third of it and then lengthened.
    place.train(&format!("{} --set lr_decay_steps=60 {MUON}", small_run(&place, "parts", 20))).succeeds();
    place.train("resume parts --device cpu --threads 1 --set max_steps=60").succeeds();
    assert!(end_of(&place.path("whole")) == end_of(&place.path("parts")), "the resumed run ended in other numbers");
    let average = "checkpoints/step-00000060/ema/model.safetensors";
    let read = |run: &str| std::fs::read(place.path(run).join(average)).unwrap();
    assert!(read("whole") == read("parts"), "the resumed run ended in another average");
    let weights = place.path("whole/checkpoints/step-00000060/model.safetensors");
    assert!(read("whole") != std::fs::read(weights).unwrap());

    // It learns, and the average is evaluated at every evaluation.
    let (val, averaged) = (column(&place.path("whole"), "val_loss"), column(&place.path("whole"), "ema_val_loss"));
    assert_eq!((val.len(), averaged.len()), (3, 3));
    assert!(val[2] < 0.8 * val[0] && averaged[2] < 0.8 * averaged[0], "{val:?} {averaged:?}");

    // The average is a complete model that can be loaded alone.
    let text = "text one~and --device cpu --strategy greedy --max-new-tokens 8 --from";
    place.generate(&format!("{text} whole/checkpoints/step-00000060/ema")).succeeds();
    // Generating from the trained weights does not need it; resuming does.
    std::fs::remove_dir_all(place.path("whole/checkpoints/step-00000060/ema")).unwrap();
    place.generate(&format!("{text} whole")).succeeds();
    let ran = place.train("resume whole --device cpu --set max_steps=70");
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("ema"), "{}", ran.err);

    // A damaged average is never resumed from.
    let file = place.path("parts").join(average);
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 9;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let ran = place.train("resume parts --device cpu --set max_steps=70");
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("ema/model.safetensors is damaged"), "{}", ran.err);
}

/// Training continues with undivided weights; saved weights are divided by the temperature of the
/// evaluation before.
#[test]
fn a_calibrated_run_stops_and_goes_on_to_the_same_bits() {
    let place = Place::new();
    let calibrated = "--set calibrate=true --set dropout=0 --set ema_decay=0.9";
    place.train(&format!("{} {calibrated}", small_run(&place, "whole", 60))).succeeds();
    place.train(&format!("{} --set lr_decay_steps=60 {calibrated}", small_run(&place, "parts", 20))).succeeds();
    place.train("resume parts --device cpu --threads 1 --set max_steps=60").succeeds();
    assert!(end_of(&place.path("whole")) == end_of(&place.path("parts")), "the resumed run ended in other numbers");

    for of_average in ["ema/model.safetensors", "training/ema_last_norm.safetensors"] {
        let read =
            |run: &str| std::fs::read(place.path(run).join("checkpoints/step-00000060").join(of_average)).unwrap();
        assert!(read("whole") == read("parts"), "the resumed run ended in another {of_average}");
    }

    let temperatures = column(&place.path("whole"), "temperature");
    assert_eq!((temperatures.len(), temperatures[0]), (3, 1.0));
    assert_eq!(column(&place.path("whole"), "entropy").len(), 3);
    let last = place.path("whole/checkpoints/step-00000060");
    let saved = ember_model::checkpoint::load(&last, &burn::tensor::Device::flex()).unwrap();
    let mut gain = Vec::new();
    saved.for_each_parameter(&mut |name, _, values| {
        if name == "ln_f.weight" {
            gain = values;
        }
    });
    let file = ember_model::folder::TensorFile::open(&last.join("training/last_norm.safetensors")).unwrap();
    let learned = file.read("ln_f.weight").unwrap().values;
    assert_ne!(gain, learned);
    for (gain, learned) in gain.iter().zip(&learned) {
        assert!((f64::from(*gain) * temperatures[2] - f64::from(*learned)).abs() < 1e-6, "{gain} {learned}");
    }

    // Without calibration, the same steps learn the same.
    place.train(&format!("{} --set calibrate=false --set dropout=0", small_run(&place, "plain", 60))).succeeds();
    assert_eq!(column(&place.path("plain"), "train_loss"), column(&place.path("whole"), "train_loss"));
    assert!(column(&place.path("plain"), "temperature").is_empty());

    // `runs remove` knows every file of a calibrated run.
    place.train("runs remove parts --yes").succeeds();
    assert!(!place.path("parts").exists());
}

#[test]
fn muon_does_not_depend_on_the_number_of_threads() {
    let place = Place::new();
    for threads in [1, 3] {
        place.train(&format!("{} {MUON} --threads {threads}", small_run(&place, &format!("{threads}"), 20))).succeeds();
    }
    assert!(end_of(&place.path("1")) == end_of(&place.path("3")));
}

#[test]
fn a_wsd_run_is_level_then_goes_down_and_a_constant_one_goes_on() {
    let place = Place::new();
    let rates = "--set log_interval=1 --set learning_rate=1e-3 --set min_learning_rate=1e-4";
    let wsd = format!("{} {rates} --set schedule=wsd --set decay_fraction=0.5", small_run(&place, "wsd", 20));
    place.train(&wsd).succeeds();
    let rate = column(&place.path("wsd"), "learning_rate");
    assert_eq!(rate.len(), 20);
    assert_eq!(rate[5..=10], [1e-3; 6]);
    assert!((rate[15] - 5.5e-4).abs() < 1e-12, "{rate:?}"); // halfway down
    assert!((rate[19] - 1.9e-4).abs() < 1e-12, "{rate:?}");

    place.train(&format!("{} {rates} --set schedule=constant", small_run(&place, "constant", 10))).succeeds();
    let ran = place.train("resume constant --device cpu --set max_steps=20 --set eval_interval=5").succeeds();
    assert!(!ran.err.contains("stays at"), "{}", ran.err);
    let rate = column(&place.path("constant"), "learning_rate");
    assert_eq!(rate[5..], [1e-3; 15]);
    assert_eq!(column(&place.path("constant"), "val_loss").len(), 3); // steps 10, 15 and 20
    let config = std::fs::read_to_string(place.path("constant/config.toml")).unwrap();
    assert!(config.contains("\nmax_steps = 20\n") && config.contains("\neval_interval = 5\n"), "{config}");

    // Lengthening a run beyond its schedule is reported; a refused resume keeps the configuration.
    let ran = place.train("resume wsd --device cpu --set max_steps=21").succeeds();
    assert!(ran.err.contains("from step 20 on the learning rate stays at 0.0001"), "{}", ran.err);
    let before = std::fs::read(place.path("wsd/config.toml")).unwrap();
    let ran = place.train("resume wsd --device cpu --set max_steps=30 --set learning_rate=1e-2");
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("learning_rate cannot change"), "{}", ran.err);
    assert_eq!(before, std::fs::read(place.path("wsd/config.toml")).unwrap());
}
