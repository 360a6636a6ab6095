//! Where what a GPU's matrix products were tuned to, and its compiled kernels, are kept between
//! runs: in the user's cache folder, with the feature `tuning-cache`, which `cuda` brings. Without it
//! every process compiles and tunes anew. An entry that cannot be read is compiled again.

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
    use std::fs::{self, File};
    use std::io::Read;
    use std::path::Path;

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
        if let Some(store) = super::file() {
            discard_damaged(&store);
        }
    }

    /// What every store begins with.
    const BEGINNING: &[u8; 16] = b"SQLite format 3\0";

    /// Throws away a store that is none any more, which the runtime would go without for ever after.
    fn discard_damaged(store: &Path) {
        let mut begins = Vec::new();
        let read = File::open(store).and_then(|file| file.take(BEGINNING.len() as u64).read_to_end(&mut begins));
        // An empty one is just being made.
        if read.is_err() || begins.is_empty() || begins == BEGINNING {
            return;
        }
        for beside in ["", "-wal", "-tshm"] {
            let mut file = store.as_os_str().to_owned();
            file.push(beside);
            let _ = fs::remove_file(file);
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
        fn a_store_that_is_none_is_thrown_away_with_what_is_beside_it() {
            let folder = tempfile::tempdir().unwrap();
            let [store, beside, other] =
                ["default.db", "default.db-wal", "other.db"].map(|name| folder.path().join(name));
            for (begins, stays) in
                [(&b"SQLite format 3\0..."[..], true), (b"", true), (b"SQL", false), (&[7; 99], false)]
            {
                for file in [&store, &beside, &other] {
                    fs::write(file, begins).unwrap();
                }
                discard_damaged(&store);
                assert_eq!([store.exists(), beside.exists(), other.exists()], [stays, stays, true], "{begins:?}");
            }
            fs::remove_file(&other).unwrap();
            discard_damaged(&other);
            assert!(!other.exists());
        }

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
