//! The supplementary groups of a caller, which requests do not have. The thread waits
//! for the answer meanwhile, so that they can't change. Used by `ops`.

use std::fs;
use std::sync::Arc;

/// The supplementary groups of a thread; `None` if it is not visible from here.
#[must_use]
pub fn of_thread(tid: u32) -> Option<Arc<[u32]>> {
    if tid == 0 {
        return None;
    }
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let listed = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    listed.split_whitespace().map(|gid| gid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_that_the_kernel_has() {
        let own = of_thread(std::process::id()).unwrap();
        let mut known: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
        known.sort_unstable();
        assert_eq!(*own, *known);
        assert_eq!(of_thread(0), None);
    }
}
