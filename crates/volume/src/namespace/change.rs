//! Changing attributes.

use super::home::proc_path;
use crate::Volume;
use braid_contract::{Attr, Caller, Errno, FileKind, HandleId, InodeId, Result, SetAttr, SetTime, Timestamp};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid};
use std::os::fd::OwnedFd;

impl Volume {
    pub(crate) fn set_attr(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let inode = self.inodes.get(ino)?;
        let live = match handle.and_then(|handle| self.handles.file(handle).ok()) {
            Some(open) => Some(open.file.clone()),
            None => inode.file.lock().upgrade(),
        };
        if let Some(size) = changes.size {
            if inode.kind != FileKind::Regular {
                return Err(
                    if inode.kind == FileKind::Directory { Errno::EISDIR } else { Errno::EINVAL }.into()
                );
            }
            let file = match &live {
                Some(file) => file.clone(),
                None => self.file_of(&inode)?,
            };
            file.opened(false)?;
            let truncated = self.truncate_file(&file, size, !caller.keeps_set_id_bits());
            let ended = self.end_use(&file, false);
            truncated.and(ended)?;
        }
        let fd = match &live {
            Some(file) => file.data().fd(),
            None => self.inodes.path(&self.home, &inode)?,
        };
        change_owner(&fd, changes)?;
        if let Some(mode) = changes.mode {
            // A link's own mode can't be changed, nor does anybody ask for it.
            rustix::fs::chmod(proc_path(&*fd), Mode::from_raw_mode(mode & 0o7777))?;
            // It may have come into use meanwhile.
            if let Some(file) = inode.file.lock().upgrade() {
                file.set_id_may_be_set();
            }
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            if let Some(file) = live.as_ref().filter(|_| changes.mtime.is_some()) {
                file.mtime_is_set();
            }
            set_times(&fd, changes)?;
        }
        self.attr_now(&inode)
    }
}

fn change_owner(fd: &OwnedFd, changes: &SetAttr) -> Result<()> {
    if changes.uid.is_none() && changes.gid.is_none() {
        return Ok(());
    }
    let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
    Ok(rustix::fs::chownat(fd, "", uid, gid, AtFlags::EMPTY_PATH)?)
}

fn set_times(fd: &OwnedFd, changes: &SetAttr) -> Result<()> {
    let times = Timestamps {
        last_access: changes.atime.map_or(omit(), timespec),
        last_modification: changes.mtime.map_or(omit(), timespec),
    };
    match rustix::fs::utimensat(fd, "", &times, AtFlags::EMPTY_PATH) {
        // Before Linux 5.8 the empty path is not taken.
        Err(rustix::io::Errno::INVAL) => {
            Ok(rustix::fs::utimensat(rustix::fs::CWD, proc_path(fd), &times, AtFlags::empty())?)
        }
        result => Ok(result?),
    }
}

fn omit() -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ }
}

fn timespec(time: SetTime) -> Timespec {
    match time {
        SetTime::Now => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW as _ },
        SetTime::At(Timestamp { secs, nanos }) => Timespec { tv_sec: secs, tv_nsec: nanos.into() },
    }
}
