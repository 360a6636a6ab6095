//! Where what a GPU's matrix products were tuned to, and its compiled kernels, are kept between
//! runs: in the user's cache folder, with the feature `tuning-cache`. Without it every process
//! compiles and tunes anew.

use std::path::PathBuf;

/// The database they are kept in; `None` where nothing is kept.
pub fn file() -> Option<PathBuf> {
    #[cfg(feature = "tuning-cache")]
    return Some(cubecl::environment::path());
    #[cfg(not(feature = "tuning-cache"))]
    None
}

#[cfg(feature = "tuning-cache")]
pub(crate) use kept::keep;

#[cfg(feature = "tuning-cache")]
mod kept {
    use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
    use ember_kernels::gpu::compiling::configuration;
    use serde_json::{Value, json};

    /// Lets the runtime keep them where [`file`](super::file) says; does nothing the second time.
    /// To be called before a GPU is looked for.
    ///
    /// A `cubecl.toml` of the user's that names another folder is followed.
    pub(crate) fn keep() {
        if let Some(config) = kept_by(&configuration()) {
            // It is `false` where something has read the configuration before us: then that stands.
            CubeClRuntimeConfig::try_set(config);
        }
    }

    /// The configuration with kernels and tuning kept in the user's cache folder, not in the
    /// `target` of whatever workspace the current folder is in.
    ///
    /// By way of JSON, because the setting for kernels is there only in a build that can keep them.
    fn kept_by(config: &CubeClRuntimeConfig) -> Option<CubeClRuntimeConfig> {
        let mut config = serde_json::to_value(config).ok()?;
        config["compilation"]["cache"] = json!(true);
        let path: &mut Value = &mut config["environment"]["path"];
        if *path == json!("target") {
            *path = json!("global");
        }
        serde_json::from_value(config).ok()
    }

    #[cfg(test)]
    mod tests {
        #![allow(clippy::unwrap_used)]
        use std::path::PathBuf;

        use super::*;

        #[test]
        fn the_users_cache_folder_is_taken_unless_another_is_named() {
            let path = |config: &CubeClRuntimeConfig| config.environment.path.root();
            let kept = kept_by(&CubeClRuntimeConfig::default()).unwrap();
            assert!(!path(&kept).starts_with(std::env::current_dir().unwrap()), "{}", path(&kept).display());
            let mut named = CubeClRuntimeConfig::default();
            named.environment.path = cubecl::config::cache::CacheConfig::Directory("there".into());
            assert_eq!(path(&kept_by(&named).unwrap()), PathBuf::from("there"));
        }
    }
}
