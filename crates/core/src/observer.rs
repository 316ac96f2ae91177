//! Notifications about operations while they are under way.

use crate::live::{File, Inode};
use braid_contract::{ObjectId, TierId};
use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;

/// Follows operations: called after each step, `used` perhaps before the I/O and
/// also where that fails, and before the operation leaves the barrier. This is on the path of every read and write: it must not wait.
pub trait Observer: Send + Sync {
    /// Ranges of a file were read or written on `tier`.
    fn used(&self, file: &File, tier: TierId, ranges: Range<u64>);

    /// These bytes of a spread file, whose object is `id`, were written to `tier`
    /// through the page cache, and may go to its device.
    fn written_through_cache(&self, file: &File, id: ObjectId, tier: TierId, bytes: Range<u64>);

    /// These bytes of a spread file, whose object is `id`, are on `tier`, and will
    /// be read soon through the page cache.
    fn needed_soon(&self, file: &File, id: ObjectId, tier: TierId, bytes: Range<u64>);

    /// Ranges of a file came to `tier`.
    fn placed(&self, file: &File, tier: TierId, ranges: Range<u64>);

    /// Whether it follows changes. If not, the calls below may be left out; if
    /// so, no file may be written past the core.
    fn follows_changes(&self) -> bool;

    /// Attributes of an inode changed, or its index did.
    fn inode_changed(&self, inode: &Arc<Inode>);

    /// Bytes of a file changed.
    fn data_changed(&self, inode: &Arc<Inode>, bytes: Range<u64>);

    /// A file may have changed anywhere from byte `from` on.
    fn tail_changed(&self, inode: &Arc<Inode>, from: u64);

    /// A name came or went in a directory.
    fn name_changed(&self, dir: &Arc<Inode>, name: &OsStr);
}
