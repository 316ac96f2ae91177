//! The memory that the daemon may use: the limits of its cgroups, and the machine's memory.

use std::fs;
use std::path::{Path, PathBuf};

/// The places of control groups, of version 2 alone, beside version 1, and of version 1, with the
/// files that have limits.
const ROOTS: [(&str, &str, &[&str]); 3] = [
    ("0::", "/sys/fs/cgroup", &["memory.max", "memory.high"]),
    ("0::", "/sys/fs/cgroup/unified", &["memory.max", "memory.high"]),
    (":memory:", "/sys/fs/cgroup/memory", &["memory.limit_in_bytes", "memory.soft_limit_in_bytes"]),
];

/// Without any other knowledge.
const AT_LEAST: u64 = 64 << 20;

/// Bytes that the daemon may use.
pub(super) fn allowance() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits =
        ROOTS.iter().flat_map(|(mark, root, files)| limits_in(&groups, mark, Path::new(root), files));
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    limits.chain(machine).min().unwrap_or(AT_LEAST)
}

/// The limits of the group that a line with this mark names, and of those above it.
fn limits_in(groups: &str, mark: &str, root: &Path, files: &[&str]) -> Vec<u64> {
    let Some(path) = groups.lines().find_map(|line| path_after(line, mark)) else { return Vec::new() };
    let group = root.join(path.trim_start_matches('/'));
    let above = group.ancestors().take_while(|dir| dir.starts_with(root));
    let paths = above.flat_map(|dir| files.iter().map(move |file| dir.join(file)));
    paths.filter_map(|path: PathBuf| fs::read_to_string(path).ok()?.trim().parse().ok()).collect()
}

/// `0::/a` or `4:memory:/a`
fn path_after<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    match mark.starts_with(':') {
        true => line.split_once(mark).map(|(_, path)| path),
        false => line.strip_prefix(mark),
    }
}

/// The machine's free memory, and the memory that it can free at once.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_all_groups_above_count() {
        let root = tempfile::tempdir().unwrap();
        let dir = |name: &str| root.path().join(name);
        fs::create_dir_all(dir("a/b")).unwrap();
        fs::write(dir("a/b/memory.max"), "max\n").unwrap();
        fs::write(dir("a/b/memory.high"), "9000\n").unwrap();
        fs::write(dir("a/memory.max"), "8000\n").unwrap();
        let files = ["memory.max", "memory.high"];
        assert_eq!(limits_in("4:memory:/x\n0::/a/b\n", "0::", root.path(), &files), [9000, 8000]);
        assert_eq!(limits_in("4:memory:/a\n", ":memory:", root.path(), &files), [8000]);
        assert!(limits_in("4:cpu:/a\n", "0::", root.path(), &files).is_empty());
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:      12 kB\n"), Some(12 << 10));
        assert!(allowance() >= 1 << 20);
    }
}
