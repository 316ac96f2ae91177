//! Helpers that the tests of modules share.

use braid_contract::{Attr, Entry, FileKind, InodeId, Timestamp};

/// The entry of a regular file with this number; its attributes do not matter.
pub(crate) fn entry(ino: u64) -> Entry {
    let time = Timestamp::default();
    let attr = Attr {
        ino: InodeId(ino),
        size: ino,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: None,
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        block_size: 4096,
    };
    Entry { attr, generation: ino }
}
