#![allow(clippy::unwrap_used)]
use burn::tensor::Device;
use ember_decoding::token_log_probabilities;
use ember_model::GptConfig;

use super::*;

const CONTEXT: usize = 12;
const PREFIX: usize = 4;
const NEW: usize = CONTEXT + 1 - PREFIX;

fn model() -> Gpt {
    Gpt::new(&GptConfig::new(11, CONTEXT, 2, 2, 16), 3, &Device::flex()).unwrap()
}

fn windows(count: u32) -> Vec<Window> {
    let ids = |window: u32, length: u32| (0..length).map(|i| (i * i + 3 * window) % 11).collect::<Vec<_>>();
    (0..count).map(|window| Window { ids: ids(window, CONTEXT as u32 + 1), long: ids(window, 40) }).collect()
}

fn settings() -> Settings {
    Settings { prefix: PREFIX, samples: 3, loop_tokens: 40, repeated_tokens: 2, seed: 5 }
}

fn never() -> bool {
    false
}

fn measured(count: u32, settings: &Settings) -> Exposure {
    measure(&model(), &windows(count), settings, &never).unwrap()
}

#[test]
fn positions_double() {
    assert_eq!(doubling(9), [0..1, 1..2, 2..4, 4..8, 8..9]);
    assert_eq!(doubling(2), [0..1, 1..2]);
    let covered: Vec<usize> = doubling(1000).into_iter().flatten().collect();
    assert!(covered.into_iter().eq(0..1000));
}

#[test]
fn an_estimate_by_hand() {
    let estimate = Estimate::new(vec![1.0, 2.0, 3.0, 6.0]);
    assert_eq!(estimate.mean, 3.0);
    // Deviations 4, 1, 0, 9: a variance of 14 / 3, over 4 windows.
    assert!((estimate.standard_error - (14.0_f64 / 12.0).sqrt()).abs() < 1e-12);
    // Nearly three standard errors from 0: clear over many windows, but not over these four.
    assert!(estimate.is_clear(40) && !Estimate { mean: -1.0, standard_error: 0.6 }.is_clear(40));
    assert!(!estimate.is_clear(4));
}

#[test]
fn few_windows_need_more_than_two_standard_errors() {
    // With one degree of freedom and with two, the quantile has a closed form.
    assert!((t_quantile(2) - (0.475 * std::f64::consts::PI).tan()).abs() < 5e-4);
    assert!((t_quantile(3) - 0.95 / (2.0 * 0.975 * 0.025_f64).sqrt()).abs() < 5e-4);
    assert!((2..40).all(|windows| t_quantile(windows) >= t_quantile(windows + 1)));
    assert_eq!((t_quantile(31), t_quantile(32)), (2.042, 2.0));
}

#[test]
fn a_run_is_repeated_where_it_ends() {
    assert_eq!(repeated(&[1, 2, 3, 1, 2, 3, 9], 3, 2), [0.0, 1.0, 1.0, 0.0]);
    assert_eq!(repeated(&[1, 2, 1], 1, 1), [0.0, 1.0]);
    assert_eq!(repeated(&[1, 2], 1, 5), [0.0]);
}

#[test]
fn the_entropy_is_that_of_the_probabilities() {
    let gpt = model();
    let row = windows(1)[0].ids.clone();
    let got = &entropies(&gpt, std::slice::from_ref(&row), PREFIX, &never).unwrap()[0];
    assert_eq!(got.len(), NEW);
    for (position, got) in (PREFIX..).zip(got) {
        let logprobs: Vec<f64> = (0..11)
            .map(|id| {
                let targets = [&row[1..position], &[id]].concat();
                f64::from(*token_log_probabilities(&gpt, &row[..position], &targets, position).unwrap().last().unwrap())
            })
            .collect();
        let expected: f64 = logprobs.iter().map(|l| -l.exp() * l).sum();
        assert!((f64::from(*got) - expected).abs() < 1e-5, "position {position}: {got}, {expected}");
    }
}

#[test]
fn of_what_is_sure_the_loss_is_0_without_a_sign() {
    let gpt = Gpt::new(&GptConfig::new(1, CONTEXT, 2, 2, 16), 3, &Device::flex()).unwrap();
    let reading = Reading::new(&gpt, &[vec![0; CONTEXT + 1]], 1, &settings(), &never).unwrap();
    let figures = reading.figures(&(0..NEW));
    assert_eq!([figures.loss, figures.expected_loss].map(|loss| format!("{loss:.3}")), ["0.000", "0.000"]);
}

#[test]
fn right_behind_the_prefix_all_have_read_the_same() {
    let exposure = measured(6, &settings());
    let first = &exposure.positions[0];
    assert_eq!((first.from, first.to), (1, 1));
    assert!(first.drift.mean.abs() < 1e-5 && first.drift.standard_error < 1e-5, "{first:?}");
    assert!((first.greedy.expected_loss - first.real.expected_loss).abs() < 1e-5);
    assert!(first.greedy.loss <= first.real.loss, "nothing is more probable than the greedy token");
    let later = &exposure.positions[3];
    assert!(later.drift.mean.abs() > 1e-4, "other words, another distribution: {later:?}");
}

