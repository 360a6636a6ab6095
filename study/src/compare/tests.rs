#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;
use ember_training::run::report::RunFacts;

const DOTS: Style = Style::Dots(|text| text.replace('\u{1b}', "\u{fffd}"));

fn record(name: &str, losses: &[f64], config: &str) -> Record {
    let rows = losses.iter().enumerate().map(|(i, loss)| Row {
        step: 10 * (i as u64 + 1),
        train_loss: Some(*loss),
        val_loss: (i % 2 == 1).then_some(loss + 0.1),
        tokens: Some(1000 * (i as u64 + 1)),
        tokens_per_s: Some(500.0),
        elapsed_s: Some(2.0 * (i as f64 + 1.0)),
        ..Row::default()
    });
    Record { name: name.into(), path: name.into(), rows: rows.collect(), config: config.parse().unwrap() }
}

fn two() -> Vec<Record> {
    let falling: Vec<f64> = (0..60).map(|i| 1.0 + 3.0 / (1.0 + f64::from(i))).collect();
    let flat: Vec<f64> = (0..40).map(|i| 2.0 - 0.01 * f64::from(i)).collect();
    vec![
        record("one <1>", &falling, "n_layer = 2\nmax_steps = 600\nsame = 1\ntext = [\"a.txt\"]"),
        record("two", &flat, "n_layer = 4\nmax_steps = 600\nsame = 1\ninit = \"runs/a\""),
    ]
}

#[test]
fn what_differs_is_named_with_every_value() {
    let found = differences(&two());
    let keys: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(keys, ["init", "n_layer", "text"]);
    assert_eq!(found["n_layer"], [Some("2".to_owned()), Some("4".to_owned())]);
    assert_eq!(found["init"], [None, Some("\"runs/a\"".to_owned())]);
    assert!(differences(&two()[..1]).is_empty());
}

#[test]
fn figures_are_those_of_the_log() {
    let summary = two()[1].summary();
    assert_eq!((summary.step, summary.max_steps, summary.tokens), (400, Some(600), Some(40_000)));
    assert_eq!(summary.best_step, Some(400));
    assert_eq!((summary.tokens_per_s, summary.elapsed_s), (Some(500.0), Some(80.0)));
    let text = table(&two(), Style::Letters);
    assert!(text.contains("400 of 600") && text.lines().count() == 3, "{text}");
    assert!(differing(&two()).contains("n_layer"));
}

#[test]
fn a_run_that_has_diverged_has_no_last_validation_loss() {
    let mut run = record("a", &[2.0, 1.0], "");
    assert_eq!(run.summary().val_loss, Some(1.1));
    // A loss that is not finite is null in the log, and read as missing.
    run.rows.push(Row { step: 30, eval_s: Some(0.5), ..Row::default() });
    let summary = run.summary();
    assert_eq!((summary.val_loss, summary.best_val_loss), (None, Some(1.1)));
}

#[test]
fn a_speed_is_rounded_and_not_cut_off() {
    for (speed, shown) in [(0.74, "0.7"), (9.97, "10"), (1999.6, "2,000"), (12_345.4, "12,345")] {
        let mut run = record("a", &[2.0, 1.0], "");
        run.rows.iter_mut().for_each(|row| row.tokens_per_s = Some(speed));
        assert!(table(&[run], Style::Letters).trim_end().ends_with(&format!("  {shown}")), "{speed}");
    }
}

#[test]
fn among_colours_a_name_cannot_move_the_cursor() {
    let runs = [record("a\u{1b}[2Jb", &[1.0, 2.0], "")];
    assert!(table(&runs, DOTS).contains("a\u{fffd}[2Jb"));
    assert!(table(&runs, Style::Letters).contains("a\u{1b}[2Jb"), "a pipe gets every byte");
}

#[test]
fn a_name_with_a_line_end_stays_on_its_line() {
    let runs = [record("a\nb", &[1.0, 2.0], "n_layer = 2"), record("two", &[1.0, 2.0], "n_layer = 4")];
    let text = table(&runs, Style::Letters);
    assert!(text.lines().count() == 3 && text.contains("a\u{fffd}b"), "{text}");
    let text = differing(&runs);
    assert!(text.lines().count() == 2 && text.contains("a\u{fffd}b"), "{text}");
}

#[test]
fn columns_stand_below_each_other_whatever_is_written_in_them() {
    let lines = [["run", "5"], ["日記", "17"]].map(|cells| cells.map(String::from).to_vec());
    assert_eq!(aligned(&lines, 1), ["run    5", "日記  17"]);
}

