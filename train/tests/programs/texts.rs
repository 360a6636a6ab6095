//! Folders of text as users have them: with other files, with runs inside, and as the working
//! folder.

use std::fs;

use super::{Place, Ran, SMALL, text};

/// The names of the sources in a run's manifest.
fn sources(place: &Place, run: &str) -> Vec<String> {
    let manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(place.path(run).join("data/manifest.json")).unwrap()).unwrap();
    let sources = manifest["sources"].as_array().unwrap().iter();
    sources.map(|source| source["name"].as_str().unwrap().to_owned()).collect()
}

fn train(place: &Place, arguments: &str) -> Ran {
    place.train(&format!("{arguments} --set max_steps=2 {SMALL}")).succeeds()
}

#[test]
fn a_folder_is_trained_on_again_and_again_with_its_runs_inside() {
    let place = Place::new();
    place.write("words/count.txt", text());
    // A foreign manifest.json is an ordinary file.
    place.write("words/manifest.json", "{\"name\": \"an app of mine\", \"version\": 2}\n");
    let expected = ["words/count.txt", "words/manifest.json"];
    for run in ["words/first", "words/runs/second", "words/third"] {
        let ran = train(&place, &format!("run words --out {run}"));
        assert_eq!(sources(&place, run), expected, "{run}");
        let left_out: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("Left out: ")).collect();
        match run {
            "words/first" => assert!(left_out.is_empty(), "{left_out:?}"),
            "words/runs/second" => assert_eq!(left_out, ["Left out: 1 run: words/first"]),
            _ => assert_eq!(left_out, ["Left out: 2 runs, the first: words/first"]),
        }
    }
    place.train("prepare words --out words/prepared").succeeds();
    train(&place, "run words --out elsewhere");
    assert_eq!(sources(&place, "elsewhere"), expected);
    train(&place, "run words/prepared --out prepared-run");
}

#[test]
fn what_the_programs_wrote_into_a_folder_of_text_is_not_learned() {
    let place = Place::new();
    place.write("words/count.txt", text());
    place.write("words/mine.html", "<!DOCTYPE html>\n<title>Mine</title>\n<p>eight and then nine.\n");
    train(&place, "run words --out run");
    let plan = "plan words --minutes 0.05 --set n_layer=1 --set n_embd=16 --set n_head=2 --set context_length=16 \
                --set batch_size=4 --device cpu --out words/plan.toml";
    for arguments in [
        "look words --html words/look.html",
        "share run --html words/share.html --skip-copied",
        "ledger run --repeats 1 --batch-size 2 --device cpu --html words/ledger.html",
        plan,
    ] {
        place.train(arguments).succeeds();
    }
    place.generate("explain one --from run --device cpu --max-new-tokens 4 --html words/explain.html").succeeds();
    for page in ["ledger", "explain"] {
        let page = fs::read_to_string(place.path(&format!("words/{page}.html"))).unwrap();
        assert!(page.contains("run, step ") && !page.contains("run/checkpoints"), "paths are private: {page}");
    }
    let ran = train(&place, "run words --out again");
    assert_eq!(sources(&place, "again"), ["words/count.txt", "words/mine.html"]);
    let line = "Left out: 5 files written by Ember, the first: words/explain.html";
    assert!(ran.err.lines().any(|shown| shown == line), "{}", ran.err);
    let ran = place.train(&format!("run words/plan.toml {SMALL}"));
    let line = "error: words/plan.toml is a page or a recipe that Ember wrote, not text; name the text itself";
    assert!(ran.code == Some(1) && ran.err.lines().any(|shown| shown == line), "{}", ran.err);
}

#[test]
fn a_file_that_cannot_be_used_is_left_out_of_a_folder_and_said() {
    let place = Place::new();
    place.write("code/count.txt", text());
    place.write("code/data.jsonl", "{\"input\": \"1 2\", \"output\": \"3\"}\n");
    place.write(
        "code/utf16.txt",
        "\u{feff}eight and then nine.\n".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>(),
    );
    let ran = train(&place, "run code --out run");
    let line = "Left out: 1 JSON Lines file that cannot be used: code/data.jsonl:1: no field \"text\"; name one of these with \
                --field (in run and plan: --set field=NAME): input, output";
    assert!(ran.err.lines().any(|shown| shown == line), "{}", ran.err);
    assert_eq!(sources(&place, "run"), ["code/count.txt", "code/utf16.txt"]);
    // `plan` and `copied` read the folder the same way.
    place.train("plan code --minutes 0.05 --device cpu").succeeds();
    place.write("written.txt", "one and then two. eight and then nine.");
    let copied =
        |file: &str| place.train(&format!("copied {file} --corpus code --format json")).succeeds().json()[0].clone();
    place.write("marked.txt", "\u{feff}one and then two. eight and then nine.");
    assert_eq!(copied("written.txt"), copied("marked.txt"), "a byte order mark is no text");
    place.write("code/empty.txt", "");
    let ran = place.train("copied written.txt --corpus code").succeeds();
    assert!(ran.err.lines().any(|shown| shown == "Left out: 1 empty file: code/empty.txt"), "{}", ran.err);
}

#[test]
fn copied_reads_a_corpus_in_the_encoding_that_is_named() {
    let place = Place::new();
    let text = "un café et un thé, puis un café et deux thés, et rien de plus, jamais";
    place.write("written.txt", text);
    place.write("latin1.txt", text.chars().map(|character| u8::try_from(character).unwrap()).collect::<Vec<_>>());
    let copied = |encoding: &str| {
        let ran = place.train(&format!("copied written.txt --corpus latin1.txt --encoding {encoding} --format json"));
        ran.succeeds().json()[0]["copied_characters"].as_u64().unwrap()
    };
    assert!(copied("latin1") > 50);
    assert_eq!(copied("koi8-r"), 0, "no letter with an accent is the same");
}

#[test]
fn a_long_text_with_two_notes_gets_the_context_that_it_bears() {
    let place = Place::new();
    place.write("writing/novel.txt", text().repeat(4));
    place.write("writing/a.txt", "one and two");
    place.write("writing/b.txt", "three and four");
    let context = |folder: &str| {
        let settings = "--device cpu --set n_layer=1 --set n_embd=16 --set n_head=2 --set max_steps=1";
        let ran = place.train(&format!("run {folder} --out {folder}-run {settings}")).succeeds();
        let config = fs::read_to_string(place.path(&format!("{folder}-run/config.toml"))).unwrap();
        let line = config.lines().find(|line| line.starts_with("context_length = ")).unwrap().to_owned();
        (line, ran.err)
    };
    let (with_notes, stderr) = context("writing");
    assert!(
        stderr.contains("; and to make up the 10%, the last 10.0% of the characters of the one long document."),
        "{stderr}"
    );
    for note in ["a.txt", "b.txt"] {
        fs::remove_file(place.path("writing").join(note)).unwrap();
    }
    fs::rename(place.path("writing"), place.path("alone")).unwrap();
    assert_eq!(with_notes, context("alone").0);
}
