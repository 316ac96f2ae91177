//! Sessions of a process that crashed knew inodes, which the file system of the next one does
//! not count for them: it is asked for each of these again.

use crate::found::FoundSession;
use crate::open::INODES_MAX;
use braid_contract::{Caller, FileSystem, InodeId};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

/// Looks for the inodes that sessions know.
#[derive(Default)]
pub(crate) struct Recount {
    /// How many were looked for, for each user: all wait until that is done.
    of_user: HashMap<u32, usize>,
    until: Option<Instant>,
}

/// Time for all of it: no request is served meanwhile.
const WITHIN: Duration = Duration::from_secs(5);

impl Recount {
    /// The inodes that a session knows and that are still there, each with its lookups and how
    /// many of these the file system does not count. Of a user whose sessions know too many,
    /// the rest have to be looked up again, and so have all after a while.
    pub(crate) fn of(&mut self, top: &dyn FileSystem, found: &FoundSession) -> Vec<(InodeId, u64, u64)> {
        let until = *self.until.get_or_insert_with(|| Instant::now() + WITHIN);
        let counted = self.of_user.entry(found.state.caller().0).or_default();
        let known = found.records.inodes().into_iter();
        let there = known.take_while(|_| {
            *counted += 1;
            *counted <= INODES_MAX && Instant::now() < until
        });
        let there = there.filter_map(|(ino, lookups)| {
            let entry = top.lookup(&Caller::root(), ino, OsStr::new(".")).ok()?;
            if entry.attr.ino != ino {
                top.forget(entry.attr.ino, 1);
                return None;
            }
            Some((ino, lookups, lookups.saturating_sub(1)))
        });
        there.collect()
    }
}
