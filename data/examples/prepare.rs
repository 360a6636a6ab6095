//! Prepares a text given on the command line and prints the results and the speed; see
//! `bench/prepare.py`.
//!
//! `cargo run --release -p ember-data --example prepare -- TOKENIZER OUT TEXT...`

use anyhow::{Context, Result};
use ember_data::prepare::{Input, PrepareOptions, Progress, prepare};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

/// Records the start of each stage.
struct Stages(Mutex<Vec<(String, Instant)>>);

impl Progress for Stages {
    fn update(&self, stage: &str, _done_bytes: u64, _total_bytes: Option<u64>) {
        if let Ok(mut stages) = self.0.lock()
            && stages.last().is_none_or(|(last, _)| last != stage)
        {
            stages.push((stage.to_owned(), Instant::now()));
        }
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let tokenizer = arguments.next().context("give a tokenizer, a folder to write and texts")?;
    let out = arguments.next().context("give a folder to write and texts")?;
    let inputs = arguments.map(|path| Input::Path(PathBuf::from(path))).collect();
    let options =
        PrepareOptions { inputs, tokenizer: tokenizer.parse()?, out: PathBuf::from(out), ..PrepareOptions::default() };
    let stages = Stages(Mutex::default());
    let manifest = prepare(&options, &stages)?;
    let end = Instant::now();

    println!("{}", manifest.report);
    let stages = stages.0.into_inner().unwrap_or_default();
    let ends = stages.iter().skip(1).map(|stage| stage.1).chain([end]);
    let bytes: u64 = manifest.report.bytes.iter().sum();
    for ((stage, start), end) in stages.iter().zip(ends) {
        let seconds = (end - *start).as_secs_f64();
        println!("{stage}: {seconds:.1} s, {:.1} MB/s", bytes as f64 / 1e6 / seconds);
    }
    Ok(())
}
