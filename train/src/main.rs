//! `ember-train`: trains a GPT on the user's own text.

use ember_train::memory::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ! {
    ember_train::cli::main()
}
