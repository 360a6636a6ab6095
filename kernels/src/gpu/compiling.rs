//! Counts the kernels that the runtime compiles, so that a program can show progress during the
//! first step. The count comes from the runtime's log.

use std::sync::atomic::{AtomicUsize, Ordering};

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig, compilation::CompilationLogLevel};
use cubecl_environment::config::logger::LogCrateLevel;
use log::{LevelFilter, Log, Metadata, Record};

static COMPILED: AtomicUsize = AtomicUsize::new(0);

/// Start of the log message for a compiled kernel.
const LOG_PREFIX: &str = "[Compiling kernel]";

/// Starts counting. For programs only: it installs the process's logger, if there is none.
pub fn count() {
    if log::set_logger(&Counter).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Kernels compiled since [`count`].
pub fn counted() -> usize {
    COMPILED.load(Ordering::Relaxed)
}

/// The runtime's configuration from the user's `cubecl.toml` and environment, with a log message
/// for every compiled kernel unless the user configured compilation logging.
pub fn configuration() -> CubeClRuntimeConfig {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    let logger = &mut config.compilation.logger;
    if matches!(logger.level, CompilationLogLevel::Disabled) {
        logger.level = CompilationLogLevel::Basic;
        logger.log = Some(LogCrateLevel::Info);
    }
    config
}

/// Sets [`configuration`], once; later calls do nothing. Call this before looking for a GPU.
pub fn configure() {
    // Returns `false` if the configuration was already read: then that one stays.
    CubeClRuntimeConfig::try_set(configuration());
}

struct Counter;

impl Log for Counter {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if record.args().to_string().starts_with(LOG_PREFIX) {
            COMPILED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}
