//! A private mount of a tier's directory, so that files opened from it update
//! access times by that mount's settings, whatever the file system is mounted
//! with. This includes I/O that the kernel does itself (passthrough).

use braid_contract::{AccessTimes, Fd, Renewal, Result};
use braid_sys::set_mount_attributes;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

const NEVER: u64 = MountAttrFlags::MOUNT_ATTR_NOATIME.bits() as u64;
const ALWAYS: u64 = MountAttrFlags::MOUNT_ATTR_STRICTATIME.bits() as u64;
/// The field that these two are values of.
const RENEWAL: u64 = MountAttrFlags::MOUNT_ATTR__ATIME.bits() as u64;
const NO_DIRECTORIES: u64 = MountAttrFlags::MOUNT_ATTR_NODIRATIME.bits() as u64;

/// Such a mount. It ends with this.
pub(super) struct OwnMount {
    tree: OwnedFd,
    /// The original descriptor of the directory: it has the lock, and keeps the
    /// file system from being unmounted.
    _visible: Fd,
    /// The mount's flags of `RENEWAL` and `NO_DIRECTORIES`.
    attributes: AtomicU64,
}

impl OwnMount {
    /// Mounts the directory `visible`, which is `dir` to the kernel, without
    /// mounts below it.
    pub(super) fn of(dir: impl AsFd, visible: Fd, times: AccessTimes) -> Result<Self> {
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(dir, "", flags)?;
        let attributes = AtomicU64::new(set(&tree, times)?);
        Ok(Self { tree, _visible: visible, attributes })
    }

    /// Opens its root.
    pub(super) fn root(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.tree, ".", flags, Mode::empty())?)
    }

    pub(super) fn access_times(&self) -> AccessTimes {
        let attributes = self.attributes.load(Ordering::Relaxed);
        let renewal = match attributes & RENEWAL {
            NEVER => Renewal::Never,
            ALWAYS => Renewal::Always,
            _ => Renewal::Relative,
        };
        AccessTimes { renewal, directories: attributes & NO_DIRECTORIES == 0 }
    }

    pub(super) fn set_access_times(&self, times: AccessTimes) -> Result<()> {
        self.attributes.store(set(&self.tree, times)?, Ordering::Relaxed);
        Ok(())
    }
}

impl fmt::Debug for OwnMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnMount").field("times", &self.access_times()).finish_non_exhaustive()
    }
}

/// Sets the flags for `times`, and answers them.
fn set(tree: &OwnedFd, times: AccessTimes) -> Result<u64> {
    let renewal = match times.renewal {
        Renewal::Relative => 0,
        Renewal::Always => ALWAYS,
        Renewal::Never => NEVER,
    };
    let directories = if times.directories { 0 } else { NO_DIRECTORIES };
    set_mount_attributes(tree, renewal | directories, RENEWAL | NO_DIRECTORIES)?;
    Ok(renewal | directories)
}