#[test]
fn numbers_that_no_run_has_are_left_out_of_the_picture() {
    let early = [&[1.0, -1e308], [1.5, 1.2].repeat(30).as_slice()].concat();
    let late = [1.0, 2.0, 1e308, -1e308, 1.5, 1e9, -1e9, 1.2];
    let mut runs = [record("early", &early, ""), record("late", &late, "")];
    runs[1].rows[7].elapsed_s = Some(-1e308);
    for scale in [Scale::Linear, Scale::Logarithmic] {
        for axis in [Axis::Step, Axis::Time] {
            assert!(!chart(&runs, axis, scale, Style::Letters, 60, 12).is_empty());
            assert!(svg(&runs, axis, scale).is_ok());
        }
    }
}

#[test]
fn the_lowest_loss_stands_at_its_height_also_where_it_was_the_first() {
    let curve: Points =
        (0..100).map(|i| (f64::from(i), if i == 1 { 1.0 } else { 2.0 + 1.0 / f64::from(i + 1) })).collect();
    let (low, high) = heights([curve].iter(), Scale::Linear);
    assert!(low < 1.0 && high < 2.3, "{low} to {high}");
}

#[test]
fn a_short_run_beside_a_long_one_is_in_the_chart() {
    let long: Vec<f64> = (0..200).map(|i| 1.0 + 1.0 / (1.0 + f64::from(i))).collect();
    let runs = [record("long", &long, ""), record("short", &[9.0, 8.0, 7.0, 6.0], "")];
    let text = chart(&runs, Axis::Step, Scale::Linear, Style::Letters, 80, 16);
    assert!(text.lines().any(|line| line.split_once('│').is_some_and(|(_, curve)| curve.contains('b'))), "{text}");
}

#[test]
fn bits_per_byte_are_those_of_the_best_loss_and_the_tables_say_where_they_alone_compare() {
    let mut runs = two();
    for row in runs.iter_mut().flat_map(|run| &mut run.rows) {
        row.bits_per_byte = row.val_loss.map(|loss| 2.0 * loss);
    }
    let summary = runs[1].summary();
    assert_eq!(summary.bits_per_byte, summary.best_val_loss.map(|loss| 2.0 * loss));
    assert!(table(&runs, Style::Letters).contains("bits/byte") && note(&runs).is_none());
    let mut by_bytes = runs.clone();
    by_bytes[0].rows.iter_mut().for_each(|row| row.bits_per_byte = row.val_loss.map(|loss| 1.44 * loss));
    assert!(note(&by_bytes).unwrap().contains("bits/byte are"));
    for (run, vocab_size) in runs.iter_mut().zip([65, 256]) {
        run.rows[0].run = Some(RunFacts { vocab_size, ..RunFacts::default() });
    }
    assert!(tokens_differ(&runs));
}

#[test]
fn a_step_whose_batch_was_left_out_was_not_taken() {
    let mut run = record("a", &[2.0, 1.0], "");
    run.rows.push(Row { step: 21, skipped: Some(1), ..Row::default() });
    assert_eq!(run.summary().step, 20);
}

#[test]
fn no_two_of_many_runs_look_alike() {
    let marks: BTreeSet<String> = (0..52).map(|run| DOTS.mark(run, '●')).collect();
    assert_eq!(marks.len(), 52);
    let runs: Vec<Record> = (0..9).map(|run| record(&format!("run {run}"), &[2.0, 1.5, 1.2, 1.1], "")).collect();
    assert_eq!(
        svg(&runs, Axis::Step, Scale::Linear).unwrap().matches("\ni\n").count(),
        2,
        "in the legend and at its curve"
    );
}

#[test]
fn the_numbers_beside_losses_of_0_are_each_another() {
    let mut runs = [record("sure", &[0.0; 20], "")];
    for row in &mut runs[0].rows {
        row.val_loss = row.val_loss.and(Some(0.0));
    }
    let text = chart(&runs, Axis::Step, Scale::Linear, Style::Letters, 60, 12);
    let numbers: Vec<&str> =
        text.lines().filter_map(|line| line.split_once('│')).map(|(left, _)| left.trim()).collect();
    let numbers: Vec<&str> = numbers.into_iter().filter(|number| !number.is_empty()).collect();
    assert_eq!(numbers, ["0.0007", "0.0002", "-0.0003", "-0.0007"]);
}

