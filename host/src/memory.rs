//! How much memory the system has left for this process and for its control groups on Linux (a
//! container's limit, a service's, a user's), in versions 1 and 2 of the interface.
//!
//! Groups are nested, and each obeys the limits of all above it: the memory left is the minimum
//! over them, up to the topmost group that is visible.

use std::{fs, path::Component, path::Path, path::PathBuf};

/// Memory assumed to be free where the system cannot tell, a careful 2 GiB: on a graphics card, and
/// on systems other than Linux.
pub const ASSUMED_BYTES: usize = 2 << 30;

/// Bytes of main memory that a program may still take: on Linux what the system has available, or
/// what its control groups (a container's limit) have left if that is less; on other systems
/// [`ASSUMED_BYTES`].
pub fn available_bytes() -> usize {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_available(&text));
    system.into_iter().chain(left_in_groups(Path::new("/"))).min().unwrap_or(ASSUMED_BYTES)
}

/// `MemAvailable` of /proc/meminfo (in KiB there), in bytes.
fn meminfo_available(text: &str) -> Option<usize> {
    field(text, "MemAvailable:").and_then(|kib| kib.checked_mul(1024))
}

/// One of the two versions of control groups: which files hold a group's limit and its usage.
struct Version {
    /// The type of its file system.
    file_system: &'static str,
    /// Its name among the controllers of /proc/self/cgroup, and among the mount options.
    controller: &'static str,
    limit: &'static str,
    /// Lines of memory.stat, which include subgroups, that add up to the memory the group holds and
    /// the system cannot reclaim.
    held: &'static [&'static str],
}

const VERSIONS: [Version; 2] = [
    Version {
        file_system: "cgroup2",
        controller: "",
        limit: "memory.max",
        held: &["anon", "shmem", "kernel_stack", "pagetables", "sock", "slab_unreclaimable"],
    },
    Version {
        file_system: "cgroup",
        controller: "memory",
        limit: "memory.limit_in_bytes",
        held: &["total_rss", "total_shmem"],
    },
];

/// Bytes left in this process's groups; `None` if none has a limit. `root` is the file system's.
fn left_in_groups(root: &Path) -> Option<usize> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    VERSIONS.iter().filter_map(|version| version.left(root, &groups, &mounts)).min()
}

impl Version {
    fn left(&self, root: &Path, groups: &str, mounts: &str) -> Option<usize> {
        let group = self.group(groups)?;
        let (mounted, point) = mounts.lines().find_map(|line| self.mount(line))?;
        let top = root.join(point.strip_prefix("/").unwrap_or(point));
        // From a container, a group outside of the mount is invisible: then only the mount's top is
        // visible.
        let below = group.strip_prefix(mounted).unwrap_or(Path::new(""));
        let below: PathBuf = below.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        below.ancestors().filter_map(|path| self.left_in(&top.join(path))).min()
    }

    /// The group of this process, from /proc/self/cgroup: `number:controllers:path` on each line.
    fn group<'a>(&self, groups: &'a str) -> Option<&'a Path> {
        groups.lines().find_map(|line| {
            let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { return None };
            controllers.split(',').any(|name| name == self.controller).then(|| Path::new(path))
        })
    }

    /// The group at the top of a mounted file system of this version, and the mount point, from a
    /// line of /proc/self/mountinfo: `id parent device root point options [more] - type source
    /// options`.
    fn mount<'a>(&self, line: &'a str) -> Option<(&'a Path, &'a Path)> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let mut file_system = file_system.split(' ');
        let is_this = file_system.next()? == self.file_system;
        let options = file_system.nth(1)?;
        let has_memory = self.controller.is_empty() || options.split(',').any(|option| option == self.controller);
        (is_this && has_memory).then_some((Path::new(mount.next()?), Path::new(mount.next()?)))
    }

    /// Bytes left in the group of this folder itself; `None` if it has no limit ("max", and in
    /// version 1 an impossibly large number).
    fn left_in(&self, folder: &Path) -> Option<usize> {
        let limit = fs::read_to_string(folder.join(self.limit)).ok()?.trim().parse::<usize>().ok()?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let held: usize = self.held.iter().filter_map(|name| field(&stat, name)).sum();
        (limit < isize::MAX as usize / 2).then(|| limit.saturating_sub(held))
    }
}

