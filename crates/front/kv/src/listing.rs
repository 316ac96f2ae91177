//! The keys of a directory, as a scan finds them.

use braid_contract::key_value::{UNFINISHED_PREFIX, key_of_name};
use braid_contract::{Caller, DirEntry, DirSink, FileKind, FileSystem, InodeId, Result, Timestamp};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
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

/// Bytes of listings that are kept for further pages, unless one alone has more; and their number.
const KEPT_MAX: usize = 64 << 20;
const KEPT_COUNT_MAX: usize = 64;

/// The listings that scans go on with, of all directories of a file system together: many open
/// directories need no more memory than a few.
#[derive(Debug, Default)]
pub struct Listings {
    /// The last used is the last.
    kept: Mutex<Vec<(InodeId, Arc<Listing>)>>,
}

impl Listings {
    pub(crate) fn get(&self, dir: InodeId) -> Option<Arc<Listing>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|(ino, _)| *ino == dir)?;
        let found = kept.remove(at);
        let listing = Arc::clone(&found.1);
        kept.push(found);
        Some(listing)
    }

    pub(crate) fn keep(&self, dir: InodeId, listing: Arc<Listing>) {
        let mut kept = self.kept.lock();
        kept.retain(|(ino, _)| *ino != dir);
        kept.push((dir, listing));
        let mut bytes = kept.iter().map(|(_, listing)| listing.bytes).sum::<usize>();
        while kept.len() > KEPT_COUNT_MAX || kept.len() > 1 && bytes > KEPT_MAX {
            bytes -= kept.remove(0).1.bytes;
        }
    }

    pub(crate) fn forget(&self, dir: InodeId) {
        self.kept.lock().retain(|(ino, _)| *ino != dir);
    }
}

/// The keys of a directory at one moment.
#[derive(Debug)]
pub(crate) struct Listing {
    /// In order, each with whether its kind is known to be a regular file.
    pub(crate) keys: Vec<(Vec<u8>, bool)>,
    /// Bytes of memory of the keys.
    bytes: usize,
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
        let caller = Caller::stack();
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
        let bytes = bytes_of(&names.keys);
        Ok(Self {
            keys: names.keys,
            bytes,
            leftovers,
            changed,
            is_settled: changed.0.max(changed.1) < before,
        })
    }

    /// Whether the directory has had no other names since.
    pub(crate) fn is_current(&self, fs: &dyn FileSystem, dir: InodeId) -> Result<bool> {
        Ok(self.is_settled && times(fs, dir)? == self.changed)
    }
}

fn bytes_of(keys: &[(Vec<u8>, bool)]) -> usize {
    keys.iter().map(|entry| size_of_val(entry) + entry.0.len()).sum()
}

fn times(fs: &dyn FileSystem, dir: InodeId) -> Result<(Timestamp, Timestamp)> {
    let attr = fs.getattr(&Caller::stack(), dir, None)?;
    Ok((attr.mtime, attr.ctime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_listings_take_no_more_memory_than_is_set() {
        let listing = |keys: usize| {
            let keys: Vec<_> = (0..keys).map(|key| (vec![b'k'; 255 - key % 2], true)).collect();
            let changed = (Timestamp::from_nanos(0), Timestamp::from_nanos(0));
            let bytes = bytes_of(&keys);
            Arc::new(Listing { keys, bytes, leftovers: Vec::new(), changed, is_settled: true })
        };
        let (listings, one) = (Listings::default(), listing(100_000));
        for dir in 0..10 {
            listings.keep(InodeId(dir), Arc::clone(&one));
            listings.keep(InodeId(dir), Arc::clone(&one));
            assert!(listings.get(InodeId(0)).is_some(), "it is used all the time");
        }
        let kept = (0..10).filter(|dir| listings.get(InodeId(*dir)).is_some()).count();
        assert_eq!(kept, KEPT_MAX / one.bytes);
        // One that has more by itself can be used, alone.
        listings.keep(InodeId(99), listing(400_000));
        assert!(listings.get(InodeId(99)).is_some() && listings.get(InodeId(0)).is_none());
        (100..1000).for_each(|dir| listings.keep(InodeId(dir), listing(0)));
        let kept = (100..1000).filter(|dir| listings.get(InodeId(*dir)).is_some()).count();
        assert_eq!(kept, KEPT_COUNT_MAX);
        listings.keep(InodeId(99), listing(1));
        listings.forget(InodeId(99));
        assert!(listings.get(InodeId(99)).is_none());
    }
}
