//! Making inodes, in the name of the caller.

use super::home::proc_path;
use super::inodes::Shape;
use crate::Volume;
use crate::file::OpenFile;
use braid_contract::{
    Caller, Context, Entry, Errno, FileKind, InodeId, IoMode, OpenFlags, OpenRequest, Opened, Result,
};
use braid_sys::{Acting, DataFile, act_as};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Volume {
    pub(crate) fn make_node(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<Entry> {
        let dir = self.dir_for(parent, name)?;
        {
            let _acting = acting(caller, umask)?;
            let kind = FileType::from_raw_mode(mode);
            let device = u64::from(rdev);
            rustix::fs::mknodat(
                &*dir,
                name,
                kind,
                Mode::from_raw_mode(mode & 0o7777),
                decode_device(device),
            )?;
        }
        self.enter_made(&dir, name)
    }

    pub(crate) fn make_dir(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        let dir = self.dir_for(parent, name)?;
        {
            let _acting = acting(caller, umask)?;
            rustix::fs::mkdirat(&*dir, name, Mode::from_raw_mode(mode & 0o7777))?;
        }
        self.enter_made(&dir, name)
    }

    pub(crate) fn make_symlink(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        target: &OsStr,
    ) -> Result<Entry> {
        let dir = self.dir_for(parent, name)?;
        {
            let _acting = acting(caller, 0)?;
            rustix::fs::symlinkat(target, &*dir, name)?;
        }
        self.enter_made(&dir, name)
    }

    pub(crate) fn make_link(&self, ino: InodeId, parent: InodeId, name: &OsStr) -> Result<Entry> {
        let dir = self.dir_for(parent, name)?;
        let inode = self.inodes.get(ino)?;
        let fd = self.inodes.path(&self.home, &inode)?;
        rustix::fs::linkat(rustix::fs::CWD, proc_path(&*fd), &*dir, name, AtFlags::SYMLINK_FOLLOW)?;
        self.enter_made(&dir, name)
    }

    /// Makes and opens a regular file.
    #[expect(clippy::too_many_arguments, reason = "mirrors the contract")]
    pub(crate) fn make_file(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        exclusive: bool,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        let dir = self.dir_for(parent, name)?;
        let made = {
            let _acting = acting(caller, umask)?;
            let create = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&*dir, name, create, Mode::from_raw_mode(mode & 0o7777))
        };
        match made {
            Ok(fd) => self.open_made(&fd, &dir, name, flags),
            Err(rustix::io::Errno::EXIST) if !exclusive => self.open_existing(caller, &dir, name, flags),
            Err(error) => Err(error.into()),
        }
    }

    fn open_made(
        &self,
        fd: &OwnedFd,
        dir: &OwnedFd,
        name: &OsStr,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        let identity = self.home.identify(fd)?;
        let pin =
            rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let inode = self.inodes.enter(&self.home, &identity, pin);
        inode.set_shape(Shape::Plain);
        let data = DataFile::new(rustix::io::fcntl_dupfd_cloexec(fd, 3)?);
        let file = self.adopt_file(&inode, data)?;
        let entry = self.entry_of(&inode, &identity)?;
        file.opened(false)?;
        let handle = self.handles.add_file(OpenFile { file, flags, passthrough: false });
        Ok((entry, Opened { handle, mode: io_mode(flags) }))
    }

    /// Somebody else made the file between the kernel's look and ours. The
    /// kernel checked no permission on it, so the caller's are checked here;
    /// supplementary groups are not known, and may be missed.
    fn open_existing(
        &self,
        caller: &Caller,
        dir: &OwnedFd,
        name: &OsStr,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        let (fd, identity) = self.identify_name(dir, name)?;
        match identity.kind {
            FileKind::Regular => {}
            FileKind::Symlink => return Err(Errno::ELOOP.into()),
            FileKind::Directory => return Err(Errno::EISDIR.into()),
            _ => return Err(Errno::EAGAIN.into()),
        }
        check_access(caller, &identity.stat, flags)?;
        let entry = self.enter(fd, &identity)?;
        let opened = self.open_inode(entry.attr.ino, OpenRequest { flags, ..OpenRequest::default() });
        opened.map(|opened| (entry, opened)).inspect_err(|_| self.inodes.forget(entry.attr.ino, 1))
    }

    /// The entry of an inode that was just made.
    fn enter_made(&self, dir: &Arc<OwnedFd>, name: &OsStr) -> Result<Entry> {
        self.enter_name(dir, name)
    }
}

/// How a file travels that is not passed through.
pub(crate) fn io_mode(flags: OpenFlags) -> IoMode {
    if flags.direct { IoMode::Direct } else { IoMode::Cached }
}

fn acting(caller: &Caller, umask: u32) -> Result<Acting> {
    act_as(caller.uid, caller.gid, umask).context("taking on the caller's identity")
}

/// The kernel's 32-bit encoding of a device number as the C library's.
fn decode_device(rdev: u64) -> u64 {
    let major = (rdev & 0xf_ff00) >> 8;
    let minor = rdev & 0xff | (rdev >> 12) & 0xf_ff00;
    rustix::fs::makedev(major as u32, minor as u32)
}

/// Checks mode bits for owner, group and others.
fn check_access(caller: &Caller, stat: &rustix::fs::Statx, flags: OpenFlags) -> Result<()> {
    if caller.uid == 0 {
        return Ok(());
    }
    let wanted = u16::from(flags.read) * 4 + u16::from(flags.write) * 2;
    let shift = if stat.stx_uid == caller.uid {
        6
    } else if stat.stx_gid == caller.gid {
        3
    } else {
        0
    };
    if stat.stx_mode >> shift & wanted == wanted { Ok(()) } else { Err(Errno::EACCES.into()) }
}