/// The number after `name` on the line that starts with it.
fn field(text: &str, name: &str) -> Option<usize> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_linux_says_is_read() {
        let text = "MemTotal:       16 kB\nMemAvailable:    7 kB\nMemAvailableToo: 9 kB\n";
        assert_eq!(meminfo_available(text), Some(7 * 1024));
        assert_eq!(meminfo_available("MemTotal: 16 kB"), None);
        assert_eq!(field("anon 42\nanon_thp 3\n", "anon"), Some(42));
        assert!(available_bytes() > 0);
    }

    /// A root folder with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MOUNT_2: &str = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_tightest_of_nested_groups_counts() {
        let root = root(&[
            ("proc/self/cgroup", "0::/user.slice/run.scope\n"),
            ("proc/self/mountinfo", MOUNT_2),
            ("sys/fs/cgroup/memory.stat", "anon 9000\n"), // the root group has no limit, and no file for one
            ("sys/fs/cgroup/user.slice/memory.max", "1000\n"),
            ("sys/fs/cgroup/user.slice/memory.stat", "anon 300\nfile 999\nshmem 50\nslab_unreclaimable 50\n"),
            ("sys/fs/cgroup/user.slice/run.scope/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/run.scope/memory.stat", "anon 200\n"),
        ]);
        assert_eq!(left_in_groups(root.path()), Some(600));
        fs::write(root.path().join("sys/fs/cgroup/user.slice/run.scope/memory.max"), "500\n").unwrap();
        assert_eq!(left_in_groups(root.path()), Some(300));
        fs::write(root.path().join("sys/fs/cgroup/user.slice/run.scope/memory.max"), "100\n").unwrap();
        assert_eq!(left_in_groups(root.path()), Some(0));
    }

    #[test]
    fn version_1_is_read_beside_version_2() {
        let mounts = "35 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
             32 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let root = root(&[
            ("proc/self/cgroup", "9:name=systemd:/\n4:memory:/jobs/one\n3:cpuset:/\n0::/\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.stat", "rss 1\ntotal_rss 80\n"),
            ("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "700\n"),
            ("sys/fs/cgroup/memory/jobs/memory.stat", "rss 10\ntotal_rss 80\ntotal_shmem 20\n"),
            ("sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/jobs/one/memory.stat", "rss 10\ntotal_rss 10\n"),
        ]);
        assert_eq!(left_in_groups(root.path()), Some(600));
        fs::write(root.path().join("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes"), "9223372036854771712\n")
            .unwrap();
        assert_eq!(left_in_groups(root.path()), None);
    }

    /// A container sees its own group at the root of the mount, under one of two names.
    #[test]
    fn a_containers_own_limit_is_found() {
        for (group, mounted) in [("/", "/"), ("/docker/abc", "/docker/abc"), ("/../../other", "/")] {
            let mounts = format!("31 23 0:28 {mounted} /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
            let root = root(&[
                ("proc/self/cgroup", &format!("0::{group}\n")),
                ("proc/self/mountinfo", &mounts),
                ("sys/fs/cgroup/memory.max", "1000"),
                ("sys/fs/cgroup/memory.stat", "anon 100\n"),
            ]);
            assert_eq!(left_in_groups(root.path()), Some(900), "{group}");
        }
    }

    #[test]
    fn where_nothing_is_said_nothing_is_known() {
        assert_eq!(left_in_groups(root(&[]).path()), None);
        assert_eq!(
            left_in_groups(root(&[("proc/self/cgroup", "0::/\n"), ("proc/self/mountinfo", "nonsense")]).path()),
            None
        );
    }
}
