//! Making one inode of the new home equal to the old one: contents, attributes,
//! and the index of a spread file.

use super::changes::{CHUNK, ChangedData};
use super::copier::{Copied, Copier, generation};
use braid_contract::{
    Access, Context, Errno, FallocateMode, Fd, FileKind, NativeFd, ObjectId, Result, SetTime, Shown,
    XattrMode,
};
use braid_core::namespace::{ID_ATTRS, copy_xattrs, read_value};
use braid_format::{HEADER_LEN, Header, IdAttr, MUTABLE_FROM, index_path};
use braid_home::Identity;
use braid_placement::Direction;
use braid_tiers::{Account, Tier, act_for};
use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

/// Bytes of an index copied at a time; its header is in the first piece.
const INDEX_CHUNK: u64 = 64 << 10;

/// Where a name is created.
#[derive(Clone, Copy)]
pub(super) struct CopyTarget<'a> {
    pub(super) dir: &'a dyn NativeFd,
    pub(super) name: &'a OsStr,
}

impl Copier<'_> {
    /// Creates a copy of an inode. A directory is created empty, and its
    /// contents follow.
    pub(super) fn make(&mut self, fd: &Fd, identity: &Identity, spot: CopyTarget<'_>) -> Result<()> {
        match self.make_inode(fd, identity, spot) {
            // The name was given to another inode meanwhile: that is noted, and
            // a later pass handles it.
            Err(error) if error.errno() == Errno::EEXIST && !self.last => Ok(()),
            result => result.with_context(|| format!("copying {}", spot.name.shown())),
        }
    }

    fn make_inode(&mut self, fd: &Fd, identity: &Identity, spot: CopyTarget<'_>) -> Result<()> {
        let CopyTarget { dir, name } = spot;
        let mode = u32::from(identity.attr.mode);
        match identity.kind() {
            FileKind::Regular => return self.make_file(fd, identity, spot),
            FileKind::Directory => dir.make_dir_at(name, 0o700)?,
            FileKind::Symlink => {
                dir.make_symlink_at(name, OsStr::from_bytes(&fd.read_link()?))?;
            }
            FileKind::Fifo => dir.make_node_at(name, 0o010_000 | mode, 0)?,
            FileKind::Socket => dir.make_node_at(name, 0o140_000 | mode, 0)?,
            FileKind::CharDevice => dir.make_node_at(name, 0o020_000 | mode, identity.attr.rdev)?,
            FileKind::BlockDevice => dir.make_node_at(name, 0o060_000 | mode, identity.attr.rdev)?,
        }
        self.was_read(identity, &**fd)?;
        let new = dir.open_at(name, Access::Path)?;
        self.enter(identity, &*new)?;
        if identity.kind() == FileKind::Directory {
            self.pending.push(identity.clone());
        }
        self.copy_attributes(fd, identity, &new)
    }

    fn make_file(&mut self, fd: &Fd, identity: &Identity, spot: CopyTarget<'_>) -> Result<()> {
        // An inode that can't be opened any more was removed meanwhile.
        let old = fd.reopen(Access::Read)?;
        let new = spot.dir.create_at(spot.name, 0o600)?;
        self.fill_file(&old, identity, &new)
    }

    /// Creates a copy of an open file that has no name: without one too, so that
    /// a file that was made so can still get one. Answers whether the new home
    /// can do that.
    pub(super) fn make_unnamed(&mut self, fd: &Fd, identity: &Identity) -> Result<bool> {
        let new = match self.limbo.create_unnamed(0o600) {
            Err(error) if error.errno() == Errno::EOPNOTSUPP => return Ok(false),
            made => made?,
        };
        self.fill_file(&fd.reopen(Access::Read)?, identity, &new)?;
        self.unnamed.push(new);
        Ok(true)
    }

    fn fill_file(&mut self, old: &Fd, identity: &Identity, new: &Fd) -> Result<()> {
        self.enter(identity, &**new)?;
        self.progress.files += 1;
        let all = ChangedData { from: 0, ..ChangedData::nothing() };
        self.copy_file(old, identity, new, &all)
    }

    /// Brings the copy of a regular file up to date.
    pub(super) fn copy_file(
        &mut self,
        old: &Fd,
        identity: &Identity,
        new: &Fd,
        data: &ChangedData,
    ) -> Result<()> {
        self.copy_data(&**old, &**new, data)?;
        self.was_read(identity, &**old)?;
        self.copy_spread(old, identity, new)?;
        self.copy_attributes(old, identity, new)
    }

    fn copy_data(&mut self, old: &dyn NativeFd, new: &dyn NativeFd, data: &ChangedData) -> Result<()> {
        let size = old.stat()?.attr.size;
        let has = new.stat()?.attr.size;
        let kept = data.from.min(size);
        if kept < has {
            new.truncate(kept)?;
        }
        for chunk in &data.chunks {
            let (start, end) = (chunk * CHUNK, ((chunk + 1) * CHUNK).min(kept));
            if start < end.min(has) {
                new.allocate(FallocateMode::PunchHole, start, end - start)?;
            }
            self.copy_span(old, new, start, end)?;
        }
        self.copy_span(old, new, kept, size)?;
        if new.stat()?.attr.size != size { new.truncate(size) } else { Ok(()) }
    }

    /// Copies the data between two offsets; holes stay holes.
    fn copy_span(&mut self, old: &dyn NativeFd, new: &dyn NativeFd, start: u64, end: u64) -> Result<()> {
        let core = self.core;
        each_piece((core.tiers.home(), old), start..end, CHUNK, &mut |at, piece| {
            self.take(piece.len() as u64)?;
            new.write_all_at(at, piece)?;
            self.progress.bytes += piece.len() as u64;
            Ok(())
        })
    }

    /// Copies the id attribute, which names its inode, and the index.
    fn copy_spread(&self, old: &Fd, identity: &Identity, new: &Fd) -> Result<()> {
        match self.core.home.id_attr(&**old, identity) {
            Ok(Some(attr)) => {
                let made = self.new.identify(&**new)?;
                self.copy_index(attr.id, Some(&made))?;
                let attr = IdAttr { ino: made.ino(), btime_ns: made.btime_ns(), ..attr };
                self.new.set_id_attr(&**new, &attr)
            }
            Ok(None) => self.new.remove_id_attr(&**new),
            // A damaged attribute is copied as it is: the check reports it.
            Err(error) if error.errno() == Errno::EUCLEAN => copy_damaged_id(&**old, &**new),
            Err(error) => Err(error),
        }
    }

    /// Copies an index; its header names `owner`, or no inode.
    pub(super) fn copy_index(&self, id: ObjectId, owner: Option<&Identity>) -> Result<()> {
        let path = index_path(id);
        let old = match self.core.index.dirs().index.open_at(OsStr::new(&path), Access::Read) {
            Err(error) if error.errno() == Errno::ENOENT => return Ok(()),
            result => result?,
        };
        self.dirs.index.ensure_dir_at(&id.shard())?;
        let new = match self.dirs.index.open_at(OsStr::new(&path), Access::ReadWrite) {
            Err(error) if error.errno() == Errno::ENOENT => {
                self.dirs.index.create_at(OsStr::new(&path), 0o600)?
            }
            result => result?,
        };
        new.truncate(0)?;
        each_piece((self.core.tiers.home(), &*old), 0..u64::MAX, INDEX_CHUNK, &mut |at, piece| {
            if at == 0 && piece.len() >= MUTABLE_FROM {
                rewrite_header(piece, owner);
            }
            new.write_all_at(at, piece)
        })?;
        new.truncate(old.stat()?.attr.size.max(HEADER_LEN as u64))
    }

    /// Copies owner, extended attributes, mode and times.
    pub(super) fn copy_attributes(&self, old: &Fd, identity: &Identity, new: &Fd) -> Result<()> {
        let attr = &identity.attr;
        // After the owner, since a change of it clears set-id bits and
        // capabilities.
        new.set_owner(Some(attr.uid), Some(attr.gid)).context("setting the owner")?;
        copy_xattrs(&**old, &**new)?;
        self.copy_pin(old, identity, new)?;
        if identity.kind() != FileKind::Symlink {
            new.set_mode(u32::from(attr.mode)).context("setting the mode")?;
        }
        let (atime, mtime) = (SetTime::At(self.access_time(identity)), SetTime::At(attr.mtime));
        new.set_times(Some(atime), Some(mtime)).context("setting the times")
    }

    /// Copies the pin, which names its inode.
    fn copy_pin(&self, old: &Fd, identity: &Identity, new: &Fd) -> Result<()> {
        if identity.kind() != FileKind::Regular {
            return Ok(());
        }
        let pin = self.core.home.pin_of(&**old, identity)?;
        let made = self.new.identify(&**new)?;
        if self.new.pin_of(&**new, &made)? != pin {
            self.new.set_pin(&**new, &made, pin.as_ref())
        } else {
            Ok(())
        }
    }

    /// Records the copy of an inode.
    pub(super) fn enter(&mut self, identity: &Identity, new: &dyn NativeFd) -> Result<()> {
        let made = self.new.identify(new)?;
        let handle = made.handle.clone().ok_or(Errno::EOPNOTSUPP)?;
        let copied = Copied { generation: generation(identity), new_ino: made.ino(), handle };
        self.known.insert(identity.ino(), copied);
        Ok(())
    }
}

