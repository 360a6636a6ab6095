//! Translates the kernels in a log to the shader languages of the GPU APIs; `README.md` says why.

mod log;
mod translate;

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs, process};

use anyhow::{Context, Result, bail};

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error:#}");
        process::exit(1);
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (log, folder, adapter) = match arguments.as_slice() {
        [log, folder] => (log, folder, translate::Adapter::Least),
        [log, folder, flag] if flag == "--card" => (log, folder, translate::Adapter::Card),
        _ => bail!("usage: shaders LOG FOLDER [--card]"),
    };
    let text = fs::read_to_string(log).with_context(|| format!("cannot read {log}"))?;
    let kernels: BTreeMap<&str, &str> = log::kernels(&text).collect();
    if kernels.is_empty() {
        bail!("{log} has no kernel in it");
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {folder}"))?;
    let mut max = translate::Needs::default();
    let mut refused = 0;
    for (name, source) in &kernels {
        match translate::translate(source, adapter) {
            Ok((needs, spirv)) => {
                let path = Path::new(folder).join(format!("{name}.spv"));
                let bytes: Vec<u8> = spirv.iter().flat_map(|word| word.to_le_bytes()).collect();
                fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
                max = max.max(needs);
            }
            Err(error) => {
                refused += 1;
                println!("{name}: {error:#}");
            }
        }
    }
    println!("{} kernels in SPIR-V, Metal's language and HLSL, {refused} refused", kernels.len());
    println!("at most {} bytes of shared memory, {} units, {} buffers", max.shared, max.units, max.buffers);
    if refused > 0 { bail!("{refused} kernels would be refused") } else { Ok(()) }
}
