#![allow(clippy::unwrap_used)]

use super::speed::{Looking, Speed, Timed, step_flops};
use super::*;
use ember_training::memory::prediction::training;

/// The candidates for `processes` processes with up to `memory_bytes` each, with these keys set.
fn candidates(set: &str, processes: usize, memory_bytes: Option<u64>) -> Result<Vec<Candidate>> {
    planning(set, processes, memory_bytes, |planner| planner.candidates())
}

/// A plan for ten minutes.
fn planning<T>(
    set: &str,
    processes: usize,
    memory_bytes: Option<u64>,
    plan: impl Fn(&Planner) -> Result<T>,
) -> Result<T> {
    let points = fit::points()?;
    let text = points[0].statistics.clone();
    let vocab_size = text.vocab_size;
    let request = Request {
        settings: Settings::from_toml_str(set).unwrap(),
        seconds: 600.0,
        measured_within: true,
        memory_bytes,
        measuring: MEASURING,
        processes,
        shape: &|config| config.shape(vocab_size),
        go_on: &|| true,
    };
    let (device, kernels) = (DeviceKind::Cpu, Kernels::Cpu);
    let fit = Fit::new(&points);
    plan(&Planner { request: &request, text, fit, device, kernels, by_document: false })
}

/// Evaluations as expensive as many steps leave none of the time unused.
#[test]
fn a_run_is_as_long_as_its_time() {
    let timed =
        Timed { n_layer: 2, n_embd: 64, context_length: 64, windows: 16, flops: 8.8e8, first_s: 0.3, step_s: 0.2 };
    let looking = Looking { evaluate_token_s: 6e-4, sample_token_s: 1e-3 };
    let expensive = Speed { looking, looked_token_s: timed.token_s(), timed: vec![timed], ..Speed::default() };
    let all = planning("", 1, None, |planner| {
        planner
            .candidates()?
            .iter()
            .map(|candidate| planner.proposal(candidate, &expensive))
            .collect::<Result<Vec<_>>>()
    });
    for Proposal { config, seconds, step_s, look_s, .. } in all.unwrap() {
        let TrainConfig { max_steps, eval_interval, .. } = config;
        assert!(seconds <= 600.0 || max_steps == 1, "{seconds} s of {max_steps} steps");
        let spare = 600.0 - seconds;
        assert!(
            spare < look_s + step_s || spare < 6.0,
            "{seconds} s, {max_steps} by {eval_interval}, {step_s} and {look_s}"
        );
    }
}

/// At least one step is planned; if it takes longer than the time, that is said or refused.
#[test]
fn a_run_that_takes_longer_than_its_time_is_not_promised() {
    let planned = |step_s: f64, evaluate_token_s: f64| {
        let timed =
            Timed { n_layer: 2, n_embd: 64, context_length: 64, windows: 16, flops: 8.8e8, first_s: 0.3, step_s };
        let looking = Looking { evaluate_token_s, sample_token_s: 1e-6 };
        let speed = Speed { looking, looked_token_s: timed.token_s(), timed: vec![timed], ..Speed::default() };
        planning("", 1, None, |planner| {
            let proposal = planner.proposal(&planner.candidates()?[0], &speed)?;
            planner.require_step_fits(proposal, &speed)
        })
    };
    let warned = |proposal: Proposal| proposal.warnings.iter().any(|line| line.starts_with("the shortest run"));
    assert!(!warned(planned(1.0, 1e-6).unwrap()));
    assert!(warned(planned(100.0, 1.0).unwrap()));
    let refused = planned(2000.0, 1e-6).unwrap_err().to_string();
    assert!(refused.starts_with("one step of this model takes about") && refused.contains("10m00s"), "{refused}");
}

/// The time of the measurement is spent, but the run still gets some of the time.
#[test]
fn a_run_is_planned_for_the_time_that_measuring_left() {
    let timed =
        Timed { n_layer: 2, n_embd: 64, context_length: 64, windows: 16, flops: 8.8e8, first_s: 0.3, step_s: 0.2 };
    let planned = |measured_s: f64| {
        let looking = Looking { evaluate_token_s: 1e-6, sample_token_s: 1e-6 };
        let speed =
            Speed { looking, looked_token_s: timed.token_s(), timed: vec![timed], measured_s, ..Speed::default() };
        planning("", 1, None, |planner| planner.proposal(&planner.candidates()?[0], &speed)).unwrap().seconds
    };
    for (measured_s, most) in [(0.0, 600.0), (100.0, 500.0), (599.0, 120.0), (1e6, 120.0)] {
        let seconds = planned(measured_s);
        assert!(seconds <= most && seconds > 0.95 * most, "{seconds} s of {most}, {measured_s} of them measuring");
    }
}

