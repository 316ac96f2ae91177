//! The keys of a directory, as a scan finds them.

use braid_contract::key_value::{UNFINISHED_PREFIX, key_of_name};
use braid_contract::{Caller, DirEntry, DirSink, FileKind, FileSystem, InodeId, Result, Timestamp};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A directory that changed within this time may change once more without another time of
/// change, in nanoseconds.
const TICK_NS: i64 = 50_000_000;

/// Files of this process that are about to become values, by number.
static UNFINISHED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The name of a file that is about to become a value, as long as this lives.
#[derive(Debug)]
pub(crate) struct UnfinishedName(u64);

impl UnfinishedName {
    pub(crate) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        UNFINISHED.lock().insert(number);
        Self(number)
    }

    pub(crate) fn name(&self) -> OsString {
        format!("{UNFINISHED_PREFIX}{}", self.0).into()
    }
}

impl Drop for UnfinishedName {
    fn drop(&mut self) {
        UNFINISHED.lock().remove(&self.0);
    }
}

/// The keys of a directory at one moment.
#[derive(Debug)]
pub(crate) struct Listing {
    /// In order, each with whether its kind is known to be a regular file.
    pub(crate) keys: Vec<(Vec<u8>, bool)>,
    /// Leftovers of a crash.
    pub(crate) leftovers: Vec<OsString>,
    changed: (Timestamp, Timestamp),
    /// Whether a later change is seen by the directory's times.
    is_settled: bool,
}

#[derive(Default)]
struct Names {
    keys: Vec<(Vec<u8>, bool)>,
    unfinished: Vec<OsString>,
}

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let name = entry.name.as_bytes();
        match entry.kind {
            _ if name == b"." || name == b".." => {}
            _ if name.starts_with(UNFINISHED_PREFIX.as_bytes()) => {
                self.unfinished.push(entry.name.to_owned())
            }
            Some(FileKind::Regular) | None => {
                self.keys.extend(key_of_name(name).map(|key| (key, entry.kind.is_some())));
            }
            Some(_) => {}
        }
        true
    }
}

impl Listing {
    pub(crate) fn read(fs: &dyn FileSystem, dir: InodeId) -> Result<Self> {
        let caller = Caller::root();
        let changed = times(fs, dir)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
        let before = Timestamp::from_nanos(now - TICK_NS);
        let handle = fs.open_dir(&caller, dir)?;
        let mut names = Names::default();
        let read = fs.read_dir(&caller, handle, 0, false, &mut names);
        fs.release_dir(handle)?;
        read?;
        names.keys.sort_unstable();
        names.keys.dedup();
        let in_use = UNFINISHED.lock();
        let is_used = |name: &OsString| {
            let number = name.to_str().and_then(|name| name.strip_prefix(UNFINISHED_PREFIX)?.parse().ok());
            number.is_some_and(|number| in_use.contains(&number))
        };
        let leftovers = names.unfinished.into_iter().filter(|name| !is_used(name)).collect();
        Ok(Self { keys: names.keys, leftovers, changed, is_settled: changed.0.max(changed.1) < before })
    }

    /// Whether the directory has had no other names since.
    pub(crate) fn is_current(&self, fs: &dyn FileSystem, dir: InodeId) -> Result<bool> {
        Ok(self.is_settled && times(fs, dir)? == self.changed)
    }
}

fn times(fs: &dyn FileSystem, dir: InodeId) -> Result<(Timestamp, Timestamp)> {
    let attr = fs.getattr(&Caller::root(), dir, None)?;
    Ok((attr.mtime, attr.ctime))
}
