//! The screen as text, for a run with numbers that a reader can check.
#![allow(clippy::unwrap_used)]

use burn::tensor::Device;
use crossterm::event::KeyCode;
use ratatui::{Terminal, backend::TestBackend};

use super::*;
use ember_decoding::{Completion, FinishReason, Plan, Traced, Watch, generate_batch};
use ember_decoding::{config::Strategy, trace::ChoiceTrace, trace::TracedStep};
use ember_model::{Gpt, GptConfig};

/// The six probabilities of common tutorials.
fn recorded() -> Recorded {
    let step = |(number, id): (usize, u32)| {
        let unmodified: Vec<f32> = [0.40_f32, 0.30, 0.20, 0.05, 0.03, 0.02].iter().map(|p| p.ln()).collect();
        let choice = ChoiceTrace { step: number, candidates: Vec::new(), draw: None, interval: None, id, logprob: 0.0 };
        TracedStep { processed: unmodified.clone(), unmodified, choice }
    };
    let ids = vec![1, 2, 0];
    let completion = Completion {
        ids: ids.clone(),
        tokens: Vec::new(),
        finish_reason: FinishReason::Length,
        score: 0.0,
        seconds: 0.0,
        slid: false,
        finding: None,
    };
    Recorded { completion, steps: ids.into_iter().enumerate().map(step).collect() }
}

fn token(id: u32) -> Vec<u8> {
    [" the", " a", " cat", " dog", "\n", "<end>"][id as usize].as_bytes().to_vec()
}

/// The initial screen.
fn twin<'a>(
    words: Words<'a>,
    config: &'a GenerationConfig,
    recorded: &'a Recorded,
    beam_steps: &'a [BeamStep],
) -> Twin<'a> {
    Twin {
        words,
        prompt: &[3],
        config,
        recorded,
        beam_steps,
        view: View::Candidates,
        step: 0,
        knobs: Knobs::of(config),
        redraws: 0,
        scroll: 0,
        done: false,
    }
}

/// The screen after these keys, line by line without trailing blanks.
fn screen(config: &GenerationConfig, keys: &[KeyCode]) -> Vec<String> {
    let (recorded, beam_steps) = (recorded(), tree::tests::search());
    let mut twin = twin(Words { bytes_of: Some(&token) }, config, &recorded, &beam_steps);
    keys.iter().for_each(|&key| twin.press(key));
    drawn(&mut twin, 77, 20)
}

