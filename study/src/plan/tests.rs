#![allow(clippy::unwrap_used)]

use super::{speed::step_flops, *};

/// The candidates for `processes` that may take `memory_bytes` each, with these keys set.
fn candidates(set: &str, processes: usize, memory_bytes: Option<u64>) -> Result<Vec<Candidate>> {
    let points = fit::points()?;
    let text = points[0].statistics.clone();
    let vocab_size = text.vocab_size;
    let request = Request {
        settings: Settings::from_toml_str(set).unwrap(),
        seconds: 600.0,
        memory_bytes,
        measuring: MEASURING,
        processes,
        shape: &|config| config.shape(vocab_size),
    };
    let (device, kernels) = (DeviceKind::Cpu, Kernels::Cpu);
    let fit = Fit::new(&points);
    Planner { request: &request, text, fit, device, kernels, by_document: false }.candidates()
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
    // Some fit only in several passes, and the rest of the step stays.
    assert!(fitting.iter().any(|candidate| candidate.config.micro_batch < candidate.config.batch_size));
    assert!(candidates("", 1, Some(1000)).err().unwrap().to_string().contains("does not fit into memory"));
}

/// The model's own count, whatever its parts are: with fewer heads of keys and a narrower MLP a
/// step is less work.
#[test]
fn the_work_of_a_step_is_that_of_the_model() {
    let flops = |set: &str| {
        let sizes = "n_layer = 2\nn_embd = 64\nn_head = 4\ncontext_length = 32\nbatch_size = 4\n";
        candidates(&format!("{sizes}{set}"), 1, None).unwrap()[0].flops()
    };
    let llama = flops("architecture = \"llama\"");
    assert!(flops("architecture = \"llama\"\nn_kv_head = 1") < llama);
    assert!(flops("architecture = \"llama\"\nn_inner = 32") < llama);
    assert!(flops("architecture = \"llama\"\ntied_head = false") > llama);
}
