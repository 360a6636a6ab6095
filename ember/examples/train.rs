//! Trains on a text and prints the progress: `cargo run --release -p ember --features train
//! --example train -- my.txt runs/mine`.

use ember::train::{Alone, DefaultHooks, EvalReport, Reporter, Settings, Start, StepReport};

/// Prints the loss.
struct Losses;

impl Reporter for Losses {
    fn step(&mut self, report: &StepReport) {
        println!("step {}: loss {:.4}", report.step, report.train_loss);
    }
    fn evaluation(&mut self, report: &EvalReport) {
        println!("step {}: validation loss {:.4}", report.step, report.val_loss);
    }
    fn sample(&mut self, _step: u64, text: &str) {
        println!("{text}");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(text), Some(folder)) = (arguments.next(), arguments.next()) else { return Err("TEXT FOLDER".into()) };
    let mut settings =
        Settings::from_toml_str("max_steps = 60\nlog_interval = 10\nn_layer = 2\nn_embd = 64\nn_head = 2")?;
    settings.set_text(&[text]);
    let start = Start::new(settings, "auto".parse()?, None, &DefaultHooks, &mut Losses)?;
    let Some(run) = start.begin(folder.as_ref(), &Alone, &DefaultHooks, &mut Losses)? else { return Ok(()) };
    let trained = run.train(&Alone, &mut Losses, &|| false)?;
    println!("trained to step {} in {}", trained.progress.step, trained.folder.path().display());
    Ok(())
}