/// A screen of this size.
fn drawn(twin: &mut Twin, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| twin.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

fn greedy_config() -> GenerationConfig {
    GenerationConfig::default()
}

#[test]
fn the_first_step_of_a_greedy_run() {
    let shown = screen(&greedy_config(), &[]);
    let expected = [
        "┌ Step 0 of 2 ──────────────────────────────────────────────────────────────┐",
        "│ dog█                                                                      │",
        "│                                                                           │",
        "│                                                                           │",
        "│                                                                           │",
        "└───────────────────────────────────────────────────────────────────────────┘",
        "┌ 6 of 6 tokens are left ───────────────────────────────────────────────────┐",
        "│▸ ·the              40.00% ████████████████████████████████████████████████│",
        "│  ·a                30.00% ████████████████████████████████████            │",
        "│  ·cat              20.00% ████████████████████████                        │",
        "│  ·dog               5.00% ██████                                          │",
        "│  ↵                  3.00% ████                                            │",
        "│  <end>              2.00% ██                                              │",
        "│                                                                           │",
        "└───────────────────────────────────────────────────────────────────────────┘",
        "┌───────────────────────────────────────────────────────────────────────────┐",
        "│ temperature 0 (greedy)  top-k off  top-p off  min-p off  repetition off   │",
        "│ the best is taken: ·the; the run, with its own knobs, took ·a             │",
        "└───────────────────────────────────────────────────────────────────────────┘",
        "←→ step  ↑↓ knob  + - change  0 reset  d draw again  b beams  q quit",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_knob_that_removes_says_so_and_the_rest_share_what_it_leaves() {
    let config = GenerationConfig { strategy: Strategy::Sample, temperature: 1.0, ..greedy_config() };
    // Top-k raised to 1, 2, 3: 0.40, 0.30 and 0.20 of 0.90 are left.
    let shown = screen(&config, &[KeyCode::Down, KeyCode::Char('+'), KeyCode::Char('+'), KeyCode::Char('+')]);
    assert!(shown[6].starts_with("┌ 3 of 6 tokens are left "), "{}", shown[6]);
    let figures: Vec<&str> = shown[7..13].iter().map(|line| line[line.find('%').unwrap() - 5..].trim_end()).collect();
    assert!(figures[0].starts_with("44.44%") && figures[1].starts_with("33.33%") && figures[2].starts_with("22.22%"));
    for (line, before) in figures[3..].iter().zip([" 5.00%", " 3.00%", " 2.00%"]) {
        assert!(line.starts_with(&format!("{before} removed by top-k")), "{line}");
    }
    assert!(shown[16].contains("top-k 3"), "{}", shown[16]);
}

#[test]
fn the_draw_is_that_of_the_engine_and_can_be_drawn_again() {
    let config = GenerationConfig { strategy: Strategy::Sample, seed: 7, ..greedy_config() };
    let logits = recorded().steps[1].unmodified.clone();
    for (keys, seed) in [(vec![KeyCode::Right], 7), (vec![KeyCode::Right, KeyCode::Char('d')], 8)] {
        let drawn = draw(seed, 0, 1, &logits);
        let shown = screen(&config, &keys);
        let expected = format!("draw {:.4} falls into {:.4} to", drawn.uniform, drawn.interval.0);
        assert!(shown[17].contains(&expected), "{}", shown[17]);
    }
}

/// Keeps how the engine chose each token.
struct Steps(Vec<TracedStep>);

impl Watch for Steps {
    fn traced(&mut self, step: Traced) {
        if let Traced::Choice { step, .. } = step {
            self.0.push(step.clone());
        }
    }
}

#[test]
fn every_draw_of_a_run_is_shown_as_the_engine_made_it() {
    let model = Gpt::new(&GptConfig::new(6, 8, 1, 1, 8), 3, &Device::flex()).unwrap();
    let config = GenerationConfig { strategy: Strategy::Sample, seed: 7, max_new_tokens: 4, ..greedy_config() };
    let (plan, mut steps) = (Plan { traced_candidates: 1, ..Plan::new(&config) }, Steps(Vec::new()));
    let completion = generate_batch(&model, &[&[3]], &plan, &mut steps).unwrap().remove(0).remove(0);
    let recorded = Recorded { completion, steps: steps.0 };
    assert_eq!(recorded.steps.len(), 4);
    let mut twin = twin(Words::default(), &config, &recorded, &[]);
    for TracedStep { choice, .. } in &recorded.steps {
        let shown = twin.outcome(1).choice;
        assert_eq!((shown.draw, shown.interval, shown.id), (choice.draw, choice.interval, choice.id));
        twin.press(KeyCode::Right);
    }
}

#[test]
fn steps_go_forward_and_back_and_stop_at_the_ends() {
    let config = greedy_config();
    let [right, left] = [KeyCode::Right, KeyCode::Left];
    assert!(screen(&config, &[right, right, right, right])[0].starts_with("┌ Step 2 of 2 ──"));
    assert!(screen(&config, &[right, right])[1].contains("dog a cat█"));
    assert_eq!(screen(&config, &[right, left, left]), screen(&config, &[]));
    assert_eq!(screen(&config, &[KeyCode::Char('+'), KeyCode::Char('0')]), screen(&config, &[]));
}

#[test]
fn the_beams_as_a_tree() {
    let shown = screen(&greedy_config(), &[KeyCode::Char('b'), KeyCode::End]);
    let expected = [
        "┌ Beams after step 2, sums of log-probabilities ────────────────────────────┐",
        "│├ ·the  -0.92                                                              │",
        "││ ├ ·a↵  -2.50  runs                                                       │",
        "││ └ ·dog  -1.90                                                            │",
        "││   ├ <end>  -2.00  finished                                               │",
        "││   └ ·cat  -2.60  runs                                                    │",
        "│└ ·a  -1.20  pruned                                                        │",
    ];
    assert_eq!(shown[6..13], expected);
    assert_eq!(shown[19], "←→ step  ↑↓ scroll  b candidates  q quit");
}

#[test]
fn a_tree_that_has_no_room_says_what_is_below_and_can_be_scrolled() {
    let (recorded, beam_steps, config) = (recorded(), tree::tests::search(), greedy_config());
    let mut twin = twin(Words { bytes_of: Some(&token) }, &config, &recorded, &beam_steps);
    [KeyCode::Char('b'), KeyCode::End].iter().for_each(|&key| twin.press(key));
    // Of the tree's five lines, three fit, without the pruned branch.
    let shown = |twin: &mut Twin| -> Vec<String> {
        drawn(twin, 77, 12)[7..10].iter().map(|line| line.trim_matches(['│', ' ']).to_owned()).collect()
    };
    let from_the_first = shown(&mut twin);
    assert_eq!(from_the_first, ["└ ·the  -0.92", "├ ·a↵  -2.50  runs", "3 more below"]);
    // Scrolling stops at the end.
    (0..9).for_each(|_| twin.press(KeyCode::Down));
    assert_eq!(shown(&mut twin), ["└ ·dog  -1.90", "├ <end>  -2.00  finished", "└ ·cat  -2.60  runs"]);
    twin.press(KeyCode::Up);
    assert_eq!(shown(&mut twin), ["├ ·a↵  -2.50  runs", "└ ·dog  -1.90", "2 more below"]);
    twin.press(KeyCode::Up);
    assert_eq!(shown(&mut twin), from_the_first);
}

#[test]
fn the_knob_that_a_key_turns_is_to_be_seen_on_a_narrow_screen() {
    let (recorded, config) = (recorded(), greedy_config());
    let mut twin = twin(Words { bytes_of: Some(&token) }, &config, &recorded, &[]);
    assert!(drawn(&mut twin, 40, 20)[16].starts_with("│ temperature 0 (greedy)  top-k off "));
    twin.press(KeyCode::Up);
    let shown = &drawn(&mut twin, 40, 20)[16];
    assert!(shown.contains(" top-p off  min-p off  repetition off "), "{shown}");
}

#[test]
fn a_character_of_several_tokens_is_whole_and_a_part_of_one_is_its_byte() {
    let part = |id: u32| "\u{4f60}".as_bytes()[id as usize % 3..][..1].to_vec();
    let (recorded, config) = (recorded(), greedy_config());
    let mut twin = Twin { prompt: &[0], ..twin(Words { bytes_of: Some(&part) }, &config, &recorded, &[]) };
    let texts = |twin: &Twin| {
        let (prompt, generated) = twin.text_so_far();
        format!("{prompt}|{generated}")
    };
    assert_eq!((texts(&twin), twin.name(&[1])), ("<E4>|".to_owned(), "<BD>".to_owned()));
    twin.press(KeyCode::Right);
    assert_eq!(texts(&twin), "<E4>|<BD>");
    twin.press(KeyCode::Right);
    assert_eq!(texts(&twin), "|\u{4f60}");
    assert_eq!(twin.name(&[0, 1, 2]), "\u{4f60}");
}

#[test]
fn of_a_text_in_wide_characters_the_end_is_to_be_seen() {
    let wide = |id: u32| if id == 3 { "\u{597d}".repeat(900).into_bytes() } else { "\u{4f60}".into() };
    let (recorded, config) = (recorded(), greedy_config());
    let mut twin = twin(Words { bytes_of: Some(&wide) }, &config, &recorded, &[]);
    twin.press(KeyCode::Right);
    let shown = drawn(&mut twin, 77, 20);
    assert!(shown[1..5].iter().any(|line| line.contains("\u{4f60} █")), "{shown:?}");
}

#[test]
fn q_leaves() {
    let (recorded, config) = (recorded(), greedy_config());
    let mut twin = twin(Words::default(), &config, &recorded, &[]);
    assert!(!twin.done);
    twin.press(KeyCode::Char('q'));
    assert!(twin.done);
    assert_eq!(twin.name(&[4]), "#4", "without a tokenizer a token is its number");
}
