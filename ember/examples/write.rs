//! Opens a checkpoint and streams a text: `cargo run --release -p ember --example write --
//! runs/mine "Once upon a time"`.

use std::io::{Write, stdout};
use std::ops::ControlFlow;

use ember::{GenerationConfig, Model, Strategy};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(prompt)) = (arguments.next(), arguments.next()) else { return Err("FOLDER PROMPT".into()) };
    let model = Model::open(folder)?;
    let config = GenerationConfig {
        strategy: Strategy::Sample,
        temperature: 0.8,
        top_p: 0.95,
        max_new_tokens: 60,
        seed: 5,
        ..model.config().clone()
    };
    print!("{prompt}");
    model.stream(&prompt, &config, |text| {
        print!("{text}");
        match stdout().flush() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()), // the reader is gone
        }
    })?;
    println!();
    Ok(())
}
