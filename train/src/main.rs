//! The program `ember-train`: trains a GPT on the user's own text.

mod cli;
mod commands;
mod output;
mod prelude;
mod progress_bar;
mod report;
mod training;
mod wording;

use std::io::{self, Write};
use std::sync::atomic::Ordering::Relaxed;

use ember_training::memory::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting { refused };

fn main() -> ! {
    cli::main()
}

/// Called when an allocation fails: prints one line and exits.
#[cold]
fn refused(size: usize) -> ! {
    let advice = match cli::TRAINS.load(Relaxed) {
        true => "use a smaller micro_batch or model, or activation_checkpointing",
        false => "give less text, or free some memory",
    };
    // This must not allocate: standard error is unbuffered, and formatting a number needs no heap.
    let _ = writeln!(io::stderr(), "error: out of memory: the system refused {size} bytes; {advice}");
    std::process::exit(1)
}
