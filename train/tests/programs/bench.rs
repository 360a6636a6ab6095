//! `ember-train bench`: its output, not its timings.

use serde_json::Value;

use super::{Place, small_run};

/// The one object that the command prints.
fn measured(place: &Place, arguments: &str) -> Value {
    let ran = place.train(&format!("bench {arguments} --device cpu --warmup 3 --format json")).succeeds();
    let [line] = &ran.json()[..] else { panic!("{}", ran.out) };
    line.clone()
}

fn number(line: &Value, path: &str) -> f64 {
    line.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {line}"))
}

#[test]
fn a_shape_is_measured_part_by_part() {
    let place = Place::new();
    let line = measured(&place, "--shape 2x2x32x65x16 --batch 4 --steps 7 --set precision=f32");
    assert_eq!(
        (&line["parameters"], &line["tokens_per_step"], &line["precision"]),
        (&28_064.into(), &64.into(), &"f32".into())
    );
    assert_eq!(line["steps_s"].as_array().unwrap().len(), 7);
    for part in
        ["/step_s", "/parts/data_s", "/parts/forward_s", "/parts/backward_s", "/parts/optimizer_s", "/utilisation"]
    {
        let [min, median, max] = ["min", "median", "max"].map(|of| number(&line, &format!("{part}/{of}")));
        assert!(0.0 < min && min <= median && median <= max, "{part} of {line}");
    }
    // 6 N + 12 n_layer n_embd context_length, N without the position table.
    assert_eq!(number(&line, "/flops_per_token"), 6.0 * (28_064.0 - 16.0 * 32.0) + 12.0 * 2.0 * 32.0 * 16.0);
    let per_token = number(&line, "/flops_per_s") / number(&line, "/tokens_per_s");
    assert!((per_token / number(&line, "/flops_per_token") - 1.0).abs() < 1e-9);
    // At least weights, gradients and two moments of each.
    assert!(number(&line, "/peak_bytes") > 16.0 * 28_064.0);
    for above_zero in ["/first_step_s", "/product_flops_per_s", "/copy_bytes_per_s"] {
        assert!(number(&line, above_zero) > 0.0);
    }
}

#[test]
fn what_a_run_or_a_setting_says_is_what_is_measured() {
    let place = Place::new();
    place.train(&small_run(&place, "a-run", 2)).succeeds();
    let of_run = measured(&place, "--from a-run --steps 1");
    assert_eq!((&of_run["batch_size"], &of_run["shape"]["n_embd"]), (&4.into(), &32.into()));

    // Two micro-batches, with activation checkpointing.
    let set = "--set grad_accum_steps=2 --set activation_checkpointing=true --set precision=bf16 --set optimizer=muon";
    let checkpointed = measured(&place, &format!("--shape 2x2x64x65x16 --batch 4 --steps 9 {set}"));
    assert_eq!(
        (
            &checkpointed["tokens_per_step"],
            &checkpointed["micro_batch"],
            &checkpointed["optimizer"],
            &checkpointed["activation_checkpointing"]
        ),
        (&128.into(), &4.into(), &"muon".into(), &true.into())
    );
    assert!(number(&checkpointed, "/parts/backward_s/median") > 0.0);

    let table = place.train("bench --shape 2x2x32x65x16 --batch 4 --steps 1 --device cpu").succeeds().out;
    for row in ["tokens/s", "ms per step", "  forward", "of a product", "peak memory"] {
        assert!(table.lines().any(|line| line.starts_with(row)), "{row} in\n{table}");
    }
}

/// A Qwen3's `head_dim` is not a configuration key of a run that begins from it, and need not equal
/// `n_embd / n_head`.
#[test]
fn a_run_is_measured_with_the_heads_of_the_model_that_it_began_from() {
    let place = Place::new();
    place.train(&format!("{} --set architecture=qwen3", small_run(&place, "base", 1))).succeeds();
    let base = place.path("base/checkpoints/step-00000001");
    let shape = ember_model::folder::read_config(&base).unwrap();
    let shape = ember_model::GptConfig { n_embd: 33, head_size: 10, ..shape };
    let gpt = ember_model::Gpt::new(&shape, 1, &burn::tensor::Device::flex()).unwrap();
    let model = place.path("model");
    std::fs::create_dir(&model).unwrap();
    ember_model::checkpoint::save(&gpt, None, &Default::default(), &model).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(base.join(file), model.join(file)).unwrap();
    }
    place.train("run count.txt --init model --out run --set max_steps=2 --set batch_size=4 --device cpu").succeeds();
    let line = measured(&place, "--from run --steps 1");
    assert_eq!((&line["shape"]["n_embd"], &line["shape"]["head_size"]), (&33.into(), &10.into()));
    let ran = place.train("bench --from run --set init=model --device cpu");
    assert!(ran.code == Some(2) && ran.err.contains("leave init out"), "{}", ran.err);
}
