//! The kernel's requests, one method each: converts arguments to the contract's
//! types, and the file system's answer to a reply.

use crate::buffer;
use crate::convert::{self, caller, file_attr, handle, inode};
use crate::dir::{Entries, Names};
use crate::front::Front;
use crate::groups;
use crate::invalidate::Stretch;
use crate::open::{Creation, Granted, NewName, Register};
use crate::open_table::Grant;
use crate::report::Op;
use braid_contract::{
    Attr, Caller, Entry, Errno, Error, HandleId, Hint, Operation, SetAttr, SetTime, StatFs, WriteFlags,
};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno as Answer, FileHandle, Filesystem, Generation, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr, Request,
    TimeOrNow,
};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const PERMISSION_BITS: u32 = 0o7777;

/// How long attributes of a file that is made and open by passthrough are valid: the kernel looks
/// at them at once, to see whether it may be opened. A store to a mapping may change the time of
/// the file unnoticed meanwhile.
const JUST_MADE_TTL: Duration = Duration::from_millis(1);

fn op(operation: Operation, ino: INodeNo) -> Op {
    Op { operation, ino: ino.0 }
}

impl Front {
    fn reply_entry(&self, result: Result<Entry, Answer>, reply: ReplyEntry) {
        match result {
            Ok(Entry { attr, generation }) => {
                let attr_ttl = self.attr_ttl(&attr);
                reply.entry_with_ttls(&attr_ttl, &self.ttl, &file_attr(&attr), Generation(generation));
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn attributes(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>) -> Result<Attr, Answer> {
        // With a handle, the kernel asks before a write.
        if let Some(error) = fh.and_then(|_| self.no_room.take(ino)) {
            return Err(error);
        }
        self.call(op(Operation::Getattr, ino), || self.fs.getattr(&caller(req), inode(ino), fh.map(handle)))
    }

    /// Makes a name by `work`, once, and answers.
    fn make_once(
        &self,
        req: &Request,
        operation: Operation,
        (parent, name): (INodeNo, &OsStr),
        work: impl FnOnce() -> braid_contract::Result<Entry>,
        reply: ReplyEntry,
    ) {
        let made = || self.fs.lookup(&caller(req), inode(parent), name);
        let once = || self.once(req, Errno::EEXIST, work, made);
        self.reply_entry(self.call(op(operation, parent), once), reply);
    }

    /// Sets the modification time of data that was written without one.
    fn is_modified(&self, ino: INodeNo, fh: FileHandle) {
        let changes = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        if let Err(error) = self.fs.setattr(&Caller::stack(), inode(ino), Some(handle(fh)), &changes) {
            tracing::debug!(ino = ino.0, %error, "a file that was written by a mapping keeps its time");
        }
    }

    /// Creates and opens a file, and notes that it is open.
    fn create_once(
        &self,
        req: &Request,
        new: &Creation<'_>,
        register: Register<'_>,
    ) -> braid_contract::Result<(Entry, Granted)> {
        self.close_opened_before(req);
        let caller = self.acting(req);
        let created = match self.create_file(&caller, new, register) {
            Err(error) if error.errno() == Errno::EACCES && req.is_sent_again() => {
                self.open_made_before(&caller, new, register).map_err(|_| error)?
            }
            created => created?,
        };
        self.is_open(req, created.0.attr.ino, new.flags, &created.1);
        Ok(created)
    }

    fn reply_create(&self, result: Result<(Entry, Granted), Answer>, reply: ReplyCreate) {
        match result {
            Ok((entry, Granted { handle, grant })) => {
                let (attr, fh) = (file_attr(&entry.attr), FileHandle(handle.0));
                let ttl = self.attr_ttl(&entry.attr);
                let generation = Generation(entry.generation);
                let answer = self.fopen_flags(&grant);
                match grant {
                    Grant::Passthrough(backing) => {
                        let just_made = JUST_MADE_TTL.min(self.ttl);
                        let ttl = if entry.attr.is_set_id() { ttl } else { ttl.max(just_made) };
                        reply.created_passthrough(&ttl, &self.ttl, &attr, generation, fh, answer, &backing);
                    }
                    Grant::Cached | Grant::Direct => {
                        reply.created(&ttl, &self.ttl, &attr, generation, fh, answer);
                    }
                }
            }
            Err(errno) => reply.error(errno),
        }
    }
}

impl Front {
    /// The identity in a request that opens or changes something.
    fn acting(&self, req: &Request) -> Caller {
        let groups = self.fs.capabilities().caller_groups.then(|| groups::of_thread(req.pid())).flatten();
        Caller { groups, ..caller(req) }
    }

    /// Whether extended attributes are off: the answer is `ENOSYS` then, after
    /// which the kernel does not ask again.
    fn serves_no_xattrs(&self, op: Op) -> bool {
        if !self.xattrs {
            tracing::debug!("{op}: extended attributes are off");
        }
        !self.xattrs
    }

    /// Writes all of `data`, or fails: the kernel has no other copy, and does
    /// not look at the count.
    fn write_all(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> braid_contract::Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let rest = &data[done..];
            match checked_count(
                self.fs.write(caller, handle, offset + done as u64, rest, flags)?,
                rest.len(),
            )? {
                0 => return Err(Error::new(Errno::EIO, "the file system writes nothing".to_owned())),
                count => done += count,
            }
        }
        Ok(done)
    }
}

fn reply_empty(result: Result<(), Answer>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

/// The protocol of attribute values: a request of size 0 asks for the size.
fn reply_xattr(result: Result<Vec<u8>, Answer>, size: u32, reply: ReplyXattr) {
    let value = match result {
        Ok(value) => value,
        Err(errno) => return reply.error(errno),
    };
    match u32::try_from(value.len()) {
        Ok(len) if size == 0 => reply.size(len),
        Ok(len) if len <= size => reply.data(&value),
        _ => reply.error(Answer::ERANGE),
    }
}

/// Whether a read or write bypasses the kernel's cache, whatever the file was
/// opened with: the kernel names the owner of locks only then.
fn is_past_cache(lock_owner: Option<LockOwner>) -> bool {
    lock_owner.is_some()
}

/// Checks that a count of bytes does not exceed the request.
fn checked_count(count: usize, asked: usize) -> braid_contract::Result<usize> {
    if count <= asked {
        return Ok(count);
    }
    Err(Error::new(Errno::EIO, format!("the file system answers {count} bytes for {asked}")))
}

impl Filesystem for Front {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.negotiate(config);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.call(op(Operation::Lookup, parent), || self.fs.lookup(&caller(req), inode(parent), name)) {
            // The kernel caches that there is no such name. It asks again
            // before it creates one or renames to it, and then drops the cached
            // answer.
            Err(Answer::ENOENT) if !self.ttl.is_zero() => {
                reply.entry(&self.ttl, &convert::negative_attr(), Generation(0));
            }
            result => self.reply_entry(result, reply),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.reporter.caught(op(Operation::Forget, ino), || self.fs.forget(inode(ino), nlookup));
    }

    fn getattr(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(req, ino, fh) {
            Ok(attr) => reply.attr(&self.attr_ttl(&attr), &file_attr(&attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn statx(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyStatx) {
        match self.attributes(req, ino, fh) {
            Ok(attr) => {
                reply.statx(&self.attr_ttl(&attr), &file_attr(&attr), attr.btime.map(convert::system_time));
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = SetAttr {
            mode: mode.map(|mode| mode & PERMISSION_BITS),
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
            kill_set_id: false,
        };
        // The kernel sends a request without changes before another user's
        // write, and for a `chown` that changes nothing: it only asks to clear
        // set-id bits. For a write by passthrough this is the only notice: the
        // write itself happens in the daemon's name.
        let kill_set_id = changes == SetAttr::default();
        let changes = SetAttr { kill_set_id, ..changes };
        let work = || self.fs.setattr(&self.acting(req), inode(ino), fh.map(handle), &changes);
        match self.call(op(Operation::Setattr, ino), work) {
            Ok(attr) => reply.attr(&self.attr_ttl(&attr), &file_attr(&attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.call(op(Operation::Readlink, ino), || self.fs.readlink(&caller(req), inode(ino))) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let work = || self.fs.mknod(&self.acting(req), inode(parent), name, mode, umask, rdev);
        self.make_once(req, Operation::Mknod, (parent, name), work, reply);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let work = || self.fs.mkdir(&self.acting(req), inode(parent), name, mode & PERMISSION_BITS, umask);
        self.make_once(req, Operation::Mkdir, (parent, name), work, reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let work = || self.fs.unlink(&self.acting(req), inode(parent), name);
        let once = || self.once(req, Errno::ENOENT, work, || Ok(()));
        reply_empty(self.call(op(Operation::Unlink, parent), once), reply);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let work = || self.fs.rmdir(&self.acting(req), inode(parent), name);
        let once = || self.once(req, Errno::ENOENT, work, || Ok(()));
        reply_empty(self.call(op(Operation::Rmdir, parent), once), reply);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let work = || self.fs.symlink(&self.acting(req), inode(parent), name, target.as_os_str());
        self.make_once(req, Operation::Symlink, (parent, name), work, reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = convert::rename_mode(flags, self.rename_modes);
        let (from, to) = ((parent, name), (newparent, newname));
        let intent = self.intend(req, mode, from);
        let work = || {
            let mode = mode.ok_or(Errno::EINVAL)?;
            let rename =
                || self.fs.rename(&self.acting(req), inode(parent), name, inode(newparent), newname, mode);
            self.rename_once(req, intent.as_ref(), (from, to), rename)
        };
        reply_empty(self.call(op(Operation::Rename, parent), work), reply);
        self.settle(intent);
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let work = || self.fs.link(&self.acting(req), inode(ino), inode(newparent), newname);
        self.make_once(req, Operation::Link, (newparent, newname), work, reply);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let flags = convert::open_flags(flags.0);
        let work = || {
            self.close_opened_before(req);
            let granted =
                self.open_file(&self.acting(req), inode(ino), flags, &|fd| reply.open_backing(fd))?;
            self.is_open(req, inode(ino), flags, &granted);
            Ok(granted)
        };
        match self.call(op(Operation::Open, ino), work) {
            Ok(Granted { handle, grant }) => {
                let fh = FileHandle(handle.0);
                let answer = self.fopen_flags(&grant);
                match grant {
                    Grant::Passthrough(backing) => reply.opened_passthrough(fh, answer, &backing),
                    Grant::Cached | Grant::Direct => reply.opened(fh, answer),
                }
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        bits: i32,
        reply: ReplyCreate,
    ) {
        let (flags, mode) = (convert::open_flags(bits), mode & PERMISSION_BITS);
        let work = || {
            // The existing file was made by this request.
            let exclusive = convert::is_exclusive(bits) && !req.is_sent_again();
            let name = NewName::Name { name, exclusive };
            let new = Creation { parent: inode(parent), name, mode, umask, flags };
            self.create_once(req, &new, &|fd| reply.open_backing(fd))
        };
        self.reply_create(self.call(op(Operation::Create, parent), work), reply);
    }

    fn tmpfile(&self, req: &Request, parent: INodeNo, mode: u32, umask: u32, bits: i32, reply: ReplyCreate) {
        let (flags, mode) = (convert::open_flags(bits), mode & PERMISSION_BITS);
        let new = Creation { parent: inode(parent), name: NewName::None, mode, umask, flags };
        let work = || self.create_once(req, &new, &|fd| reply.open_backing(fd));
        self.reply_create(self.call(op(Operation::Tmpfile, parent), work), reply);
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if !is_past_cache(lock_owner) {
            self.cached.through_cache(inode(ino));
        }
        let direct = convert::open_flags(flags.0).direct;
        // `usize` has at least 32 bits wherever FUSE runs.
        let size = size as usize;
        buffer::with_buffer(size, |buf| {
            let work = || checked_count(self.fs.read(&caller(req), handle(fh), offset, buf, direct)?, size);
            match self.call(op(Operation::Read, ino), work) {
                Ok(count) => reply.data(&buf[..count]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: fuser::WriteFlags,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let past_cache = is_past_cache(lock_owner);
        if !past_cache {
            self.cached.through_cache(inode(ino));
        }
        let open = convert::open_flags(flags.0);
        let write_back = write_flags.contains(fuser::WriteFlags::FUSE_WRITE_CACHE);
        let kills = write_flags.contains(fuser::WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let flags = WriteFlags {
            direct: open.direct,
            sync: open.sync,
            // The kernel can't see capabilities if it gets no attributes.
            kill_set_id: kills || write_back && !self.xattrs,
            write_back,
            hint: Hint::default(),
        };
        let work = || match flags.write_back {
            true => self.write_all(&caller(req), handle(fh), offset, data, flags),
            false => checked_count(self.fs.write(&caller(req), handle(fh), offset, data, flags)?, data.len()),
        };
        let result = self.call(op(Operation::Write, ino), work);
        match result {
            Err(error) if flags.write_back => self.refused(ino, error),
            // Data of a mapping, whose time the kernel does not keep.
            Ok(_) if flags.write_back && !self.writes_back() => self.is_modified(ino, fh),
            Ok(_) | Err(_) => {}
        }
        let answer = move || match result {
            // The length of a request fits its 32-bit header field.
            Ok(count) => reply.written(count as u32),
            Err(errno) => reply.error(errno),
        };
        if !past_cache || data.is_empty() {
            return answer();
        }
        // A failed write may have been carried out in part.
        let end = offset.saturating_add(data.len() as u64);
        self.written_directly(Stretch { ino, offset, end }, answer);
    }

    fn flush(&self, req: &Request, ino: INodeNo, fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        if self.writes_back() && !self.flush_at_close {
            // A close has written everything back before, and the rest is done
            // at the release: the kernel need not ask again.
            return reply.error(Answer::ENOSYS);
        }
        reply_empty(self.call(op(Operation::Flush, ino), || self.fs.flush(&caller(req), handle(fh))), reply);
    }

    fn release(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let flags = convert::open_flags(flags.0);
        let work = || self.close_once(req, handle(fh), || self.release_file(inode(ino), handle(fh), flags));
        reply_empty(self.call(op(Operation::Release, ino), work), reply);
    }

    fn fsync(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        reply_empty(
            self.call(op(Operation::Fsync, ino), || self.fs.fsync(&caller(req), handle(fh), datasync)),
            reply,
        );
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let work = || {
            self.close_opened_before(req);
            let opened = self.fs.open_dir(&self.acting(req), inode(ino))?;
            self.directory_is_open(req, ino, opened);
            Ok(opened)
        };
        match self.call(op(Operation::OpenDir, ino), work) {
            Ok(opened) => reply.opened(FileHandle(opened.0), self.dir_flags()),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let caller = caller(req);
        let mut sink =
            Names { reply: &mut reply, has_some: false, fs: &*self.fs, caller: &caller, dir: inode(ino) };
        let work = || self.fs.read_dir(&caller, handle(fh), offset.cast_signed(), false, &mut sink);
        match self.call(op(Operation::ReadDir, ino), work) {
            Err(errno) if !sink.has_some => reply.error(errno),
            // The next call begins with the entry that failed.
            _ => reply.ok(),
        }
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut sink = Entries { reply: &mut reply, front: self, has_some: false };
        let work = || self.fs.read_dir(&caller(req), handle(fh), offset.cast_signed(), true, &mut sink);
        match self.call(op(Operation::ReadDir, ino), work) {
            Err(errno) if !sink.has_some => reply.error(errno),
            // Those that were taken count as looked up. The next call begins with the one that failed.
            _ => reply.ok(),
        }
    }

    fn releasedir(&self, req: &Request, ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        let work = || self.close_once(req, handle(fh), || self.fs.release_dir(handle(fh)));
        reply_empty(self.call(op(Operation::ReleaseDir, ino), work), reply);
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply_empty(
            self.call(op(Operation::SyncDir, ino), || self.fs.sync_dir(&caller(req), handle(fh))),
            reply,
        );
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.call(op(Operation::Statfs, ino), || self.fs.statfs(&caller(req))) {
            Ok(StatFs { total, free, available, files, files_free, block_size, name_max }) => {
                let block_size = block_size.max(1);
                let blocks = |bytes: u64| bytes / u64::from(block_size);
                let (total, free, available) = (blocks(total), blocks(free), blocks(available));
                reply.statfs(total, free, available, files, files_free, block_size, name_max, block_size);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let op = op(Operation::Setxattr, ino);
        if self.serves_no_xattrs(op) {
            return reply.error(Answer::ENOSYS);
        }
        let work = || {
            let mode = convert::xattr_mode(flags).ok_or(Errno::EINVAL)?;
            let set = || self.fs.setxattr(&self.acting(req), inode(ino), name, value, mode);
            self.once(req, Errno::EEXIST, set, || Ok(()))
        };
        reply_empty(self.call(op, work), reply);
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let op = op(Operation::Getxattr, ino);
        if self.serves_no_xattrs(op) {
            return reply.error(Answer::ENOSYS);
        }
        let work = || self.fs.getxattr(&self.acting(req), inode(ino), name);
        reply_xattr(self.call(op, work), size, reply);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let op = op(Operation::Listxattr, ino);
        if self.serves_no_xattrs(op) {
            return reply.error(Answer::ENOSYS);
        }
        let work = || self.fs.listxattr(&caller(req), inode(ino));
        reply_xattr(self.call(op, work), size, reply);
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let op = op(Operation::Removexattr, ino);
        if self.serves_no_xattrs(op) {
            return reply.error(Answer::ENOSYS);
        }
        let remove = || self.fs.removexattr(&self.acting(req), inode(ino), name);
        let work = || self.once(req, Errno::ENODATA, remove, || Ok(()));
        reply_empty(self.call(op, work), reply);
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Answer::ENOTTY);
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        // The kernel then assumes that files are always ready, and asks no
        // more.
        reply.error(Answer::ENOSYS);
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let work = || {
            let mode = convert::fallocate_mode(mode).ok_or(Errno::EOPNOTSUPP)?;
            self.fs.fallocate(&caller(req), handle(fh), offset, length, mode)
        };
        reply_empty(self.call(op(Operation::Fallocate, ino), work), reply);
    }

    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let (caller, fs, reporter) = (caller(req), Arc::clone(&self.fs), Arc::clone(&self.reporter));
        let seek = move |is_written_back: bool| {
            let work = || {
                // Programs then copy without looking for holes.
                if !is_written_back {
                    return Err(Error::new(Errno::EINVAL, "too many wait for write-back".to_owned()));
                }
                let target = convert::seek_target(whence).ok_or(Errno::EINVAL)?;
                let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
                let found = fs.seek(&caller, handle(fh), offset, target)?;
                i64::try_from(found).map_err(|_| Error::from(Errno::EOVERFLOW))
            };
            match reporter.call(op(Operation::Seek, ino), work) {
                Ok(found) => reply.offset(found),
                Err(errno) => reply.error(errno),
            }
        };
        self.written_back(ino, seek);
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let len = convert::copy_len(len);
        let work = || {
            if !flags.is_empty() {
                return Err(Errno::EINVAL.into());
            }
            let (from, to) = (handle(fh_in), handle(fh_out));
            let count = self.fs.copy_range(&caller(req), from, offset_in, to, offset_out, len)?;
            u32::try_from(count.min(len)).map_err(|_| Error::from(Errno::EOVERFLOW))
        };
        match self.call(op(Operation::CopyRange, ino_in), work) {
            Ok(count) => reply.written(count),
            Err(errno) => reply.error(errno),
        }
    }
}
