//! The dashboard's screen as text.
#![allow(clippy::unwrap_used)]

use ratatui::{Terminal, backend::TestBackend};

use super::*;

/// The screen at this size, line by line without trailing blanks.
fn screen(view: &View, columns: u16, rows: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..rows).map(row).collect()
}

/// A dashboard that draws into the test's terminal.
fn dashboard() -> Dashboard {
    let step = StepReport { max_steps: 1000, ..StepReport::default() };
    let view = View { run: "diary".to_owned(), step, ..View::default() };
    let shared = Arc::new(Shared { view: Mutex::new(view), ..Shared::default() });
    Dashboard { shared, thread: Some(thread::spawn(|| {})), notes: Vec::new() }
}

fn learned(dashboard: &mut Dashboard) {
    for step in 1..=400 {
        let train_loss = 1.5 + 2.5 * (-(step as f64) / 100.0).exp();
        let report = StepReport {
            step,
            max_steps: 2000,
            train_loss,
            learning_rate: 3e-4,
            grad_norm: 0.5,
            tokens: step * 1000,
            tokens_per_s: 12_345.0,
            memory_bytes: Some(123 << 20),
            elapsed_s: 40.0,
            remaining_s: Some(160.0),
            ..StepReport::default()
        };
        dashboard.step(&report);
        if step % 100 == 0 {
            let val_loss = train_loss + 0.1;
            dashboard.evaluation(&EvalReport {
                step,
                val_loss,
                is_best: true,
                ngram_loss: Some(2.0),
                ..EvalReport::default()
            });
        }
    }
    dashboard.sample(400, "Tom sees\na \u{1b}[2Jred ball.");
    dashboard.note(Note::Tuning);
}

#[test]
fn all_that_there_is_to_say_is_on_the_screen() {
    let mut dashboard = dashboard();
    assert!(screen(&dashboard.shared.view.lock().unwrap(), 100, 30).join("\n").contains("no step is reported yet"));
    learned(&mut dashboard);
    let view = dashboard.shared.view.lock().unwrap().clone();
    let lines = screen(&view, 100, 30);
    let all = lines.join("\n");
    for words in [
        " diary ",
        "step 400 of 2,000, 2m40s left",
        "Loss, nats per token",
        "validation    1.6458, the best",
        "n-grams       2.0000",
        "tokens/s      12.3k",
        "Sample of step 400",
        "Tom sees",
        "a \u{fffd}[2Jred ball.",
        "the next step takes longer",
        "fastest",
        "q  save and quit",
    ] {
        assert!(all.contains(words), "{words}:\n{all}");
    }
    assert!(
        lines.iter().filter(|line| line.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c))).count() > 6,
        "{all}"
    );
}

/// On a small screen the metrics give way to the curves.
#[test]
fn it_fits_on_a_small_terminal() {
    let mut dashboard = dashboard();
    learned(&mut dashboard);
    let view = dashboard.shared.view.lock().unwrap().clone();
    for (columns, rows) in [(40, 16), (76, 24), (200, 60)] {
        let all = screen(&view, columns, rows).join("\n");
        assert!(all.contains("step 400 of 2,000") && all.contains("Tom sees"), "{all}");
        assert_eq!(all.contains("Metrics"), columns >= 76, "{all}");
    }
    screen(&view, 1, 16); // a pane can become this narrow later
}

#[test]
fn q_asks_for_an_end_and_says_so() {
    let dashboard = dashboard();
    let press = |code: KeyCode| dashboard.shared.handle_event(&Event::Key(code.into()));
    press(KeyCode::Char('x'));
    assert!(!dashboard.stop_requested());
    press(KeyCode::Char('q'));
    assert!(dashboard.stop_requested());
    let all = screen(&dashboard.shared.view.lock().unwrap(), 100, 30).join("\n");
    assert!(all.contains("saving and quitting after this step"), "{all}");
}
