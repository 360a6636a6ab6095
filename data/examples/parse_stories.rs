//! Counts how many stories on standard input (lines of `ember-generate text --format json`) are in
//! the built-in grammar and consistent in every person, thing and place. `bench/stories.sh` runs
//! it.

use std::io::BufRead;

use anyhow::{Context, Result};
use ember_data::stories::{ParseError, parse};

fn main() -> Result<()> {
    let (mut consistent, mut contradicting, mut ungrammatical) = (0, 0, 0);
    let mut examples = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let row: serde_json::Value = serde_json::from_str(&line?).context("standard input is not JSON Lines")?;
        let text = row["text"].as_str().context("a line has no text")?;
        match parse(text) {
            Ok(_) => consistent += 1,
            Err(error) => {
                match &error {
                    ParseError::Inconsistent { .. } => contradicting += 1,
                    ParseError::NotGrammar { .. } => ungrammatical += 1,
                }
                examples.push(format!("{error}\n  {text}"));
            }
        }
    }
    let all = consistent + contradicting + ungrammatical;
    for example in examples.iter().take(5) {
        println!("{example}");
    }
    println!(
        "{consistent} of {all} stories ({:.1}%) are consistent; {contradicting} contradict themselves, {ungrammatical} leave the grammar",
        100.0 * f64::from(consistent) / f64::from(all.max(1))
    );
    Ok(())
}
