//! Measurements of a trained model's text: what it copies, and its exposure bias.

use ember_training::units::grouped;

use super::{Place, SMALL, small_run, text};

#[test]
fn what_is_copied_is_found_where_it_stands() {
    let place = Place::new();
    place.train(&small_run(&place, "runs/count", 7)).succeeds();
    // Lines 3 and 4 of the training text.
    let copied = "three and then four.\nfour and then five.\n";
    place.write("generated.txt", format!("Something new, {copied}and new again."));
    let ran =
        place.train("copied ./generated.txt runs/count --min-chars 40 --format json --html marked.html").succeeds();
    let [marked, summary] = &ran.json()[..] else { panic!("{}", ran.out) };
    assert_eq!((&marked["kind"], &summary["kind"]), (&"text".into(), &"summary".into()));
    let span = &marked["spans"][0];
    assert_eq!((&span["text"], &span["start"], &span["characters"]), (&copied.into(), &15.into(), &41.into()));
    assert_eq!((&span["place"]["line"], &span["place"]["source"]), (&3.into(), &"count.txt".into()));
    assert_eq!(span["place"]["line_of"], "split_document");
    assert_eq!(span["place"]["before"], "one and then two.\ntwo and then three.\n");
    assert_eq!((&summary["copied_characters"], &summary["texts"]), (&41.into(), &1.into()));
    assert_eq!(summary["novel"][0]["novel"], 5, "Something, new, a comma, new, again: {summary}");
    // The text repeats its counting, so everything held out occurs in the training part too.
    assert_eq!(summary["validation"]["copied_share"], 1.0);
    let page = std::fs::read_to_string(place.path("marked.html")).unwrap();
    assert!(page.contains("<h1>What generated.txt copies</h1>"), "folders are private: {page}");
    assert!(page.contains("<a href=\"#s0-0\"") && page.contains("line 3 of training document 1, from count.txt"));

    place.write("mine/old/count.txt", text());
    let by_file = "copied generated.txt --min-chars 40 --format json --html places.html --corpus mine/old/count.txt";
    let by_file = place.train(by_file).succeeds().json();
    assert_eq!(by_file[0]["spans"][0]["place"]["line"], 3);
    assert_eq!(by_file[0]["spans"][0]["place"]["source"], "mine/old/count.txt");
    assert!(by_file[1]["validation"].is_null());
    let page = std::fs::read_to_string(place.path("places.html")).unwrap();
    assert!(page.contains("line 3 of count.txt"), "folders are private: {page}");
    let table = place.train("copied generated.txt --min-words 8").succeeds().out;
    assert!(table.contains("line 3 of training document 1, from count.txt"), "{table}");
    assert!(table.contains("at least 8 words"), "{table}");
    let table = place.train("copied generated.txt --min-words 8 --corpus count.txt").succeeds().out;
    assert!(table.contains("line 3 of count.txt"), "{table}");

    let generated = place
        .generate("text one --strategy sample --max-new-tokens 60 --seed 1 --num-return-sequences 3 --format json")
        .succeeds();
    place.write("generated.jsonl", &generated.out);
    let lines = place.train("copied generated.jsonl --format json").succeeds().json();
    assert_eq!((lines.len(), &lines[3]["texts"], &lines[3]["characters"]), (4, &3.into(), &180.into()));
}

