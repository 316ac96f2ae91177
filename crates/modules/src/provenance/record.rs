//! The record of a file: one line for its maker, one for its last writer.

use super::who::Deed;
use braid_contract::{Caller, Errno, FileSystem, InodeId, Result, XattrMode};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The attribute that shows it.
pub(super) const SHOWN: &str = "braid.provenance";
/// Those that keep it: for the superuser, and for others, who can't have the first.
const KEPT: [&str; 2] = ["trusted.braid-provenance", "user.braid-provenance"];

/// Whether an attribute is one of the module's.
pub(super) fn is_kept(name: &OsStr) -> bool {
    KEPT.iter().any(|kept| name.as_bytes() == kept.as_bytes())
}

/// Where records are.
#[derive(Default)]
pub(super) struct Records {
    /// The second of the attributes is in use.
    is_for_others: AtomicBool,
}

impl Records {
    fn name(&self) -> &'static OsStr {
        OsStr::new(KEPT[usize::from(self.is_for_others.load(Ordering::Relaxed))])
    }

    /// The record of an inode; empty if there is none.
    pub(super) fn read(&self, child: &dyn FileSystem, ino: InodeId) -> Result<String> {
        match child.getxattr(&Caller::stack(), ino, self.name()) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if matches!(error.errno(), Errno::ENODATA | Errno::EOPNOTSUPP | Errno::EPERM) => {
                Ok(String::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Records the maker of an inode, unless there is a record.
    pub(super) fn made(&self, child: &dyn FileSystem, ino: InodeId, deed: &Deed) -> Result<()> {
        match self.set(child, ino, &deed.line("created"), XattrMode::Create) {
            Err(error) if error.errno() == Errno::EEXIST => Ok(()),
            done => done,
        }
    }

    /// Records the last writer of a file.
    pub(super) fn written(&self, child: &dyn FileSystem, ino: InodeId, deed: &Deed) -> Result<()> {
        let record = with_written(&self.read(child, ino)?, deed);
        self.set(child, ino, &record, XattrMode::Set)
    }

    fn set(&self, child: &dyn FileSystem, ino: InodeId, record: &str, mode: XattrMode) -> Result<()> {
        let set = || child.setxattr(&Caller::stack(), ino, self.name(), record.as_bytes(), mode);
        match set() {
            Err(error) if matches!(error.errno(), Errno::EPERM | Errno::EOPNOTSUPP) => {
                if self.is_for_others.swap(true, Ordering::Relaxed) {
                    return Err(error);
                }
                set()
            }
            done => done,
        }
    }
}

/// When a file was written last by its record, since 1970; `None` if that does not say.
pub(super) fn last_written(record: &str) -> Option<Duration> {
    let line = record.lines().find_map(|line| line.strip_prefix("written time="))?;
    let (secs, nanos) = line.split(' ').next()?.split_once('.')?;
    Some(Duration::new(secs.parse().ok()?, nanos.parse().ok().filter(|nanos| *nanos < 1_000_000_000)?))
}

/// The record with another last writer.
pub(super) fn with_written(record: &str, deed: &Deed) -> String {
    let created = record.lines().find(|line| line.starts_with("created "));
    let created = created.map_or_else(String::new, |line| format!("{line}\n"));
    created + &deed.line("written")
}
