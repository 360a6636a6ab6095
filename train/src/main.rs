//! The program `ember-train`: trains a GPT on the user's own text.

mod cli;
mod commands;
mod report;

use ember_training::memory::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ! {
    cli::main()
}
