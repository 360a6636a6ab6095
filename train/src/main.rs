//! `ember-train`: trains a GPT on the user's own text.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ! {
    ember_train::cli::main()
}
