//! How much memory the system has left for this process.

mod group;

use group::field;
use std::{fs, path::Path};

/// What is taken for free where nobody can be asked, a careful 2 GiB: on a graphics card, and on
/// systems other than Linux.
pub const ASSUMED_BYTES: usize = 2 << 30;

/// Bytes of the processor's memory that a program may still take: on Linux what the system has
/// available, or what is left to its control groups (a container's limit) where that is less; on
/// other systems [`ASSUMED_BYTES`].
pub fn available_bytes() -> usize {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_available(&text));
    system.into_iter().chain(group::left(Path::new("/"))).min().unwrap_or(ASSUMED_BYTES)
}

/// `MemAvailable` of /proc/meminfo (in KiB there), in bytes.
fn meminfo_available(text: &str) -> Option<usize> {
    field(text, "MemAvailable:").and_then(|kib| kib.checked_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_says_is_read() {
        let text = "MemTotal:       16 kB\nMemAvailable:    7 kB\nMemAvailableToo: 9 kB\n";
        assert_eq!(meminfo_available(text), Some(7 * 1024));
        assert_eq!(meminfo_available("MemTotal: 16 kB"), None);
        assert_eq!(field("anon 42\nanon_thp 3\n", "anon"), Some(42));
        assert!(available_bytes() > 0);
    }
}
