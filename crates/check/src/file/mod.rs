//! One file that is not plain, compared with its index and its objects.
//!
//! `comparison` goes through the parts: the index as it is on disk (`raw_index`),
//! its `header`, the sum of its entries (`tally`), the `entries`, the `size`, the
//! other `words`, and the `objects`. `range_size` infers the range size of a lost
//! header, `rebuild` recreates a lost index, and `whole` checks a file that needs
//! none.

pub(crate) mod comparison;
mod entries;
mod header;
mod objects;
mod range_size;
pub(crate) mod raw_index;
mod rebuild;
mod size;
pub(crate) mod tally;
mod whole;
mod words;

use crate::findings::When;
use crate::report::Problem;
use crate::target::CheckTarget;
use braid_contract::{Fd, ObjectId};
use braid_format::{Header, IdAttr};
use braid_home::Identity;
use raw_index::RawIndex;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The repair of leftovers beyond the size, where inode and index disagree on
/// it: if the size were wrong, they would be the only copy.
const SIZES_DIFFER: &str =
    "nothing is done: the home inode has another size; using the file makes them agree";

/// The repair of bytes that are lost.
const STAYS_UNREADABLE: &str = "nothing is done: they stay unreadable; write them anew, or remove the file";

/// A file in the home tier, by one of its names.
#[derive(Clone)]
pub(crate) struct HomeFile {
    pub(crate) path: PathBuf,
    pub(crate) fd: Fd,
    pub(crate) identity: Identity,
}

impl HomeFile {
    pub(crate) fn new(path: &Path, fd: &Fd, identity: &Identity) -> Self {
        Self { path: path.to_owned(), fd: Fd::clone(fd), identity: identity.clone() }
    }

    pub(crate) fn ino(&self) -> u64 {
        self.identity.ino()
    }

    pub(crate) fn size(&self) -> u64 {
        self.identity.size()
    }

    /// Whether an index was made for this inode.
    pub(crate) fn is_of(&self, header: &Header) -> bool {
        let same_handle = match (&header.handle, &self.identity.handle) {
            (Some(one), Some(other)) => one == other,
            // Without a handle, the number has to do.
            _ => true,
        };
        self.identity.is(header.ino, header.btime_ns) && same_handle
    }
}

/// A file with an id of its own.
pub(crate) struct CheckedFile {
    pub(crate) home: HomeFile,
    pub(crate) attr: IdAttr,
    /// It was in use when it was examined.
    pub(crate) in_use: bool,
    /// It has a mark: recovery is still to remove its leftovers.
    pub(crate) is_marked: bool,
}

impl CheckedFile {
    pub(crate) fn id(&self) -> ObjectId {
        self.attr.id
    }

    /// A problem of this file.
    pub(crate) fn of(&self, problem: Problem) -> Problem {
        problem.path(&self.home.path).id(self.attr.id)
    }

    /// When a repair may change the file.
    fn when_unused(&self) -> When {
        if self.in_use { When::Closed } else { When::Now }
    }

    /// Whether neither users nor recovery are about to change its leftovers.
    fn is_settled(&self) -> bool {
        !self.in_use && !self.is_marked
    }
}

/// A spread file and its index.
#[derive(Clone, Copy)]
struct IndexedFile<'f> {
    target: &'f CheckTarget<'f>,
    file: &'f CheckedFile,
    index: &'f RawIndex,
}

/// Whether the next stretch of data begins within these bytes.
pub(crate) fn begins_in(data: Option<(u64, u64)>, bytes: &Range<u64>) -> bool {
    data.is_some_and(|(start, _)| start < bytes.end)
}