#[test]
fn without_colour_the_chart_is_plain_text_with_both_runs_in_it() {
    for axis in [Axis::Step, Axis::Tokens, Axis::Time] {
        let text = chart(&two(), axis, Scale::Linear, Style::Letters, 60, 12);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(text.contains('a') && text.contains('b') && !text.contains('\u{1b}'), "{text}");
        assert_eq!(text.lines().count(), 14);
    }
    let dots = chart(&two(), Axis::Step, Scale::Logarithmic, DOTS, 60, 12);
    assert!(dots.contains("\u{1b}[38;5;208m"), "{dots}");
}

#[test]
fn the_picture_has_every_run_and_what_it_differs_in() {
    for scale in [Scale::Linear, Scale::Logarithmic] {
        let svg = svg(&two(), Axis::Tokens, scale).unwrap();
        for text in ["one &lt;1&gt;", "two", "n_layer = 4", "best validation", "tokens"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}

#[test]
fn the_picture_does_not_say_in_which_folders_runs_texts_and_checkpoints_are() {
    let init = "init = \"/home/anastasia/first/checkpoints/step-00000007\"";
    let tokenizer = "tokenizer = \"/home/anastasia/tokenizer.json\"";
    let run = |folder: &str, text: &str, other: &str| {
        let text = format!("text = [\"/home/anastasia/{text}/notes.txt\"]\n{other}");
        record(&format!("/home/anastasia/{folder}/diary"), &[2.0, 1.0], &text)
    };
    let runs = [run("new", "a", init), run("old", "b", tokenizer)];
    let svg = svg(&runs, Axis::Step, Scale::Linear).unwrap();
    for shown in ["\nnew/diary\n", "\nold/diary\n", "a/notes.txt", "b/notes.txt", "first, step 7", "tokenizer.json"] {
        assert!(svg.contains(shown), "{shown}: {svg}");
    }
    assert!(!svg.contains("anastasia"), "{svg}");
}

#[test]
fn without_a_picture_the_reason_is_the_axis_or_the_scale() {
    let runs = [record("a", &[-1.0, -0.5], "")];
    assert!(svg(&runs, Axis::Step, Scale::Linear).is_ok());
    assert!(matches!(svg(&runs, Axis::Step, Scale::Logarithmic), Err(Error::NoLogarithm)));
    let mut untimed = runs.clone();
    untimed[0].rows.iter_mut().for_each(|row| row.elapsed_s = None);
    for scale in [Scale::Linear, Scale::Logarithmic] {
        assert!(matches!(svg(&untimed, Axis::Time, scale), Err(Error::NoAxis(_))));
    }
}

#[test]
fn a_spike_squeezes_no_curve_but_a_run_that_stays_diverged_is_drawn() {
    let falling: Vec<f64> = (0..200).map(|i| 2.0 - 0.005 * f64::from(i)).collect();
    let top_on = |scale: Scale, losses: &[f64]| {
        let run = record("a", losses, "");
        heights([run.training(Axis::Step), run.validation(Axis::Step)].map(|curve| scale.place(&curve)).iter(), scale).1
    };
    let top = |losses: &[f64]| top_on(Scale::Linear, losses);
    assert!((2.0..2.2).contains(&top(&falling)));
    let mut spiky = falling.clone();
    spiky[100] = 1e5;
    assert!(top(&spiky) < top(&falling));
    let [above, below] = [&spiky, &falling].map(|losses| top_on(Scale::Logarithmic, losses));
    assert!(above > below + 1.0, "there it squeezes nothing: {above}, {below}");
    spiky[100] = 2.5; // too low to squeeze the others, if smoothed with its neighbours
    assert_eq!(top(&spiky), top(&falling));
    spiky[100..].fill(1e5);
    assert!(top(&spiky) >= 1e5);
}

#[test]
fn a_run_without_validation_is_compared_by_its_training_loss() {
    let mut runs = two();
    for row in &mut runs[0].rows {
        row.val_loss = None;
    }
    assert!(chart(&runs, Axis::Step, Scale::Linear, Style::Letters, 60, 12).contains("training loss"));
    assert!(svg(&runs, Axis::Step, Scale::Linear).is_ok());
    assert_eq!(runs[0].summary().best_val_loss, None);
}

proptest! {
    /// Any log gives a chart and a picture, or neither, without a panic.
    #[test]
    fn any_losses_can_be_drawn(losses in prop::collection::vec(0.001f64..1e6, 1..30), columns in 0usize..200, rows in 0usize..60) {
        let runs = [record("a", &losses, "")];
        for scale in [Scale::Linear, Scale::Logarithmic] {
            chart(&runs, Axis::Tokens, scale, DOTS, columns, rows);
            prop_assert!(svg(&runs, Axis::Time, scale).is_ok());
        }
    }
}
