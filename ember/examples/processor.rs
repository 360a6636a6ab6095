//! A custom logits processor, which bans a letter: `cargo run --release -p ember --example
//! processor -- runs/mine PROMPT`.

use ember::{LogitsProcessor, Model, Prompts, Step};

/// Bans tokens.
struct Without(Vec<usize>);

impl LogitsProcessor for Without {
    fn name(&self) -> &'static str {
        "without"
    }

    fn process(&self, _step: &Step, logits: &mut [f32]) {
        for &id in &self.0 {
            logits[id] = f32::NEG_INFINITY;
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(prompt)) = (arguments.next(), arguments.next()) else { return Err("FOLDER PROMPT".into()) };
    let model = Model::open(folder)?;
    let has_e = |id: &u32| model.tokenizer().token_bytes(*id).is_some_and(|bytes| bytes.contains(&b'e'));
    let forbidden = (0..model.tokenizer().vocab_size() as u32).filter(has_e).map(|id| id as usize).collect();

    let generator = model.generator(model.config().clone())?.processed_by(Without(forbidden));
    let ids = model.encode(&prompt)?;
    for written in generator.write(&Prompts { ids: &[&ids], ..Prompts::default() }, &mut ())? {
        println!("{prompt}{}", written.text);
    }
    Ok(())
}
