//! Copies within one native file system, which shares the blocks of both files
//! if it can, as btrfs and XFS do.

use crate::live::File;
use braid_contract::{Access, Fd, ObjectId, Result};
use braid_tiers::{Backend, Tier};
use std::ops::Range;

/// A file's part on one tier, to be copied to another tier on the same file
/// system.
pub(super) struct Sharing<'a> {
    source: Fd,
    file: &'a File,
    id: ObjectId,
    to: &'a Tier,
}

impl<'a> Sharing<'a> {
    /// `None` where the two are not on one file system.
    pub(super) fn between(file: &'a File, id: ObjectId, from: &Tier, to: &'a Tier) -> Option<Self> {
        let one_file_system = from.capabilities().native_files
            && to.capabilities().native_files
            && from.last_usage().device == to.last_usage().device;
        if !one_file_system || to.is_set_readonly() {
            return None;
        }
        let source = match &from.backend {
            Backend::Home(_) => Fd::clone(file.unnoticed()),
            Backend::Store(store) => {
                let source = store.object_file(id).ok()?.reopen(Access::Read).ok()?;
                source.keep_access_time();
                source
            }
        };
        Some(Self { source, file, id, to })
    }

    /// Copies the bytes to where they are in the file, and answers how far it
    /// came. The rest is to be read and written: that meets the obstacle again,
    /// and shows whose it is. The copy does not count as load, since bytes that
    /// are shared do not travel.
    pub(super) fn copy(&self, Range { start, end }: Range<u64>) -> u64 {
        let mut at = start;
        while at < end {
            match self.copy_some(at, end - at) {
                Ok(0) | Err(_) => break,
                Ok(done) => at += done,
            }
        }
        at
    }

    fn copy_some(&self, at: u64, len: u64) -> Result<u64> {
        match &self.to.backend {
            Backend::Home(_) => {
                let _shared = self.file.home_len.read();
                self.source.copy_range(at, &**self.file.writable()?, at, len)
            }
            Backend::Store(store) => store.share_range(self.id, at, &*self.source, at, len),
        }
    }
}