/// The measurements reported before a page is written are in its JSON line, too.
#[test]
fn a_page_s_line_of_json_has_what_was_measured_of_its_texts() {
    let place = Place::new();
    place.train(&small_run(&place, "runs/count", 40)).succeeds();
    let ran = place.train("share --html page.html --format json").succeeds();
    let [line] = &ran.json()[..] else { panic!("{}", ran.out) };
    let copied = &line["copied"];
    let share = |part: &serde_json::Value| 100.0 * part["copied_share"].as_f64().unwrap();
    let expected = format!("{:.1}% of {} characters", share(copied), grouped(copied["characters"].as_u64().unwrap()));
    assert!(ran.err.contains(&expected) && copied["min_chars"] == 50, "{line} {}", ran.err);
    // The text repeats its counting.
    assert_eq!(share(&copied["validation"]), 100.0, "{line}");
    assert!(copied["validation"]["characters"].as_u64().unwrap() > 1000, "{line}");
    assert!(ran.err.contains("contain no addresses") && line["private"] == serde_json::json!([]), "{line}");
    let ran = place.train("share --html page.html --format json --skip-copied --quiet").succeeds();
    assert!(ran.json()[0]["copied"].is_null() && ran.json()[0]["private"].is_null() && ran.err.is_empty(), "{ran:?}");
}

#[test]
fn exposure_is_measured_on_validation_text() {
    let place = Place::new();
    place.train(&small_run(&place, "runs/count", 40)).succeeds();
    let ran =
        place.train("exposure --windows 8 --samples 2 --loop-tokens 48 --format json --html exposure.html").succeeds();
    let [exposure] = &ran.json()[..] else { panic!("{}", ran.out) };
    assert_eq!(
        (&exposure["windows"], &exposure["prefix"], &exposure["context_length"]),
        (&8.into(), &8.into(), &32.into())
    );
    let first = &exposure["positions"][0];
    assert!(first["drift"]["mean"].as_f64().unwrap().abs() < 1e-4, "{first}");
    assert_eq!(exposure["whole"]["to"], 25);
    // The validation loss of the last checkpoint is close: other windows of the same text.
    let metrics = std::fs::read_to_string(place.path("runs/count/metrics.jsonl")).unwrap();
    let losses =
        metrics.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["val_loss"].as_f64());
    let evaluated = losses.flatten().fold(f64::INFINITY, f64::min);
    let real = exposure["whole"]["real"]["loss"].as_f64().unwrap();
    assert!((real - evaluated).abs() < 0.3 * evaluated, "{real}, evaluated {evaluated}");
    assert_eq!(exposure["loops"][2]["text"], "greedy");
    let page = std::fs::read_to_string(place.path("exposure.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("<h1>Exposure of count, step "), "paths are private: {page}");

    let again = "exposure runs/count --windows 8 --samples 2 --loop-tokens 0";
    let table = place.train(again).succeeds().out;
    assert!(table.contains("\nat positions ") && !table.contains("loops:"), "{table}");
    assert_eq!(place.train(again).succeeds().out, table, "the same seed, the same figures");
}

/// The folder of a run's tokens may have been prepared again, with tokens that the model does not
/// have.
#[test]
fn a_text_of_other_tokens_than_the_models_is_not_put_into_it() {
    let place = Place::new();
    place.write("count.txt", text());
    place.train("prepare count.txt --tokenizer chars --out tokens").succeeds();
    place.train(&format!("run tokens --out a-run --set max_steps=2 {SMALL}")).succeeds();
    place.train("prepare count.txt --tokenizer bytes --out tokens").succeeds();
    for command in ["bench --from a-run --steps 1 --device cpu", "ledger a-run", "exposure a-run --windows 2"] {
        let ran = place.train(command);
        assert!(ran.code == Some(1) && ran.err.contains("; prepare it again with "), "{command}: {}", ran.err);
    }
    // A vocabulary of the same size but other tokens is detected, too (except by bench).
    place.write("count.txt", text().replace('n', "z"));
    place.train("prepare count.txt --tokenizer chars --out tokens").succeeds();
    for command in ["ledger a-run", "exposure a-run --windows 2"] {
        let ran = place.train(command);
        assert!(ran.code == Some(1) && ran.err.contains("; prepare it again with "), "{command}: {}", ran.err);
    }
    let ran = place.train("share a-run --html page.html").succeeds();
    assert!(ran.err.contains("tokens was prepared with another tokenizer than the model's"), "{}", ran.err);
    assert!(place.path("page.html").is_file());
}
