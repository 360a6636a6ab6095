//! The program `ember-generate`: generates text with a trained GPT and scores texts.

use ember_cli::program::{parse, run_program};
use ember_generate::commands::{Cli, elsewhere::meant};
use ember_host::bounded::Bounded;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Bounded<MiMalloc> = Bounded(MiMalloc);

fn main() -> ! {
    let cli: Cli = parse(meant);
    run_program(&cli.common, |interrupt| cli.command.run(&cli.common, interrupt))
}
