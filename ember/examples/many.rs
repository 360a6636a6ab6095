//! Continues many prompts at once, and ranks the beams of one: `cargo run --release -p ember
//! --example many -- runs/mine PROMPT...`.

use ember::{GenerationConfig, Model, Strategy};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = Model::open(arguments.next().ok_or("FOLDER PROMPT...")?)?;
    let prompts: Vec<String> = arguments.collect();
    let prompts: Vec<&str> = prompts.iter().map(String::as_str).collect();

    let greedy = GenerationConfig { strategy: Strategy::Greedy, max_new_tokens: 20, ..model.config().clone() };
    for written in model.write_all(&prompts, &greedy)? {
        println!("{} ->{}", prompts[written.prompt], written.text);
    }

    let beams = GenerationConfig { strategy: Strategy::Beam, num_beams: 4, num_return_sequences: 4, ..greedy };
    for written in model.write_all(&prompts[..1], &beams)? {
        println!("{:8.3} {}", written.completion.score, written.text);
    }
    Ok(())
}