/// On the CPU small shapes are measured first; on a GPU the most informative ones.
#[test]
fn four_shapes_are_measured() {
    let candidates = candidates("", 1, None).unwrap();
    let of = |on_gpu| to_measure(&candidates, on_gpu).into_iter().map(Candidate::flops).collect::<Vec<_>>();
    let (on_cpu, on_gpu) = (of(false), of(true));
    assert!(on_cpu.len() == 4 && on_cpu.is_sorted(), "{on_cpu:?}");
    assert_eq!((on_gpu.len(), on_gpu[2]), (4, on_cpu[0]));
    assert!((1e10..1e11).contains(&on_gpu[0]) && on_gpu[1] > 1e12, "{on_gpu:?}");
}

#[test]
fn each_process_of_a_team_plans_and_measures_its_share() {
    for processes in [1, 2, 3] {
        let candidates = candidates("", processes, None).unwrap();
        assert!(candidates.len() > 9, "{processes}");
        for Candidate { config, share, shape, .. } in &candidates {
            assert_eq!(share.windows_per_step() * processes, config.windows_per_step());
            let whole = step_flops(config, shape);
            assert!((step_flops(share, shape) * processes as f64 / whole - 1.0).abs() < 1e-12);
        }
    }
    let refused = candidates("batch_size = 4", 3, None).err().unwrap().to_string();
    assert!(refused.contains("batch_size = 4") && refused.contains("3 processes"), "{refused}");
}

#[test]
fn only_what_memory_holds_is_ever_measured() {
    let all = candidates("", 1, None).unwrap();
    let needs = |candidate: &Candidate| training(&candidate.share, &candidate.shape, Kernels::Cpu).peak_bytes;
    let limit = all.iter().map(needs).max().unwrap() / 20;
    let fitting = candidates("", 1, Some(limit)).unwrap();
    assert!(fitting.len() < all.len() && fitting.iter().all(|candidate| needs(candidate) <= limit));
    // Some fit only in several micro-batches; the tokens per step stay the same.
    assert!(fitting.iter().any(|candidate| candidate.config.micro_batch < candidate.config.batch_size));
    assert!(candidates("", 1, Some(1000)).err().unwrap().to_string().contains("does not fit into memory"));
}

/// The model's own count, for all its parts: fewer key heads and a narrower MLP make a step
/// cheaper; a token embedding beside the head, which is only looked up, costs no work.
#[test]
fn the_work_of_a_step_is_that_of_the_model() {
    let flops = |set: &str| {
        let sizes = "n_layer = 2\nn_embd = 64\nn_head = 4\ncontext_length = 32\nbatch_size = 4\n";
        candidates(&format!("{sizes}{set}"), 1, None).unwrap()[0].flops()
    };
    let llama = flops("architecture = \"llama\"");
    assert!(flops("architecture = \"llama\"\nn_kv_head = 1") < llama);
    assert!(flops("architecture = \"llama\"\nn_inner = 32") < llama);
    assert_eq!(flops("architecture = \"llama\"\ntied_head = false"), llama);
}

#[test]
fn what_a_recipe_says_beside_a_value_is_true_of_it() {
    let timed =
        Timed { n_layer: 2, n_embd: 64, context_length: 64, windows: 16, flops: 8.8e8, first_s: 0.3, step_s: 0.004 };
    let looking = Looking { evaluate_token_s: 1e-6, sample_token_s: 1e-4 };
    let speed = Speed { looking, looked_token_s: timed.token_s(), timed: vec![timed], ..Speed::default() };
    let written = |set: &str| {
        let smallest = planning(set, 1, None, |planner| planner.proposal(&planner.candidates()?[0], &speed)).unwrap();
        recipe::toml(&smallest, 10.0, "cpu")
    };
    let [calibrated, plain] = ["calibrate = true", "calibrate = false"].map(written);
    assert!(calibrated.contains("\ncalibrate = true") && calibrated.contains("# logits are divided"), "{calibrated}");
    assert!(plain.contains("\ncalibrate = false\n"), "{plain}");
    assert!(plain.contains(" ms per step, as measured"), "{plain}");
}