#[test]
fn real_words_have_the_loss_that_scoring_gives_them() {
    let (gpt, windows) = (model(), windows(6));
    let inputs: Vec<u32> = windows.iter().flat_map(|window| window.ids[..CONTEXT].to_vec()).collect();
    let targets: Vec<u32> = windows.iter().flat_map(|window| window.ids[1..].to_vec()).collect();
    let logprobs = token_log_probabilities(&gpt, &inputs, &targets, CONTEXT).unwrap();
    let after_prefix: Vec<f64> =
        logprobs.chunks(CONTEXT).flat_map(|row| &row[PREFIX - 1..]).map(|&l| f64::from(l)).collect();
    let expected = -after_prefix.iter().sum::<f64>() / after_prefix.len() as f64;
    let whole = measured(6, &settings()).whole;
    assert!((whole.real.loss - expected).abs() < 1e-5);
    assert!((whole.gap.mean - (whole.real.loss - whole.sampled.loss)).abs() < 1e-6);
    assert!((whole.drift.mean - (whole.sampled.expected_loss - whole.real.expected_loss)).abs() < 1e-6);
}

#[test]
fn drawn_words_cost_what_the_model_expects() {
    // The mean of -ln p over draws from p is its entropy; 2,000 draws give it within a few
    // hundredths.
    let whole = measured(4, &Settings { samples: 500, loop_tokens: 0, ..settings() }).positions.swap_remove(0);
    assert!((whole.sampled.loss - whole.sampled.expected_loss).abs() < 0.05, "{whole:?}");
}

#[test]
fn the_draws_follow_the_seed_and_each_text_has_its_own() {
    let (gpt, knobs) =
        (model(), GenerationConfig { strategy: Strategy::Sample, max_new_tokens: 6, ..Default::default() });
    let prompts = [&[1_u32, 2][..]; 5];
    let texts = write(&gpt, &prompts, &knobs, &never).unwrap();
    assert!(texts.iter().any(|text| *text != texts[0]));
    let two = GenerationConfig { num_return_sequences: 2, ..knobs.clone() };
    assert_eq!(write(&gpt, &prompts[..2], &two, &never).unwrap(), texts[..4]);
    assert_eq!(measured(3, &settings()), measured(3, &settings()));
    assert_ne!(measured(3, &settings()).whole, measured(3, &Settings { seed: 6, ..settings() }).whole);
}

#[test]
fn loops_are_looked_for_where_asked() {
    let exposure = measured(3, &settings());
    assert_eq!(
        exposure.loops.iter().map(|of| (of.text, of.texts)).collect::<Vec<_>>(),
        [("real", 3), ("sampled", 3), ("greedy", 3)]
    );
    assert!(measured(3, &Settings { loop_tokens: 0, ..settings() }).loops.is_empty());
    let interrupted = measure(&model(), &windows(3), &settings(), &|| true);
    assert!(matches!(interrupted, Err(Error::Stopped)));
}

#[test]
fn the_page_has_every_figure_and_needs_nothing_else() {
    let exposure = measured(3, &Settings { samples: 1, ..settings() });
    let page = page("Exposure of <run>", &exposure);
    assert!(page.contains("<title>Exposure of &lt;run&gt;</title>"));
    for stretch in &exposure.positions {
        assert!(page.contains(&format!("<td>{:.3}</td>", stretch.sampled.loss)));
    }
    assert!(page.contains("at temperature 1 (1 time),"));
    assert!(page.contains("<th rowspan=\"2\" scope=\"col\">drift ± standard error</th>"));
    assert!(page.contains("<tr><th scope=\"row\">own</th><td>") && !page.contains(">sampled</th>"));
    assert_eq!(page.matches("<svg").count(), 2);
    // The losses are about ln 11.
    assert!(page.contains(">0.0</text>") && page.contains(">2.0</text>"), "an axis has round numbers: {page}");
    assert!(!page.contains("http") && !page.contains("<script") && !page.contains("NaN"));
}

#[test]
fn a_drift_of_few_windows_has_a_longer_bar() {
    let measured = measured(3, &Settings { samples: 1, loop_tokens: 0, ..settings() });
    let ends = |windows: usize| {
        let page = page("Exposure", &Exposure { windows, ..measured.clone() });
        let bars = page.split("<g class=\"drift\">").skip(1);
        bars.map(|bar| bar.split_once("/>").unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    assert_ne!(ends(3), ends(40));
    assert_eq!(ends(32), ends(40));
}

/// Eleven columns, as with a context of 1,024: the labels "129 to 256" and "257 to 512" would
/// overlap.
#[test]
fn labels_of_many_positions_leave_room_for_each_other() {
    let measured = measured(3, &Settings { samples: 1, loop_tokens: 0, ..settings() });
    let first = measured.positions[0].clone();
    let stretch = |range: Range<usize>| Stretch { from: range.start + 1, to: range.end, ..first.clone() };
    let positions = doubling(769).into_iter().map(stretch).collect();
    let page = page("Exposure", &Exposure { positions, ..measured });
    for (label, count) in [("513 to 769", 2), ("257 to 512", 0), ("129 to 256", 2), ("1", 2), ("2", 0)] {
        assert_eq!(page.matches(&format!("text-anchor=\"middle\">{label}</text>")).count(), count, "{label}");
        assert!(page.contains(&format!("<th scope=\"row\">{label}</th>")), "the table has every figure: {label}");
    }
}
