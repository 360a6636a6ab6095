//! `ember-train`: trains a GPT on the user's own text.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    ember_train::cli::main()
}
