//! Finds the most probable of some texts: `cargo run --release -p ember --example score --
//! runs/mine TEXT...`.

use ember::Model;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = Model::open(arguments.next().ok_or("FOLDER TEXT...")?)?;
    for text in arguments {
        let tally = model.score(&text)?;
        println!("loss {:.4}, perplexity {:.2}: {text}", tally.loss(), tally.perplexity());
    }
    Ok(())
}
