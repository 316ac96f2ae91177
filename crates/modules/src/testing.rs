//! Helpers that the tests of modules share.

use braid_contract::{
    Attr, Entry, FileKind, FileSystemCapabilities, HandleId, InodeId, IoMode, Opened, Timestamp,
};
use std::time::Duration;

/// Those of a file system that can all, and whose operations all come to it.
pub(crate) fn capabilities() -> FileSystemCapabilities {
    FileSystemCapabilities {
        cache_ttl: Duration::ZERO,
        passthrough: true,
        rename_modes: true,
        posix_acl: true,
        flush_at_close: false,
        caller_groups: false,
        holds_up: false,
    }
}

/// A file that is open by this handle.
pub(crate) fn opened(handle: u64) -> Opened {
    Opened { handle: HandleId(handle), mode: IoMode::Cached, set_id: false }
}

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
