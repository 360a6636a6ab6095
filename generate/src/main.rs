//! The program `ember-generate`: writes with a trained GPT, and measures text with it.

use ember_cli::program::{parse, run_program};
use ember_generate::allocator::Bounded;
use ember_generate::commands::{Cli, elsewhere::meant};

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

fn main() -> ! {
    let cli: Cli = parse(meant);
    run_program(&cli.common, |interrupt| cli.command.run(&cli.common, interrupt))
}
