//! Greedy decoding by hand, with the logits and the key-value cache: `cargo run --release -p ember
//! --example by_hand -- runs/mine PROMPT`.

use ember::{KvCache, Model, sampler};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(prompt)) = (arguments.next(), arguments.next()) else { return Err("FOLDER PROMPT".into()) };
    let model = Model::open(folder)?;
    let gpt = model.gpt();
    let mut ids = model.encode(&prompt)?;
    let mut cache = KvCache::new(gpt.config(), 1, ids.len() + 20, &gpt.device());
    let mut unread = 0; // index of the first id that the model has not read
    for _ in 0..20 {
        let logits = gpt.forward_cached_last(&[&ids[unread..]], &[1], &mut cache); // [1, vocab_size]
        unread = ids.len();
        let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
        ids.push(sampler::greedy(&logits));
    }
    println!("{}", model.tokenizer().decode_text(&ids)?);
    Ok(())
}
