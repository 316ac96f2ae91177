//! Full tiers: the space of older slots is given back at once.

use super::bed::{Bed, checked};
use braid_contract::{
    Attr, Caller, Errno, FallocateMode, FileSystem, HandleId, InodeId, Layer, Result, SetAttr, WriteFlags,
};
use braid_testkit::dir_fs::{Choice, DirFs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory that is full until a hole is punched.
struct Full {
    dir: DirFs,
    is_full: AtomicBool,
}

impl Full {
    fn has_room(&self) -> Result<()> {
        if self.is_full.load(Ordering::Relaxed) { Err(Errno::ENOSPC.into()) } else { Ok(()) }
    }
}

impl Layer for Full {
    fn child(&self) -> &dyn FileSystem {
        &self.dir
    }

    fn write(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        self.has_room()?;
        self.dir.write(caller, handle, offset, data, flags)
    }

    fn fallocate(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        len: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        match mode {
            FallocateMode::PunchHole => self.is_full.store(false, Ordering::Relaxed),
            _ => self.has_room()?,
        }
        self.dir.fallocate(caller, handle, offset, len, mode)
    }

    fn setattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        if changes.size.is_some() {
            self.has_room()?;
        }
        self.dir.setattr(caller, ino, handle, changes)
    }
}

#[test]
fn whatever_needs_room_gets_that_of_older_slots() {
    type Change = fn(&Bed, InodeId, HandleId) -> Result<()>;
    let changes: [(&str, Change); 4] = [
        ("a write", |bed, _, handle| {
            bed.write(handle, 0, &[3; 4096]);
            Ok(())
        }),
        ("fallocate", |bed, _, handle| {
            bed.fallocate(handle, 8192, 4096, FallocateMode::Allocate { keep_size: true })
        }),
        ("a hole", |bed, _, handle| bed.fallocate(handle, 10, 50, FallocateMode::PunchHole)),
        ("another size", |bed, ino, _| bed.truncate(ino, None, 9000).map(drop)),
    ];
    for (what, change) in changes {
        let mut bed = Bed::new(checked());
        let dir = DirFs::new(bed.dir.path(), Choice::Cached);
        let child = Arc::new(Full { dir, is_full: AtomicBool::new(false) });
        bed.kill_over(Arc::clone(&child) as _);
        let (ino, handle) = bed.create("a");
        (1..3).for_each(|version| bed.write(handle, 0, &[version; 4096]));
        child.is_full.store(true, Ordering::Relaxed);
        assert_eq!(change(&bed, ino, handle), Ok(()), "{what}");
        bed.close(handle);
    }
}
