//! Results kept between runs on a GPU, separately for each device, its driver and this program's
//! version: which kernels multiply fastest and, with the feature `tuning-cache`, which `cuda`
//! enables, the compiled kernels and whatever else the runtime finds out. Other kinds of drivers
//! cache compiled kernels themselves. Damaged results are discarded and found anew.

use std::path::PathBuf;

use burn::tensor::Device;
use ember_host::{cache, panics::quietly};
use ember_kernels::gpu::products;

/// The database of compiled kernels; `None` if the driver caches them, or nothing does.
pub fn file() -> Option<PathBuf> {
    #[cfg(feature = "tuning-cache")]
    return Some(cubecl::environment::path());
    #[cfg(not(feature = "tuning-cache"))]
    None
}

/// Uses the results kept for the GPU `device` of this name from here on, and keeps new ones with
/// them. To be called before it computes.
pub(crate) fn keep_for(device: &Device, name_of_device: &str, driver: &str) {
    let name = name(name_of_device, driver);
    #[cfg(feature = "tuning-cache")]
    kept::keep_in(&name);
    // Without a cache the products are timed anew: elsewhere others could write, and the timings
    // decide which kernels compute.
    let Some(folder) = cache::of_user() else { return };
    let file = folder.join("products").join(format!("{name}.json"));
    // If the device does not even start, its test says so.
    let _ = quietly(|| products::keep_in(device, &file));
}

/// The name in file names of a device with this driver.
fn name(device: &str, driver: &str) -> String {
    let of = ["ember", env!("CARGO_PKG_VERSION"), device, driver].map(str::trim).join("-");
    of.trim_end_matches('-').replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c), "_")
}

#[cfg(feature = "tuning-cache")]
pub(crate) use kept::keep;

#[cfg(feature = "tuning-cache")]
mod kept {
    use std::fs::{self, File};
    use std::io::Read;
    use std::path::Path;

    use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
    use cubecl::environment;
    use ember_kernels::gpu::compiling::configuration;
    use serde_json::{Value, json};

    /// Makes the runtime keep its results where [`file`](super::file) says; does nothing the second
    /// time. To be called before a GPU is looked for.
    ///
    /// A user's `cubecl.toml` that names another folder is respected.
    pub(crate) fn keep() {
        if let Some(config) = in_users_cache(&configuration()) {
            // `false` means that the configuration was read before; then that one stays.
            CubeClRuntimeConfig::try_set(config);
        }
        discard_damaged(&environment::path());
    }

    /// Keeps the results of the next device in an environment of this name: the runtime itself
    /// would apply the first GPU's tuning to whichever GPU is first later.
    ///
    /// A user's `cubecl.toml` that names an environment is respected.
    pub(super) fn keep_in(name: &str) {
        let active = environment::active();
        if *active != *name && (*active == *environment::DEFAULT || active.starts_with("ember-")) {
            environment::activate(name);
        }
        discard_damaged(&environment::path());
    }

    /// The first bytes of every database.
    const MAGIC: &[u8; 16] = b"SQLite format 3\0";

    /// Deletes a damaged database, which would keep the runtime from caching ever after.
    fn discard_damaged(store: &Path) {
        let mut begins = Vec::new();
        let read = File::open(store).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut begins));
        // An empty file is a database that is just being created.
        if read.is_err() || begins.is_empty() || begins == MAGIC {
            return;
        }
        for beside in ["", "-wal", "-tshm"] {
            let mut file = store.as_os_str().to_owned();
            file.push(beside);
            let _ = fs::remove_file(file);
        }
    }

    /// The configuration with kernels and tuning kept in the user's cache folder, not in the
    /// `target` of the current folder's workspace.
    ///
    /// Goes through JSON because the setting for kernels exists only in builds that can keep them.
    fn in_users_cache(config: &CubeClRuntimeConfig) -> Option<CubeClRuntimeConfig> {
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
        fn an_environment_is_left_for_anothers_but_not_the_users() {
            let path_of = |name: &str| {
                keep_in(name);
                environment::path()
            };
            let [first, second] = ["ember-1", "ember-2"].map(path_of);
            assert!(first.ends_with("ember-1.db") && second.ends_with("ember-2.db"));
            let before = environment::generation();
            assert_eq!(path_of("ember-2"), second);
            assert_eq!(environment::generation(), before, "what was compiled is not dropped for the same device");
            environment::activate("the-users");
            keep_in("ember-1");
            assert_eq!(*environment::active(), *"the-users");
        }

        #[test]
        fn the_users_cache_folder_is_taken_unless_another_is_named() {
            let path = |config: &CubeClRuntimeConfig| config.environment.path.root();
            let kept = in_users_cache(&CubeClRuntimeConfig::default()).unwrap();
            assert!(!path(&kept).starts_with(std::env::current_dir().unwrap()), "{}", path(&kept).display());
            let mut named = CubeClRuntimeConfig::default();
            named.environment.path = cubecl::config::cache::CacheConfig::Directory("there".into());
            assert_eq!(path(&in_users_cache(&named).unwrap()), PathBuf::from("there"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_device_is_not_anothers_nor_another_drivers() {
        let first = name("NVIDIA H200", "");
        assert_eq!(first, format!("ember-{}-NVIDIA_H200", env!("CARGO_PKG_VERSION")));
        let [new, old] = ["radv Mesa 25.1", "radv Mesa 25.0"].map(|driver| name("Radeon / 7", driver));
        assert!(new != old && new != first && !new.contains(['/', ' ']), "{new}");
    }
}
