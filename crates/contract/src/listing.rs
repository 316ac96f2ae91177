//! Listing a directory of a [`FileSystem`], for whatever needs its names and no more.

use crate::{Caller, DirEntry, DirSink, FileSystem, InodeId, Result};
use std::ffi::OsString;

/// Names that are read at a time.
const BATCH: usize = 1024;

/// The names in a directory but for `.` and `..`, in no order. `goes_on` is asked before each batch of
/// them, and may end it.
///
/// # Errors
/// Those of the file system and of `goes_on`.
pub fn list_names(
    fs: &dyn FileSystem,
    caller: &Caller,
    dir: InodeId,
    goes_on: impl Fn() -> Result<()>,
) -> Result<Vec<OsString>> {
    let handle = fs.open_dir(caller, dir)?;
    let mut batch = Batch::default();
    let read = loop {
        batch.room = BATCH;
        let read = goes_on().and_then(|()| fs.read_dir(caller, handle, batch.offset, false, &mut batch));
        if read.is_err() || batch.room == BATCH {
            break read;
        }
    };
    fs.release_dir(handle)?;
    read.map(|()| batch.names)
}

#[derive(Default)]
struct Batch {
    names: Vec<OsString>,
    /// Where the directory goes on.
    offset: i64,
    /// How many more are taken.
    room: usize,
}

impl DirSink for Batch {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if self.room == 0 {
            return false;
        }
        if entry.name != "." && entry.name != ".." {
            self.names.push(entry.name.to_owned());
        }
        (self.offset, self.room) = (entry.next_offset, self.room - 1);
        true
    }
}
