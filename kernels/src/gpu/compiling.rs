//! How many kernels the runtime has compiled: what a program can show while the first step waits for
//! them. It is counted in what the runtime logs.

use std::sync::atomic::{AtomicUsize, Ordering};

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig, compilation::CompilationLogLevel};
use cubecl_environment::config::logger::LogCrateLevel;
use log::{LevelFilter, Log, Metadata, Record};

static COMPILED: AtomicUsize = AtomicUsize::new(0);

/// What the line of the log begins with.
const LINE: &str = "[Compiling kernel]";

/// Counts from here on. For programs: it takes the process's logger, where nobody has it.
pub fn count() {
    if log::set_logger(&Counter).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Kernels compiled since [`count`].
pub fn counted() -> usize {
    COMPILED.load(Ordering::Relaxed)
}

/// The runtime's configuration by the user's `cubecl.toml` and variables, with a line in the log for
/// every kernel where nothing else is asked for.
pub fn configuration() -> CubeClRuntimeConfig {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    let logger = &mut config.compilation.logger;
    if matches!(logger.level, CompilationLogLevel::Disabled) {
        logger.level = CompilationLogLevel::Basic;
        logger.log = Some(LogCrateLevel::Info);
    }
    config
}

/// Sets [`configuration`]; does nothing the second time. To be called before a GPU is looked for.
pub fn configure() {
    // It is `false` where something has read the configuration before us: then that stands.
    CubeClRuntimeConfig::try_set(configuration());
}

struct Counter;

impl Log for Counter {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if record.args().to_string().starts_with(LINE) {
            COMPILED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}