/// Calls `visit` with the data of a home file in `span`, at most `max` bytes at
/// a time; skips holes.
fn each_piece(
    (home, file): (&Tier, &dyn NativeFd),
    span: Range<u64>,
    max: u64,
    visit: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    // No application waits for this: it counts as a mover's read.
    let _for = act_for(Account::Mover);
    let mut at = span.start;
    let mut buf = Vec::new();
    while at < span.end {
        let (from, to) = match file.next_data(at) {
            Ok(Some((from, to))) if from < span.end => (from, to.min(span.end)),
            Ok(_) => break,
            // The file was truncated meanwhile.
            Err(error) if error.errno() == Errno::ENXIO => break,
            Err(error) => return Err(error),
        };
        at = from;
        while at < to {
            buf.resize((to - at).min(max) as usize, 0);
            let len = buf.len();
            let read = || file.read_at(at, &mut [IoSliceMut::new(&mut buf)], false);
            let done = home.count(Direction::Read, (len, false), read)?;
            if done == 0 {
                return Ok(());
            }
            visit(at, &mut buf[..done])?;
            at += done as u64;
        }
    }
    Ok(())
}

/// Adapts the header of a copied index. A damaged one stays as it is.
fn rewrite_header(page: &mut [u8], owner: Option<&Identity>) {
    let Ok(header) = Header::decode(&page[..MUTABLE_FROM]) else { return };
    let header = match owner {
        Some(owner) => {
            Header { ino: owner.ino(), btime_ns: owner.btime_ns(), handle: owner.handle.clone(), ..header }
        }
        None => Header { ino: 0, btime_ns: 0, handle: None, ..header },
    };
    page[..MUTABLE_FROM].copy_from_slice(&header.encode());
}

fn copy_damaged_id(old: &dyn NativeFd, new: &dyn NativeFd) -> Result<()> {
    for name in ID_ATTRS.map(OsStr::new) {
        if let Ok(value) = read_value(|buf| old.get_xattr(name, buf)) {
            new.set_xattr(name, &value, XattrMode::Set)?;
        }
    }
    Ok(())
}
