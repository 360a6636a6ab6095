//! Reads files and folders and prints their documents as JSON Lines (file, kind, title, text), then
//! the skipped files and notes about each file. For `tools/check-readers`.
//!
//! `cargo run --release -p ember-data --example read_documents -- [CLEAN] TEXT...`, where CLEAN is
//! auto, all or off.

use anyhow::Result;
use ember_data::source::{self, Clean, Event, Listing, ReadOptions};
use serde_json::json;
use std::io::{BufWriter, Write};
use std::{path::Path, sync::atomic::AtomicU64, time::Instant};

fn main() -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut options = ReadOptions::default();
    if let Some(clean) = arguments.first().and_then(|word| word.parse::<Clean>().ok()) {
        options.clean = clean;
        arguments.remove(0);
    }
    let mut listing = Listing::default();
    for path in &arguments {
        listing.add_path(Path::new(path))?;
    }
    for left_out in &listing.left_out {
        writeln!(out, "{}", json!({ "left_out": left_out }))?;
    }
    for file in &listing.files {
        let (mut title, mut text, started) = (None, String::new(), Instant::now());
        let mut documents = Vec::new();
        let read = source::read::<source::Error>(file, &options, &AtomicU64::new(0), &mut |event| {
            match event {
                Event::Title(words) => title = Some(words.to_owned()),
                Event::Dated(_) => {}
                Event::Text(piece) => text.push_str(piece),
                Event::EndOfDocument => documents.push((title.take(), std::mem::take(&mut text))),
            }
            Ok(())
        });
        let seconds = started.elapsed().as_secs_f64();
        for (title, text) in documents {
            let kind = file.kind.about().id;
            writeln!(out, "{}", json!({ "file": file.name, "kind": kind, "title": title, "text": text }))?;
        }
        match read {
            Ok(notes) => {
                let (guess, changes) = (notes.guess, notes.changes);
                writeln!(
                    out,
                    "{}",
                    json!({ "read": file.name, "guess": guess, "changes": changes, "seconds": seconds })
                )?;
            }
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::from(error));
                writeln!(out, "{}", json!({ "failed": file.name, "error": error, "seconds": seconds }))?;
            }
        }
    }
    out.flush()?;
    Ok(())
}
