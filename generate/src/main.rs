//! The program `ember-generate`: writes with a trained GPT, and measures text with it.

mod commands;
mod twin;

use commands::Cli;
use ember_cli::program::{parse, run_program};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ! {
    let cli: Cli = parse();
    run_program(&cli.common, |interrupt| cli.command.run(&cli.common, interrupt))
}
